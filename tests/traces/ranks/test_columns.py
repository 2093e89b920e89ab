"""What is done to columns at once is what would be done to one collective, or one pair of ranks, after the other."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.chain import Edge, divide_into_trees, find_median, find_medians, keep_surest
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.match import match_collectives
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.skeleton import OPERATIONS
from dtbench.traces.time.intervals import unite
from tests.traces.ranks.conftest import Jobs

SEEDS = range(20)
NUMBERED = (Operation.ALL_REDUCE, Operation.ALL_GATHER)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_say_of_each_collective_what_it_says(jobs: Jobs, seed: int) -> None:
    random = np.random.default_rng(seed)
    made = jobs.generate(jobs.job(count=9, seed=seed)).timelines[0]
    kept = []
    for one in made.collectives:
        changes = [{}, {"seq": None}, {"size_bytes": None}, {"issue_ns": None}, {"operation": None}, {"root": 1}]
        changes += [{"span": unite([], [])}, {"group_ranks": ()}, {"comms_id": "a"}, {"group_size": None}]
        kept.append(replace(one, **changes[int(random.integers(len(changes)))]))  # type: ignore[arg-type]
    timeline = replace(made, collectives=tuple(kept), step_of=(None, *made.step_of[1:]))
    columns = timeline.columns
    assert len(columns) == len(kept)
    for index, one in enumerate(kept):
        said = columns.groups[columns.group[index]]
        assert (said.name, said.ranks, said.size) == (one.group, one.group_ranks, one.group_size)
        assert (columns.start_ns[index], columns.end_ns[index]) == (one.start_ns, one.end_ns)
        assert (columns.is_seen[index], columns.is_span_missing[index]) == (one.is_seen, one.is_span_missing)
        assert OPERATIONS[columns.operation[index]] is one.operation
        assert columns.seq.at(index) == one.seq
        assert columns.size_bytes.at(index) == one.size_bytes
        assert columns.issue_ns.at(index) == one.issue_ns
        assert columns.root.at(index) == one.root
        assert columns.step.at(index) == timeline.step_of[index]
        assert columns.comms_ids[columns.comms_id[index]] == (one.comms_id or "")
        assert columns.streams[columns.stream[index]] == one.lane.rpartition("/")[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_numbered_collectives_are_matched_one_by_one(jobs: Jobs, seed: int) -> None:
    random = np.random.default_rng(seed)
    timelines, expected = [], dict[tuple[int, Operation, int], dict[int, int]]()
    for rank in range(4):
        calls = sorted(random.integers(0, 6, int(random.integers(2, 12))).tolist())
        seen = Counter[tuple[int, Operation]]()
        made = []
        for index, seq in enumerate(calls):
            operation = NUMBERED[int(random.integers(2))]
            facts = {"seq": seq, "operation": operation, "group": "0", "group_ranks": (0, 1, 2, 3), "group_size": 4}
            made.append(jobs.collective(1000 * index, 1000 * index + 500, **facts))
            expected.setdefault((seq, operation, seen[seq, operation]), {})[rank] = index
            seen[seq, operation] += 1
        timelines.append(jobs.timeline(rank, made))
    found = [dict(match.members) for match in match_collectives(timelines)]
    shared = [(key[0], members) for key, members in expected.items() if len(members) > 1]
    assert found == [members for _, members in sorted(shared, key=lambda item: item[0])]


def test_a_number_that_only_some_ranks_have_leaves_the_others_alone(jobs: Jobs) -> None:
    facts = {"group": "0", "group_ranks": (0, 1), "group_size": 2}
    numbers = ([1, 2, 3], [1, 3, 4])
    made = [[jobs.collective(900 * at, 900 * at + 9, seq=at, **facts) for at in own] for own in numbers]
    (group,) = match_collectives([jobs.timeline(rank, own) for rank, own in enumerate(made)]).groups
    assert group.index.tolist() == [[0, 0], [2, 1]]
    assert ABSENT not in group.index


@pytest.mark.parametrize("seed", SEEDS)
def test_medians_of_many_are_those_of_each(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = {
        place: random.normal(0, 10 ** float(random.integers(2, 7)), int(random.integers(1, 60))).round()
        for place in range(30)
    }
    assert find_medians(values) == {place: find_median(own) for place, own in values.items()}


def test_trees_come_in_order_of_their_last_edge_and_keep_the_surest() -> None:
    def edge(first: int, second: int, doubt_ns: int) -> Edge:
        return Edge(first, second, Clock(uncertainty_ns=doubt_ns))

    edges = [edge(0, 1, 5), edge(0, 2, 9), edge(1, 2, 6), edge(3, 4, 7), edge(5, 6, 1)]
    kept = keep_surest(edges)
    assert [(one.first, one.second) for one in kept] == [(5, 6), (0, 1), (1, 2), (3, 4)]
    trees = [sorted((one.first, one.second) for one in tree) for tree in divide_into_trees([*kept[1:3], kept[0]])]
    assert trees == [[(0, 1), (1, 2)], [(5, 6)]]


def test_what_is_said_of_a_collective_is_a_sequence_like_the_collectives(jobs: Jobs) -> None:
    timelines = jobs.generate(jobs.job(count=6)).timelines
    skews = compare_ranks(timelines).collectives[1]
    assert len(skews) == len(timelines[1].collectives)
    assert list(skews) == [skews[place] for place in range(len(skews))]
    assert skews[-1] == skews[len(skews) - 1]
    assert skews[1:3] == (skews[1], skews[2])
    assert skews == tuple(skews)
    with pytest.raises(IndexError):
        skews[len(skews)]

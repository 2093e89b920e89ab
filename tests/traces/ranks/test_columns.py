"""What is done to columns at once is what would be done to one collective, or one pair of ranks, after the other."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.chain import (
    Edge,
    _compare,
    divide_into_trees,
    find_edges,
    find_median,
    find_medians,
    find_spreads,
    keep_surest,
)
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes
from dtbench.traces.ranks.match import match_collectives
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.skeleton import OPERATIONS
from dtbench.traces.time.intervals import Ints, unite
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


def compare_one_by_one(first_ns: Ints, second_ns: Ints) -> Clock:
    """Return the second clock against the first, as ``chain.py`` defines it, of one pair of ranks in plain words."""

    def spread(values: NDArray[np.float64]) -> float:
        return float(np.median(np.abs(values - np.median(values))))

    base_ns, at_ns = int(second_ns[0] - first_ns[0]), int(np.median(second_ns - second_ns[0])) + int(second_ns[0])
    order = np.argsort(second_ns, kind="stable")
    ahead_ns, times_ns = (second_ns - first_ns - base_ns)[order].astype(float), (second_ns - at_ns)[order].astype(float)
    gained = 0.0
    if len(order) >= 32 and spread(ahead_ns) > 1_000:
        parts = [(np.median(when), np.median(ahead)) for when, ahead in zip(
            np.array_split(times_ns, 8), np.array_split(ahead_ns, 8), strict=True
        )]  # fmt: skip
        pairs = itertools.combinations(parts, 2)
        slope = float(np.median([(two[1] - one[1]) / (two[0] - one[0]) for one, two in pairs]))
        set_at = np.linspace(0, len(order), 9).astype(int)[1:-1].tolist()
        sides = [[side - np.median(side) for side in np.split(ahead_ns, [at])] for at in set_at]
        left_ns = spread(ahead_ns - slope * times_ns)
        if left_ns <= 0.5 * spread(ahead_ns) and left_ns <= min(spread(np.concatenate(side)) for side in sides):
            gained = slope
    middle, uncertainty_ns = find_median(ahead_ns - gained * times_ns)
    return Clock(base_ns + round(middle), gained, at_ns, uncertainty_ns)


@pytest.mark.parametrize("seed", range(60))
def test_clocks_of_many_pairs_are_those_of_each(seed: int) -> None:
    random = np.random.default_rng(seed)
    pairs, ends = int(random.integers(1, 9)), int(random.integers(1, 200))
    first_ns = np.cumsum(random.integers(1, 4_000_000, (pairs, ends)), axis=1) + 1_700_000_000_000_000_000
    if seed % 3 == 0:  # of two groups, one after the other
        first_ns = np.concatenate((first_ns[:, ::2], first_ns[:, 1::2]), axis=1)
    drift = random.choice([0, 0, 1e-6, 1e-5, -4e-5], (pairs, 1))
    jitter_ns = random.integers(0, 10 ** random.integers(1, 7, (pairs, 1)), (pairs, ends))
    gained_ns = np.rint(drift * (first_ns - first_ns.min())).astype(np.int64)
    second_ns = first_ns + random.integers(-(10**7), 10**7, (pairs, 1)) + gained_ns + jitter_ns
    times = [
        GroupTimes((0, 1), np.ones((ends, 2), dtype=np.bool_), own.T, own.T, np.zeros(ends, dtype=np.int32))
        for own in np.stack((first_ns, second_ns), axis=1)
    ]
    expected = [compare_one_by_one(*pair) for pair in zip(first_ns, second_ns, strict=True)]
    assert [find_edges([one])[0].clock for one in times] == expected
    assert _compare(first_ns, second_ns) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_spreads_of_many_are_those_of_each(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, 10 ** float(random.integers(1, 7)), (9, int(random.integers(1, 60)))).round()
    expected = [float(np.median(np.abs(own - np.median(own)))) for own in values]
    assert find_spreads(np.sort(values, axis=1)).tolist() == expected

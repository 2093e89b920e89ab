"""Collectives of several ranks that are one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.job import GroupUndecided
from dtbench.traces.notes.note import say_notes
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.match import match_collectives
from dtbench.traces.who.collectives import Launch
from tests.traces.ranks.conftest import SOME_DAY_NS

FEW = settings(max_examples=25, deadline=None)


def check(jobs: Any, truth: Any, lost: dict[int, tuple[int, ...]]) -> None:
    """Every match holds one true collective, and all that two ranks or more still have are matched."""
    timelines = [jobs.drop(one, *lost.get(one.rank, ())) for one in truth.timelines]
    left = {
        one.rank: [i for i in range(len(one.collectives)) if i not in lost.get(one.rank, ())] for one in truth.timelines
    }
    expected: dict[int, dict[int, int]] = {}
    for rank, kept in left.items():
        for index, old in enumerate(kept):
            expected.setdefault(truth.number[rank, old], {})[rank] = index
    wanted = sorted(sorted(members.items()) for members in expected.values() if len(members) > 1)
    assert sorted(sorted(match.members.items()) for match in match_collectives(timelines)) == wanted


@FEW
@given(seed=st.integers(0, 999), data=st.data())
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("is_periodic", [True, False])
def test_events_missing_anywhere_spoil_no_other_match(
    jobs: Any, is_named: bool, is_periodic: bool, seed: int, data: st.DataObject
) -> None:
    job = jobs.job(
        seed=seed, is_named=is_named, is_periodic=is_periodic, jitter_ns=5_000, offsets_ns=(0, 5_000_000, -7_000, 40)
    )
    indices = st.lists(st.integers(0, job.count - 1), max_size=3, unique=True)
    check(jobs, jobs.generate(job), {rank: tuple(data.draw(indices)) for rank in range(4)})


@pytest.mark.parametrize("is_named", [True, False])
def test_traces_that_begin_and_end_apart_match_where_they_meet(jobs: Any, is_named: bool) -> None:
    truth = jobs.generate(jobs.job(count=300, is_named=is_named, is_periodic=True))
    check(jobs, truth, {0: tuple(range(7)), 1: tuple(range(200, 300)), 2: tuple(range(120)), 3: (0, 150, 299)})


def test_all_to_alls_in_which_each_rank_sends_another_size_match(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(is_named=False))
    uneven = [
        replace(
            one,
            collectives=tuple(
                replace(item, operation=Operation.ALL_TO_ALL, size_bytes=4096 + one.rank) for item in one.collectives
            ),
        )
        for one in truth.timelines
    ]
    assert all(match.is_whole for match in match_collectives(uneven))
    assert len(list(match_collectives(uneven))) == 40


def test_a_group_is_its_ranks_whatever_torch_calls_it(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 1), (2, 3)), count=10))
    renamed = [
        replace(
            one, collectives=tuple(replace(item, group="2", seq=index) for index, item in enumerate(one.collectives))
        )
        for one in truth.timelines
    ]
    assert {tuple(match.members) for match in match_collectives(renamed)} == {(0, 1), (2, 3)}
    renamed[0] = replace(renamed[0], collectives=tuple(replace(item, group="5") for item in renamed[0].collectives))
    matches = match_collectives(renamed)
    assert {tuple(match.members) for match in matches} == {(0, 1), (2, 3)}
    assert all(match.is_whole for match in matches)


def test_groups_that_share_a_name_and_say_only_their_size_are_told_apart_by_their_ends(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 1), (2, 3)), count=10))
    unsaid = [
        replace(
            one,
            collectives=tuple(
                replace(item, group="2", seq=index, group_ranks=()) for index, item in enumerate(one.collectives)
            ),
        )
        for one in truth.timelines
    ]
    matches = match_collectives(unsaid)
    assert {tuple(match.members) for match in matches} == {(0, 1), (2, 3)}
    assert len(list(matches)) == 20


def test_unnamed_groups_on_one_stream_are_told_apart_by_their_ends(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 2), (1, 3)), count=30, is_named=False))
    matches = match_collectives(truth.timelines)
    assert {tuple(match.members) for match in matches} == {(0, 2), (1, 3)}
    assert len(list(matches)) == 60


def test_a_rank_without_a_trace_leaves_its_groups_incomplete(jobs: Any) -> None:
    truth = jobs.generate(jobs.job())
    for lost in range(4):
        matches = match_collectives([one for one in truth.timelines if one.rank != lost])
        assert len(list(matches)) == 40
        assert not any(match.is_whole for match in matches)
    for lost in (0, 3):
        unnamed = jobs.generate(jobs.job(is_named=False)).timelines
        assert not any(match.is_whole for match in match_collectives([one for one in unnamed if one.rank != lost]))


@pytest.mark.parametrize(
    ("launched", "is_whole"), [(Operation.ALL_REDUCE, False), (None, False), (Operation.ALL_GATHER, True), ("", False)]
)
def test_a_rank_that_may_have_lost_its_events_leaves_a_group_of_which_no_trace_says_the_ranks_incomplete(
    jobs: Any, launched: Any, is_whole: bool
) -> None:
    """It launched an operation of the group and was not seen to run it, or (empty) shows no communication at all."""
    *others, lost = jobs.generate(jobs.job(is_named=False, is_periodic=True)).timelines
    kept = [replace(lost.collectives[0], group="own", group_ranks=(3,), group_size=1)] if launched != "" else []
    unseen = () if launched == "" else (Launch(launched, "", None, SOME_DAY_NS, SOME_DAY_NS + 5_000),)
    matches = match_collectives([*others, jobs.timeline(3, kept, world_size=4, unseen=unseen)])
    assert [match.is_whole for match in matches] == [is_whole] * 40


def test_one_rank_matches_nothing(jobs: Any) -> None:
    only = jobs.generate(jobs.job()).timelines[2]
    matches = match_collectives([only])
    assert list(matches) == []
    assert matches.alone == {2: 40}
    assert match_collectives([]).groups == ()


def test_several_operations_under_one_number_match_in_order(jobs: Any) -> None:
    items = [
        [jobs.collective(100 * i + r, 100 * i + 50, group="0", seq=1, size_bytes=i) for i in range(3)] for r in range(2)
    ]
    matches = match_collectives([jobs.timeline(rank, own) for rank, own in enumerate(items)])
    assert [match.members for match in matches] == [{0: i, 1: i} for i in range(3)]


def test_collectives_that_were_issued_and_never_seen_match_nothing(jobs: Any) -> None:
    truth = jobs.generate(jobs.job())
    first = truth.timelines[0]
    blind = replace(first.collectives[4], span=jobs.collective(5, 5).span)
    timelines = [
        replace(first, collectives=(*first.collectives[:4], blind, *first.collectives[5:])),
        *truth.timelines[1:],
    ]
    (group,) = match_collectives(timelines).groups
    assert np.flatnonzero(group.index[:, 0] == ABSENT).tolist() == [4]


@pytest.mark.parametrize("said", [{"group_size": 2}, {"group_size": 4}, {"group": ""}])
def test_ranks_of_several_groups_are_not_mixed_up_where_the_rest_of_the_job_is_not_there(jobs: Any, said: Any) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 2, 4, 6), (1, 3, 5, 7)), offsets_ns=(0,) * 8, count=20, jitter_ns=4_000))
    unsaid = [
        replace(
            one,
            collectives=tuple(
                replace(item, **{"group": "2", "seq": index, "group_ranks": (), "group_size": None, **said})
                for index, item in enumerate(one.collectives)
            ),
        )
        for one in truth.timelines
        if one.rank < 4
    ]
    matches = match_collectives(unsaid)
    assert {tuple(match.members) for match in matches} == {(0, 2), (1, 3)}
    assert any(match.is_whole for match in matches) is (said == {"group_size": 2})


@pytest.mark.parametrize("has_ids", [True, False])
def test_groups_that_share_a_name_are_told_apart_by_the_ids_of_their_collectives(jobs: Any, has_ids: bool) -> None:
    apart_ns = (0, 7_000_000_000, -3_000_000_000, 11_000_000_000)
    truth = jobs.generate(jobs.job(groups=((0, 1), (2, 3)), offsets_ns=apart_ns, count=3, jitter_ns=4_000_000))
    unsaid = [
        replace(
            one,
            collectives=tuple(
                replace(
                    item, group="2", seq=index, group_ranks=(), comms_id=f"{item.group}/{index}" if has_ids else None
                )
                for index, item in enumerate(one.collectives)
            ),
        )
        for one in truth.timelines
    ]
    matches = match_collectives(unsaid)
    assert ({tuple(match.members) for match in matches} == {(0, 1), (2, 3)}) is has_ids
    assert not has_ids or (len(list(matches)) == 6 and all(match.is_whole for match in matches) and not matches.notes)


def test_two_ranks_of_two_share_every_group_also_where_ends_differ_and_none_is_named(jobs: Any) -> None:
    job = jobs.job(groups=((0, 1),), offsets_ns=(0, 0), jitter_ns=5_000_000, is_named=False)
    timelines = jobs.generate(job).timelines
    assert all(match.is_whole for match in match_collectives(timelines))
    assert len(list(match_collectives(timelines))) == 40
    of_many = [replace(one, world_size=None) for one in timelines]
    assert list(match_collectives(of_many)) == []
    (note,) = say_notes(match_collectives(of_many).notes)
    assert note == (
        "ranks 0-1: 80 collectives name no process group, and their ends do not tell which ranks share one; nothing "
        "over ranks is said of them"
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_periodic", [True, False])
@pytest.mark.parametrize(
    "groups",
    [((0, 1), (2, 3), (0, 2), (1, 3)), ((0, 1), (2, 3), (0, 1, 2, 3)), ((0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5))],
)
def test_unnamed_groups_that_share_ranks_and_a_lane_are_not_guessed_at(
    jobs: Any, groups: Any, is_periodic: bool, seed: int
) -> None:
    ranks = 1 + max(max(group) for group in groups)
    job = jobs.job(groups=groups, offsets_ns=(0,) * ranks, is_named=False, is_periodic=is_periodic, seed=seed)
    truth = jobs.generate(job)
    mixed = [
        replace(one, collectives=tuple(replace(item, lane="0/7") for item in one.collectives))
        for one in truth.timelines
    ]
    matches = match_collectives(mixed)
    assert matches.undecided
    for match in matches:
        assert len({truth.number[member] for member in match.members.items()}) == 1


def test_unnamed_groups_match_where_ranks_number_their_streams_apart(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(is_named=False))
    moved = [
        replace(one, collectives=tuple(replace(item, lane=f"0/{20 + one.rank}") for item in one.collectives))
        for one in truth.timelines
    ]
    assert [len(match.members) for match in match_collectives(moved)] == [4] * 40


def test_a_group_whose_ranks_one_trace_says_has_them_on_all(jobs: Any) -> None:
    truth = jobs.generate(jobs.job())
    silent = [
        replace(one, collectives=tuple(replace(item, group_ranks=(), group_size=None) for item in one.collectives))
        for one in truth.timelines[1:]
    ]
    assert [match.is_whole for match in match_collectives([truth.timelines[0], *silent])] == [True] * 40


def test_what_gloos_threads_start_in_another_order_is_matched_by_its_issue(jobs: Any) -> None:
    """Two broadcasts issued one after the other, which another rank's threads start the other way round."""

    def run(rank: int, starts: Sequence[int]) -> Any:
        issued = [(10 * k, start, 1_000 + k % 2) for k, start in enumerate(starts)]
        spans = [
            jobs.collective(
                SOME_DAY_NS + start * 1_000,
                SOME_DAY_NS + (start + 4) * 1_000,
                operation=Operation.BROADCAST,
                size_bytes=size,
                issue_ns=SOME_DAY_NS + issue * 1_000,
            )
            for issue, start, size in issued
        ]
        orphan = jobs.collective(SOME_DAY_NS - 9_000, SOME_DAY_NS - 5_000, issue_ns=None, issue_end_ns=None)
        return jobs.timeline(rank, [*spans, orphan], world_size=2, is_device=False)

    matches = match_collectives([run(0, [11, 12, 31, 32]), run(1, [12, 11, 31, 32])])
    assert matches.alone == {}
    (group,) = matches.groups
    assert sorted(group.index.tolist()) == [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]


def test_what_started_in_another_order_and_has_no_issue_is_matched_by_its_size(jobs: Any) -> None:
    def run(rank: int, sizes: Sequence[int]) -> Any:
        spans = [
            jobs.collective(SOME_DAY_NS + 20_000 * k, SOME_DAY_NS + 20_000 * k + 30_000, size_bytes=size, issue_ns=None)
            for k, size in enumerate(sizes)
        ]
        return jobs.timeline(rank, spans, world_size=2, is_device=False)

    matches = match_collectives([run(0, [1, 2, 3, 4, 5, 6]), run(1, [1, 2, 4, 3, 5, 6])])
    assert matches.alone == {}
    (group,) = matches.groups
    assert sorted(group.index.tolist()) == [[0, 0], [1, 1], [2, 3], [3, 2], [4, 4], [5, 5]]


@pytest.mark.parametrize("operation", [Operation.BROADCAST, Operation.SCATTER, Operation.GATHER, Operation.REDUCE])
def test_a_root_may_be_done_before_another_rank_begins(jobs: Any, operation: Operation) -> None:
    """What stands between the same others is one; a part says another size than the whole."""

    def run(rank: int, late_ns: int, size_bytes: int | None) -> Any:
        spans = [
            jobs.collective(
                start_ns := SOME_DAY_NS + 1_000_000 * k + (late_ns if k == 5 else 0),
                start_ns + 50_000,
                operation=operation if k == 5 else Operation.ALL_REDUCE,
                size_bytes=size_bytes if k == 5 and operation in (Operation.SCATTER, Operation.GATHER) else 4096,
            )
            for k in range(10)
        ]
        return jobs.timeline(rank, spans, world_size=2, is_device=False)

    matches = match_collectives([run(0, 0, 8192), run(1, 500_000, None)])
    assert matches.alone == {}


def test_ends_that_lie_apart_in_turns_do_not_shift_a_rank_by_a_step(jobs: Any) -> None:
    """Two ranks that take turns on a device: by chance, ends agree best at the lag of a step."""
    steps, count = 3, 11

    def turn_ns(at: int) -> int:
        return 2_000_000 * (at % 2) + at * 7919 % 13 * 100_000

    made = []
    for rank in (0, 1):
        own = []
        for at in range(steps * count):
            start_ns = at * 9_000_000 + turn_ns(at if rank else at + count)
            own.append(jobs.collective(start_ns, start_ns + 8_000_000, group="0", size_bytes=1 + at % count))
        made.append(jobs.timeline(rank, own, world_size=2))
    matches = match_collectives(made)
    assert [match.members for match in matches] == [{0: at, 1: at} for at in range(steps * count)]
    assert not matches.alone


BY_SIZE = {4096: "inferred 0", 512: "inferred 1"}


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ((BY_SIZE, BY_SIZE), ["inferred 0", "inferred 1"]),  # they agree
        ((BY_SIZE, {4096: "inferred 0", 512: "inferred 0"}), [""]),  # two groups, or one
        ((BY_SIZE, {4096: "inferred 1", 512: "inferred 0"}), [""]),
        ((BY_SIZE, {4096: "inferred 0", 512: ""}), ["", "inferred 0"]),  # one rank saw too little
        (({4096: "inferred 0", 512: "7"}, {4096: "", 512: "7"}), ["", "7"]),
    ],
)
def test_what_ranks_infer_apart_of_gloos_threads_takes_no_collective_from_another(
    jobs: Any, named: Sequence[dict[int, str]], found: list[str]
) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 1), (0, 1)), count=8, is_named=False, offsets_ns=(0, 4_000)))
    timelines = [
        replace(
            one,
            is_device=False,
            collectives=tuple(
                replace(item, operation=Operation.ALL_REDUCE, size_bytes=size, group=groups[size], lane="")
                for index, item in enumerate(one.collectives)
                for size in [(4096, 512)[index % 2]]
            ),
            world_size=2,
        )
        for one, groups in zip(truth.timelines, named, strict=True)
    ]
    matches = match_collectives(timelines)
    assert matches.alone == {}
    assert sorted(group.name for group in matches.groups) == found
    assert sorted(sorted(match.members.items()) for match in matches) == [[(0, i), (1, i)] for i in range(16)]


@pytest.mark.parametrize(("ranks", "who"), [((2,), "rank 2"), ((3, 2), "ranks 2-3"), ((2, 4, 3), "ranks 2-4")])
def test_ranks_that_are_not_matched_are_named_one_or_several(ranks: Sequence[int], who: str) -> None:
    said = str(GroupUndecided(tuple(sorted(ranks)), "inferred 0", 9))
    assert said.startswith(f"{who}: process group inferred 0 of 9 collectives may be several, and their ends do not ")

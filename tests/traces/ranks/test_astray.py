"""A clock that was set while its rank was recorded is no skew, and is named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.clocks import EndsAstray
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.ranks.clocks.chain import find_median
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.over_ranks import OverRanks, compare_ranks
from dtbench.traces.ranks.stragglers import describe_waiting
from dtbench.traces.time.intervals import Intervals, Ints
from dtbench.traces.timeline import RankTimeline


def set_clock(timeline: RankTimeline, by_ns: int, after: int, until: int | None = None) -> RankTimeline:
    """Set a rank's clock while its collective number ``after`` runs, and back while ``until`` does."""
    own = timeline.collectives
    ends_ns = [own[place].start_ns + 1 if place is not None else 2**62 for place in (after, until)]

    def see(times_ns: Ints) -> Ints:
        return np.where((times_ns >= ends_ns[0]) & (times_ns < ends_ns[1]), times_ns + by_ns, times_ns)

    return replace(
        timeline,
        collectives=tuple(
            replace(one, issue_ns=None, span=Intervals(see(one.span.starts_ns), see(one.span.ends_ns))) for one in own
        ),
    )


def draw(jobs: Any, *, ranks: int = 2, count: int = 6, late_ms: int = 0, **facts: Any) -> list[RankTimeline]:
    """Draw ranks that all-reduce each 10 ms for 5 ms; the last of them begins ``late_ms`` later than the others."""
    return [
        jobs.timeline(
            rank,
            [
                jobs.collective(
                    at * 10_000_000 + late_ms * 1_000_000 * (rank == ranks - 1),
                    at * 10_000_000 + 5_000_000 + (rank + at) % 3 * 1_000,
                    **{"group": "0", "seq": at, "group_size": ranks, "group_ranks": tuple(range(ranks)), **facts},
                )
                for at in range(count)
            ],
            world_size=ranks,
        )
        for rank in range(ranks)
    ]


def judged(compared: OverRanks, rank: int) -> list[int]:
    return [index for index, one in enumerate(compared.collectives[rank]) if one.skew_wait_ns is not None]


@pytest.mark.parametrize(("after", "until", "left"), [
    (3, None, [0, 1, 2]),  # 3 ends before, 3 behind
    (5, None, [0, 1, 2, 3, 4]),  # the last alone
    (2, 4, [0, 1, 5]),  # set while number 2 runs, and back while number 4 does
])  # fmt: skip
@pytest.mark.parametrize("by_ns", [1_500_000, -1_500_000, 7_000_000])
def test_few_ends_on_one_side_are_compared_with_nothing(
    jobs: Any, after: int, until: int | None, left: list[int], by_ns: int
) -> None:
    first, second = draw(jobs)
    compared = compare_ranks([first, set_clock(second, by_ns, after, until)])
    assert set(judged(compared, 0)) <= set(left)
    assert compared.waiting.straggler is None
    assert all((one.skew_wait_ns or 0) <= 5_000 for rank in (0, 1) for one in compared.collectives[rank])
    assert compared.waiting.collectives + compared.waiting.unknown == 6


def test_of_two_ranks_nobody_knows_whose_clock_was_set(jobs: Any) -> None:
    first, second = draw(jobs)
    compared = compare_ranks([first, set_clock(second, 1_500_000, 3)])
    assert judged(compared, 0) == judged(compared, 1) == [0, 1, 2]
    (note,) = say_notes(compared.clocks.notes)
    assert note == (
        "ranks 0-1: 3 of 6 common collectives (numbers 4-6) ended 1.50 ms apart, and it is not known which end is right"
        " (was one clock set?). Nothing is said about skew there"
    )
    (said,) = describe_waiting(compared.waiting)
    assert said == (
        "0.0 % of the compared communication of 2 ranks is waiting for the last of them to begin (3 collectives,"
        " without 3 in which clocks disagree)"
    )
    for rank in (0, 1):  # between the ends of numbers 3 and 4
        set_in = compared.clocks.astray.set_in[rank]
        assert set_in.starts_ns // 1_000_000 == [25]
        assert set_in.ends_ns // 1_000_000 == [36 if rank else 35]


def test_of_four_ranks_the_odd_one_is_known_and_the_others_are_compared(jobs: Any) -> None:
    timelines = draw(jobs, ranks=4, late_ms=2)
    timelines[2] = set_clock(timelines[2], 1_500_000, 4)
    compared = compare_ranks(timelines)
    assert compared.clocks.out_of_step == frozenset()
    (note,) = say_notes(compared.clocks.notes)
    assert note == (
        "rank 2: 2 of 6 common collectives (numbers 5-6) ended 1.50 ms later there than elsewhere (was the clock set?)."
        " Nothing is said about skew there"
    )
    assert judged(compared, 0) == [0, 1, 2, 3]
    assert {one.last_rank for one in compared.collectives[0]} == {3, None}
    assert compared.clocks.astray.set_in.keys() == {2}
    assert describe_waiting(compared.waiting)[1].startswith("2 collectives are also of a rank that is compared with no")


def test_a_rank_that_begins_late_stays_late_as_it_leaves_with_the_others(jobs: Any) -> None:
    compared = compare_ranks(draw(jobs, late_ms=2))
    assert compared.clocks.notes == ()
    assert compared.waiting.straggler is not None
    assert (compared.waiting.straggler.rank, compared.waiting.straggler.last) == (1, 6)


def test_one_thread_that_is_woken_late_costs_its_collective_alone(jobs: Any) -> None:
    first, second = draw(jobs, late_ms=2)
    woken = second.collectives[2]
    late = replace(woken, span=Intervals(woken.span.starts_ns, woken.span.ends_ns + 3_000_000))
    second = replace(second, collectives=(*second.collectives[:2], late, *second.collectives[3:]))
    compared = compare_ranks([first, second])
    assert judged(compared, 0) == [0, 1, 3, 4, 5]
    assert not compared.clocks.astray.set_in[1].length_ns
    (note,) = say_notes(compared.clocks.notes)
    assert "1 of 6 common collectives (numbers 3) ended 3.00 ms apart" in note
    assert "(was a thread woken late, or do processes take turns on a device?)" in note


def test_what_says_nothing_of_clocks_is_not_compared_while_they_disagree(jobs: Any) -> None:
    #     rank 1 is set ahead in front of number 3; numbers 1, 3 and 5 are all-to-alls, which tell of no clock
    def alternate(timeline: RankTimeline) -> RankTimeline:
        own = [
            replace(one, operation=Operation.ALL_TO_ALL) if place % 2 else one
            for place, one in enumerate(timeline.collectives)
        ]
        return replace(timeline, collectives=tuple(own))

    first, second = map(alternate, draw(jobs, count=10))
    compared = compare_ranks([first, set_clock(second, 1_500_000, 6)])
    assert judged(compared, 0) == [0, 1, 2, 3, 4]
    assert compared.waiting.straggler is None


@pytest.mark.parametrize("host_of", [lambda rank: f"node{rank // 2}", lambda rank: f"node{min(rank, 1)}"])
def test_of_two_machines_nobody_knows_whose_clock_was_set_however_many_ranks_each_has(jobs: Any, host_of: Any) -> None:
    timelines = [replace(one, host=host_of(one.rank)) for one in draw(jobs, ranks=4, count=18)]
    compared = compare_ranks([set_clock(one, 5_000_000, 9) if one.host == "node1" else one for one in timelines])
    (note,) = say_notes(compared.clocks.notes)
    assert note.startswith("ranks 0-3: 9 of 18 common collectives (numbers 10-18) ended 5.00 ms apart")
    assert judged(compared, 0) == list(range(9))


def test_ranks_of_one_machine_are_compared_whatever_its_clock_did(jobs: Any) -> None:
    pairs = [draw(jobs, late_ms=2, group=f"{at}", group_ranks=(2 * at, 2 * at + 1)) for at in range(2)]
    timelines = []
    for at, pair in enumerate(pairs):
        for one in pair:
            world = [
                replace(own, group="9", group_ranks=(0, 1, 2, 3), group_size=4, span=shift(own.span, 7_000_000))
                for own in draw(jobs)[0].collectives
            ]
            own = sorted((*one.collectives, *world), key=lambda each: each.start_ns)
            timelines.append(jobs.timeline(2 * at + one.rank, own, host=f"node{at}", world_size=4))
    compared = compare_ranks([*timelines[:2], *(set_clock(one, 1_200_000, 10) for one in timelines[2:])])
    assert judged(compared, 0) == [*range(9), 10]
    assert compared.clocks.out_of_step == frozenset()
    assert {one.rank: one.last for one in compared.waiting.ranks} == {0: 0, 1: 6, 2: 0, 3: 6}


def shift(span: Intervals, by_ns: int) -> Intervals:
    return Intervals(span.starts_ns + by_ns, span.ends_ns + by_ns)


@pytest.mark.parametrize("host", [None, "node1"])
@pytest.mark.parametrize("by_ns", [3_000_000, 300_000, -40_000_000])
@pytest.mark.parametrize("after", [6, 20, 36])
def test_a_clock_that_was_set_invents_no_waiting(jobs: Any, after: int, by_ns: int, host: str | None) -> None:
    truth = jobs.generate(jobs.job(jitter_ns=5_000))
    timelines = [replace(one, host=host) for one in truth.timelines]
    compared = compare_ranks([set_clock(one, by_ns, after) if one.rank == 1 else one for one in timelines])
    assert compared.clocks.astray.set_in.keys() == {1}
    assert any(
        note.startswith("rank 1: ") and "(was the clock set?)" in note for note in say_notes(compared.clocks.notes)
    )
    for index, one in enumerate(compared.collectives[0]):
        wait_ns = truth.last_start_ns[0, index] - truth.start_ns[0, index]
        assert one.skew_wait_ns is None or one.skew_wait_ns == pytest.approx(wait_ns, abs=20_000)
    most = after if after >= 20 else 40 - after - 1  # one began on the other clock
    assert len(judged(compared, 0)) == most or (by_ns < -30_000_000 and len(judged(compared, 0)) <= most)  # 16 far


@pytest.mark.parametrize("count", [40, 300])
@pytest.mark.parametrize("place", [0.25, 0.5])
def test_a_clock_that_was_set_once_does_not_drift(jobs: Any, count: int, place: float) -> None:
    first, second = draw(jobs, count=count)
    own, at = second.collectives, round(count * place)
    later = (replace(one, span=shift(one.span, 90_000)) for one in own[at:])
    compared = compare_ranks([first, replace(second, collectives=(*own[:at], *later))])
    assert {clock.drift for clock in compared.clocks.by_rank.values()} == {0}
    assert compared.waiting.straggler is None


def test_a_clock_of_two_levels_is_one_of_them_and_not_what_lies_between() -> None:
    levels = np.repeat([0.0, 1_500_000.0], 9) + np.tile([0, 1_000, 2_000], 6)
    middle, uncertainty_ns = find_median(levels)
    assert middle in (1_000, 1_501_000)
    assert uncertainty_ns == 1_000


def test_clocks_that_were_never_set_are_never_astray(jobs: Any) -> None:
    compared = compare_ranks(jobs.generate(jobs.job(jitter_ns=40_000)).timelines)
    assert compared.clocks.astray.times == {}
    assert Clocks({}).astray.notes == ()


def take_turns(timeline: RankTimeline, slice_ns: int) -> RankTimeline:
    """Let a rank have the device a slice later than the other, then a slice earlier, and so on."""
    spans = [one.span for one in timeline.collectives]
    moved = [Intervals(span.starts_ns, span.ends_ns + slice_ns * (at % 2)) for at, span in enumerate(spans)]
    return replace(
        timeline,
        collectives=tuple(
            replace(one, issue_ns=None, span=span) for one, span in zip(timeline.collectives, moved, strict=True)
        ),
    )


@pytest.mark.parametrize("count", [12, 45])
def test_ranks_that_take_turns_on_a_device_had_no_clock_set(jobs: Any, count: int) -> None:
    first, second = draw(jobs, count=count)
    compared = compare_ranks([first, take_turns(second, 2_200_000)])
    assert not any(time.length_ns for time in compared.clocks.astray.set_in.values())
    assert not any(note.was_set for note in pick_notes(compared.clocks.notes, EndsAstray))
    assert compared.waiting.straggler is None


@pytest.mark.parametrize("moves", ["always", "in turns", "from the middle on"])
def test_ranks_of_one_kernel_have_one_clock_whatever_their_ends_say(jobs: Any, moves: str) -> None:
    """The last begins 1 ms late, and its ends are 2.2 ms later."""
    first, second = draw(jobs, count=20, late_ms=1)
    at = {"always": range(20), "in turns": range(0, 20, 2), "from the middle on": range(10, 20)}[moves]
    late = replace(
        second,
        collectives=tuple(
            replace(one, span=Intervals(one.span.starts_ns, one.span.ends_ns + 2_200_000 * (place in at)))
            for place, one in enumerate(second.collectives)
        ),
    )
    ranks = [replace(one, host=name, kernel="a boot") for one, name in ((first, "pod0"), (late, "pod1"))]
    compared = compare_ranks(ranks)
    assert compared.clocks.notes == ()
    assert {clock.offset_ns for clock in compared.clocks.by_rank.values()} == {0}
    assert [one.skew_wait_ns for one in compared.collectives[0]] == [1_000_000] * 20
    assert compared.waiting.straggler is not None
    assert compared.waiting.straggler.rank == 1


def test_ranks_of_two_kernels_have_two_clocks_though_their_hosts_bear_one_name(jobs: Any) -> None:
    first, second = draw(jobs, count=20)
    moved = replace(
        second,
        collectives=tuple(
            replace(one, span=Intervals(one.span.starts_ns + 50_000, one.span.ends_ns + 50_000))
            for one in second.collectives
        ),
    )
    ranks = [replace(one, host="pod", kernel=boot) for one, boot in ((first, "a"), (moved, "b"))]
    assert compare_ranks(ranks).clocks.machines == (frozenset({0}), frozenset({1}))

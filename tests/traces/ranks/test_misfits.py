"""Traces that do not belong together: a sentence, and nothing over ranks is said of them."""

from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.clocks import ClockCorrected, ManyClocksCorrected
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.ranks.misfits import find_mistaken
from dtbench.traces.ranks.over_ranks import OverRanks, compare_fitting_ranks
from dtbench.traces.time.coverage import Window
from dtbench.traces.timeline import RankTimeline

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
EIGHT = (tuple(range(8)),)


def set_apart(compared: OverRanks) -> set[int]:
    """Return the ranks of which nothing is said over ranks, having looked that nothing is."""
    apart = set(compared.misfits.ranks)
    assert apart <= compared.clocks.out_of_step
    assert apart.isdisjoint(one.rank for one in compared.waiting.ranks)
    for rank in apart:
        assert all(skew.skew_wait_ns is None and skew.last_rank is None for skew in compared.collectives[rank])
    return apart


def change(timeline: RankTimeline, **facts: Any) -> RankTimeline:
    return replace(timeline, collectives=tuple(replace(one, **facts) for one in timeline.collectives))


def test_ranks_of_one_job_have_no_misfit_whatever_their_clocks(jobs: Any) -> None:
    for offsets in ((0, 0, 0, 0), (0, 3_000_000, -20_000_000, 0)):
        compared = compare_fitting_ranks(jobs.generate(jobs.job(offsets_ns=offsets, jitter_ns=8_000)).timelines)
        assert not compared.misfits.ranks
        assert compared.is_one_job


@pytest.mark.parametrize(("count", "said"), [(40, True), (40, False), (3, False)])
def test_one_trace_under_two_numbers_is_nobodys(jobs: Any, count: int, *, said: bool) -> None:
    timelines = [
        replace(one, said_rank=one.rank if said else None)
        for one in jobs.generate(jobs.job(groups=EIGHT, count=count, offsets_ns=(0,) * 8)).timelines
    ]
    copied = [*timelines[:5], replace(timelines[2], rank=5, said_rank=5 if said else None), *timelines[6:]]
    compared = compare_fitting_ranks(copied, find_mistaken(copied, ()))
    assert set_apart(compared) == {2, 5}
    assert say_notes(compared.notes)[0].startswith("ranks 2, 5: one and the same trace, to the nanosecond")
    assert not compared.is_one_job
    assert compared.waiting.straggler is None, "one of these two may be who the others wait for"


@pytest.mark.parametrize("by_ns", [1, -500_000, DAY_NS])
@pytest.mark.parametrize("said", [True, False])
def test_a_copy_whose_times_are_all_shifted_alike_is_a_copy(jobs: Any, by_ns: int, *, said: bool) -> None:
    timelines = [
        replace(one, said_rank=one.rank if said else None)
        for one in jobs.generate(jobs.job(groups=EIGHT, offsets_ns=(0,) * 8)).timelines
    ]
    shifted = jobs.shift(replace(timelines[2], rank=5, said_rank=5 if said else None), by_ns)
    copied = [*timelines[:5], shifted, *timelines[6:]]
    compared = compare_fitting_ranks(copied, find_mistaken(copied, ()))
    assert set_apart(compared) == {2, 5}
    assert say_notes(compared.notes)[0] == (
        "ranks 2, 5: one and the same trace, to the nanosecond but for where their clocks begin; whose it is cannot be"
        " told, so nothing over ranks is said of these; give each rank's own"
    )
    assert not compared.is_one_job


def test_few_things_that_took_as_long_at_another_time_are_no_copy(jobs: Any) -> None:
    timelines = [replace(one, said_rank=None) for one in jobs.generate(jobs.job(count=3)).timelines]
    shifted = jobs.shift(replace(timelines[2], rank=3), 500_000)
    assert not find_mistaken([*timelines[:3], shifted], ()).ranks


def test_two_ranks_that_did_the_same_few_things_and_say_who_they_are_are_two(jobs: Any) -> None:
    spans = [(0, 10_000), (20_000, 25_000)]
    timelines = [
        jobs.timeline(
            rank,
            [jobs.collective(*span, group="0", seq=seq, group_size=2) for seq, span in enumerate(spans)],
            said_rank=rank,
        )
        for rank in (0, 1)
    ]
    assert not find_mistaken(timelines, ()).ranks
    silent = [replace(one, said_rank=None) for one in timelines]
    assert set_apart(compare_fitting_ranks(silent, find_mistaken(silent, ()))) == {0, 1}


@pytest.mark.parametrize(
    ("sizes", "apart"), [((4, 4, 4, 64), {3}), ((4, 8, 4, 8), {0, 1, 2, 3}), ((4, None, 4, 8), {3})]
)
def test_ranks_of_a_job_of_another_size_are_compared_with_nobody(
    jobs: Any, sizes: tuple[int | None, ...], apart: set[int]
) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    mixed = [replace(one, world_size=size) for one, size in zip(timelines, sizes, strict=True)]
    compared = compare_fitting_ranks(mixed)
    assert set_apart(compared) == apart
    assert not compared.is_one_job
    assert any("not one job" in note for note in say_notes(compared.notes))


@pytest.mark.parametrize(
    "facts",
    [
        {"size_bytes": 12_345, "operation": Operation.ALL_REDUCE},
        {"operation": Operation.BARRIER},
        {"operation": Operation.ALL_TO_ALL, "size_bytes": None},
    ],
)
def test_a_rank_whose_numbers_stand_for_other_collectives_ran_another_program(
    jobs: Any, facts: dict[str, object]
) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    compared = compare_fitting_ranks([*timelines[:3], change(timelines[3], **facts)])
    assert set_apart(compared) == {3}
    assert say_notes(compared.notes)[0].startswith("rank 3: under the same numbers of the same process groups")
    assert not compared.is_one_job
    pair = jobs.generate(jobs.job(groups=((0, 1),), offsets_ns=(0, 0))).timelines
    assert set_apart(compare_fitting_ranks([pair[0], change(pair[1], **facts)])) == {0, 1}


def test_sizes_that_may_differ_and_are_unknown_are_no_other_program(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    uneven = [change(one, operation=Operation.ALL_TO_ALL, size_bytes=one.rank * 100) for one in timelines]
    assert not compare_fitting_ranks(uneven).misfits.ranks
    untold = [*timelines[:3], change(timelines[3], size_bytes=None)]
    assert not compare_fitting_ranks(untold).misfits.ranks, "what one does not tell is no other size"
    unnamed = [change(one, group_ranks=()) for one in timelines]
    unnamed[3] = change(unnamed[3], size_bytes=1)
    assert 3 not in compare_fitting_ranks(unnamed).misfits.strangers, "one name may stand for several groups"


@pytest.mark.parametrize("strays", [{3}, {1, 6}, {0, 1, 2}])
@pytest.mark.parametrize("by_ns", [HOUR_NS, -30 * DAY_NS])
def test_a_clock_that_is_off_by_more_than_the_trace_may_be_another_run(jobs: Any, strays: set[int], by_ns: int) -> None:
    timelines = jobs.generate(jobs.job(groups=EIGHT, offsets_ns=(0,) * 8, jitter_ns=4_000)).timelines
    compared = compare_fitting_ranks([jobs.shift(one, by_ns) if one.rank in strays else one for one in timelines])
    assert set_apart(compared) == strays
    assert not compared.is_one_job
    assert "off, longer than the trace, and these may be traces of another run as well" in say_notes(compared.notes)[0]
    assert not pick_notes(compared.notes, ClockCorrected)
    assert not pick_notes(compared.notes, ManyClocksCorrected)
    assert compared.waiting.partial == compared.waiting.collectives


def test_the_base_of_the_times_counts_where_all_traces_say_it(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    days_apart = [replace(one, base_ns=10 * DAY_NS * (1 + (one.rank == 2))) for one in timelines]
    assert set_apart(compare_fitting_ranks(days_apart)) == {2}
    at_once = [
        replace(jobs.shift(one, -10 * DAY_NS) if one.rank == 2 else one, base_ns=10 * DAY_NS * (1 + (one.rank == 2)))
        for one in timelines
    ]
    compared = compare_fitting_ranks(at_once)
    assert not compared.misfits.ranks
    assert compared.waiting.unknown == 0
    silent = [replace(one, base_ns=None) if one.rank == 0 else one for one in days_apart]
    assert not compare_fitting_ranks(silent).misfits.ranks


@pytest.mark.parametrize("host", [None, "a"])
def test_clocks_that_are_known_to_half_a_step_say_nothing_of_skew(jobs: Any, host: str | None) -> None:
    truth = jobs.generate(jobs.job(groups=((0, 1),), count=6, offsets_ns=(0, 1_000_000), jitter_ns=3_000_000))
    short = [
        replace(one, host=host, steps=tuple(Window(k, k + 2_000_000) for k in range(3)), step_numbers=(1, 2, 3))
        for one in truth.timelines
    ]
    compared = compare_fitting_ranks(short)
    if host is None:
        assert 1 in set_apart(compared)
        assert any(
            "only, more than half a step; who waited for whom cannot be told" in note
            for note in say_notes(compared.notes)
        )
        assert compared.is_one_job, "of one job they may be: nothing speaks against it"
        assert compared.waiting.collectives == 0
    else:
        assert not compared.misfits.ranks, "ranks of one host have one clock"


def test_ranks_that_say_that_they_are_others_are_compared_with_nobody(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    compared = compare_fitting_ranks(timelines, find_mistaken(timelines, [1]))
    assert set_apart(compared) == {1}
    assert say_notes(compared.notes)[0].startswith("rank 1: by what the trace itself says it is another rank's")

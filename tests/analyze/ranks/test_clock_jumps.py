"""A clock that was set while its rank was recorded is no skew, and is named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtbench.analyze.intervals import Intervals, Ints
from dtbench.analyze.ranks.clock_jumps import find_jump
from dtbench.analyze.ranks.over_ranks import compare_ranks
from dtbench.analyze.ranks.stragglers import describe_waiting
from dtbench.analyze.timeline import RankTimeline


def set_clock(timeline: RankTimeline, by_ns: int, after: int) -> RankTimeline:
    """Set a rank's clock while its collective number ``after`` runs: it begins on the old one and ends on the new."""
    at_ns = timeline.collectives[after].start_ns + 1

    def see(times_ns: Ints) -> Ints:
        return np.where(times_ns >= at_ns, times_ns + by_ns, times_ns)

    return replace(
        timeline,
        collectives=tuple(
            replace(one, issue_ns=None, span=Intervals(see(one.span.starts_ns), see(one.span.ends_ns)))
            for one in timeline.collectives
        ),
    )


@pytest.mark.parametrize("host", [None, "node1"])
@pytest.mark.parametrize("by_ns", [3_000_000, 300_000, -40_000_000])
@pytest.mark.parametrize("after", [6, 20, 36])
def test_a_clock_that_was_set_is_named_and_its_rank_neither_waits_nor_is_waited_for(
    jobs: Any, after: int, by_ns: int, host: str | None
) -> None:
    timelines = [replace(one, host=host) for one in jobs.generate(jobs.job(jitter_ns=5_000)).timelines]
    alone = compare_ranks([one for one in timelines if one.rank != 1])
    compared = compare_ranks([set_clock(one, by_ns, after) if one.rank == 1 else one for one in timelines])
    assert compared.clocks.out_of_step == {1}
    (note,) = compared.clocks.notes
    assert note.startswith("rank 1: its clock jumps by ")
    assert f"after about {after} common collectives (was it set?)" in note
    assert all(one.skew_wait_ns is None and one.transfer_ns is None for one in compared.collectives[1])
    assert [one.rank for one in compared.waiting.ranks] == [0, 2, 3]
    assert [one.skew_wait_ns for one in compared.waiting.ranks] == [one.skew_wait_ns for one in alone.waiting.ranks]
    assert describe_waiting(compared.waiting)[-1] == (
        "40 collectives are also of a rank that is compared with no other (see the notes):"
        " who was last there is not known"
    )


def test_of_two_ranks_nobody_knows_whose_clock_was_set(jobs: Any) -> None:
    first, second = jobs.generate(jobs.job(groups=((0, 1),), offsets_ns=(0, 0))).timelines
    compared = compare_ranks([first, set_clock(second, 300_000, 20)])
    assert compared.clocks.out_of_step == {0, 1}
    assert (
        "ranks 0-1: the clock of some of them jumps by 300 us after about 20 common collectives"
        in compared.clocks.notes[0]
    )
    assert compared.waiting.straggler is None


@pytest.mark.parametrize("count", [8, 20, 300])
@pytest.mark.parametrize("slope_ns", [0, 10_000, 1_000_000])
def test_ends_that_drift_or_scatter_do_not_jump(count: int, slope_ns: int) -> None:
    random = np.random.default_rng(count)
    for scatter in (random.standard_normal, random.standard_cauchy, random.standard_exponential):
        assert find_jump(np.arange(count) * float(slope_ns) + scatter(count) * 50_000) is None


def test_a_few_late_ends_are_no_clock() -> None:
    late_ns = np.zeros(40)
    late_ns[[3, 17, 18, 37, 38, 39]] = 5_000_000
    assert find_jump(late_ns) is None


def test_a_jump_is_found_among_wild_ends_and_on_a_clock_that_drifts() -> None:
    late_ns = np.random.default_rng(0).standard_normal(60) * 2_000 + np.arange(60) * 1_000
    late_ns[[5, 25, 50]] += 80_000_000
    late_ns[45:] -= 3_000_000
    jump = find_jump(late_ns)
    assert jump is not None
    assert jump.after == 45
    assert jump.by_ns == pytest.approx(-3_000_000, rel=0.02)


def test_a_jump_is_found_where_every_other_end_is_late_by_more() -> None:
    """As gloo's threads are, woken on a busy machine: half of the ends within 50 us, the rest milliseconds late."""
    random = np.random.default_rng(1)
    late_ns = random.standard_normal(60) * 50_000 + (random.random(60) < 0.5) * random.standard_normal(60) * 2_000_000
    assert find_jump(late_ns) is None
    late_ns[30:] += 3_000_000
    jump = find_jump(late_ns)
    assert jump is not None
    assert jump.by_ns == pytest.approx(3_000_000, rel=0.05)

"""A rank's lost event whose launch is there: the others are known to have waited for it."""

from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.clocks.clocks import estimate_clocks
from dtbench.traces.ranks.clocks.machines import Host
from dtbench.traces.ranks.clocks.times import read_times
from dtbench.traces.ranks.match import match_collectives
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.ranks.skew import measure_skew
from dtbench.traces.ranks.stragglers import describe_waiting
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Launch
from tests.known import known, total


def lose(jobs: Any, timeline: RankTimeline, event: int, **said: Any) -> RankTimeline:
    """Drop a collective and leave a launch 2 us before its start; ``said`` changes what the launch says."""
    one = timeline.collectives[event]
    launch = Launch(one.operation, one.group, one.seq, one.start_ns - 5, one.start_ns - 2)
    dropped: RankTimeline = jobs.drop(timeline, event)
    return replace(dropped, unseen=(replace(launch, **said),))


@pytest.fixture
def last_of_row(jobs: Any) -> tuple[tuple[RankTimeline, ...], int, int]:
    """A job, and a rank that the others wait long for in the collective of that index."""
    truth = jobs.generate(jobs.job(offsets_ns=(0, 5_000_000, -700_000, 0)))
    whole = compare_ranks(truth.timelines)
    for index in range(5, 35):
        row = [whole.collectives[rank][index] for rank in range(4)]
        if sorted(skew.skew_wait_ns or 0 for skew in row)[1] > 500_000:
            return truth.timelines, next(rank for rank in range(4) if row[rank].is_last), index
    raise AssertionError("the job has such a collective")


def test_its_launch_stands_for_its_start(jobs: Any, last_of_row: Any) -> None:
    timelines, rank, index = last_of_row
    whole = compare_ranks(timelines).waiting
    found = compare_ranks([lose(jobs, one, index) if one.rank == rank else one for one in timelines]).waiting
    assert [one.last for one in found.ranks] == [one.last for one in whole.ranks]
    assert [one.collectives for one in found.ranks] == [one.collectives for one in whole.ranks]
    for mine, own in zip(whole.ranks, found.ranks, strict=True):
        assert abs(known(mine.skew_wait_ns) - known(own.skew_wait_ns)) <= 1_000
    assert (found.partial, found.launched) == (0, 1)
    assert describe_waiting(found)[-1] == "1 of their kernels is in no trace, and counted from its launch"


@pytest.mark.parametrize("said", [{"operation": Operation.BROADCAST}, {"group": "another"}, {"seq": 99}])
def test_a_launch_of_something_else_says_nothing(jobs: Any, last_of_row: Any, said: dict[str, Any]) -> None:
    timelines, rank, index = last_of_row
    without = compare_ranks([jobs.drop(one, index) if one.rank == rank else one for one in timelines]).waiting
    found = compare_ranks([lose(jobs, one, index, **said) if one.rank == rank else one for one in timelines]).waiting
    assert found == without
    assert total(one.skew_wait_ns for one in found.ranks) < total(
        one.skew_wait_ns for one in compare_ranks(timelines).waiting.ranks
    )


def test_of_two_launches_that_fit_none_is_taken(jobs: Any, last_of_row: Any) -> None:
    timelines, rank, index = last_of_row
    damaged = lose(jobs, timelines[rank], index)
    twice = replace(damaged, unseen=damaged.unseen * 2)
    without = compare_ranks([jobs.drop(one, index) if one.rank == rank else one for one in timelines]).waiting
    assert compare_ranks([twice if one.rank == rank else one for one in timelines]).waiting == without


def test_a_launch_after_the_collective_had_ended_belongs_to_another(jobs: Any, last_of_row: Any) -> None:
    timelines, rank, index = last_of_row
    end_ns = timelines[rank].collectives[index].end_ns
    late = lose(jobs, timelines[rank], index, start_ns=end_ns + 50_000, end_ns=end_ns + 60_000)
    without = compare_ranks([jobs.drop(one, index) if one.rank == rank else one for one in timelines]).waiting
    found = compare_ranks([late if one.rank == rank else one for one in timelines]).waiting
    assert [one.skew_wait_ns for one in found.ranks] == [one.skew_wait_ns for one in without.ranks]


def test_a_rank_that_is_not_in_step_says_nothing_by_its_launches(jobs: Any, last_of_row: Any) -> None:
    timelines, rank, index = last_of_row
    damaged = lose(jobs, timelines[rank], index)
    before = [*timelines[:rank], damaged, *timelines[rank + 1 :]]
    matches = match_collectives(before)
    times = read_times(matches, before)
    clocks = estimate_clocks(times, {one.rank: Host() for one in before})
    (skew,) = measure_skew(matches, times, clocks, before)
    assert skew.is_launched.sum() == 1
    (distrusted,) = measure_skew(matches, times, replace(clocks, out_of_step=frozenset({rank})), before)
    assert not distrusted.is_launched.any()

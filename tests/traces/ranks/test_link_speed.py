"""The speed of a link: bytes over the union of a group's transfers, however many run at once."""

import math
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis, Operation
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor
from dtbench.traces.ranks.by_group.link_speed import LinkSpeed, measure_links
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.ranks.skew import CollectiveSkew
from tests.traces.ranks.cluster import Cluster, run_cluster

MS = 1_000_000
MB = 1_000_000


def measure(jobs: Any, *rows: tuple[int, int, int], **facts: Any) -> tuple[LinkSpeed, ...]:
    """Measure all-gathers of 8 ranks, each a (start, wait, end) in ms, that carry 48 MB in all; ``facts`` of each."""
    size = round(48 * MB / len(rows) * 8 / 7)
    base = {"operation": Operation.ALL_GATHER, "group_size": 8, "size_bytes": size, "axis": Axis.SHARD} | facts
    collectives = [jobs.collective(start * MS, end * MS, **base) for start, _, end in rows]
    skews = []
    for (_, wait, _), one in zip(rows, collectives, strict=True):
        transfer_ns = one.end_ns - one.start_ns - wait * MS
        algbw = algorithm_bandwidth(one.size_bytes, transfer_ns)
        busbw = algbw * bus_factor(one.operation, one.group_size)
        skews.append(CollectiveSkew(skew_wait_ns=wait * MS, transfer_ns=transfer_ns, algbw=algbw, busbw=busbw))
    return measure_links([jobs.timeline(0, collectives)], [skews])


def test_of_collectives_one_after_the_other_it_is_what_each_is_told(jobs: Any) -> None:
    (one,) = measure(jobs, (0, 0, 500), (500, 0, 1000))
    assert one.busbw == pytest.approx(48 * MB)
    assert one.alone == pytest.approx(48 * MB)
    assert not one.is_understated
    assert (one.axis, one.size, one.ranks, one.collectives) == ("shard", 8, 1, 2)


def test_of_several_at_once_each_alone_understates_it(jobs: Any) -> None:
    (one,) = measure(jobs, (0, 0, 1000), (0, 0, 1000))
    assert one.busbw == pytest.approx(48 * MB)
    assert one.alone == pytest.approx(24 * MB)
    assert one.at_once == pytest.approx(0.5)
    assert one.is_understated


def test_waiting_for_the_last_rank_is_no_transfer_and_no_gap_is_counted(jobs: Any) -> None:
    (one,) = measure(jobs, (0, 300, 800), (2000, 500, 3000))
    assert one.busbw == pytest.approx(48 * MB)


def test_of_a_group_whose_size_no_trace_tells_the_ranks_that_have_its_collectives_count(jobs: Any) -> None:
    one = jobs.collective(0, 1000 * MS, operation=Operation.ALL_REDUCE, group_size=None, size_bytes=48 * MB)
    skew = CollectiveSkew(skew_wait_ns=0, transfer_ns=1000 * MS, ranks=4, algbw=48.0 * MB, busbw=72.0 * MB)
    (link,) = measure_links([jobs.timeline(0, [one])], [[skew]])
    assert link.size == 4
    assert link.busbw == pytest.approx(72 * MB)


def test_what_ran_beside_one_of_which_not_all_is_known_is_left_out_and_counted(jobs: Any) -> None:
    facts = {"operation": Operation.ALL_REDUCE, "group_size": 2, "size_bytes": 24 * MB}
    spans = ((0, 500), (600, 1000), (900, 1400), (1300, 1800), (2000, 2500))
    collectives = [jobs.collective(start * MS, end * MS, **facts) for start, end in spans]
    known = [
        CollectiveSkew(skew_wait_ns=0, transfer_ns=one.end_ns - one.start_ns, algbw=1.0, busbw=1.0)
        for one in collectives
    ]
    skews = [*known[:3], CollectiveSkew(), known[4]]
    (link,) = measure_links([jobs.timeline(0, collectives)], [skews])
    assert (link.collectives, link.left_out) == (2, 3), "the second ran beside the third, which ran beside the fourth"
    assert link.busbw == pytest.approx(48 * MB)


@pytest.mark.parametrize("lacking", [{"size_bytes": None}, {"has_ended": False}])
def test_a_group_of_which_one_transfer_is_not_known_is_left_out(jobs: Any, lacking: dict[str, Any]) -> None:
    assert measure(jobs, (0, 0, 500), (500, 0, 1000), **lacking) == ()
    assert measure(jobs, (0, 0, 1000), operation=Operation.SEND) == ()
    assert measure(jobs, (0, 0, 1000), group_size=1) == ()
    one = jobs.collective(0, MS, operation=Operation.ALL_REDUCE, group_size=2)
    assert measure_links([jobs.timeline(0, [one])], [[CollectiveSkew()]]) == (), "nothing is known of the others"


def test_a_barrier_moves_nothing_and_hides_nothing(jobs: Any) -> None:
    rows = [jobs.collective(0, MS, operation=Operation.BARRIER, group_size=8, size_bytes=None)]
    assert measure_links([jobs.timeline(0, rows)], [[CollectiveSkew()]]) == ()


def test_axes_are_measured_apart_over_all_ranks() -> None:
    truth = run_cluster(Cluster(ranks=16, apart_ns=0))
    timelines = truth.timelines()
    compared = compare_ranks(timelines)
    links = measure_links(timelines, [compared.collectives[one.rank] for one in timelines])
    assert {(one.axis, one.group, one.size) for one in links} == {("tensor", "", 8), ("data", "", 2), ("", "3", 16)}
    assert {one.ranks for one in links} == {16}
    assert not any(one.is_understated for one in links)
    assert not any(math.isnan(one.busbw) for one in links)
    blind = [
        [replace(skew, skew_wait_ns=None, transfer_ns=None) for skew in compared.collectives[r]] for r in range(16)
    ]
    assert measure_links(timelines, blind) == ()

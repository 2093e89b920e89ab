"""Latency and bandwidth of links, from what collectives took: found where sizes tell, refused where they do not."""

import random
from dataclasses import replace

import pytest

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change
from dtbench.replay.changes.link import Link
from dtbench.replay.changes.link_parts import Bandwidth, Latency
from dtbench.replay.changes.parse import parse_change
from dtbench.replay.graph import JobGraph
from dtbench.replay.link_fit import fit_links, measure_share
from dtbench.replay.run import replay
from tests.replay.hand_made import Written

LATENCY_NS, NS_PER_BYTE = 5_000, 2


def in_a_row(*served: tuple[int | None, int]) -> JobGraph:
    """Return collectives of some sizes and services of a group of one rank, each waited for at once."""
    written = Written().begin()
    for item, (_, service_ns) in enumerate(served):
        written.issue(f"{item}", service_ns).sit(item)
    graph = written.end().finish()
    named = zip(graph.collectives, served, strict=True)
    sized = (replace(one, size_bytes=size, group_size=1) for one, (size, _) in named)
    return {0: replace(graph, collectives=tuple(sized))}


def take(graph: JobGraph, change: Change | None = None) -> int:
    return sum(replay(graph if change is None else change.apply(graph)).rounds_ns)


def cost(size: int) -> int:
    return LATENCY_NS + NS_PER_BYTE * size


def test_what_a_link_costs_is_found_and_each_part_changes_alone() -> None:
    sizes = (1_000, 4_000, 40_000)
    graph = in_a_row(*((size, cost(size)) for size in sizes))
    ((_, fit),) = fit_links(graph).items()
    assert fit is not None
    assert fit.latency_ns == pytest.approx(LATENCY_NS)
    assert fit.ns_per_byte == pytest.approx(NS_PER_BYTE)
    assert fit.off == pytest.approx(0, abs=1e-9)
    assert take(graph) == sum(map(cost, sizes))
    assert take(graph, Latency(0.5)) == 3 * LATENCY_NS // 2 + NS_PER_BYTE * sum(sizes)
    assert take(graph, Latency(3.0)) == 3 * LATENCY_NS * 3 + NS_PER_BYTE * sum(sizes)
    assert take(graph, Bandwidth(2.0)) == 3 * LATENCY_NS + NS_PER_BYTE * sum(sizes) // 2
    assert take(graph, Bandwidth(0.5)) == 3 * LATENCY_NS + NS_PER_BYTE * sum(sizes) * 2
    both = take(Latency(0.5).apply(graph), Bandwidth(2.0))
    assert both == pytest.approx(take(graph, Link(2.0)), abs=3)  # a nanosecond of rounding each


def test_what_the_fit_leaves_stays_as_it_was() -> None:
    """One of four took 3 us more than its size tells: it still does."""
    late = (1_000, cost(1_000) + 3_000)
    graph = in_a_row((1_000, cost(1_000)), late, *((size, cost(size)) for size in (1_000, 4_000, 40_000)))
    assert take(graph) - take(graph, Latency(0.5)) == 5 * LATENCY_NS // 2


def test_neither_constant_is_below_nothing() -> None:
    falling = in_a_row((1_000, 9_000), (4_000, 8_500), (16_000, 8_000))
    ((_, fit),) = fit_links(falling).items()
    assert fit is not None
    assert fit.ns_per_byte == 0
    assert take(falling, Bandwidth(4.0)) == take(falling)
    rising = in_a_row((1_000, 100), (4_000, 2_000), (16_000, 9_000))
    ((_, fit),) = fit_links(rising).items()
    assert fit is not None
    assert fit.latency_ns >= 0


@pytest.mark.parametrize(
    "served",
    [
        [(4_000, 9_000), (4_000, 9_100)],  # one size
        [(4_000, 9_000), (5_000, 9_100), (6_000, 9_200)],  # close together
        [(1_000, cost(1_000)), (40_000, cost(40_000))],  # two: any two constants go through them
        [(1_000, 8_000), (2_000, 9_000), (300_000, 900_000)],  # the third alone says what the others do not
        [(None, 9_000), (4_000, 9_000), (40_000, 91_000)],  # a size is not known
        [(1_000, 50_000), (4_000, 2_000), (16_000, 90_000), (64_000, 3_000)],  # no link is like that
    ],
)
@pytest.mark.parametrize("change", [Latency(0.5), Bandwidth(2.0)])
def test_where_sizes_do_not_tell_it_is_refused(served: list[tuple[int | None, int]], change: Change) -> None:
    graph = in_a_row(*served)
    assert measure_share(graph, fit_links(graph)) == 0
    with pytest.raises(PredictionError, match="not known what is latency and what is bandwidth"):
        change.apply(graph)


def test_a_small_part_that_tells_nothing_is_left_as_it_was() -> None:
    told = [(size, cost(size)) for size in (1_000, 4_000, 40_000)]
    graph = in_a_row(*told, (8, 7_000))
    first = graph[0]
    apart = replace(first, collectives=(*first.collectives[:3], replace(first.collectives[3], group="other")))
    assert take({0: apart}) - take({0: apart}, Bandwidth(2.0)) == NS_PER_BYTE * 45_000 // 2


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_a_tenth_is_seen_through(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([2_000, 8_000, 30_000, 100_000]) for _ in range(80)]
    graph = in_a_row(*((size, round(cost(size) * chance.uniform(0.9, 1.1))) for size in sizes))
    ((_, fit),) = fit_links(graph).items()
    assert fit is not None
    assert fit.latency_ns == pytest.approx(LATENCY_NS, rel=0.25)
    assert fit.ns_per_byte == pytest.approx(NS_PER_BYTE, rel=0.1)
    assert fit.off < 0.1


def test_they_are_written_as_they_are_named() -> None:
    graph = in_a_row((1_000, cost(1_000)), (9_000, cost(9_000)))
    for change in (Latency(0.5), Latency(0.0), Bandwidth(2.0)):
        assert parse_change(change.name, graph) == change
    for text in ("bandwidth: x0", "latency: 0.5", "latency: x-1"):
        with pytest.raises(PredictionError, match="is no change"):
            parse_change(text, graph)


def test_what_ranks_wait_for_those_that_are_not_here_is_no_latency() -> None:
    """One rank of two: each service has 50 us of waiting in it."""
    sizes = (1_000, 4_000, 40_000)
    graph = in_a_row(*((size, cost(size) + 50_000) for size in sizes))[0]
    alone = replace(graph, collectives=tuple(replace(one, group_size=2) for one in graph.collectives))
    with pytest.raises(PredictionError, match="not known what is latency and what is bandwidth"):
        Latency(0.5).apply({0: alone})
    shared = {item: replace(one, ranks=(0, 1), key=f"{item}") for item, one in alone.services.items()}
    both = {rank: replace(alone, rank=rank, services=shared) for rank in (0, 1)}
    assert Latency(0.5).apply(both)[0].services[0].service_ns < both[0].services[0].service_ns

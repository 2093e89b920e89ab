"""What a link of known cost takes for each collective, against sums that are done by hand."""

from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.plan.traffic.link import count_messages, find_tier, service_ns
from dtbench.scenario.schema.network import Algorithm, BetweenNodes, EmulatedNetwork, Jitter, SlowRank

MIB = 1 << 20
FOUR = (0, 1, 2, 3)
NUMBER = ("0", 7)


def link(**fields: Any) -> EmulatedNetwork:
    return EmulatedNetwork(kind="emulated", **{"latency_us": 12_000.0, "bandwidth_gb_per_s": 0.1048576, **fields})


def test_a_direct_link_takes_its_latency_and_ten_milliseconds_for_a_mebibyte() -> None:
    assert service_ns(link(), Operation.ALL_REDUCE, MIB, FOUR, NUMBER) == 22_000_000
    assert service_ns(link(), Operation.ALL_GATHER, 3 * MIB, FOUR, NUMBER) == 42_000_000
    assert service_ns(link(), Operation.BARRIER, MIB, FOUR, NUMBER) == 12_000_000


def test_nothing_crosses_among_fewer_than_two_ranks() -> None:
    assert service_ns(link(), Operation.ALL_REDUCE, MIB, (2,), NUMBER) == 0


@pytest.mark.parametrize(
    ("algorithm", "operation", "rounds", "share"),
    [
        ("ring", Operation.ALL_REDUCE, 6, 1.5),
        ("ring", Operation.ALL_GATHER, 3, 0.75),
        ("ring", Operation.REDUCE_SCATTER, 3, 0.75),
        ("ring", Operation.BROADCAST, 3, 1.0),
        ("ring", Operation.SEND, 1, 1.0),
        ("ring", Operation.BARRIER, 6, 0.0),
        ("tree", Operation.ALL_REDUCE, 4, 2.0),
        ("tree", Operation.ALL_GATHER, 2, 0.75),
        ("tree", Operation.REDUCE, 2, 1.0),
        ("tree", Operation.ALL_TO_ALL, 3, 0.75),
        ("direct", Operation.ALL_TO_ALL, 1, 1.0),
    ],
)
def test_messages_of_four_ranks_are_those_of_the_table(
    algorithm: Algorithm, operation: Operation, rounds: int, share: float
) -> None:
    messages = count_messages(algorithm, operation, 4)
    assert (messages.rounds, messages.share) == (rounds, share)


@pytest.mark.parametrize("operation", list(Operation))
@pytest.mark.parametrize("algorithm", ["direct", "ring", "tree"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_more_bytes_never_take_less(algorithm: str, operation: Operation, ranks: int) -> None:
    group = tuple(range(ranks))
    times = [service_ns(link(algorithm=algorithm), operation, size, group, NUMBER) for size in (0, MIB, 4 * MIB)]
    assert times == sorted(times)
    assert times[0] > 0


def test_a_group_on_several_nodes_uses_the_slower_tier() -> None:
    network = link(between_nodes=BetweenNodes(ranks_per_node=2, latency_us=0.0, bandwidth_gb_per_s=0.01048576))
    assert find_tier(network, (0, 1)) is network
    assert service_ns(network, Operation.ALL_REDUCE, MIB, (0, 1), NUMBER) == 22_000_000
    assert service_ns(network, Operation.ALL_REDUCE, MIB, (0, 2), NUMBER) == 100_000_000


def test_jitter_is_the_same_on_all_ranks_and_lies_between_nothing_and_its_fraction() -> None:
    network = link(jitter=Jitter(fraction=0.5, seed=3))
    times = [service_ns(network, Operation.ALL_REDUCE, MIB, FOUR, ("0", seq)) for seq in range(200)]
    assert times == [service_ns(network, Operation.ALL_REDUCE, MIB, FOUR, ("0", seq)) for seq in range(200)]
    assert min(times) >= 22_000_000
    assert max(times) <= 33_000_000
    assert 26_500_000 < sum(times) / len(times) < 28_500_000
    other = link(jitter=Jitter(fraction=0.5, seed=4))
    assert times[0] != service_ns(other, Operation.ALL_REDUCE, MIB, FOUR, ("0", 0))


def test_a_slow_rank_slows_every_group_that_it_is_in() -> None:
    network = link(slow_rank=SlowRank(rank=3, factor=2.0))
    assert service_ns(network, Operation.ALL_REDUCE, MIB, (0, 1), NUMBER) == 22_000_000
    assert service_ns(network, Operation.ALL_REDUCE, MIB, (2, 3), NUMBER) == 44_000_000

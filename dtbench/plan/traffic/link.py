"""How long a link of known cost takes for a collective: the alpha-beta model, the same for emulation and prediction.

[Note: messages of an algorithm] With n ranks, a collective of ``size`` bytes (nccl-tests' convention) costs ``rounds``
latencies and sends ``share * size`` bytes through the narrowest place:

    ==============================  ==================  ==========================  ===========
    collective                      direct              ring                        tree
    ==============================  ==================  ==========================  ===========
    all-reduce                      1, size             2(n-1), 2(n-1)/n            2 log n, 2
    all-gather, reduce-scatter      1, size             n-1, (n-1)/n                log n, (n-1)/n
    all-to-all, gather, scatter     1, size             n-1, (n-1)/n                n-1, (n-1)/n
    broadcast, reduce               1, size             n-1, 1                      log n, 1
    send, receive                   1, size             1, 1                        1, 1
    barrier                         1, 0                2(n-1), 0                   2 log n, 0
    ==============================  ==================  ==========================  ===========

``log n`` is the binary logarithm, rounded up. Source: Thakur, Rabenseifner and Gropp, Optimization of Collective
Communication Operations in MPICH, International Journal of High Performance Computing Applications 19 (2005), with
pipelined rings and trees; bandwidth terms as in nccl-tests' PERFORMANCE.md.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from dtbench.base.units import NS_PER_US
from dtbench.base.vocabulary import Operation
from dtbench.scenario.schema.network import Algorithm, EmulatedNetwork, Jitter, Tier

_FROM_ALL_TO_ALL = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)


@dataclass(frozen=True)
class Messages:
    """What a collective sends: ``rounds`` latencies one after another, and ``share`` of its size."""

    rounds: int
    share: float


def count_messages(algorithm: Algorithm, operation: Operation, ranks: int) -> Messages:
    """Return the messages of a collective, by [Note: messages of an algorithm]; ``ranks`` at least 2."""
    match algorithm:
        case "direct":
            messages = Messages(1, 1.0)
        case "ring":
            messages = _count_on_ring(operation, ranks)
        case "tree":
            messages = _count_on_tree(operation, ranks)
        case _:
            assert_never(algorithm)
    return Messages(messages.rounds, 0.0) if operation is Operation.BARRIER else messages


def _count_on_ring(operation: Operation, ranks: int) -> Messages:
    others = ranks - 1
    match operation:
        case Operation.ALL_REDUCE | Operation.BARRIER:
            return Messages(2 * others, 2 * others / ranks)
        case Operation.BROADCAST | Operation.REDUCE:
            return Messages(others, 1.0)
        case Operation.SEND | Operation.RECV:
            return Messages(1, 1.0)
        case (
            Operation.ALL_GATHER
            | Operation.REDUCE_SCATTER
            | Operation.ALL_TO_ALL
            | Operation.GATHER
            | Operation.SCATTER
        ):
            return Messages(others, others / ranks)
        case _:
            assert_never(operation)


def _count_on_tree(operation: Operation, ranks: int) -> Messages:
    depth = (ranks - 1).bit_length()
    if operation in (Operation.ALL_REDUCE, Operation.BARRIER):
        return Messages(2 * depth, 2.0)
    if operation in (Operation.BROADCAST, Operation.REDUCE):
        return Messages(depth, 1.0)
    if operation in _FROM_ALL_TO_ALL:
        return Messages(depth, (ranks - 1) / ranks)
    return _count_on_ring(operation, ranks)


def find_tier(network: EmulatedNetwork, ranks: Sequence[int]) -> Tier:
    """Return the tier that a group of these global ranks uses."""
    nodes = network.between_nodes
    if nodes is None or min(ranks) // nodes.ranks_per_node == max(ranks) // nodes.ranks_per_node:
        return network
    return nodes


def service_ns(
    network: EmulatedNetwork, operation: Operation, size_bytes: int, ranks: Sequence[int], number: tuple[str, int]
) -> int:
    """Return how long the link serves one collective, ns; 0 among fewer than two ranks.

    Args:
        network: the link.
        operation: what it does.
        size_bytes: as nccl-tests counts it.
        ranks: global ranks of its group.
        number: process group and sequence number on it, which decide the jitter.
    """
    if len(ranks) < 2:
        return 0
    tier, messages = find_tier(network, ranks), count_messages(network.algorithm, operation, len(ranks))
    alpha_ns = messages.rounds * tier.latency_us * NS_PER_US
    beta_ns = messages.share * size_bytes / tier.bandwidth_gb_per_s  # bytes over 10^9 bytes per second are ns
    slow = network.slow_rank
    factor = slow.factor if slow is not None and slow.rank in ranks else 1.0
    return round((alpha_ns + beta_ns) * factor * _draw_jitter(network.jitter, number))


def _draw_jitter(jitter: Jitter | None, number: tuple[str, int]) -> float:
    """Return a factor from 1 up; equal on all ranks, since they agree on the number."""
    if jitter is None:
        return 1.0
    digest = hashlib.blake2b(f"{jitter.seed} {number[0]} {number[1]}".encode(), digest_size=8).digest()
    return 1.0 + jitter.fraction * int.from_bytes(digest, "big") / 2**64

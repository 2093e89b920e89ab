"""How fast a collective moved its bytes: algbw and busbw as nccl-tests define them."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from dtbench.base.vocabulary import Operation
from dtbench.traces.who.payload import MOST_PER_NS


def _of_ring(ranks: int) -> float:
    return (ranks - 1) / ranks


def _of_all_reduce(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _of_one_link(ranks: int) -> float:  # noqa: ARG001 - the same for any number of ranks
    return 1.0


# nccl-tests, doc/PERFORMANCE.md, "Summary"; gather, scatter and sendrecv as in src/gather.cu, scatter.cu, sendrecv.cu.
_BUS_FACTORS: Final[Mapping[Operation, Callable[[int], float]]] = {
    Operation.ALL_REDUCE: _of_all_reduce,
    Operation.ALL_GATHER: _of_ring,
    Operation.REDUCE_SCATTER: _of_ring,
    Operation.ALL_TO_ALL: _of_ring,
    Operation.GATHER: _of_ring,
    Operation.SCATTER: _of_ring,
    Operation.BROADCAST: _of_one_link,
    Operation.REDUCE: _of_one_link,
    Operation.SEND: _of_one_link,
    Operation.RECV: _of_one_link,
}


def algorithm_bandwidth(size_bytes: int | None, transfer_ns: int | None) -> float:
    """Return bytes per second; NaN where size or time is not known or no time passed.

    NaN, too, where that is more than any device moves: the size is not right, or the time, as clocks are apart.

    >>> algorithm_bandwidth(4_000, 2_000)  # 4 kB in 2 us
    2000000000.0
    """
    if size_bytes is None or not transfer_ns or size_bytes > MOST_PER_NS * transfer_ns:
        return math.nan
    return size_bytes / transfer_ns * 1e9


def bus_factor(operation: Operation | None, group_size: int | None) -> float:
    """Return what turns algbw into busbw, which can be held against a link's speed whatever the number of ranks.

    NaN for an operation that moves no payload or a group whose size is not known; 0 ranks or 1 move nothing over a bus.

    >>> bus_factor(Operation.ALL_REDUCE, 4), bus_factor(Operation.ALL_GATHER, 4)
    (1.5, 0.75)
    """
    if operation is None or operation not in _BUS_FACTORS or group_size is None or group_size < 2:
        return math.nan
    return _BUS_FACTORS[operation](group_size)

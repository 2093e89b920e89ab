"""The unit of a plan's traffic, and how its parts are made and summed."""

from collections.abc import Iterable
from typing import Final

from dtbench.base.record import Record
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.scenario.schema.scenario import Accumulation

DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


class PlannedTraffic(Record):
    """Collectives per rank and step, summed over equal (purpose, axis, operation); sizes as in nccl-tests.

    Attributes:
        purpose: what they are for.
        axis: of the mesh along which they run.
        operation: theirs.
        count: how many in a step.
        size_bytes: of all together.
    """

    purpose: Purpose
    axis: Axis
    operation: Operation
    count: int
    size_bytes: int


def make_traffic(purpose: Purpose, axis: Axis, operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    """Return one line of a plan."""
    return PlannedTraffic(purpose=purpose, axis=axis, operation=operation, count=count, size_bytes=size_bytes)


def wire_bytes(traffic: PlannedTraffic, ranks: int) -> int:
    """Return what one device sends (and receives) for a line of a plan over an axis of that many ranks.

    nccl-tests' factors for ring algorithms (its PERFORMANCE.md): an all-reduce of n ranks moves 2 (n - 1) / n of its
    size, all-gather, reduce-scatter and all-to-all (n - 1) / n; everything else its size.
    """
    match traffic.operation:
        case Operation.ALL_REDUCE:
            parts = 2 * (ranks - 1)
        case Operation.ALL_GATHER | Operation.REDUCE_SCATTER | Operation.ALL_TO_ALL:
            parts = ranks - 1
        case _:
            parts = ranks
    return traffic.size_bytes * parts // ranks


def reduce_gradients(axis: Axis, operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    """Return a line of gradient reductions."""
    return make_traffic(Purpose.GRAD_REDUCE, axis, operation, count, size_bytes)


def count_syncs(accumulation: Accumulation) -> int:
    """Return in how many of a step's backwards gradients are reduced (within shards, for ``reduce_scatter``)."""
    return 1 if accumulation.sync == "last" else accumulation.micro_batches


def sum_traffic(traffic: Iterable[PlannedTraffic]) -> tuple[PlannedTraffic, ...]:
    """Sum over equal (purpose, axis, operation), in order of first appearance."""
    sums: dict[tuple[Purpose, Axis, Operation], tuple[int, int]] = {}
    for item in traffic:
        key = (item.purpose, item.axis, item.operation)
        count, size_bytes = sums.get(key, (0, 0))
        sums[key] = (count + item.count, size_bytes + item.size_bytes)
    return tuple(make_traffic(*key, count, size_bytes) for key, (count, size_bytes) in sums.items())

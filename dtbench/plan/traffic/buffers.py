"""The buffers of a model, and what DDP's forward and ``join`` communicate apart from gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dtbench.base.units import MIB
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.parameters import Parameter, find_under
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, make_traffic
from dtbench.scenario.schema.ddp import Ddp
from dtbench.scenario.schema.model import Mlp, Model
from dtbench.scenario.schema.scenario import Scenario

_COUNT_BYTES: Final = 8  # of an int64
_FLAG_BYTES: Final = 4  # join asks in float32
COALESCED_BYTES: Final = 250 * MIB
"""At most in one broadcast (torch/nn/parallel/distributed.py: broadcast_bucket_size)."""


@dataclass(frozen=True)
class Buffer:
    """One buffer; ``is_integer``: an int64, else of the parameters' dtype."""

    name: str
    numel: int
    is_integer: bool


def list_buffers(model: Model) -> tuple[Buffer, ...]:
    """Return the buffers of a model of dtbench's own; none of a person's: only building it shows them."""
    if not isinstance(model, Mlp) or not model.running_statistics:
        return ()
    return tuple(
        Buffer(f"layers.{index}.{name}", numel, is_integer)
        for index in range(model.layers)
        for name, numel, is_integer in (
            ("running_mean", model.dim, False),
            ("running_var", model.dim, False),
            ("num_batches_tracked", 1, True),
        )
    )


def _list_kept_buffers(scenario: Scenario, parallel: Ddp) -> list[Buffer]:
    buffers = list_buffers(scenario.model)
    ignored = find_under((one.name for one in buffers), parallel.ignore)
    return [one for one in buffers if one.name not in ignored]


def buffer_traffic(scenario: Scenario, parallel: Ddp, *, iterations: int) -> Iterable[PlannedTraffic]:
    """Return what each step communicates for buffers: rank 0's broadcast, one for each dtype, or an average.

    After a forward under ``no_sync`` the next one syncs no buffers: so once for each reduction of gradients.
    """
    kept = _list_kept_buffers(scenario, parallel)
    if not kept or not parallel.broadcast_buffers or parallel.python_reducer:
        return
    times = count_syncs(scenario.accumulation) * iterations
    float_bytes = DTYPE_BYTES[scenario.precision.dtype] * sum(one.numel for one in kept if not one.is_integer)
    counts = sum(one.is_integer for one in kept)
    if parallel.buffer_comm_hook is not None:
        yield _other(Operation.ALL_REDUCE, times, times * float_bytes)
        return
    sizes = [size for size in (float_bytes, _COUNT_BYTES * counts) if size]
    yield _other(Operation.BROADCAST, times * len(sizes), times * sum(sizes))
    if parallel.join is not None:  # whose buffers: that of the last rank that still has rows
        yield _other(Operation.ALL_REDUCE, times, times * _COUNT_BYTES)


def join_traffic(
    scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...], *, iterations: int
) -> Iterable[PlannedTraffic]:
    """Return what ``join`` adds, the same on every rank: those that have joined shadow what the others do.

    In each iteration who is left, and whether gradients are reduced; at the end once more who is left, whose model
    counts, and a broadcast of that model.
    """
    if parallel.join is None:
        return
    yield _other(Operation.ALL_REDUCE, 2 * iterations + 1, (2 * iterations + 1) * _FLAG_BYTES)
    yield _other(Operation.ALL_REDUCE, 1, _COUNT_BYTES)
    element_bytes = DTYPE_BYTES[scenario.precision.dtype]
    ignored = find_under((one.name for one in parameters), parallel.ignore)
    kept = [one.numel * element_bytes for one in parameters if one.name not in ignored]
    if parallel.broadcast_buffers:
        buffers = _list_kept_buffers(scenario, parallel)
        kept += [one.numel * element_bytes for one in buffers if not one.is_integer]
        counts = sum(one.is_integer for one in buffers)
        if counts:
            yield _other(Operation.BROADCAST, 1, counts * _COUNT_BYTES)
    yield _other(Operation.BROADCAST, _count_broadcasts(kept), sum(kept))


def _count_broadcasts(sizes: list[int]) -> int:
    """Count the broadcasts that carry tensors of these sizes: each is full when it holds what it may."""
    count = held = 0
    for size in sizes:
        count, held = count + (held == 0), held + size
        held = 0 if held >= COALESCED_BYTES else held
    return count


def _other(operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    return make_traffic(Purpose.OTHER, Axis.REPLICATE, operation, count, size_bytes)

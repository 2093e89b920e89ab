"""What ``DistributedDataParallel`` reduces: its buckets, its hooks, and what is left out of the buckets."""

import sys
from collections.abc import Iterable
from math import prod
from typing import Final, assert_never

from dtbench.base.units import MIB
from dtbench.base.vocabulary import Axis, Operation
from dtbench.plan.traffic.buffers import buffer_traffic, join_traffic
from dtbench.plan.traffic.parameters import Parameter, find_under
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, reduce_gradients
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.ddp import (
    Bf16Compress,
    CustomHook,
    Ddp,
    EncodeAndDecode,
    Fp16Compress,
    Noop,
    PlainAllReduce,
    PowerSgd,
)
from dtbench.scenario.schema.scenario import Scenario

DDP_DEFAULT_CAP_BYTES: Final = 25 * MIB  # torch/nn/parallel/distributed.py: _DEFAULT_BUCKET_CAP_MB
DDP_DEFAULT_FIRST_BYTES: Final = 1 * MIB  # torch/csrc/distributed/c10d/reducer.hpp: kDefaultFirstBucketBytes
INDEX_BYTES: Final = 8  # of a row in a sparse gradient


def ddp_bucket_bytes(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> tuple[int, ...]:
    """Return the bytes of each bucket in order of issue, before any hook makes them smaller.

    Without ``find_unused_parameters`` (or with ``static_graph``) DDP rebuilds its buckets after the first step in the
    order in which gradients became ready, here the reverse of use in forward, then unused ones as they are defined;
    with it, the order of definition is cut into buckets and then reversed.
    """
    buckets = fill_buckets(scenario, parallel, parameters)
    return tuple(sum(_local_bytes(item, scenario) for item in bucket) for bucket in buckets)


def _local_bytes(parameter: Parameter, scenario: Scenario) -> int:
    return parameter.local_numel(scenario.parallel.tensor) * DTYPE_BYTES[scenario.precision.dtype]


def fill_buckets(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Return the parameters of each bucket in order of issue, once they are rebuilt."""
    kept = _keep_reduced(parallel, parameters)
    if parallel.find_unused_parameters and not parallel.static_graph:
        return _cut_into_buckets(scenario, kept, _bucket_caps(parallel))[::-1]
    ready = [item for item in kept[::-1] if item.is_used] + [item for item in kept if not item.is_used]
    return _cut_into_buckets(scenario, ready, _bucket_caps(parallel))


def fill_first_buckets(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Return the same for the first step, before they are rebuilt: one bucket for all, unless caps are listed.

    Not for ``find_unused_parameters``, whose buckets are never rebuilt.
    """
    caps = _bucket_caps(parallel) if parallel.bucket_cap_mb_list is not None else (sys.maxsize,)
    return _cut_into_buckets(scenario, _keep_reduced(parallel, parameters), caps)[::-1]


def _keep_reduced(parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[Parameter]:
    left_out = _find_names(parameters, (*parallel.delay_all_reduce, *parallel.ignore))
    return [item for item in parameters if item.name not in left_out]


def _find_names(parameters: tuple[Parameter, ...], modules: Iterable[str]) -> frozenset[str]:
    return find_under((item.name for item in parameters), modules)


def _cut_into_buckets(
    scenario: Scenario, parameters: Iterable[Parameter], caps: tuple[int, ...]
) -> list[list[Parameter]]:
    """Close a bucket as soon as it holds at least its cap (``compute_bucket_assignment_by_size``).

    A parameter with a sparse gradient has a bucket of its own, before the one that is being filled.
    """
    buckets: list[list[Parameter]] = [[]]
    closed = filled_bytes = 0
    for parameter in parameters:
        if parameter.is_sparse:
            buckets.insert(-1, [parameter])
            continue
        buckets[-1].append(parameter)
        filled_bytes += _local_bytes(parameter, scenario)
        if filled_bytes >= caps[min(closed + 1, len(caps)) - 1]:
            buckets.append([])
            closed, filled_bytes = closed + 1, 0
    return [bucket for bucket in buckets if bucket]


def _bucket_caps(parallel: Ddp) -> tuple[int, ...]:
    """Return the caps of the first buckets in bytes; the last holds for all others."""
    if parallel.bucket_cap_mb_list is not None:
        return tuple(int(cap * MIB) for cap in parallel.bucket_cap_mb_list)
    if parallel.bucket_cap_mb is not None:
        return (int(parallel.bucket_cap_mb * MIB),)
    return (DDP_DEFAULT_FIRST_BYTES, DDP_DEFAULT_CAP_BYTES)


def ddp_traffic(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Return what one step reduces, and what it communicates for buffers and ``join``; nothing without the wrapper."""
    if not parallel.wrap:
        return
    iterations = max(scenario.data.iterations or (1,))
    yield from _reduced(scenario, parallel, parameters, count_syncs(scenario.accumulation) * iterations)
    yield from buffer_traffic(scenario, parallel, iterations=iterations)
    yield from join_traffic(scenario, parallel, parameters, iterations=iterations)


def _reduced(
    scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...], syncs: int
) -> Iterable[PlannedTraffic]:
    """Return the all-reduces of the buckets, of what was left out of them, of the map of unused parameters."""
    for bucket in _find_reduced(scenario, parallel, parameters):
        sizes = hooked_bytes(bucket, scenario, parallel)
        if sizes:
            yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, syncs * len(sizes), syncs * sum(sizes))
    named = _find_names(parameters, parallel.delay_all_reduce)
    delayed = [item for item in parameters if item.name in named]
    if delayed:  # torch makes their buffer in float32
        numel = sum(item.local_numel(parallel.tensor) for item in delayed)
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, 1, DTYPE_BYTES["float32"] * numel)
    left_alone = _find_names(parameters, parallel.ignore)
    ignored = [_local_bytes(item, scenario) for item in parameters if item.name in left_alone]
    updates = max(scenario.data.iterations or (1,))
    if ignored:  # once for each update
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, updates * len(ignored), updates * sum(ignored))
    if parallel.find_unused_parameters and not parallel.static_graph:
        kept = len(parameters) - len(delayed) - len(ignored)
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, syncs, syncs * 4 * kept)  # an int32 for each


def _find_reduced(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Return what is reduced together in one step: a bucket, or with the python reducer each gradient by itself."""
    if parallel.python_reducer:
        return [[item] for item in _keep_reduced(parallel, parameters) if item.is_used]
    buckets = fill_buckets(scenario, parallel, parameters)
    if not parallel.skip_all_reduce_unused_params:
        return buckets
    return [bucket for bucket in buckets if any(item.is_used for item in bucket)]


def hooked_bytes(bucket: list[Parameter], scenario: Scenario, parallel: Ddp) -> tuple[int, ...]:
    """Return the bytes of each all-reduce that a bucket becomes; of a person's own hook they are unknown."""
    element_bytes = DTYPE_BYTES[scenario.reduce_dtype]
    numel = sum(item.local_numel(parallel.tensor) for item in bucket)
    match parallel.comm_hook:
        case Fp16Compress() | Bf16Compress():
            return (2 * numel,)
        case EncodeAndDecode(dtype=dtype):
            return (DTYPE_BYTES[dtype] * numel,)
        case PowerSgd():
            shapes = [item.local_shape(parallel.tensor) for item in bucket]
            return tuple(element_bytes * count for count in _powersgd_elements(shapes, parallel.comm_hook))
        case Noop() | CustomHook():
            return ()
        case PlainAllReduce() | None:
            return (_sparse_bytes(bucket[0], scenario) if bucket[0].is_sparse else element_bytes * numel,)
        case _:
            assert_never(parallel.comm_hook)


def _sparse_bytes(parameter: Parameter, scenario: Scenario) -> int:
    """Return the bytes of a rank's own sparse gradient as it is handed over: a row and its number for every token.

    What gloo sends of it depends on how many rows each rank has, and is not counted.
    """
    tokens = scenario.data.global_batch // count_data_ranks(scenario.parallel) * scenario.data.sequence_length
    parts = max(scenario.data.iterations or (1,))
    return tokens // parts * (INDEX_BYTES + parameter.shape[1] * DTYPE_BYTES[scenario.precision.dtype])


def _powersgd_elements(shapes: list[tuple[int, ...]], hook: PowerSgd) -> tuple[int, int, int]:
    """Return the elements of the three all-reduces of a bucket: what stays whole, all left factors, all right factors.

    A tensor is seen as a matrix of its first dim by the rest, and compressed when its two factors are at least
    ``min_compression_rate`` times smaller (``powerSGD_hook._should_compress``).
    """
    whole = left = right = 0
    for rows, *rest in (shape or (1,) for shape in shapes):
        columns, rank = prod(rest), min(rows, prod(rest), hook.matrix_approximation_rank)
        if (rows + columns) * rank * hook.min_compression_rate < rows * columns:
            left, right = left + rows * rank, right + columns * rank
        else:
            whole += rows * columns
    return whole, left, right

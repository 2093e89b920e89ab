"""What ``DistributedDataParallel`` reduces: its buckets, its hooks, and what it leaves out of the buckets."""

import sys
from collections.abc import Iterable
from math import prod
from typing import Final, assert_never

from dtbench.scenario.schema import Bf16Compress, Ddp, Fp16Compress, PlainAllReduce, PowerSgd, Scenario
from dtbench.traffic.parameters import Parameter, is_under
from dtbench.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, reduce_gradients
from dtbench.units import MIB
from dtbench.vocabulary import Axis, Operation

DDP_DEFAULT_CAP_BYTES: Final = 25 * MIB  # torch/nn/parallel/distributed.py: _DEFAULT_BUCKET_CAP_MB
DDP_DEFAULT_FIRST_BYTES: Final = 1 * MIB  # torch/csrc/distributed/c10d/reducer.hpp: kDefaultFirstBucketBytes


def ddp_bucket_bytes(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> tuple[int, ...]:
    """Give the bytes of each bucket in order of issue, before any hook makes them smaller.

    Without ``find_unused_parameters`` (or with ``static_graph``) DDP rebuilds its buckets after the first step in the
    order in which gradients became ready, here the reverse of use in forward; with it, the order of definition is cut
    into buckets and then reversed.
    """
    buckets = fill_buckets(scenario, parallel, parameters)
    return tuple(sum(_local_bytes(item, scenario) for item in bucket) for bucket in buckets)


def _local_bytes(parameter: Parameter, scenario: Scenario) -> int:
    return prod(parameter.local_shape(scenario.parallel.tensor)) * DTYPE_BYTES[scenario.precision.dtype]


def fill_buckets(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Give the parameters of each bucket in order of issue, once they are rebuilt."""
    kept = [item for item in parameters if not is_under(item.name, parallel.delay_all_reduce)]
    if parallel.find_unused_parameters and not parallel.static_graph:
        return _cut_into_buckets(scenario, kept, _bucket_caps(parallel))[::-1]
    return _cut_into_buckets(scenario, kept[::-1], _bucket_caps(parallel))


def fill_first_buckets(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Give the same for the first step, before they are rebuilt: one bucket for all, unless caps are listed.

    Not for ``find_unused_parameters``, whose buckets are never rebuilt.
    """
    kept = [item for item in parameters if not is_under(item.name, parallel.delay_all_reduce)]
    caps = _bucket_caps(parallel) if parallel.bucket_cap_mb_list is not None else (sys.maxsize,)
    return _cut_into_buckets(scenario, kept, caps)[::-1]


def _cut_into_buckets(
    scenario: Scenario, parameters: Iterable[Parameter], caps: tuple[int, ...]
) -> list[list[Parameter]]:
    """Close a bucket as soon as it holds at least its cap (``compute_bucket_assignment_by_size``)."""
    buckets: list[list[Parameter]] = [[]]
    for parameter in parameters:
        buckets[-1].append(parameter)
        cap = caps[min(len(buckets), len(caps)) - 1]
        if sum(_local_bytes(item, scenario) for item in buckets[-1]) >= cap:
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


def _bucket_caps(parallel: Ddp) -> tuple[int, ...]:
    """Give the caps of the first buckets in bytes; the last holds for all others."""
    if parallel.bucket_cap_mb_list is not None:
        return tuple(int(cap * MIB) for cap in parallel.bucket_cap_mb_list)
    if parallel.bucket_cap_mb is not None:
        return (int(parallel.bucket_cap_mb * MIB),)
    return (DDP_DEFAULT_FIRST_BYTES, DDP_DEFAULT_CAP_BYTES)


def ddp_traffic(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Give the all-reduces of one step: of the buckets, of what was left out of them, of the map of unused ones."""
    syncs = count_syncs(scenario.accumulation)
    for bucket in fill_buckets(scenario, parallel, parameters):
        sizes = hooked_bytes(bucket, scenario, parallel)
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, syncs * len(sizes), syncs * sum(sizes))
    delayed = [item for item in parameters if is_under(item.name, parallel.delay_all_reduce)]
    if delayed:  # torch makes their buffer in float32
        numel = sum(prod(item.local_shape(parallel.tensor)) for item in delayed)
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, 1, DTYPE_BYTES["float32"] * numel)
    if parallel.find_unused_parameters and not parallel.static_graph:
        kept = len(parameters) - len(delayed)
        yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, syncs, syncs * 4 * kept)  # an int32 for each


def hooked_bytes(bucket: list[Parameter], scenario: Scenario, parallel: Ddp) -> tuple[int, ...]:
    """Give the bytes of each all-reduce that a bucket becomes."""
    element_bytes = DTYPE_BYTES[parallel.mixed_precision.reduce_dtype or scenario.precision.dtype]
    shapes = [item.local_shape(parallel.tensor) for item in bucket]
    numel = sum(prod(shape) for shape in shapes)
    match parallel.comm_hook:
        case Fp16Compress() | Bf16Compress():
            return (2 * numel,)
        case PowerSgd():
            return tuple(element_bytes * count for count in _powersgd_elements(shapes, parallel.comm_hook))
        case PlainAllReduce() | None:
            return (element_bytes * numel,)
        case _:
            assert_never(parallel.comm_hook)


def _powersgd_elements(shapes: list[tuple[int, ...]], hook: PowerSgd) -> tuple[int, int, int]:
    """Give the elements of the three all-reduces of a bucket: what stays whole, all left factors, all right factors.

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

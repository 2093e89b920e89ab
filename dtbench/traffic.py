"""What must cross the wire in one training step: formulas over parameter shapes, held against every run's receipts.

Sizes follow nccl-tests: an all-reduce counts its tensor, an all-gather its whole output, a reduce-scatter its whole
input. Counts and sizes are per rank and step, after warm-up. Sources: torch 2.13's ``_data_parallel`` reducer
(``compute_bucket_assignment_by_size``), ``_fully_shard/_fsdp_collectives.py`` and DTensor's redistribution rules, each
confirmed by ``tests/worker/test_traffic.py`` on real ranks.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Final, assert_never

from dtbench.record import Record
from dtbench.scenario.schema import Ddp, Fsdp2, Scenario, Transformer
from dtbench.units import MIB
from dtbench.vocabulary import Axis, Operation, Purpose

DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
DDP_DEFAULT_CAP_BYTES: Final = 25 * MIB  # torch/nn/parallel/distributed.py: _DEFAULT_BUCKET_CAP_MB
DDP_DEFAULT_FIRST_BYTES: Final = 1 * MIB  # torch/csrc/distributed/c10d/reducer.hpp: kDefaultFirstBucketBytes


class PlannedTraffic(Record):
    """Collectives per rank and step, summed over equal (purpose, axis, operation); sizes as in nccl-tests."""

    purpose: Purpose
    axis: Axis
    operation: Operation
    count: int
    size_bytes: int


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model.

    Attributes:
        unit: FSDP unit that it belongs to: ``layers.<i>`` or ``""`` for the root.
        tensor_dim: dimension that tensor parallelism shards; None: replicated.
        is_norm: weight of an RMSNorm, whose gradient is partial under sequence parallelism.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    tensor_dim: int | None
    is_norm: bool = False

    @property
    def numel(self) -> int:
        """Number of elements before any sharding."""
        return prod(self.shape)

    def local_shape(self, tensor: int) -> tuple[int, ...]:
        """Shape on one rank of the tensor axis; plans refuse sizes that do not divide."""
        return tuple(size // tensor if dim == self.tensor_dim else size for dim, size in enumerate(self.shape))


def list_parameters(model: Transformer) -> tuple[Parameter, ...]:
    """Give the parameters in the order of ``named_parameters``, which is also the order of use in forward."""
    dim, hidden = model.dim, model.ffn_dim
    kv_dim = dim // model.heads * (model.kv_heads or model.heads)
    parameters = [Parameter("embedding.weight", (model.vocab_size, dim), "", 0)]
    for index in range(model.layers):
        unit = f"layers.{index}"
        shapes: tuple[tuple[str, tuple[int, ...], int | None], ...] = (
            ("attention_norm", (dim,), None),
            ("attention.wq", (dim, dim), 0),
            ("attention.wk", (kv_dim, dim), 0),
            ("attention.wv", (kv_dim, dim), 0),
            ("attention.wo", (dim, dim), 1),
            ("ffn_norm", (dim,), None),
            ("ffn.w1", (hidden, dim), 0),
            ("ffn.w3", (hidden, dim), 0),
            ("ffn.w2", (dim, hidden), 1),
        )
        parameters += [
            Parameter(f"{unit}.{name}.weight", shape, unit, tensor_dim, is_norm=tensor_dim is None)
            for name, shape, tensor_dim in shapes
        ]
    parameters.append(Parameter("norm.weight", (dim,), "", None, is_norm=True))
    if not model.tied_head:
        parameters.append(Parameter("head.weight", (model.vocab_size, dim), "", 0))
    return tuple(parameters)


def plan_traffic(scenario: Scenario) -> tuple[PlannedTraffic, ...]:
    """Give what one rank issues in one step after warm-up."""
    parameters = list_parameters(scenario.model)
    match scenario.parallel:
        case Ddp():
            traffic = _ddp_traffic(scenario, scenario.parallel, parameters)
        case Fsdp2():
            sharded = _fsdp2_traffic(scenario, scenario.parallel, parameters)
            cut = _tensor_traffic(scenario, scenario.parallel, parameters)
            traffic = (*sharded, *cut, *_clip_traffic(scenario, scenario.parallel, parameters))
        case _:
            assert_never(scenario.parallel)
    return _sum_traffic(traffic)


def ddp_bucket_bytes(scenario: Scenario, parallel: Ddp) -> tuple[int, ...]:
    """Give the bytes of each bucket in order of issue.

    Without ``find_unused_parameters`` (or with ``static_graph``) DDP rebuilds its buckets after the first step in the
    order in which gradients became ready, here the reverse of use in forward; with it, the order of definition is cut
    into buckets and then reversed.
    """
    element_bytes = DTYPE_BYTES[scenario.precision.dtype]
    sizes = [parameter.numel * element_bytes for parameter in list_parameters(scenario.model)]
    if parallel.bucket_cap_mb is None:
        first, cap = DDP_DEFAULT_FIRST_BYTES, DDP_DEFAULT_CAP_BYTES
    else:
        first = cap = int(parallel.bucket_cap_mb * MIB)
    if parallel.find_unused_parameters and not parallel.static_graph:
        return tuple(reversed(_cut_into_buckets(sizes, first, cap)))
    return tuple(_cut_into_buckets(sizes[::-1], first, cap))


def _cut_into_buckets(sizes: list[int], first_cap: int, cap: int) -> list[int]:
    """Close a bucket as soon as it holds at least its cap (``compute_bucket_assignment_by_size``)."""
    buckets: list[int] = []
    filled = 0
    for size in sizes:
        filled += size
        if filled >= (cap if buckets else first_cap):
            buckets.append(filled)
            filled = 0
    return [*buckets, filled] if filled else buckets


def _ddp_traffic(scenario: Scenario, parallel: Ddp, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    buckets = ddp_bucket_bytes(scenario, parallel)
    yield _traffic(Purpose.GRAD_REDUCE, Axis.REPLICATE, Operation.ALL_REDUCE, len(buckets), sum(buckets))
    if parallel.find_unused_parameters and not parallel.static_graph:
        yield _traffic(Purpose.GRAD_REDUCE, Axis.REPLICATE, Operation.ALL_REDUCE, 1, 4 * len(parameters))  # int32 map


def _fsdp2_traffic(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Gather each unit in forward, again in backward if it was resharded, and reduce-scatter it once."""
    if parallel.shards == 1:
        return
    gathered_bytes = DTYPE_BYTES[parallel.mixed_precision.param_dtype or scenario.precision.dtype]
    reduced_bytes = DTYPE_BYTES[
        parallel.mixed_precision.reduce_dtype or parallel.mixed_precision.param_dtype or scenario.precision.dtype
    ]
    elements = padded_unit_elements(parameters, parallel)
    for unit, count in elements.items():
        reshards = parallel.reshard_after_forward if parallel.reshard_after_forward is not None else unit != ""
        gathers = 2 if reshards else 1
        yield _traffic(Purpose.UNSHARD, Axis.SHARD, Operation.ALL_GATHER, gathers, gathers * count * gathered_bytes)
        yield _traffic(Purpose.GRAD_REDUCE, Axis.SHARD, Operation.REDUCE_SCATTER, 1, count * reduced_bytes)


def padded_unit_elements(parameters: tuple[Parameter, ...], parallel: Fsdp2) -> Counter[str]:
    """Give the elements that one all-gather of each unit puts out: dim 0 is padded up to a multiple of the shards."""
    elements: Counter[str] = Counter()
    for parameter in parameters:
        rows, *rest = parameter.local_shape(parallel.tensor)
        elements[parameter.unit] += ceil(rows / parallel.shards) * parallel.shards * prod(rest)
    return elements


def _tensor_traffic(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Count the redistributions of activations on the tensor axis.

    Each block has two parallel regions (attention, feed-forward), each entered and left once in forward and once in
    backward. Embedding and head add one exit and one entry. The head's output is gathered whole, so that the loss is
    computed on every rank. Under sequence parallelism the weight of each norm sees its part of the sequence only, so
    its gradient is completed by one all-reduce.
    """
    if parallel.tensor == 1:
        return
    rows = scenario.data.global_batch // parallel.shards
    tokens = rows * scenario.data.sequence_length
    element_bytes = DTYPE_BYTES[parallel.mixed_precision.param_dtype or scenario.precision.dtype]
    activation = tokens * scenario.model.dim * element_bytes
    crossings = 2 * scenario.model.layers + 1
    logits = tokens * scenario.model.vocab_size * element_bytes
    yield _traffic(Purpose.TENSOR, Axis.TENSOR, Operation.ALL_GATHER, 1, logits)
    if not parallel.sequence_parallel:
        yield _traffic(Purpose.TENSOR, Axis.TENSOR, Operation.ALL_REDUCE, 2 * crossings, 2 * crossings * activation)
        return
    yield _traffic(Purpose.TENSOR, Axis.TENSOR, Operation.ALL_GATHER, 2 * crossings, 2 * crossings * activation)
    yield _traffic(Purpose.TENSOR, Axis.TENSOR, Operation.REDUCE_SCATTER, 2 * crossings, 2 * crossings * activation)
    norms = [parameter.numel * element_bytes for parameter in parameters if parameter.is_norm]
    yield _traffic(Purpose.TENSOR, Axis.TENSOR, Operation.ALL_REDUCE, len(norms), sum(norms))


def _clip_traffic(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Complete the vector of the gradients' norms along each axis; DDP's gradients are whole and need nothing."""
    if scenario.gradient_clip_norm is None:
        return
    size_bytes = len(parameters) * DTYPE_BYTES[scenario.precision.dtype]
    for axis, size in ((Axis.SHARD, parallel.shards), (Axis.TENSOR, parallel.tensor)):
        if size > 1:
            yield _traffic(Purpose.OTHER, axis, Operation.ALL_REDUCE, 1, size_bytes)


def _traffic(purpose: Purpose, axis: Axis, operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    return PlannedTraffic(purpose=purpose, axis=axis, operation=operation, count=count, size_bytes=size_bytes)


def _sum_traffic(traffic: Iterable[PlannedTraffic]) -> tuple[PlannedTraffic, ...]:
    sums: dict[tuple[Purpose, Axis, Operation], tuple[int, int]] = {}
    for item in traffic:
        key = (item.purpose, item.axis, item.operation)
        count, size_bytes = sums.get(key, (0, 0))
        sums[key] = (count + item.count, size_bytes + item.size_bytes)
    return tuple(_traffic(*key, count, size_bytes) for key, (count, size_bytes) in sums.items())

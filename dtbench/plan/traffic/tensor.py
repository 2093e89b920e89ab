"""What tensor parallelism redistributes in forward and backward."""

from collections.abc import Iterable
from math import ceil
from typing import assert_never

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, make_traffic
from dtbench.scenario.schema.model import (
    Custom,
    FullCheckpointing,
    Mlp,
    OperatorCheckpointing,
    SelectiveCheckpointing,
    Timed,
    Transformer,
)
from dtbench.scenario.schema.scenario import Ddp, DtypeName, Fsdp1, Fsdp2, Parallel, Scenario


def count_data_ranks(parallel: Parallel) -> int:
    """Return the number of ranks, or groups of tensor-parallel ranks, that see different rows."""
    match parallel:
        case Ddp(replicas=replicas):
            return replicas
        case Fsdp1(replicas=replicas, shards=shards) | Fsdp2(replicas=replicas, shards=shards):
            return replicas * shards


def tensor_traffic(scenario: Scenario, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Return the redistributions on the tensor axis; those of a person's own model are not known."""
    if scenario.parallel.tensor == 1:
        return ()
    sizes = scenario.model
    match sizes:
        case Transformer():
            return _transformer_traffic(scenario, sizes, parameters)
        case Mlp() | Timed() if scenario.parallel.gather_weights is not None:
            return _gathered_traffic(scenario, sizes.dim, parameters)
        case Mlp():
            return _mlp_traffic(scenario, sizes)
        case Timed():
            return _mlp_traffic(scenario, sizes.mlp, asks_for_input=sizes.backward_at == "entry")
        case Custom():
            return ()
        case _:
            assert_never(sizes)


def _mlp_traffic(scenario: Scenario, model: Mlp, *, asks_for_input: bool = False) -> Iterable[PlannedTraffic]:
    """Leave each block in forward and enter it in backward; that of the first one only if its input has a gradient."""
    tokens = scenario.data.global_batch // count_data_ranks(scenario.parallel) * scenario.data.sequence_length
    crossings = 2 * model.layers - (0 if asks_for_input else 1)
    size_bytes = tokens * model.dim * DTYPE_BYTES[_compute_dtype(scenario)]
    yield _cut(Operation.ALL_REDUCE, crossings * scenario.accumulation.micro_batches, crossings * size_bytes)


def _gathered_traffic(scenario: Scenario, dim: int, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Gather each parameter in forward and reduce its gradient in backward; put the last block's output together."""
    times, element_bytes = scenario.accumulation.micro_batches, DTYPE_BYTES[_compute_dtype(scenario)]
    tokens = scenario.data.global_batch // count_data_ranks(scenario.parallel) * scenario.data.sequence_length
    weights = times * element_bytes * sum(parameter.numel for parameter in parameters)
    output = tokens * dim * element_bytes
    yield _cut(Operation.ALL_GATHER, times * (len(parameters) + 1), weights + output)
    yield _cut(Operation.REDUCE_SCATTER, times * len(parameters), weights)


def _transformer_traffic(
    scenario: Scenario, model: Transformer, parameters: tuple[Parameter, ...]
) -> Iterable[PlannedTraffic]:
    """Count the redistributions of activations on the tensor axis.

    Each block has two parallel regions (attention, feed-forward), each entered and left once in forward and once in
    backward. Embedding and head add one exit and one entry. The head's output is gathered whole, so that the loss is
    computed on every rank, or stays cut (loss parallelism). Under sequence parallelism the weight of each norm sees its
    part of the sequence only, so its gradient is completed by one all-reduce: in every backward, but under FSDP2 only
    in those that reduce gradients, since it accumulates partial DTensors. Micro-batches issue more and smaller ones.
    """
    parallel = scenario.parallel
    times = scenario.accumulation.micro_batches
    tokens = scenario.data.global_batch // count_data_ranks(parallel) * scenario.data.sequence_length
    element_bytes = DTYPE_BYTES[_compute_dtype(scenario)]
    activation = tokens * model.dim * element_bytes
    crossings = 2 * model.layers + 1
    again = _count_recomputed_blocks(scenario, model.layers)
    yield from _logits_traffic(scenario, tokens, model.vocab_size * element_bytes)
    if not parallel.sequence_parallel:
        yield _cut(Operation.ALL_REDUCE, (2 * crossings + again) * times, (2 * crossings + again) * activation)
        return
    gathers, scatters = 2 * crossings + 2 * again, 2 * crossings + again
    yield _cut(Operation.ALL_GATHER, gathers * times, gathers * activation)
    yield _cut(Operation.REDUCE_SCATTER, scatters * times, scatters * activation)
    norms = [parameter.numel * element_bytes for parameter in parameters if parameter.is_norm]
    completions = count_syncs(scenario.accumulation) if isinstance(parallel, Fsdp2) else times
    yield _cut(Operation.ALL_REDUCE, len(norms) * completions, sum(norms) * completions)


def _count_recomputed_blocks(scenario: Scenario, layers: int) -> int:
    """Count blocks that run again in backward, up to the last tensor that backward needs.

    Recomputation stops there (``torch.utils.checkpoint.set_checkpoint_early_stop``), which is before a block's last
    collective: leaving its feed-forward.
    """
    match scenario.model.activation_checkpointing:
        case None:
            return 0
        case SelectiveCheckpointing(every=every):
            return ceil(layers / every)
        case FullCheckpointing() | OperatorCheckpointing():
            return layers


def _logits_traffic(scenario: Scenario, tokens: int, logits_bytes: int) -> Iterable[PlannedTraffic]:
    """Gather the logits, or complete the softmax over the cut vocabulary: its maximum, its sum, the target's logit."""
    times = scenario.accumulation.micro_batches
    if scenario.parallel.loss_parallel:
        yield _cut(Operation.ALL_REDUCE, 3 * times, 3 * tokens * DTYPE_BYTES["float32"])
    else:
        yield _cut(Operation.ALL_GATHER, times, tokens * logits_bytes)


def _compute_dtype(scenario: Scenario) -> DtypeName:
    match scenario.parallel:
        case Ddp():
            return scenario.precision.dtype
        case Fsdp1() | Fsdp2():
            return scenario.gather_dtype


def _cut(operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    return make_traffic(Purpose.TENSOR, Axis.TENSOR, operation, count, size_bytes)

"""What tensor parallelism redistributes in forward and backward."""

from collections.abc import Iterable

from dtbench.scenario.schema import Ddp, DtypeName, Fsdp1, Fsdp2, Parallel, Scenario
from dtbench.traffic.parameters import Parameter
from dtbench.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, make_traffic
from dtbench.vocabulary import Axis, Operation, Purpose


def count_data_ranks(parallel: Parallel) -> int:
    """Give the number of ranks, or groups of tensor-parallel ranks, that see different rows."""
    match parallel:
        case Ddp(replicas=replicas):
            return replicas
        case Fsdp1(replicas=replicas, shards=shards) | Fsdp2(replicas=replicas, shards=shards):
            return replicas * shards


def tensor_traffic(scenario: Scenario, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Count the redistributions of activations on the tensor axis.

    Each block has two parallel regions (attention, feed-forward), each entered and left once in forward and once in
    backward. Embedding and head add one exit and one entry. The head's output is gathered whole, so that the loss is
    computed on every rank, or stays cut (loss parallelism). Under sequence parallelism the weight of each norm sees its
    part of the sequence only, so its gradient is completed by one all-reduce: in every backward, but under FSDP2 only
    in those that reduce gradients, since it accumulates partial DTensors. Micro-batches issue more and smaller ones.
    """
    parallel = scenario.parallel
    if parallel.tensor == 1:
        return
    times = scenario.accumulation.micro_batches
    tokens = scenario.data.global_batch // count_data_ranks(parallel) * scenario.data.sequence_length
    element_bytes = DTYPE_BYTES[_compute_dtype(scenario)]
    activation = tokens * scenario.model.dim * element_bytes
    crossings = 2 * scenario.model.layers + 1
    yield from _logits_traffic(scenario, tokens, element_bytes)
    if not parallel.sequence_parallel:
        yield _cut(Operation.ALL_REDUCE, 2 * crossings * times, 2 * crossings * activation)
        return
    yield _cut(Operation.ALL_GATHER, 2 * crossings * times, 2 * crossings * activation)
    yield _cut(Operation.REDUCE_SCATTER, 2 * crossings * times, 2 * crossings * activation)
    norms = [parameter.numel * element_bytes for parameter in parameters if parameter.is_norm]
    completions = count_syncs(scenario.accumulation) if isinstance(parallel, Fsdp2) else times
    yield _cut(Operation.ALL_REDUCE, len(norms) * completions, sum(norms) * completions)


def _logits_traffic(scenario: Scenario, tokens: int, element_bytes: int) -> Iterable[PlannedTraffic]:
    """Gather the logits, or complete the softmax over the cut vocabulary: its maximum, its sum, the target's logit."""
    times = scenario.accumulation.micro_batches
    if scenario.parallel.loss_parallel:
        yield _cut(Operation.ALL_REDUCE, 3 * times, 3 * tokens * DTYPE_BYTES["float32"])
    else:
        yield _cut(Operation.ALL_GATHER, times, tokens * scenario.model.vocab_size * element_bytes)


def _compute_dtype(scenario: Scenario) -> DtypeName:
    match scenario.parallel:
        case Ddp():
            return scenario.precision.dtype
        case Fsdp1(mixed_precision=policy) | Fsdp2(mixed_precision=policy):
            return policy.param_dtype or scenario.precision.dtype


def _cut(operation: Operation, count: int, size_bytes: int) -> PlannedTraffic:
    return make_traffic(Purpose.TENSOR, Axis.TENSOR, operation, count, size_bytes)

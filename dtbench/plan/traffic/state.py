"""What each stage of a training state sends: collectives of tensors in one call on one rank, read off torch 2.13.

::

    T tensors, B bytes: a model's parameters; of AdamW's state two for each, of SGD's one with momentum, else none
    U units: of FSDP1, each one flat parameter

                     DDP            FSDP2                       FSDP1, model              FSDP1, optimizer
    shard, flatten   -              -                           gather U                  all-reduce 1 (4 B), gather
    gather           -              gather T                    gather U                    U for each moment
    load             -              -                           gather U, gather T        gather T
    distribute       -              scatter T, and broadcast T  gather U                  -
                                    to replicas
    broadcast        broadcast T    broadcast T                 broadcast T, gather U     broadcast T

Numbers that are no tensors, or tensors without a dimension (AdamW's step count), go as pickled objects, which no
formula says. FSDP1 gathers flat parameters with their padding, and where it loads each tensor besides.

Over a tensor axis whole bytes are those of a tensor before any cut; "rows" are tensors that tensor parallelism cuts by
rows, as ``DTensor`` writes it ``Shard(0)``::

    FSDP2       gather       joins what both axes cut: rows first over shards, columns first over the tensor axis
                distribute   scatter over shards, then of that part scatter (cut) or broadcast (not cut) over tensor
    FSDP1       shard        U, then rows whole over the tensor axis: the flat parameter's cut is made anew
    (model)     gather       U, then what tensor parallelism cuts whole over the tensor axis
                load         U, then rows joined over the tensor axis, then every tensor over shards
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from dtbench.base.record import Record
from dtbench.base.vocabulary import Operation, Stage, StatePart
from dtbench.plan.traffic.fsdp1 import flat_unit_elements
from dtbench.plan.traffic.parameters import Parameter, known_parameters
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.scenario.schema.scenario import AdamW, Ddp, Fsdp1, Fsdp1MixedPrecision, Fsdp2, Scenario


class StageTraffic(Record):
    """Collectives of tensors that one rank issues in one call of a stage; sizes as in nccl-tests.

    Attributes:
        operation: theirs.
        count: how many.
        size_bytes: of all together.
    """

    operation: Operation
    count: int
    size_bytes: int


@dataclass(frozen=True)
class _State:
    """The tensors of one part.

    Attributes:
        copies: tensors for each parameter.
    """

    parameters: tuple[Parameter, ...]
    copies: int
    element_bytes: int

    @property
    def count(self) -> int:
        return self.copies * len(self.parameters)

    @property
    def size_bytes(self) -> int:
        return self.copies * self.element_bytes * sum(parameter.numel for parameter in self.parameters)

    def send(self, operation: Operation) -> StageTraffic:
        """Send each tensor once, whole."""
        return StageTraffic(operation=operation, count=self.count, size_bytes=self.size_bytes)

    def send_one(self, operation: Operation, parameter: Parameter, parts: int = 1) -> StageTraffic:
        """Send what belongs to one parameter, or an even part of it."""
        size_bytes = self.copies * self.element_bytes * parameter.numel // parts
        return StageTraffic(operation=operation, count=self.copies, size_bytes=size_bytes)


_SENDS_TENSORS = (
    *(Stage.SHARD, Stage.OFFLOAD, Stage.GATHER, Stage.GATHER_OFFLOAD, Stage.FLATTEN),
    *(Stage.LOAD, Stage.DISTRIBUTE, Stage.BROADCAST, Stage.UNFLATTEN),
)


def stage_traffic(scenario: Scenario, part: StatePart, stage: Stage) -> tuple[StageTraffic, ...] | None:
    """Return what a stage sends, one line for each operation; None where no formula is known."""
    parameters, parallel = known_parameters(scenario.model), scenario.parallel
    if parameters is None or not all(parameter.is_used for parameter in parameters):
        return None
    if stage not in _SENDS_TENSORS:
        return ()
    state = _State(parameters, _count_copies(scenario, part), DTYPE_BYTES[scenario.precision.dtype])
    match parallel:
        case Ddp():
            lines = _ddp_stage(parallel, stage, state)
        case Fsdp1():
            lines = _fsdp1_stage(parallel, part, stage, state)
        case Fsdp2():
            lines = _fsdp2_stage(parallel, stage, state)
    return None if lines is None else tuple(line for line in _sum(lines) if line.count)


def _count_copies(scenario: Scenario, part: StatePart) -> int:
    if part is StatePart.MODEL:
        return 1
    if isinstance(scenario.optimizer, AdamW):
        return 2
    return 1 if scenario.optimizer.momentum else 0


def _sum(lines: Sequence[StageTraffic]) -> list[StageTraffic]:
    return [
        StageTraffic(
            operation=operation,
            count=sum(line.count for line in lines if line.operation is operation),
            size_bytes=sum(line.size_bytes for line in lines if line.operation is operation),
        )
        for operation in dict.fromkeys(line.operation for line in lines)
    ]


def _ddp_stage(parallel: Ddp, stage: Stage, state: _State) -> list[StageTraffic] | None:
    if parallel.tensor > 1:
        return None
    return [state.send(Operation.BROADCAST)] if stage is Stage.BROADCAST and parallel.replicas > 1 else []


def _fsdp2_stage(parallel: Fsdp2, stage: Stage, state: _State) -> list[StageTraffic] | None:
    ranks = parallel.shards * parallel.replicas * parallel.tensor
    if stage is Stage.BROADCAST:
        return [state.send(Operation.BROADCAST)] if ranks > 1 else []
    if stage not in (Stage.GATHER, Stage.GATHER_OFFLOAD, Stage.DISTRIBUTE):
        return []
    if not all(_divides(parameter, parallel) for parameter in state.parameters):
        return None
    send_one = _gather_dtensor if stage is not Stage.DISTRIBUTE else _distribute_dtensor
    return [line for parameter in state.parameters for line in send_one(parameter, parallel, state)]


def _divides(parameter: Parameter, parallel: Fsdp1 | Fsdp2) -> bool:
    """Whether shards are even: of uneven ones torch pads what it sends."""
    return bool(parameter.shape) and parameter.local_shape(parallel.tensor)[0] % parallel.shards == 0


def _gather_dtensor(parameter: Parameter, parallel: Fsdp2, state: _State) -> list[StageTraffic]:
    """Gather over each axis that cuts it: the last gather puts out the whole, one before it what the last axis cuts."""
    tensor = parallel.tensor if parameter.tensor_dim is not None else 1
    sizes = [parallel.shards, tensor] if parameter.tensor_dim == 0 else [tensor, parallel.shards]
    return [
        state.send_one(Operation.ALL_GATHER, parameter, prod(sizes[place + 1 :]))
        for place, size in enumerate(sizes)
        if size > 1
    ]


def _distribute_dtensor(parameter: Parameter, parallel: Fsdp2, state: _State) -> list[StageTraffic]:
    """Send the whole to replicas, a part to each shard, and that part, cut or not, over the tensor axis."""
    last = Operation.BROADCAST if parameter.tensor_dim is None else Operation.SCATTER
    axes = (
        (parallel.replicas, Operation.BROADCAST, 1),
        (parallel.shards, Operation.SCATTER, 1),
        (parallel.tensor, last, parallel.shards),
    )
    return [state.send_one(operation, parameter, parts) for size, operation, parts in axes if size > 1]


def _fsdp1_stage(parallel: Fsdp1, part: StatePart, stage: Stage, state: _State) -> list[StageTraffic] | None:
    if stage in (Stage.GATHER_OFFLOAD, Stage.UNFLATTEN) or not _is_plain(parallel, state):
        return None
    units = flat_unit_elements(state.parameters, parallel, state.element_bytes)
    padded = sum(ceil(numel / parallel.shards) * parallel.shards for numel in units.values())
    gather_units = StageTraffic(
        operation=Operation.ALL_GATHER,
        count=state.copies * len(units),
        size_bytes=state.copies * state.element_bytes * padded,
    )
    if parallel.tensor > 1:
        of_tensor = _fsdp1_tensor_stage(parallel, stage, state) if part is StatePart.MODEL else None
        return None if of_tensor is None else [gather_units, *of_tensor]
    of_model = [gather_units] if part is StatePart.MODEL else []
    match stage:
        case Stage.LOAD:
            return [*of_model, state.send(Operation.ALL_GATHER)]
        case Stage.DISTRIBUTE:
            return of_model
        case Stage.BROADCAST:
            return [state.send(Operation.BROADCAST), *of_model]
        case _:
            flags = StageTraffic(operation=Operation.ALL_REDUCE, count=1, size_bytes=4)
            return of_model or [flags, gather_units]


def _fsdp1_tensor_stage(parallel: Fsdp1, stage: Stage, state: _State) -> list[StageTraffic] | None:
    """Return what a model's stage sends besides its units where a tensor axis cuts it, too; None: torch breaks it."""
    rows = [one for one in state.parameters if one.tensor_dim == 0]
    match stage:
        case Stage.SHARD | Stage.OFFLOAD:
            return [state.send_one(Operation.ALL_GATHER, one) for one in rows]
        case Stage.GATHER:
            cut = [one for one in state.parameters if one.tensor_dim is not None]
            return [state.send_one(Operation.ALL_GATHER, one) for one in cut]
        case Stage.LOAD:
            joined = [state.send_one(Operation.ALL_GATHER, one, parallel.shards) for one in rows]
            parts = [1 if one.tensor_dim in (None, 0) else parallel.tensor for one in state.parameters]
            over_shards = zip(state.parameters, parts, strict=True)
            return joined + [state.send_one(Operation.ALL_GATHER, *one) for one in over_shards]
        case _:
            return None


def _is_plain(parallel: Fsdp1, state: _State) -> bool:
    """Whether units are flat parameters in even shards of the model's own dtype, and of nothing else."""
    return (
        not parallel.is_whole
        and not parallel.use_orig_params
        and not parallel.cpu_offload
        and parallel.mixed_precision == Fsdp1MixedPrecision()
        and all(_divides(parameter, parallel) for parameter in state.parameters)
    )

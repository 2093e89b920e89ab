"""Tensor parallelism under any strategy: cut the model along the ``tensor`` axis, and keep the evidence."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.scenario.schema.scenario import TensorParallel
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import OverlapPossible, Traffic
from dtbench.worker.models.built import BuiltModel, TensorOptions
from dtbench.worker.models.gathered import find_gathers
from dtbench.worker.receipts import compare


@dataclass(frozen=True)
class TensorEvidence:
    """What tensor parallelism was seen to do.

    Attributes:
        ranks: over which a parameter is sharded; 1: none is.
        activations: placements of the witness's first output, filled in by the first forward; None: nobody looks, a
            hook would break the compiled graph that the witness is part of.
        model: the plain module, which knows how its weights were gathered.
    """

    ranks: int
    activations: list[tuple[object, ...]] | None
    model: nn.Module


def parallelize_tensor(built: BuiltModel, mesh: DeviceMesh, options: TensorParallel) -> TensorEvidence:
    """Cut the plain module in place along the mesh's ``tensor`` axis, if there is one."""
    if options.tensor > 1:
        assert built.tensor_styles is not None, "plans refuse a tensor axis for a model without a plan for it"
        cut = TensorOptions(options.sequence_parallel, options.loss_parallel, options.gather_weights)
        styles = built.tensor_styles(cut)
        parallelize_module(built.module, mesh[Axis.TENSOR.value], dict(styles))
    sharded = [parameter for parameter in built.module.parameters() if isinstance(parameter, DTensor)]
    ranks = max((parameter.device_mesh.size() for parameter in sharded), default=1)
    name = built.sequence_witness if options.tensor > 1 else None  # dynamo compiles no checkpointed block with a hook
    witness = None if name is None else built.module.get_submodule(name)
    built.apply_options()
    if built.is_compiled:
        return TensorEvidence(ranks, None, built.module)
    return TensorEvidence(ranks, [] if witness is None else _watch_output(witness), built.module)


def _watch_output(module: nn.Module) -> list[tuple[object, ...]]:
    """Note the placements of a module's first output, then look away: the evidence of sequence parallelism."""
    seen: list[tuple[object, ...]] = []

    def note(_module: nn.Module, _inputs: object, output: Any) -> None:
        seen.append(tuple(output.placements) if isinstance(output, DTensor) else ())
        handle.remove()

    handle = module.register_forward_hook(note)
    return seen


def read_tensor_receipts(
    evidence: TensorEvidence, options: TensorParallel, *, through: str | None
) -> tuple[Receipt, ...]:
    """Compare size and sequence parallelism of the tensor axis; loss parallelism shows in the step's output.

    Args:
        evidence: what was seen of the axis.
        options: as the scenario says it.
        through: what torch put between DTensor and the strategy; None: nothing was found that should be there.
    """
    ranks = evidence.ranks if options.tensor == 1 or through is not None else None
    note = f"through {through}" if options.tensor > 1 and through else ""
    tensor = compare("parallel.tensor", options.tensor, ranks, note=note)
    gathered = _gather_receipt(evidence.model, options)
    if evidence.activations is None:
        handed = compare("parallel.sequence_parallel", options.sequence_parallel, options.sequence_parallel)
        unseen = handed.model_copy(update={"note": "not watched inside compiled graphs; the traffic shows it"})
        return tensor, unseen, gathered
    sequence = any(isinstance(placement, Shard) for placements in evidence.activations for placement in placements)
    return tensor, compare("parallel.sequence_parallel", options.sequence_parallel, sequence), gathered


def _gather_receipt(model: nn.Module, options: TensorParallel) -> Receipt:
    """Compare with how each weight came when it was last used; whether its gradient was awaited a probe tells."""
    seen = sorted(find_gathers(model))
    got = None if not seen else ", ".join(seen)
    note = "measure.probes=[_data_parallel_utils] counts how sync_grad_hook found the gradients"
    return compare("parallel.gather_weights", options.gather_weights, got, note=note if got == "async" else "")


def read_inline_overlap(
    options: TensorParallel, traffic: Iterable[Traffic], *, clips: bool
) -> tuple[OverlapPossible, ...]:
    """Say why what the tensor axis and clipping communicate cannot be hidden, whatever the strategy.

    Args:
        options: as the scenario says it.
        traffic: of a step, as issued.
        clips: gradients are clipped by their norm; then this is said of purpose other if it is nothing else.
    """
    notes = []
    if options.tensor > 1:
        consumed = "the next operator consumes its result at once"
        notes.append(OverlapPossible(purpose=Purpose.TENSOR, possible=False, reason=consumed))
    if clips and all(_completes_norm(item) for item in traffic if item.purpose is Purpose.OTHER):
        needed = "gradient clipping needs the norm before it can go on"
        notes.append(OverlapPossible(purpose=Purpose.OTHER, possible=False, reason=needed))
    return tuple(notes)


def _completes_norm(item: Traffic) -> bool:
    """Tell whether it is what clipping sends: along each axis that cuts gradients one all-reduce a step."""
    return item.operation is Operation.ALL_REDUCE and item.count == 1 and item.axis in (Axis.SHARD, Axis.TENSOR)

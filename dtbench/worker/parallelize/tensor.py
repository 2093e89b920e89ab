"""Tensor parallelism under any strategy: cut the model along the ``tensor`` axis, and keep the evidence."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module

from dtbench.scenario.schema import Cut
from dtbench.store.records import Receipt
from dtbench.vocabulary import Axis
from dtbench.worker.models.built import BuiltModel, TensorOptions
from dtbench.worker.receipts import compare


@dataclass(frozen=True)
class TensorEvidence:
    """What tensor parallelism was seen to do.

    Attributes:
        ranks: over which a parameter is sharded; 1: none is.
        activations: placements of the witness's first output, filled in by the first forward.
    """

    ranks: int
    activations: list[tuple[object, ...]]


def cut_model(built: BuiltModel, mesh: DeviceMesh, options: Cut) -> TensorEvidence:
    """Cut the plain module in place along the mesh's ``tensor`` axis, if there is one."""
    if options.tensor > 1:
        assert built.tensor_styles is not None, "plans refuse a tensor axis for a model without a plan for it"
        styles = built.tensor_styles(TensorOptions(options.sequence_parallel, options.loss_parallel))
        parallelize_module(built.module, mesh[Axis.TENSOR.value], dict(styles))
    sharded = [parameter for parameter in built.module.parameters() if isinstance(parameter, DTensor)]
    ranks = max((parameter.device_mesh.size() for parameter in sharded), default=1)
    name = built.sequence_witness if options.tensor > 1 else None  # dynamo compiles no checkpointed block with a hook
    witness = None if name is None else built.module.get_submodule(name)
    built.apply_options()
    return TensorEvidence(ranks, [] if witness is None else _watch_output(witness))


def _watch_output(module: nn.Module) -> list[tuple[object, ...]]:
    """Note the placements of a module's first output, then look away: the evidence of sequence parallelism."""
    seen: list[tuple[object, ...]] = []

    def note(_module: nn.Module, _inputs: object, output: Any) -> None:
        seen.append(tuple(output.placements) if isinstance(output, DTensor) else ())
        handle.remove()

    handle = module.register_forward_hook(note)
    return seen


def read_tensor_receipts(evidence: TensorEvidence, options: Cut) -> tuple[Receipt, ...]:
    """Compare size and sequence parallelism of the tensor axis; loss parallelism shows in the step's output."""
    sequence = any(isinstance(placement, Shard) for placements in evidence.activations for placement in placements)
    return (
        compare("parallel.tensor", options.tensor, evidence.ranks),
        compare("parallel.sequence_parallel", options.sequence_parallel, sequence),
    )

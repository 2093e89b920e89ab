"""How the transformer is cut along the tensor axis: column- and row-wise linears, with or without sequence parallelism.

Megatron's scheme (arXiv:1909.08053, and 2205.05198 for the sequence-parallel form) in DTensor's words. With sequence
parallelism activations between blocks are sharded on dim 1; entering a region all-gathers, leaving it reduce-scatters.
Without, they are whole on every rank, and leaving a region all-reduces.
"""

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from dtbench.worker.models.built import TensorOptions


class ReplicatedNorm(ParallelStyle):
    """Keep a norm whole on every rank, but as DTensors, so that all parameters share one mesh (clipping needs that)."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, None, _wrap_replicated, _unwrap)


def transformer_styles(layers: int, options: TensorOptions) -> dict[str, ParallelStyle]:
    """Return the style of each cut module by FQN; under loss parallelism the logits stay cut along the vocabulary."""
    between = Shard(1) if options.sequence_parallel else Replicate()
    norm: ParallelStyle = SequenceParallel() if options.sequence_parallel else ReplicatedNorm()
    logits = Shard(-1) if options.loss_parallel else Replicate()
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "norm": norm,
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=logits, use_local_output=not options.loss_parallel
        ),
    }
    for index in range(layers):
        styles |= {f"layers.{index}.{name}": style for name, style in _block_styles(between, norm).items()}
    return styles


def _block_styles(between: Any, norm: ParallelStyle) -> dict[str, ParallelStyle]:
    return {
        "attention_norm": norm,
        "attention": PrepareModuleInput(input_layouts=(between, None), desired_input_layouts=(Replicate(), None)),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=between),
        "ffn_norm": norm,
        "ffn": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
        "ffn.w1": ColwiseParallel(),
        "ffn.w3": ColwiseParallel(),
        "ffn.w2": RowwiseParallel(output_layouts=between),
    }


def _wrap_replicated(_module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    return tuple(DTensor.from_local(value, mesh, (Replicate(),), run_check=False) for value in inputs)


def _unwrap(_module: nn.Module, output: Any, _mesh: DeviceMesh) -> Any:
    return output.to_local()

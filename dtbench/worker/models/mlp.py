"""A stack of residual two-layer perceptrons on random vectors; no parallelism, nothing in the root.

Parameters and their order are those of ``dtbench.plan.traffic.parameters``: plans are computed without torch.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's usual name
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from dtbench.scenario.schema.model import Mlp as MlpSettings
from dtbench.scenario.schema.scenario import Scenario
from dtbench.worker.dtypes import to_dtype
from dtbench.worker.models.built import BuiltModel, TensorOptions
from dtbench.worker.models.gathered import gathered_styles
from dtbench.worker.models.weights import Weights, fill_matrices

MOMENTUM: Final = 0.1
"""How much of a running statistic each forward replaces: BatchNorm's default."""

_ACTIVATIONS: Final = MappingProxyType[str, Callable[[Tensor], Tensor]](
    {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
)


class Vectors(NamedTuple):
    """Inputs and what they should become, both (rows, sequence, dim)."""

    inputs: Tensor
    targets: Tensor


class Block(nn.Module):
    """``x + down(activation(up(x)))``; without a hidden width there is no ``down``."""

    def __init__(self, settings: MlpSettings) -> None:
        super().__init__()
        dim, hidden = settings.dim, settings.hidden_dim
        self.activation = _ACTIVATIONS[settings.activation]
        self.up = nn.Linear(dim, hidden or dim, bias=settings.bias)
        self.down = nn.Identity() if hidden is None else nn.Linear(hidden, dim, bias=settings.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, sequence, dim) to the same shape."""
        return x + self.down(self.activation(self.up(x)))


class WatchingBlock(Block):
    """A block that keeps running statistics of what enters it, named and updated as BatchNorm's."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, settings: MlpSettings, device: torch.device) -> None:
        super().__init__(settings)
        self.register_buffer("running_mean", torch.zeros(settings.dim, device=device))
        self.register_buffer("running_var", torch.ones(settings.dim, device=device))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, sequence, dim) to the same shape."""
        with torch.no_grad():
            variance, mean = torch.var_mean(x.flatten(0, -2), dim=0)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), MOMENTUM)
            self.running_var.lerp_(variance.to(self.running_var.dtype), MOMENTUM)
            self.num_batches_tracked += 1
        return super().forward(x)


MakeBlock = Callable[[MlpSettings, int], Block]
"""Make the block at a place of the stack, from 0."""


class Mlp(nn.Module):
    """Vectors in, vectors out, in one tensor or cut into several."""

    def __init__(self, settings: MlpSettings, make: MakeBlock) -> None:
        super().__init__()
        self.used, self.outputs = settings.layers, settings.outputs
        self.layers = nn.ModuleList(make(settings, place) for place in range(settings.layers + settings.unused_layers))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Map (rows, sequence, dim) to the same shape, or to parts of it along the last dim."""
        for layer in self.layers[: self.used]:
            x = layer(x)
        return x if self.outputs == 1 else x.tensor_split(self.outputs, dim=-1)

    @property
    def has_unused(self) -> bool:
        """Whether there are blocks that forward leaves out."""
        return len(self.layers) > self.used


def _mean_squared_error(output: Tensor | tuple[Tensor, ...], batch: Vectors) -> Tensor:
    whole = output if isinstance(output, Tensor) else torch.cat(output, dim=-1)
    return F.mse_loss(whole.float(), batch.targets.float())


def build_mlp(
    settings: MlpSettings, scenario: Scenario, device: torch.device, make: MakeBlock | None = None
) -> BuiltModel:
    """Build the model on the meta device (its buffers on the rank's), and say how it may be cut.

    Args:
        settings: its sizes.
        scenario: whose data, dtype and seed are used.
        device: the rank's.
        make: makes each block; None: as the settings say.
    """
    dtype = to_dtype(scenario.precision.dtype)

    def make_block(sizes: MlpSettings, _place: int) -> Block:
        return WatchingBlock(sizes, device) if sizes.running_statistics else Block(sizes)

    def make_batch(generator: torch.Generator, rows: int) -> Vectors:
        shape = (2, rows, scenario.data.sequence_length, settings.dim)
        return Vectors(*torch.randn(shape, generator=generator).to(dtype))

    with torch.device("meta"):
        module = Mlp(settings, make or make_block).to(dtype)
    return BuiltModel(
        module=module,
        blocks=tuple(f"layers.{index}" for index in range(settings.layers)),
        make_batch=make_batch,
        compute_output=lambda module, batch: module(batch.inputs),
        compute_loss=_mean_squared_error,
        tensor_styles=lambda options: _styles(settings, options),
        sequence_witness=None,
        # 1 / sqrt(inputs): each block adds about what it is given, so that gradients neither vanish nor explode
        weights=Weights.of(
            module, seed=scenario.seed, device=device, fill=fill_matrices(lambda whole: whole.shape[1] ** -0.5)
        ),
    )


def _styles(settings: MlpSettings, options: TensorOptions) -> dict[str, ParallelStyle]:
    blocks = [f"layers.{index}" for index in range(settings.layers)]
    if options.gather_weights is not None:
        names = ("up",) if settings.hidden_dim is None else ("up", "down")
        linears = [f"{block}.{name}" for block in blocks for name in names]
        return gathered_styles(blocks, linears, options.gather_weights)
    return {
        f"{block}.{name}": style
        for block in blocks
        for name, style in (("up", ColwiseParallel()), ("down", RowwiseParallel()))
    }

"""A stack of residual two-layer perceptrons on random vectors; no buffers, no parallelism, nothing in the root.

Parameters and their order are those of ``dtbench.traffic.parameters``: plans are computed without torch.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's usual name
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from dtbench.scenario.model import Mlp as MlpSettings
from dtbench.scenario.schema import Scenario
from dtbench.worker.dtypes import to_dtype
from dtbench.worker.models.built import BuiltModel, TensorOptions
from dtbench.worker.models.gathered import gathered_styles
from dtbench.worker.models.weights import Weights, fill_matrices

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


MakeBlock = Callable[[MlpSettings, int], Block]
"""Make the block at a place of the stack, from 0."""


def make_block(settings: MlpSettings, _place: int) -> Block:
    """Make an ordinary block."""
    return Block(settings)


class Mlp(nn.Module):
    """Vectors in, vectors out."""

    def __init__(self, settings: MlpSettings, make: MakeBlock = make_block) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make(settings, place) for place in range(settings.layers))

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, sequence, dim) to the same shape."""
        for layer in self.layers:
            x = layer(x)
        return x


def build_mlp(
    settings: MlpSettings, scenario: Scenario, device: torch.device, make: MakeBlock = make_block
) -> BuiltModel:
    """Build the model of such blocks on the meta device, and say how it may be cut."""
    dtype = to_dtype(scenario.precision.dtype)

    def make_batch(generator: torch.Generator, rows: int) -> Vectors:
        shape = (2, rows, scenario.data.sequence_length, settings.dim)
        return Vectors(*torch.randn(shape, generator=generator).to(dtype))

    with torch.device("meta"):
        module = Mlp(settings, make).to(dtype)
    return BuiltModel(
        module=module,
        blocks=tuple(f"layers.{index}" for index in range(settings.layers)),
        make_batch=make_batch,
        compute_output=lambda module, batch: module(batch.inputs),
        compute_loss=lambda output, batch: F.mse_loss(output.float(), batch.targets.float()),
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

"""A person's own model, as the README shows one; and ways to get it wrong."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from dtbench import TrainingModel


class Autoencoder(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.encode = nn.Linear(width, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.encode(x * self.scale)
        for block in self.blocks:
            x = x + block(x)
        return x


def build(width: int, depth: int = 3) -> TrainingModel:
    return TrainingModel(
        module=Autoencoder(width, depth),
        make_batch=lambda generator, rows: {"x": torch.randn(rows, width, generator=generator)},
        loss=lambda output, batch: nn.functional.mse_loss(output, batch["x"]),
        tensor_plan={"blocks.*.0": ColwiseParallel(), "blocks.*.2": RowwiseParallel()},
    )


class Careful(nn.Module):
    """A norm that computes in the dtype of its own weights, whatever its input's, before a product in the input's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(self.norm(x.to(self.norm.weight.dtype)).to(x.dtype))


class CarefulBlocks(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Careful(width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def build_careful(width: int) -> TrainingModel:
    return TrainingModel(
        module=CarefulBlocks(width),
        make_batch=lambda generator, rows: {"x": torch.randn(rows, width, generator=generator)},
        loss=lambda output, batch: nn.functional.mse_loss(output.float(), batch["x"]),
    )


class Restless(Autoencoder):
    """Scales by a number that grows with every call."""

    calls = 0

    def __init__(self, width: int) -> None:
        super().__init__(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 + self.calls / 10)


def build_restless(width: int) -> TrainingModel:
    return TrainingModel(
        module=Restless(width),
        make_batch=lambda generator, rows: {"x": torch.randn(rows, width, generator=generator)},
        loss=lambda output, batch: nn.functional.mse_loss(output, batch["x"]),
    )


class Uneven(nn.Module):
    """Blocks of different sizes: a collective's bytes tell whose it is."""

    def __init__(self, width: int, hidden: list[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, size), nn.GELU(), nn.Linear(size, width)) for size in hidden
        )
        self.head = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def build_uneven(width: int, hidden: list[int]) -> TrainingModel:
    return TrainingModel(
        module=Uneven(width, hidden),
        make_batch=lambda generator, rows: {"x": torch.randn(rows, width, generator=generator)},
        loss=lambda output, batch: nn.functional.mse_loss(output, batch["x"]),
        tensor_plan={"blocks.*.0": ColwiseParallel(), "blocks.*.2": RowwiseParallel()},
    )


def build_nothing() -> None:
    """Forget to return."""


def build_and_raise() -> TrainingModel:
    raise RuntimeError("no such layer")


def build_with_dropout() -> TrainingModel:
    return TrainingModel(
        module=nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1)),
        make_batch=lambda generator, rows: torch.randn(rows, 8, generator=generator),
        loss=lambda output, _batch: output.square().mean(),
    )


def build_with_one_row_too_many() -> TrainingModel:
    return TrainingModel(
        module=nn.Linear(8, 1),
        make_batch=lambda generator, rows: (torch.randn(rows + 1, 8, generator=generator),),
        loss=lambda output, _batch: output.square().mean(),
    )


def build_without_loss() -> TrainingModel:
    return TrainingModel(
        module=nn.Linear(8, 1), make_batch=lambda generator, rows: torch.randn(rows, 8, generator=generator)
    )


class Gathered(nn.Linear):
    """A linear whose weight, where it is a DTensor, is gathered asynchronously, so that its gradient is so reduced."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if isinstance(weight, DTensor):
            weight = weight.redistribute(placements=[Replicate()], async_op=True).to_local(grad_placements=[Partial()])
        return nn.functional.linear(x, weight)


class ShardedWeight(ParallelStyle):
    """Keep a weight's rows apart, and its inputs and outputs as they are."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        weight = distribute_tensor(module.get_parameter("weight"), device_mesh, [Shard(0)])
        module.register_parameter("weight", nn.Parameter(weight))
        return module


class Gatherer(nn.Module):
    """Blocks of such linears."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Gathered(width, width, bias=False) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def build_gathered(width: int, depth: int) -> TrainingModel:
    """Sum whole gradients over the tensor axis: larger than those of a single process, so do not compare them."""
    return TrainingModel(
        module=Gatherer(width, depth),
        make_batch=lambda generator, rows: {"x": torch.randn(rows, width, generator=generator)},
        loss=lambda output, batch: nn.functional.mse_loss(output, batch["x"]),
        tensor_plan={"blocks.*": ShardedWeight()},
    )


class Fork(nn.Module):
    """Two linears, of which only the first is used."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.taken, self.left = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.taken(x)


def build_forked(width: int) -> TrainingModel:
    return TrainingModel(
        module=nn.Sequential(Fork(width), Fork(width)),
        make_batch=lambda generator, rows: torch.randn(rows, width, generator=generator),
        loss=lambda output, _batch: output.square().mean(),
        shard_by=(Fork,),
    )

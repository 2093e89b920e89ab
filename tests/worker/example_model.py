"""A person's own model, as the README shows one; and ways to get it wrong."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

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

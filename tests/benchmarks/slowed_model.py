"""A small model whose forward sleeps for a given time: a slowdown of known size."""

import time

from torch import Generator, Tensor, nn, randn

from dtbench import TrainingModel

WIDTH, DEPTH = 256, 4


class Slowed(nn.Module):
    """Four blocks of two matrix products, and a sleep before them."""

    def __init__(self, sleep_ms: float) -> None:
        super().__init__()
        self.sleep_s = sleep_ms / 1e3
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(DEPTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        for block in self.blocks:
            x = x + block(x)
        return x


def build(sleep_ms: float) -> TrainingModel:
    """Return the model with random rows and a loss that needs no targets."""

    def draw(generator: Generator, rows: int) -> dict[str, Tensor]:
        return {"x": randn(rows, WIDTH, generator=generator)}

    return TrainingModel(module=Slowed(sleep_ms), make_batch=draw, loss=lambda output, _batch: output.square().mean())

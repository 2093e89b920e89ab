"""What all loops of other people share: how one is measured, or not, its process group, its batches, its model."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import dtbench

FEW: dict[str, Any] = {"name": "foreign", "max_warmup_steps": 16, "measured_steps": 4, "profiled_steps": 2}
WIDTH, ROWS = 32, 4


class Job:
    """How a loop is measured, or not, and what it trained.

    Attributes:
        results: folder of dtbench's runs; None: nobody measures.
    """

    def __init__(self, results: Path | None) -> None:
        self.results = results
        self.losses: list[float] = []

    @contextlib.contextmanager
    def steps(self, **options: Any) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
        """Yield what to put around each step."""
        if self.results is None:
            yield contextlib.nullcontext
        else:
            with dtbench.capture(self.results, **{**FEW, **options}) as step:
                yield step

    def keep(self, loss: Tensor) -> None:
        self.losses.append(float(loss.detach()))


def begin(job: Job) -> None:
    """Make the process group, as a script does: dtbench's gloo where it is measured, else gloo."""
    dist.init_process_group("gloo" if job.results is None else dtbench.named_gloo())


def batches(count: int, width: int = WIDTH) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(count):
        yield torch.randn(ROWS, width, generator=generator)


def make_mlp(layers: int = 3, width: int = WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)))


def train(
    job: Job,
    model: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    width: int = WIDTH,
    rounds: int = 24,
    **options: Any,
) -> None:
    """The plainest of all loops."""
    with job.steps(**options) as step:
        for batch in batches(rounds, width):
            with step():
                loss = model(batch).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            job.keep(loss)

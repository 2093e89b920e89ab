"""Benchmark PyTorch's DTensor, FSDP and DDP: which communication is not hidden behind compute, who owns it, and why.

``dtbench.capture`` measures your own training loop, ``dtbench.TrainingModel`` is your own model in a scenario; the
rest is the command ``dtbench``.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any

from dtbench.training_model import TrainingModel

if TYPE_CHECKING:
    from dtbench.worker.own_loop import OwnSteps

__all__ = ["TrainingModel", "capture", "named_gloo"]
__version__ = "0.1.0"


def capture(  # noqa: PLR0913 - each is one thing that a person may want to say about a loop, and none is needed
    results: str | PathLike[str] = "results",
    *,
    name: str | None = None,
    mesh: Any = None,
    tokens_per_step: int | None = None,
    max_warmup_steps: int = 60,
    measured_steps: int = 20,
    profiled_steps: int = 5,
    profiler: Mapping[str, bool] | None = None,
) -> "AbstractContextManager[OwnSteps]":
    """Measure your own training loop: WARMUP, MEASURED and PROFILED steps, and a run folder for ``dtbench report``.

    Every rank enters it, after ``init_process_group``; a single process without one works too. ::

        with dtbench.capture("results") as step:
            for batch in loader:
                with step():
                    model(batch).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                if step.is_done:
                    break

    After the last PROFILED step everything is on disk, and further steps run as if dtbench were not there, so the
    ``break`` may be left out. ``for batch in step.batches(loader):`` says the same in one line. Where the loop raises
    or ends too early, the run says so and keeps what was measured. Fetching a batch is between steps, in no number.

    Args:
        results: folder of all runs, which every rank must see.
        name: of the run; left out: the script's.
        mesh: your ``DeviceMesh`` with its names, or process groups by name (``{"replicate": group}``); left out: as
            the device meshes and wrapped models of this process say.
        tokens_per_step: over all ranks, for a throughput.
        max_warmup_steps: give up waiting for a stable step time after so many; at least 8.
        measured_steps: steps without profiler; at least 4.
        profiled_steps: steps under the profiler.
        profiler: as ``measure.profiler`` of a scenario, for example ``{"with_stack": True}``.

    Raises:
        CaptureError: this program cannot be measured as it is written.
        StoreError: a rank cannot write to ``results``.
    """
    from pathlib import Path

    from dtbench.worker.own_loop import Wanted, capture_loop

    return capture_loop(
        Wanted(
            results=Path(results),
            name=name,
            mesh=mesh,
            tokens_per_step=tokens_per_step,
            max_warmup_steps=max_warmup_steps,
            measured_steps=measured_steps,
            profiled_steps=profiled_steps,
            profiler=profiler,
        )
    )


def named_gloo() -> str:
    """Make a gloo known that tells dtbench about every collective; gives its name for ``init_process_group``.

    ``dist.init_process_group(dtbench.named_gloo())`` in place of ``"gloo"``: it forwards every call unchanged. Without
    it a report still finds most purposes, but neither groups nor waits in Python, since gloo's traces name neither. It
    costs some microseconds of Python per collective, so leave it out of a training that nobody measures.
    """
    from dtbench.worker.own_loop import name_gloo

    return name_gloo()

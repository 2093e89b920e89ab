"""The single process on the whole batch that every cell is checked against."""

import time
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from dtbench.base.vocabulary import Phase
from dtbench.scenario.schema.scenario import Fsdp2, Parallel
from dtbench.store.records.run import WorkerOrder
from dtbench.worker.joining import Rank, make_device
from dtbench.worker.loop.building import make_model, make_train_step
from dtbench.worker.loop.correctness import CHECKED_STEPS, GradientProbe
from dtbench.worker.loop.iterations import run_whole
from dtbench.worker.models.batches import Batches
from dtbench.worker.models.custom import require_no_dropout
from dtbench.worker.parallelize.parallelized import leave_alone
from dtbench.worker.recording.recorder import Recorder


def run_reference(order: WorkerOrder, recorder: Recorder, journal: Any) -> tuple[list[float], dict[str, Tensor]]:
    """Train the plain model on the whole batch for the checked steps.

    Gives losses and the first step's gradients, with the norm that clipping found among them.
    """
    device = make_device(order.plan, Rank(0, 0, 1))
    built = make_model(order.scenario, device, order.import_folders)
    require_no_dropout(built.module)
    built.materialize(built.module)
    parallel = replace(
        leave_alone(built.module), finish_backward=lambda: _scale_gradients(built.module, order.scenario.parallel)
    )
    step = make_train_step(order.scenario, parallel, built, recorder)
    run = run_whole(step, order.scenario)
    batches = Batches(order.scenario, built.make_batch, device, rows=slice(None))
    probe = GradientProbe(parallel.gather_gradients, keep=True)
    losses = []
    for number in range(CHECKED_STEPS):
        journal.enter_step(Phase.WARMUP, number, time.time_ns())
        losses.append(float(run(batches.make(number), probe.collect if number == 0 else None)))
        if number == 0:
            probe.note_norm(step.observed.gradient_norm)
    return losses, probe.gradients


def _scale_gradients(module: nn.Module, parallel: Parallel) -> None:
    """Divide by what FSDP2's ranks are told to divide by in place of their number, for each of them."""
    if isinstance(parallel, Fsdp2) and parallel.gradient_divide_factor is not None:
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(parallel.gradient_divide_factor)

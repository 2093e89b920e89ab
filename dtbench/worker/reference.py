"""The single process on the whole batch that every cell is checked against."""

import time
from typing import Any

from torch import Tensor

from dtbench.store.records import WorkerOrder
from dtbench.vocabulary import Phase
from dtbench.worker.batches import Batches
from dtbench.worker.building import make_model, make_train_step
from dtbench.worker.correctness import CHECKED_STEPS, GradientProbe
from dtbench.worker.iterations import run_whole
from dtbench.worker.joining import Rank, make_device
from dtbench.worker.models.custom import require_no_dropout
from dtbench.worker.parallelize.parallelized import leave_alone
from dtbench.worker.recorder import Recorder


def run_reference(order: WorkerOrder, recorder: Recorder, journal: Any) -> tuple[list[float], dict[str, Tensor]]:
    """Train the plain model on the whole batch for the checked steps.

    Gives losses and the first step's gradients, with the norm that clipping found among them.
    """
    device = make_device(order.plan, Rank(0, 0, 1))
    built = make_model(order.scenario, device, order.import_folders)
    require_no_dropout(built.module)
    built.materialize(built.module)
    parallel = leave_alone(built.module)
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

"""A rank's model on its mesh, with its optimizer and its rows of the data: built before the first step."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import Purpose
from dtbench.plan.plan import is_compiled_ddp
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import ExpectedTraffic, ProcessGroupInfo
from dtbench.worker.joining import find_data_rank
from dtbench.worker.loop.building import make_model, make_train_step
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.iterations import Iterations, RunStep
from dtbench.worker.loop.jitter import require_exact_units
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.mesh import build_mesh, describe_further, describe_groups
from dtbench.worker.models.batches import Batches
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.models.custom import expect_bytes, expect_traffic
from dtbench.worker.models.known_cost import KnownCost
from dtbench.worker.parallelize.parallelized import Parallelized
from dtbench.worker.parallelize.strategy import parallelize


@dataclass(frozen=True)
class Stack:
    """What a rank trains.

    Attributes:
        iterations: what a step runs where ranks have several, unequally many; None: it runs once.
        groups: process groups, the mesh's first.
        planned: see ``RankRecord``.
    """

    step: TrainStep
    iterations: Iterations | None
    batches: Batches
    groups: tuple[ProcessGroupInfo, ...]
    planned: tuple[ExpectedTraffic, ...] | None

    @property
    def parallel(self) -> Parallelized:
        """The model on its mesh."""
        return self.step.parallel

    @property
    def run(self) -> RunStep:
        """Run what a step is."""
        return self.step.run if self.iterations is None else self.iterations.run

    def read_receipts(self) -> Iterator[Receipt]:
        """Compare with the iterations that the last step ran."""
        if self.iterations is not None:
            yield from self.iterations.read_receipts()


def build_stack(at: RankContext) -> Stack:
    """Build mesh and model, spread the model over the ranks, and put optimizer and data to it.

    Raises:
        PlanError: this machine cannot take the times that blocks are to take.
    """
    scenario, plan, recorder = at.scenario, at.plan, at.recorder
    mesh = build_mesh(plan)
    groups = describe_groups(mesh, plan.backend)
    recorder.axes.update({group.name: group.axis for group in groups if group.axis is not None})
    built = make_model(scenario, at.device, at.order.import_folders, at.rank.rank)
    if built.known_cost is not None:
        at.say("units tried", _try_units(at, built.known_cost))
    parameters = sum(parameter.numel() for parameter in built.module.parameters())
    planned = _expect_traffic(at, built)
    parallel = parallelize(built, mesh, scenario, plan, recorder, at.order.import_folders)
    recorder.axes.update(parallel.groups)
    recorder.local_parts.update(parallel.local_parts)
    step = make_train_step(scenario, parallel, built, recorder)
    data_rank, asked = find_data_rank(plan, mesh), scenario.data.iterations
    rows = slice(data_rank * plan.rows_per_rank, (data_rank + 1) * plan.rows_per_rank)
    at.say("model ready", f"{parameters} parameters")
    return Stack(
        step=step,
        iterations=None if asked is None else Iterations(step, asked, data_rank),
        batches=Batches(scenario, built.make_batch, at.device, rows=rows),
        groups=(*groups, *describe_further(parallel.groups, groups, plan.backend)),
        planned=planned,
    )


def _expect_traffic(at: RankContext, built: BuiltModel) -> tuple[ExpectedTraffic, ...] | None:
    """Return what must cross the wire where only a rank knows; of the plain module."""
    if at.plan.traffic is None:
        return expect_traffic(built.module, built.blocks, at.scenario, at.plan)
    return expect_bytes(at.plan.traffic, Purpose.GRAD_REDUCE) if is_compiled_ddp(at.scenario) else None


def _try_units(at: RankContext, cost: KnownCost) -> str:
    """Say how exactly this machine takes the times that blocks are to take.

    Raises:
        PlanError: not exactly enough; where others had the cores meanwhile, that is said first.
    """

    def wait_for_better_times(least_s: float) -> None:
        time.sleep(least_s)
        at.idle.wait()

    at.others.look()
    try:
        return require_exact_units(cost, at.exchange, wait_s=wait_for_better_times)
    except PlanError as error:
        who = at.others.describe_others()
        raise PlanError(
            f"others had the machine ({who}), run it again without them: {error}" if who else str(error)
        ) from error

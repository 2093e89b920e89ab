"""What becomes of the training state: through the stages that are asked for, then steps around a load and saves."""

import itertools
import math
import time

from dtbench.base.units import NS_PER_S
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.store.records.state import StateDictRecord, StateStepsRecord
from dtbench.store.write import write_record
from dtbench.worker.extras.extra import Finding, Trained
from dtbench.worker.extras.state_dict.async_save import AsyncSaveCost
from dtbench.worker.extras.state_dict.pipeline import Pipeline, ProvisionalRecord
from dtbench.worker.extras.state_dict.rank_guard import RankGuard, close_groups, find_patience_s
from dtbench.worker.extras.state_dict.stages import TrainingState
from dtbench.worker.extras.still_steps import StillState, hold_weights
from dtbench.worker.machine.environment import read_environment


def take_through_stages(trained: Trained) -> Finding | None:
    """Take the state through its stages, and run the steps (collective); None: ``state_dict`` asks for nothing."""
    at, asked = trained.at, trained.at.scenario.state_dict
    if asked is None:
        return None
    if at.rank.rank == 0:  # before a stage that may kill this rank
        write_record(at.folder.environment, read_environment(at.order.code_folder))
    start_ns = time.perf_counter_ns()
    state = TrainingState(
        trained.step.parallel.model, trained.step.parallel.parameters, trained.step.optimizer, asked.strict
    )
    stages = _make_pipeline(trained, asked, state).run()
    steps = _run_steps(trained, asked, state) if asked.steps and not at.carrier.is_abandoned else None
    (taken,) = at.find_taken([start_ns], [time.perf_counter_ns() - start_ns])
    taken_fraction = None if math.isnan(taken) else taken
    return Finding(StateDictRecord(stages=stages, steps=steps, taken_fraction=taken_fraction))


def _make_pipeline(trained: Trained, asked: StateDict, state: TrainingState) -> Pipeline:
    at = trained.at
    patience_s = find_patience_s(at.plan.stall_timeout_ns / NS_PER_S)
    return Pipeline(
        asked=asked,
        training=state,
        folder=at.folder.checkpoints,
        device=at.device,
        recorder=at.recorder,
        journal=at.journal,
        say=at.say,
        guard=RankGuard(at.store, at.rank.rank, at.plan.ranks, close_groups, patience_s),
        carrier=at.carrier,
        provisional=ProvisionalRecord(at.folder.rank_in_stage(at.rank.rank), trained.tell()),
        numbers=itertools.count(trained.first),
    )


def _run_steps(trained: Trained, asked: StateDict, state: TrainingState) -> StateStepsRecord:
    """Run steps around a load and beside saves, and put back what they changed."""
    at, step = trained.at, trained.step
    at.say("state dict", "steps around a load and beside saves")
    batch, before = trained.batches.make(trained.first), StillState(step)
    cost = AsyncSaveCost(asked, state, lambda: step.run(batch, None), at.folder.checkpoints, at.device)
    with hold_weights(step):
        found = cost.run()
    before.restore()
    return found

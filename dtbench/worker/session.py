"""One rank from model to results: builds the stack, runs the phases, collects what they left behind."""

import itertools
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from dtbench.base.errors import PlanError
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import Purpose
from dtbench.machine.stolen_time import StolenTime
from dtbench.plan.plan import is_compiled_ddp
from dtbench.scenario.schema.scenario import Ddp
from dtbench.seeds.functions import choose
from dtbench.store.layout import FORKED_VARIABLE, LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.place import find_place
from dtbench.store.records.rank import CorrectnessResult, LivedCall, Memory, RankRecord, Receipt, WarmupEnd
from dtbench.store.records.run import WorkerOrder
from dtbench.store.records.state import StageRecord, StateStepsRecord
from dtbench.store.records.traffic import ExpectedTraffic, ProcessGroupInfo
from dtbench.store.write import write_record
from dtbench.worker.extras.canary.canary import look_for_missing_waits
from dtbench.worker.extras.canary.still_state import StillState
from dtbench.worker.extras.exposure.arm_loop import BLOCK_STEPS
from dtbench.worker.extras.exposure.estimate import Bench, Estimated
from dtbench.worker.extras.exposure.still_weights import hold_weights
from dtbench.worker.extras.lifecycle import find_tolerance, live_through, read_lifecycle_receipts
from dtbench.worker.extras.state_dict.beside import Beside
from dtbench.worker.extras.state_dict.foreseen import Foreseen
from dtbench.worker.extras.state_dict.pipeline import Pipeline
from dtbench.worker.extras.state_dict.stages import Holder
from dtbench.worker.extras.state_dict.together import Together, close_groups, find_patience_s
from dtbench.worker.joining import Rank, find_data_rank, make_device
from dtbench.worker.loop.building import make_model, make_train_step
from dtbench.worker.loop.capture import capture, read_profiler_receipts
from dtbench.worker.loop.clock import StepClock, make_clock
from dtbench.worker.loop.correctness import CHECKED_STEPS, GradientProbe, compare_with_reference, mean_over_ranks
from dtbench.worker.loop.iterations import Iterations, RunStep
from dtbench.worker.loop.jitter import require_exact_units
from dtbench.worker.loop.meeting import Meeting
from dtbench.worker.loop.quiet import Quiet
from dtbench.worker.loop.steps import PhaseResult, Phases, StepLoop
from dtbench.worker.loop.train import TrainStep, read_training_receipts
from dtbench.worker.loop.warmup import WarmupJudge
from dtbench.worker.machine.accelerator import find_module
from dtbench.worker.machine.environment import read_environment, read_environment_receipts
from dtbench.worker.machine.look import MachineLook, RankProcess
from dtbench.worker.machine.process_facts import (
    process_start_unix_ns,
    read_kernel,
    read_memory,
    reset_memory,
)
from dtbench.worker.mesh import build_mesh, describe_further, describe_groups
from dtbench.worker.models.batches import Batch, Batches
from dtbench.worker.models.custom import expect_bytes, expect_traffic
from dtbench.worker.models.known_cost import KnownCost
from dtbench.worker.models.options import read_compilation
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.link_receipts import read_network_receipts
from dtbench.worker.parallelize.owners import name_modules
from dtbench.worker.parallelize.parallelized import Parallelized
from dtbench.worker.parallelize.strategy import parallelize
from dtbench.worker.probes.install import InstalledProbes
from dtbench.worker.probes.lines import LineWitness
from dtbench.worker.probes.receipts import read_probe_receipts
from dtbench.worker.recording.recorder import Issue, Recorder, bucket_bytes, find_medians, summarize_issues

_Trained = tuple[
    TrainStep,
    Parallelized,
    tuple[PhaseResult, PhaseResult, PhaseResult],
    tuple[ProcessGroupInfo, ...],
    WarmupEnd,
    Memory,
]
"""What training leaves for the rank's record; peaks of memory: until MEASURED steps were over."""


class Session:
    """A rank at work on an order; ``run`` does everything between joining the group and leaving it."""

    def __init__(
        self,
        order: WorkerOrder,
        rank: Rank,
        recorder: Recorder,
        journal: Any,
        say: Callable[[str, str], None],
        carrier: Carrier,
    ) -> None:
        self._carrier, self._stolen = carrier, StolenTime()
        self._order, self._rank, self._recorder, self._journal, self._say = order, rank, recorder, journal, say
        self._scenario, self._plan = order.scenario, order.plan
        self._folder = LaunchFolder(Path(order.folder))
        self._others = MachineLook(self._folder, rank.rank, order.plan.device, self._find_processes())
        self._device = make_device(order.plan, rank)
        self._batches: dict[int, Batch] = {}
        self._first_step_unix_ns = 0
        self._buckets: list[tuple[int, ...]] = []
        self._trace = self._folder.trace(rank.rank, time.time_ns())
        self._planned: tuple[ExpectedTraffic, ...] | None = None
        self._estimated: Estimated | None = None
        self._lived: tuple[LivedCall, ...] = ()
        self._checked: CorrectnessResult | None = None
        self._stages: tuple[StageRecord, ...] = ()
        self._state_steps: StateStepsRecord | None = None
        self._state_taken: float | None = None
        self._iterations: Iterations | None = None
        self._look: Callable[[], CanaryResult | None] = lambda: None
        measure = order.scenario.measure
        self._probes = InstalledProbes(choose(measure.probes), recorder)
        self._lines = LineWitness(self._folder.lines(rank.rank), rank.rank) if measure.line_coverage else None

    def run(self) -> RankRecord:
        """Build, warm up, measure, profile, estimate exposure again; gives what this rank found out.

        Missing waits are looked for when all else is read: no probe or receipt knows of such steps.
        """
        with self._probes, self._lines or nullcontext():
            done = self._train()
        found = self._conclude(*done)
        return found if self._carrier.is_abandoned else found.model_copy(update={"canary": self._look()})

    def _train(self) -> _Trained:
        mesh = build_mesh(self._plan)
        groups = describe_groups(mesh, self._plan.backend)
        self._recorder.axes.update({group.name: group.axis for group in groups if group.axis is not None})
        built = make_model(self._scenario, self._device, self._order.import_folders, self._rank.rank)
        if built.known_cost is not None:
            self._say("units tried", self._try_units(built.known_cost))
        parameters = sum(parameter.numel() for parameter in built.module.parameters())
        if self._plan.traffic is None:
            self._planned = expect_traffic(built.module, built.blocks, self._scenario, self._plan)
        elif is_compiled_ddp(self._scenario):
            self._planned = expect_bytes(self._plan.traffic, Purpose.GRAD_REDUCE)
        parallel = parallelize(built, mesh, self._scenario, self._plan, self._recorder, self._order.import_folders)
        groups += tuple(describe_further(parallel.groups, groups, self._plan.backend))
        self._recorder.axes.update(parallel.groups)
        self._recorder.local_parts.update(parallel.local_parts)
        step = make_train_step(self._scenario, parallel, built, self._recorder)
        data_rank = find_data_rank(self._plan, mesh)
        rows = slice(data_rank * self._plan.rows_per_rank, (data_rank + 1) * self._plan.rows_per_rank)
        self._say("model ready", f"{parameters} parameters")
        probe = GradientProbe(parallel.gather_gradients, keep=self._rank.rank == 0)
        batches = Batches(self._scenario, built.make_batch, self._device, rows=rows)
        run = self._choose_run(step, data_rank)
        phases = self._make_phases(step, run, batches, probe)
        warmup = PhaseResult()
        self._others.look()
        end = phases.warm_up(0, warmup)
        reset_memory(self._device)
        self._quiet.wait()
        self._others.look()
        measured = phases.measure(end.steps)
        memory = read_memory(self._device)  # what the profiler, arms and stages need is not training's
        self._quiet.wait()
        profiled = phases.profile(end.steps + self._plan.measured_steps)
        last = end.steps + self._plan.measured_steps + self._plan.profiled_steps
        bench = self._make_bench(batches, first=last + 1)
        self._estimated = bench.estimate(step)
        self._look = partial(look_for_missing_waits, bench, step)
        self._live_through(step, batches.make(last + 1))
        self._checked = self._check(warmup.losses, probe)
        done = step, parallel, (warmup, measured, profiled), groups, end, memory
        start_ns = time.perf_counter_ns()
        self._stages, self._state_steps = self._run_stages(done, batches, first=last + 1)
        if self._stages:
            (taken,) = self._find_taken([start_ns], [time.perf_counter_ns() - start_ns])
            self._state_taken = None if math.isnan(taken) else taken
        return done

    def _choose_run(self, step: TrainStep, data_rank: int) -> RunStep:
        """Give what a step runs: one iteration, or as many as this rank has."""
        asked = self._scenario.data.iterations
        if asked is None:
            return step.run
        self._iterations = Iterations(step, asked, data_rank)
        return self._iterations.run

    def _live_through(self, step: TrainStep, batch: Batch) -> None:
        parallel = self._scenario.parallel
        if isinstance(parallel, Ddp) and parallel.lifecycle:
            self._say("living on", ", ".join(parallel.lifecycle))
            self._lived = live_through(parallel.lifecycle, step, batch, find_tolerance(self._scenario))

    def _run_stages(
        self, done: _Trained, batches: Batches, *, first: int
    ) -> tuple[tuple[StageRecord, ...], StateStepsRecord | None]:
        asked = self._scenario.state_dict
        if asked is None:
            return (), None
        step, *_ = done
        if self._rank.rank == 0:  # before a stage that may kill this rank
            write_record(self._folder.environment, read_environment())
        patience_s = find_patience_s(self._plan.stall_timeout_ns / NS_PER_S)
        holder = Holder(step.parallel.model, step.parallel.parameters, step.optimizer, asked.strict)
        pipeline = Pipeline(
            asked=asked,
            holder=holder,
            folder=self._folder.checkpoints,
            device=self._device,
            recorder=self._recorder,
            journal=self._journal,
            say=self._say,
            together=Together(self._find_store(), self._rank.rank, self._plan.ranks, close_groups, patience_s),
            carrier=self._carrier,
            foreseen=Foreseen(self._folder.rank_in_stage(self._rank.rank), self._conclude(*done)),
            numbers=itertools.count(first),
        )
        stages = pipeline.run()
        if not asked.steps or self._carrier.is_abandoned:
            return stages, None
        self._say("state dict", "steps around a load and beside saves")
        batch, state = batches.make(first), StillState(step)
        beside = Beside(asked, holder, lambda: step.run(batch, None), self._folder.checkpoints, self._device)
        with hold_weights(step):
            found = beside.run()
        state.restore()
        return stages, found

    def _read_lifecycle(self) -> tuple[Receipt, ...]:
        parallel = self._scenario.parallel
        return tuple(read_lifecycle_receipts(self._lived, parallel)) if isinstance(parallel, Ddp) else ()

    def _make_phases(self, step: TrainStep, run: RunStep, batches: Batches, probe: GradientProbe) -> Phases:
        parallel = step.parallel

        def prepare(steps: range) -> None:
            self._batches = {number: batches.make(number) for number in steps}

        def train(number: int) -> Tensor:
            collect = probe.collect if number == 0 and self._order.reference else None
            loss = run(self._batches[number], collect)
            self._carrier.check()
            if number == 0:
                self._first_step_unix_ns = time.time_ns()
                probe.note_norm(step.observed.gradient_norm)
            if self._lines is not None:
                self._lines.save()
            return loss

        judge = WarmupJudge(self._plan, self._rank.rank, self._find_store())

        def see(duration_ns: int, issues: tuple[Issue, ...]) -> WarmupEnd | None:
            self._buckets.append(bucket_bytes(issues) or parallel.bucket_bytes())
            return judge.judge(duration_ns, (issues, parallel.bucket_bytes(), read_compilation().graphs))

        return Phases(
            plan=self._plan,
            loop=StepLoop(self._recorder, self._journal, self._make_clock(), prepare, train),
            judge=see,
            say=self._say,
            capture=lambda: self._capture(parallel, step.built.module),
            wants_again=self._quiet.wants_again,
            find_taken=self._find_taken,
        )

    def _find_taken(self, starts_ns: Sequence[int], durations_ns: Sequence[int]) -> list[float]:
        """Look at the end of a phase, too."""
        self._others.look()
        return self._others.find_taken(starts_ns, durations_ns)

    def _make_meeting(self) -> Meeting:
        return Meeting(self._find_store(), self._rank.rank, self._plan.ranks)

    def _find_processes(self) -> list[RankProcess]:
        """Give the processes of all ranks; none where a launcher looks at them."""
        if LAUNCHER_VARIABLE in os.environ:
            return []
        said = self._make_meeting().exchange("process", RankProcess.find().model_dump_json())
        return [RankProcess.model_validate_json(one) for one in said]

    @cached_property
    def _quiet(self) -> Quiet:
        timeout_s = self._scenario.measure.quiet_timeout_s
        return Quiet(self._make_meeting(), timeout_s, self._say, lambda: self._journal.touch(time.time_ns()))

    def _try_units(self, cost: KnownCost) -> str:
        """Say how exactly this machine takes the times that blocks are to take.

        Raises:
            PlanError: not exactly enough; where others had the cores meanwhile, that is said first.
        """
        self._others.look()
        try:
            return require_exact_units(cost, self._make_meeting(), wait_s=self._wait_for_better_times)
        except PlanError as error:
            who = self._others.describe_others()
            raise PlanError(
                f"others had the machine ({who}), run it again without them: {error}" if who else str(error)
            ) from error

    def _wait_for_better_times(self, least_s: float) -> None:
        time.sleep(least_s)
        self._quiet.wait()

    def _find_store(self) -> dist.Store:
        """Give where the ranks of this launch tell each other what they saw."""
        launch = f"dtbench/{self._order.cell}/{self._order.index}"
        return dist.PrefixStore(launch, dist.distributed_c10d._get_default_store())

    @contextmanager
    def _capture(self, parallel: Parallelized, module: nn.Module) -> Iterator[None]:
        """Profile; the call of a compiled module stays as it is, or it would be compiled anew."""
        settings = self._scenario.measure.profiler
        is_named = self._scenario.parallel.tensor > 1 and self._scenario.model.compile is None
        with parallel.watch_owners(self._recorder), name_modules(module) if is_named else nullcontext():
            with capture(self._plan.device, self._recorder, self._trace, settings):
                yield

    def _make_bench(self, batches: Batches, *, first: int) -> Bench:
        return Bench(
            scenario=self._scenario,
            plan=self._plan,
            batches=batches,
            first=first,
            recorder=self._recorder,
            journal=self._journal,
            clock=self._make_clock(),
            carrier=self._carrier,
            say=self._say,
            wants_again=self._quiet.wants_again,
            find_taken=self._find_taken,
        )

    def _make_clock(self) -> StepClock:
        steps = max(self._plan.measured_steps, self._plan.profiled_steps, 1 + BLOCK_STEPS)
        return make_clock(find_module(self._plan.device), capacity=steps)

    def _conclude(
        self,
        step: TrainStep,
        parallel: Parallelized,
        results: tuple[PhaseResult, PhaseResult, PhaseResult],
        groups: tuple[ProcessGroupInfo, ...],
        end: WarmupEnd,
        memory: Memory,
    ) -> RankRecord:
        warmup, measured, profiled = results
        traffic = summarize_issues(measured.issues[-1])
        probes, lines = self._probes.read(), None if self._lines is None else self._lines.read()
        losses = [*warmup.losses[:CHECKED_STEPS], *measured.losses, *profiled.losses]
        return RankRecord(
            place=find_place(self._folder),
            rank=self._rank.rank,
            host=socket.gethostname(),
            kernel=read_kernel(),
            pid=os.getpid(),
            time_to_first_step_ns=self._time_to_first_step(),
            memory=memory,
            warmup=end,
            correctness=self._checked,
            losses=tuple(float(loss) for loss in losses),
            receipts=(
                *parallel.read_receipts(self._scenario.parallel),
                *read_training_receipts(step, self._scenario),
                *read_profiler_receipts(self._trace, self._plan.device, self._scenario.measure.profiler),
                *read_environment_receipts(self._scenario),
                *read_network_receipts(
                    self._scenario.network,
                    self._carrier.link,
                    self._recorder.count_shared(groups) - self._carrier.removed,
                ),
                *(() if self._estimated is None else self._estimated.receipts),
                *(() if self._iterations is None else self._iterations.read_receipts()),
                *self._read_lifecycle(),
                *read_probe_receipts(self._scenario.measure, probes, lines),
            ),
            traffic=traffic,
            planned=self._planned,
            compilation=None if self._scenario.model.compile is None else read_compilation(),
            traffic_is_stable=len(set(measured.issues)) == 1,
            overlap_possible=parallel.read_overlap(traffic) if self._plan.ranks > 1 else (),
            process_groups=groups,
            region_ns=find_medians(measured.find_undisturbed_regions()),
            bucket_bytes_per_step=(*self._buckets, bucket_bytes(measured.issues[-1]) or parallel.bucket_bytes()),
            fsdp_units=parallel.units,
            carried=parallel.read_carried(),
            owned=tuple(self._recorder.owned),
            arms=None if self._estimated is None else self._estimated.steps,
            probes=probes,
            lived=self._lived,
            stages=self._stages,
            state_steps=self._state_steps,
            state_taken_fraction=self._state_taken,
            stolen_fraction=self._stolen.read_fraction(),
        )

    def _time_to_first_step(self) -> int | None:
        if FORKED_VARIABLE in os.environ:
            return None
        return self._first_step_unix_ns - (self._order.launched_unix_ns or process_start_unix_ns())

    def _check(self, losses: list[Tensor], probe: GradientProbe) -> CorrectnessResult | None:
        """Compare with the reference; collective, answered on rank 0 only."""
        if self._order.reference is None:
            return None
        means = mean_over_ranks(losses[:CHECKED_STEPS], self._device)
        if self._rank.rank != 0:
            return None
        return compare_with_reference(Path(self._order.reference), means, probe.gradients, self._scenario)

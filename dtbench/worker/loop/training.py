"""A rank's three phases, from its first step to its last PROFILED one."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dtbench.store.records.rank import CorrectnessResult, Memory, WarmupEnd
from dtbench.worker.loop.capture import capture
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.correctness import CHECKED_STEPS, GradientProbe, compare_with_reference, mean_over_ranks
from dtbench.worker.loop.stack import Stack
from dtbench.worker.loop.steps import PhaseResult, Phases, StepLoop
from dtbench.worker.loop.warmup import WarmupJudge
from dtbench.worker.machine.process_facts import read_memory, reset_memory
from dtbench.worker.models.batches import Batch
from dtbench.worker.models.options import read_compilation
from dtbench.worker.parallelize.owners import name_modules
from dtbench.worker.recording.recorder import Issue, bucket_bytes


@dataclass(frozen=True)
class Training:
    """What the phases left behind.

    Attributes:
        memory: peaks until MEASURED steps were over: what profiler and extras need is not training's.
        correctness: on rank 0, where there is a single process to compare with.
        bucket_bytes: of the gradient collectives of each WARMUP step.
        first_step_unix_ns: when the first step had ended.
        next_step: number of the first step that has not been.
    """

    warmup: PhaseResult
    measured: PhaseResult
    profiled: PhaseResult
    end: WarmupEnd
    memory: Memory
    correctness: CorrectnessResult | None
    bucket_bytes: tuple[tuple[int, ...], ...]
    first_step_unix_ns: int
    next_step: int


def train(at: RankContext, stack: Stack, after_step: Callable[[], None]) -> Training:
    """Warm up, measure, profile, and compare the first steps with the single process (collective).

    Args:
        at: the rank.
        stack: what it trains.
        after_step: called after each step of a phase.
    """
    probe = GradientProbe(stack.parallel.gather_gradients, keep=at.rank.rank == 0)
    first_ends_ns: list[int] = []
    buckets: list[tuple[int, ...]] = []
    judge = WarmupJudge(at.plan, at.rank.rank, at.store)
    ready: dict[int, Batch] = {}
    longest = max(at.plan.measured_steps, at.plan.profiled_steps, 1)

    def prepare(steps: range) -> None:
        ready.clear()
        ready.update({number: stack.batches.make(number) for number in steps})

    def run_step(number: int) -> Tensor:
        loss = stack.run(ready[number], probe.collect if number == 0 and at.order.reference else None)
        at.carrier.check()
        if number == 0:
            first_ends_ns.append(time.time_ns())
            probe.note_norm(stack.step.observed.gradient_norm)
        after_step()
        return loss

    def judge_step(duration_ns: int, issues: tuple[Issue, ...]) -> WarmupEnd | None:
        buckets.append(bucket_bytes(issues) or stack.parallel.bucket_bytes())
        return judge.judge(duration_ns, (issues, stack.parallel.bucket_bytes(), read_compilation().graphs))

    phases = Phases(
        plan=at.plan,
        loop=StepLoop(at.recorder, at.journal, at.make_clock(longest), prepare, run_step),
        judge=judge_step,
        say=at.say,
        capture=lambda: _capture(at, stack),
        wants_again=at.idle.wants_again,
        find_taken=at.find_taken,
    )
    warmup = PhaseResult()
    at.others.look()
    end = phases.warm_up(0, warmup)
    reset_memory(at.device)
    at.idle.wait()
    at.others.look()
    measured = phases.measure(end.steps)
    memory = read_memory(at.device)
    at.idle.wait()
    profiled = phases.profile(end.steps + at.plan.measured_steps)
    return Training(
        warmup=warmup,
        measured=measured,
        profiled=profiled,
        end=end,
        memory=memory,
        correctness=_check(at, warmup.losses, probe),
        bucket_bytes=tuple(buckets),
        first_step_unix_ns=first_ends_ns[0],
        next_step=end.steps + at.plan.measured_steps + at.plan.profiled_steps + 1,  # one was not timed
    )


@contextmanager
def _capture(at: RankContext, stack: Stack) -> Iterator[None]:
    """Profile; the call of a compiled module stays as it is, or it would be compiled anew."""
    is_named = at.scenario.parallel.tensor > 1 and at.scenario.model.compile is None
    with (
        stack.parallel.watch_owners(at.recorder),
        name_modules(stack.step.built.module) if is_named else nullcontext(),
        capture(at.plan.device, at.recorder, at.trace, at.scenario.measure.profiler),
    ):
        yield


def _check(at: RankContext, losses: list[Tensor], probe: GradientProbe) -> CorrectnessResult | None:
    """Compare with the reference; collective, answered on rank 0 only."""
    if at.order.reference is None:
        return None
    means = mean_over_ranks(losses[:CHECKED_STEPS], at.device)
    if at.rank.rank != 0:
        return None
    return compare_with_reference(Path(at.order.reference), means, probe.gradients, at.scenario)

"""The loop over phases: WARMUP until it has settled, MEASURED without profiler, PROFILED apart; they never mix.

::

    WARMUP                              MEASURED            PROFILED
    0 1 2 3 4 5 ... until settled       n steps, clock only (1 unrecorded) n steps under the profiler
    |-------| checked against a single process
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.profiler import record_function

from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import Phase, Region
from dtbench.machine.disturbance import add_lost, find_undisturbed
from dtbench.plan.plan import Plan
from dtbench.store.journal import JournalWriter, RankState, StepTiming
from dtbench.store.records.rank import WarmupEnd
from dtbench.worker.loop.clock import Reading, StepClock
from dtbench.worker.recording.recorder import Issue, Recorder

FindTaken = Callable[[Sequence[int], Sequence[int]], list[float]]
"""From when steps began and how long they took to what other processes had of the cores in each."""


def know_nothing_taken(starts_ns: Sequence[int], _durations_ns: Sequence[int]) -> list[float]:
    """Return that it is not known what was taken."""
    return [math.nan] * len(starts_ns)


@dataclass
class PhaseResult:
    """What the steps of one phase left behind; losses are unread tensors, durations and regions the host's, ns.

    ``stolen_fractions``: the share of its machine's cores that others had in each; NaN: not known.
    """

    losses: list[Tensor] = field(default_factory=list)
    issues: list[tuple[Issue, ...]] = field(default_factory=list)
    regions: list[dict[Region, int]] = field(default_factory=list)
    stolen_fractions: list[float] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    durations_ns: list[int] = field(default_factory=list)

    def note_taken(self, taken_fractions: Sequence[float]) -> None:
        """Add what other processes of the machine had to what its other virtual machines had."""
        self.stolen_fractions = add_lost(self.stolen_fractions, taken_fractions)

    def find_undisturbed_regions(self) -> list[dict[Region, int]]:
        """Return the regions of the steps to go by on a machine that others use."""
        return [one for one, kept in zip(self.regions, find_undisturbed(self.stolen_fractions), strict=True) if kept]


@dataclass(frozen=True)
class StepTimer:
    """Times steps and keeps what they leave, whoever runs them: dtbench's loop or a person's own."""

    recorder: Recorder
    journal: JournalWriter
    clock: StepClock

    def begin(self, phase: Phase, step: int) -> None:
        """A step begins; the last thing done is to start its clock."""
        self.journal.enter_step(phase, step, time.time_ns())
        self.recorder.begin_step()
        self.clock.start()

    def end(self, phase: Phase, step: int, reading: Reading | None = None) -> Reading:
        """It has ended; the first thing done is to stop its clock, unless that gave its reading before."""
        reading = reading or self.clock.stop()
        self.journal.finish_step(make_timing(step, phase, reading))
        return reading

    def settle(self, reading: Reading | None) -> Reading | None:
        """Put the device's times in place of the host's, where there is a device; gives the last reading likewise."""
        device_times = self.clock.settle()
        if device_times is None:
            return reading
        self.journal.replace_durations(device_times)
        return None if reading is None else replace(reading, duration_ns=device_times[-1])


def make_timing(step: int, phase: Phase, reading: Reading) -> StepTiming:
    """Return what the journal keeps of a step."""
    return StepTiming(step, phase, reading.start_ns, reading.duration_ns, reading.cpu_ns, reading.stolen_fraction)


@dataclass(frozen=True)
class StepLoop(StepTimer):
    """Runs steps and keeps their timings; what a step does is a parameter.

    Attributes:
        train: runs one step by number and gives its loss.
        prepare: makes the batches of these steps ahead of time, so that nothing is loaded or allocated while they run.
    """

    prepare: Callable[[range], None]
    train: Callable[[int], Tensor]

    def run(self, phase: Phase, steps: range, result: PhaseResult) -> Reading | None:
        """Run these steps; gives the last one's reading."""
        self.prepare(steps)
        reading = None
        for step in steps:
            self.begin(phase, step)
            loss = self.train(step)
            reading = self.end(phase, step)
            result.losses.append(loss)
            result.issues.append(self.recorder.step_issues())
            result.regions.append(self.recorder.step_regions())
            result.stolen_fractions.append(reading.stolen_fraction)
            result.starts_ns.append(reading.start_ns)
            result.durations_ns.append(reading.duration_ns)
        return self.settle(reading)


@dataclass
class Phases:
    """The three phases of a launch, in order.

    Attributes:
        judge: told duration and collectives of each warm-up step, gives the end of warm-up.
        say: told of each milestone and its detail.
        capture: a context that profiles, and writes one trace in place of any before.
        wants_again: told what others had of the machine in each step of a phase, and how long all took, ns; says
            whether to run the phase again. Collective.
        find_taken: told when steps began and how long they took, ns; gives what other processes had of the cores in
            each, NaN where nobody knows.
    """

    plan: Plan
    loop: StepLoop
    judge: Callable[[int, tuple[Issue, ...]], WarmupEnd | None]
    say: Callable[[str, str], None]
    capture: Callable[[], AbstractContextManager[Any]]
    wants_again: Callable[[Sequence[float], int], bool]
    find_taken: FindTaken = know_nothing_taken

    def warm_up(self, first: int, result: PhaseResult) -> WarmupEnd:
        """Step until the judge has seen enough; always ends, since the judge gives up at ``max_warmup_steps``."""
        for step in range(first, self.plan.max_warmup_steps + 1):
            reading = self.loop.run(Phase.WARMUP, range(step, step + 1), result)
            end = self.judge(reading.duration_ns if reading else 0, result.issues[-1])
            if end is not None:
                self.say("warm-up ended", end.reason)
                return end
        raise AssertionError("the judge ends warm-up at max_warmup_steps")

    def measure(self, first: int) -> PhaseResult:
        """Run MEASURED steps: the clock and nothing else."""
        self.say("measuring", f"{self.plan.measured_steps} steps")
        steps = range(first, first + self.plan.measured_steps)

        def run(result: PhaseResult) -> None:
            self.loop.run(Phase.MEASURED, steps, result)

        return self._run_undisturbed(run)

    def profile(self, first: int) -> PhaseResult:
        """Run PROFILED steps; one untimed step first, with a batch of its own, pays for the profiler's start."""
        self.say("profiling", f"{self.plan.profiled_steps} steps")
        steps = range(first, first + self.plan.profiled_steps)
        named = replace(self.loop, train=self._train_named)

        def run(result: PhaseResult) -> None:
            with self.capture():
                self.loop.prepare(range(steps.stop, steps.stop + 1))
                self.loop.train(steps.stop)
                named.run(Phase.PROFILED, steps, result)
                self.loop.journal.set_state(RankState.FINISHING, time.time_ns())  # a large trace may take long

        return self._run_undisturbed(run)

    def _run_undisturbed(self, run: Callable[[PhaseResult], None]) -> PhaseResult:
        """Run a phase, and again where other guests of the machine left too little of it; only the last is kept."""
        owned = len(self.loop.recorder.owned)
        while True:
            result = PhaseResult()
            run(result)
            result.note_taken(self.find_taken(result.starts_ns, result.durations_ns))
            if not self.wants_again(result.stolen_fractions, sum(result.durations_ns)):
                return result
            self.loop.journal.withdraw(len(result.durations_ns))
            del self.loop.recorder.owned[owned:]

    def _train_named(self, step: int) -> Tensor:
        with record_function(f"{STEP_PREFIX}{step}"):
            return self.loop.train(step)

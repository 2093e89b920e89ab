"""The phases of a person's loop: a coroutine beside it that is resumed when a step begins and when it ends.

Where steps take turns (gradients are applied every fourth, parameters averaged every eighth), warm-up finds the period,
and what is measured from then on are whole periods, so that no median is over two kinds of steps.
"""

import time
from collections.abc import Generator, Hashable
from contextlib import nullcontext

import torch
from torch.profiler import record_function

from dtbench.base.errors import CaptureError
from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import Phase, Region
from dtbench.store.journal import RankState
from dtbench.worker.loop.capture import capture
from dtbench.worker.loop.clock import Reading, StepClock, make_clock
from dtbench.worker.loop.steps import StepTimer
from dtbench.worker.loop.warmup import WarmupJudge
from dtbench.worker.machine.accelerator import find_device_problem, find_module
from dtbench.worker.machine.look import MachineLook
from dtbench.worker.machine.process_facts import process_start_unix_ns, read_memory, reset_memory
from dtbench.worker.parallelize.owners import name_live_owners
from dtbench.worker.recording.recorder import Issue, bucket_bytes
from dtbench.worker.user_loop.axes import find_names, known_axes
from dtbench.worker.user_loop.context import Found, LoopContext
from dtbench.worker.user_loop.options import LONGEST_PERIOD, take_periods
from dtbench.worker.user_loop.peers import count_collectives
from dtbench.worker.user_loop.regions import RegionMarks
from dtbench.worker.user_loop.stages import name_stages


class LoopPhases:
    """WARMUP, MEASURED and PROFILED steps, which a person's loop runs one by one between ``begin`` and ``end``."""

    def __init__(self, context: LoopContext, found: Found, marks: RegionMarks) -> None:
        self._context, self._found, self._marks = context, found, marks
        self._recorder = context.recorder
        run, peers = context.run, context.peers
        self._timer = StepTimer(context.recorder, context.journal, self._make_clock())
        longest = min(run.loop.max_warmup_steps // 2, LONGEST_PERIOD)
        sees_communication = peers.recorder is not None
        self._judge = WarmupJudge(run.loop, peers.rank, peers.store, sees_communication, longest)
        self._others = MachineLook(run.launch, peers.rank, run.loop.device, run.processes)
        self._period = 1
        self._reading: Reading | None = None
        self._is_timed = self._is_empty = False
        self._script = self._run()
        next(self._script)

    def begin(self) -> None:
        """Begin a step."""
        self._is_empty, self._reading = False, None
        next(self._script)

    def end(self) -> bool:
        """End it; True: it was the last one that is measured."""
        try:
            next(self._script)
        except StopIteration:
            return True
        return False

    def break_off(self) -> None:
        """The step is over, and its time; whether it was the last, the next thing says that happens."""
        self._is_empty = not self._has_trained()
        if self._is_timed and not self._is_empty:
            self._reading = self._timer.clock.stop()

    def leave(self) -> None:
        """No further step is seen; no other rank waits for what this one saw there."""
        self._script.close()
        self._judge.leave()

    def _has_trained(self) -> bool:
        """Tell whether anything but forward was seen in this step."""
        is_elsewhere = self._recorder.region is not Region.FORWARD
        regions = self._recorder.step_regions()
        return is_elsewhere or any(region is not Region.FORWARD for region in regions)

    def _run(self) -> Generator[None, None, None]:
        """Run beside the person's loop: it yields while that prepares a step, and again while it runs one."""
        self._others.look()
        yield from self._warm_up()
        was_steady = yield from self._measure()
        if not was_steady:
            yield from self._warm_up()
            yield from self._measure()
        yield from self._profile()

    def _one(self, phase: Phase | None) -> Generator[None, None, Reading | None]:
        """Let the person run one step, or a period of them; ``None``: an untimed one, which gets no number."""
        yield
        found = self._found
        named = record_function(f"{STEP_PREFIX}{found.step}") if phase is Phase.PROFILED else nullcontext()
        with named:
            reading = None
            while reading is None:
                if phase is not None:
                    found.phase = phase
                    self._timer.begin(phase, found.step)
                for left in reversed(range(self._period)):
                    self._is_timed = phase is not None and left == 0
                    self._marks.begin_step()
                    yield
                    if phase is not None and left == 0 and not (self._is_empty and phase is not Phase.PROFILED):
                        reading = self._timer.end(phase, found.step, self._reading)
                    self._marks.end_step()
                    if left:
                        yield
                if phase is None:
                    return None
                if reading is None:
                    yield  # nothing was trained: the next one is this step
        found.step += 1
        return reading

    def _warm_up(self) -> Generator[None, None, None]:
        found = self._found
        while found.warmup is None:
            counts = count_collectives()
            reading = self._timer.settle((yield from self._one(Phase.WARMUP)))
            issues = self._recorder.step_issues()
            if found.step == 1:
                self._see_first_step()
            found.bucket_bytes.append(bucket_bytes(issues))
            signature = self._sign(issues, counts)
            found.warmup = self._judge.judge(reading.duration_ns if reading else 0, signature)
        self._period = found.warmup.period
        found.loop = take_periods(found.loop, self._period)
        self._context.events.say("warm-up ended", found.warmup.reason)

    def _see_first_step(self) -> None:
        """Now every model is wrapped that a step needs, and lies where it computes."""
        if (problem := find_device_problem()) is not None:
            raise CaptureError(f"dtbench.capture cannot measure rank {self._context.peers.rank}: {problem}")
        self._found.time_to_first_step_ns = time.time_ns() - process_start_unix_ns()
        self._found.names = find_names(self._found.names)
        self._recorder.axes.update(known_axes(self._found.names))

    def _measure(self) -> Generator[None, None, bool]:
        """Let the person run the MEASURED steps; False: they take turns after all, and were warm-up's.

        A step that comes every eighth time, or more seldom, is met only here by who was warm before.
        """
        found, loop = self._found, self._found.loop
        device = torch.device(loop.device)
        self._others.look()
        reset_memory(device)
        self._context.events.say("measuring", f"{loop.measured_steps} steps")
        reading, signatures = None, []
        found.issues = []
        for _ in range(loop.measured_steps):
            counts = count_collectives()
            reading = yield from self._one(Phase.MEASURED)
            found.issues.append(self._recorder.step_issues())
            signatures.append(self._sign(found.issues[-1], counts))
        self._timer.settle(reading)
        found.memory = read_memory(device)  # what the profiler needs is not training's
        self._others.look()
        warm = found.step - loop.measured_steps
        may_go_on = self._period == 1 and self._judge.has_room(loop.measured_steps) and warm == self._judge.steps
        if not may_go_on or self._judge.agree(is_steady=len(set(signatures)) == 1):
            return True
        durations = self._context.journal.give_to(Phase.WARMUP, loop.measured_steps)
        found.bucket_bytes += [bucket_bytes(issues) for issues in found.issues]
        found.warmup = None
        for duration_ns, signature in zip(durations, signatures, strict=True):
            found.warmup = self._judge.judge(duration_ns, signature)
        return False

    def _profile(self) -> Generator[None, None, None]:
        """Let the person run the PROFILED steps, and write their trace."""
        context, loop = self._context, self._found.loop
        context.events.say("profiling", f"{loop.profiled_steps} steps")
        with (
            capture(loop.device, self._recorder, context.trace, context.settings),
            name_live_owners(),
            name_stages(),
        ):
            reading = yield from self._one(None)  # pays for the profiler's start
            for _ in range(loop.profiled_steps):
                reading = yield from self._one(Phase.PROFILED)
            self._timer.settle(reading)
            self._others.look()
            context.journal.set_state(RankState.FINISHING, time.time_ns())

    def _sign(self, issues: tuple[Issue, ...], counts: dict[str, int]) -> Hashable:
        """Return what tells kinds of steps apart: collectives, where nobody names them their numbers, and regions."""
        grown = ((name, count - counts.get(name, 0)) for name, count in count_collectives().items())
        return issues, tuple(grown), frozenset(self._recorder.step_regions())

    def _make_clock(self) -> StepClock:
        loop = self._found.loop
        return make_clock(find_module(loop.device), capacity=max(loop.measured_steps, loop.profiled_steps, 1))

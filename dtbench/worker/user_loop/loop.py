"""A person's own training loop, measured like dtbench's: same phases, same files, no scenario and no plan.

::

    with capture(...) as step:        step()   step() ...            step() ...    step()    step() ...    more steps
                                      |-- WARMUP until settled --|-- MEASURED --|-untimed-|-- PROFILED --|  untouched

The loop belongs to the person; ``StepContext`` is a coroutine beside it that is resumed when a step begins and when it
ends. After the last PROFILED step everything is on disk, the hooks are gone, and training may go on. Nothing that is
trained depends on being measured: not the number of batches, nor their order, nor a bit of a loss.

Where steps take turns (gradients are applied every fourth, parameters averaged every eighth), warm-up finds the period,
and what is measured from then on are whole periods, so that no median is over two kinds of steps.
"""

import atexit
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch.profiler import record_function

from dtbench.base.errors import CaptureError, StoreError
from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import Phase, Region
from dtbench.machine.stolen_time import StolenTime
from dtbench.scenario.schema.scenario import Profiler
from dtbench.store.journal import JournalWriter, RankState
from dtbench.store.records.place import find_place
from dtbench.store.records.rank import Memory, RankRecord, WarmupEnd
from dtbench.store.records.run import RankFailure
from dtbench.store.write import write_record
from dtbench.worker.loop.capture import capture, read_profiler_receipts
from dtbench.worker.loop.clock import Reading, StepClock, make_clock
from dtbench.worker.loop.steps import StepTimer
from dtbench.worker.loop.warmup import WarmupJudge
from dtbench.worker.machine.accelerator import find_device_problem, find_module
from dtbench.worker.machine.look import MachineLook
from dtbench.worker.machine.process_facts import process_start_unix_ns, read_kernel, read_memory, reset_memory
from dtbench.worker.network.named_gloo import BACKEND_NAME, is_registered, register_named_gloo
from dtbench.worker.parallelize.owners import name_live_owners
from dtbench.worker.recording.events import Events
from dtbench.worker.recording.recorder import Issue, Recorder, bucket_bytes, summarize_issues
from dtbench.worker.user_loop.axes import find_names, known_axes, name_mesh, read_axes, read_overlap
from dtbench.worker.user_loop.end import hear_reasons, join_reasons
from dtbench.worker.user_loop.options import (
    LONGEST_PERIOD,
    CaptureOptions,
    check,
    describe,
    read_profiler,
    take_periods,
)
from dtbench.worker.user_loop.peers import Peers, count_collectives, describe_groups, find_peers
from dtbench.worker.user_loop.regions import RegionMarks, find_marks, watch_regions
from dtbench.worker.user_loop.run import OwnRun, begin_run
from dtbench.worker.user_loop.stages import name_stages

_Batch = TypeVar("_Batch")

NAME_YOUR_GLOO: Final = (
    "collectives are recognised by where they were issued: gloo tells neither their group nor what waits for them; "
    "dist.init_process_group(dtbench.named_gloo()) in your script lets dtbench name them"
)


@contextmanager
def capture_loop(options: CaptureOptions) -> Iterator["StepContext"]:
    """Measure the steps of the loop inside; see ``dtbench.capture``.

    Raises:
        CaptureError: this program cannot be measured as it is written.
        StoreError: a rank cannot write its results.
    """
    check(options)
    settings = read_profiler(options)
    peers = find_peers()
    if find_marks() is not None:
        raise CaptureError("dtbench.capture is open already; leave the first, or let it see all its steps")
    names = read_axes(options.mesh)
    run = begin_run(options.results, options.name, describe(options, peers), peers)
    capacity = options.max_warmup_steps + options.measured_steps + options.profiled_steps + 1
    with _open_journal(run, peers, capacity) as journal:
        steps = StepContext(run, peers, journal, names, settings)
        try:
            yield steps
        except BaseException as error:
            steps.fail(error)
            raise
        else:
            steps.leave()


def start_capture(loop: AbstractContextManager["StepContext"]) -> "StepContext":
    """Enter what ``capture_loop`` gives until ``stop_capture`` or the end of the program; see ``dtbench.start``.

    Raises:
        CaptureError: this program cannot be measured as it is written.
        StoreError: a rank cannot write its results.
    """
    opened = ExitStack()
    steps = opened.enter_context(loop)
    steps.stop_with(opened.__exit__)
    return steps


def stop_capture() -> None:
    """End what ``start_capture`` began; nothing where that has ended, or never began."""
    marks = find_marks()
    if marks is not None:
        marks.stop()


def _open_journal(run: OwnRun, peers: Peers, capacity: int) -> JournalWriter:
    path = run.launch.journal(peers.rank)
    try:
        return JournalWriter(path, rank=peers.rank, pid=os.getpid(), capacity=capacity)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); free some space") from error


def name_gloo() -> str:
    """Make the named gloo known, once in a process; see ``dtbench.named_gloo``."""
    return BACKEND_NAME if is_registered() else register_named_gloo(Recorder(is_recording=False))


class StepContext:
    """The steps of a person's loop: ``with step(): ...`` around each, until ``step.is_done``."""

    def __init__(
        self, run: OwnRun, peers: Peers, journal: JournalWriter, names: dict[str, str], settings: Profiler
    ) -> None:
        self._run, self._peers, self._journal, self._names, self._settings = run, peers, journal, names, settings
        self._recorder = peers.recorder or Recorder()
        self._recorder.is_recording = True
        self._recorder.on_region = lambda region: journal.beat(region, time.time_ns())
        self._recorder.on_issue = journal.count_issue
        self._events = Events(run.launch.events(peers.rank), journal)
        self._marks = RegionMarks(self._recorder)
        self._hooks = ExitStack()
        self._hooks.callback(_silence, self._recorder)
        self._lacking = self._hooks.enter_context(watch_regions(self._marks))
        self._device = torch.device(run.loop.device)
        self._timer = StepTimer(self._recorder, journal, self._make_clock())
        longest = min(run.loop.max_warmup_steps // 2, LONGEST_PERIOD)
        sees_communication = peers.recorder is not None
        self._judge = WarmupJudge(run.loop, peers.rank, peers.store, sees_communication, longest)
        self._trace = run.launch.trace(peers.rank, time.time_ns())
        self._phase, self._number, self._period = Phase.WARMUP, 0, 1
        self._time_to_first_step_ns = 0
        self._warmup: WarmupEnd | None = None
        self._memory: Memory | None = None
        self._issues: list[tuple[Issue, ...]] = []
        self._stolen = StolenTime()
        self._others = MachineLook(run.launch, peers.rank, run.loop.device, run.processes)
        self._buckets: list[tuple[int, ...]] = []
        self._broken_by: BaseException | None = None
        self._end_capture: Callable[..., Any] | None = None
        self._reading: Reading | None = None
        self._is_open = self._is_broken_off = self._is_timed = self._is_empty = self._is_left = False
        self.is_done = False
        """Every step was seen and everything is on disk; further steps run as if dtbench were not there."""
        journal.begin(time.time_ns())
        self._events.say("started", f"pid {os.getpid()}")
        self._script = self._phases()
        next(self._script)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._run.folder.path

    def __call__(self) -> AbstractContextManager[None]:
        """Put ``with step():`` around everything that is one training step, and nothing else."""
        return self._step()

    def batches(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """Yield all of the loader's batches, the body of the loop being one step each, as long as steps are measured.

        Fetching a batch lies between steps and is in no number. A ``break`` ends the step that it leaves; where nothing
        was trained in it before, it was none.
        """
        for batch in loader:
            self._begin()
            try:
                yield batch
            except GeneratorExit:  # by `break`, or by an error, of which `fail` is told next
                self._break_off()
                raise
            self._end()

    def begin(self) -> None:
        """Begin a step, where ``with step():`` does not fit: in a callback. Ends the one before, where it has not."""
        self._end()
        self._begin()

    def end(self) -> None:
        """End the step that ``begin`` began; nothing where there is none."""
        self._end()

    def stop(self, error: BaseException | None = None) -> None:
        """End what ``dtbench.start`` began; steps that come after it are not measured.

        Args:
            error: what training raised, to be recorded.
        """
        end, self._end_capture = self._end_capture, None
        if end is not None:
            atexit.unregister(self._stop_at_exit)
            end(None if error is None else type(error), error, None if error is None else error.__traceback__)

    def stop_with(self, end: Callable[..., Any]) -> None:
        """Let ``stop`` call this, and the end of the program ``stop``, with the error that ended it."""
        self._end_capture, self._marks.stop = end, self.stop
        atexit.register(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        self.stop(getattr(sys, "last_value", None))

    def region(self, region: str) -> AbstractContextManager[None]:
        """Say that what is inside is ``forward``, ``backward`` or ``optimizer``, where dtbench cannot see it.

        Raises:
            CaptureError: there is no such region.
        """
        if region not in tuple(Region):
            raise CaptureError(f"there is no region {region!r}; a step has {', '.join(Region)}")
        return self._marks.inside(Region(region))

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except BaseException as error:
            self._broken_by = error
            raise
        self._end()

    def _begin(self) -> None:
        if self._broken_by is not None and not self._is_left:
            self.fail(self._broken_by)  # and was caught: training goes on, without being measured
            warnings.warn(f"dtbench.capture: step {self._number} raised; nothing after it is measured", stacklevel=4)
        self._end_broken_off()
        if self.is_done or self._is_left:
            return
        if self._is_open:
            raise CaptureError(f"step {self._number} has not ended, and another begins; leave `with step():` first")
        self._is_open, self._is_empty = True, False
        self._is_broken_off, self._reading = False, None
        next(self._script)

    def _end(self) -> None:
        if not self._is_open or self._is_left:
            return
        try:
            next(self._script)
        except StopIteration:
            self.is_done = True
        self._is_open = False

    def _break_off(self) -> None:
        """The loop over batches was left inside a step: its time is over, and how, the next thing says that happens."""
        if self._is_open and not self._is_left:
            self._is_broken_off, self._is_empty = True, not self._has_trained()
            if self._is_timed and not self._is_empty:
                self._reading = self._timer.clock.stop()

    def _end_broken_off(self) -> None:
        if self._is_broken_off:
            self._is_broken_off = False
            self._end()

    def _has_trained(self) -> bool:
        """Tell whether anything but forward was seen in this step."""
        is_elsewhere = self._recorder.region is not Region.FORWARD
        regions = self._recorder.step_regions()
        return is_elsewhere or any(region is not Region.FORWARD for region in regions)

    def _phases(self) -> Generator[None, None, None]:
        """Run beside the person's loop: it yields while that prepares a step, and again while it runs one."""
        self._others.look()
        yield from self._warm_up()
        was_steady = yield from self._measure()
        if not was_steady:
            yield from self._warm_up()
            yield from self._measure()
        loop = self._run.loop
        self._events.say("profiling", f"{loop.profiled_steps} steps")
        with (
            capture(loop.device, self._recorder, self._trace, self._settings),
            name_live_owners(),
            name_stages(),
        ):
            yield from self._one(None)  # pays for the profiler's start
            for _ in range(loop.profiled_steps):
                reading = yield from self._one(Phase.PROFILED)
            self._timer.settle(reading)
            self._others.look()
            self._journal.set_state(RankState.FINISHING, time.time_ns())
        self._conclude()

    def _one(self, phase: Phase | None) -> Generator[None, None, Reading | None]:
        """Let the person run one step, or a period of them; ``None``: an untimed one, which gets no number."""
        yield
        named = record_function(f"{STEP_PREFIX}{self._number}") if phase is Phase.PROFILED else nullcontext()
        with named:
            reading = None
            while reading is None:
                if phase is not None:
                    self._phase = phase
                    self._timer.begin(phase, self._number)
                for left in reversed(range(self._period)):
                    self._is_timed = phase is not None and left == 0
                    self._marks.begin_step()
                    yield
                    if phase is not None and left == 0 and not (self._is_empty and phase is not Phase.PROFILED):
                        reading = self._timer.end(phase, self._number, self._reading)
                    self._marks.end_step()
                    if left:
                        yield
                if phase is None:
                    return None
                if reading is None:
                    yield  # nothing was trained: the next one is this step
        self._number += 1
        return reading

    def _warm_up(self) -> Generator[None, None, None]:
        while self._warmup is None:
            counts = count_collectives()
            reading = self._timer.settle((yield from self._one(Phase.WARMUP)))
            issues = self._recorder.step_issues()
            if self._number == 1:
                if (problem := find_device_problem()) is not None:  # the model was moved since
                    raise CaptureError(f"dtbench.capture cannot measure rank {self._peers.rank}: {problem}")
                self._time_to_first_step_ns = time.time_ns() - process_start_unix_ns()
                self._names = find_names(self._names)  # now every model is wrapped that a step needs
                self._recorder.axes.update(known_axes(self._names))
            self._buckets.append(bucket_bytes(issues))
            signature = self._sign(issues, counts)
            self._warmup = self._judge.judge(reading.duration_ns if reading else 0, signature)
        self._period = self._warmup.period
        self._run = self._run.with_loop(take_periods(self._run.loop, self._period))
        self._events.say("warm-up ended", self._warmup.reason)

    def _measure(self) -> Generator[None, None, bool]:
        """Let the person run the MEASURED steps; False: they take turns after all, and were warm-up's.

        A step that comes every eighth time, or more seldom, is met only here by who was warm before.
        """
        loop = self._run.loop
        self._others.look()
        reset_memory(self._device)
        self._events.say("measuring", f"{loop.measured_steps} steps")
        reading, signatures = None, []
        self._issues = []
        for _ in range(loop.measured_steps):
            counts = count_collectives()
            reading = yield from self._one(Phase.MEASURED)
            self._issues.append(self._recorder.step_issues())
            signatures.append(self._sign(self._issues[-1], counts))
        self._timer.settle(reading)
        self._memory = read_memory(self._device)  # what the profiler needs is not training's
        self._others.look()
        warm = self._number - loop.measured_steps
        may_go_on = self._period == 1 and self._judge.has_room(loop.measured_steps) and warm == self._judge.steps
        if not may_go_on or self._judge.agree(is_steady=len(set(signatures)) == 1):
            return True
        durations = self._journal.give_to(Phase.WARMUP, loop.measured_steps)
        self._buckets += [bucket_bytes(issues) for issues in self._issues]
        for duration_ns, signature in zip(durations, signatures, strict=True):
            self._warmup = self._judge.judge(duration_ns, signature)
        return False

    def _sign(self, issues: tuple[Issue, ...], counts: dict[str, int]) -> Hashable:
        """Return what tells kinds of steps apart: collectives, where nobody names them their numbers, and regions."""
        grown = ((name, count - counts.get(name, 0)) for name, count in count_collectives().items())
        return issues, tuple(grown), frozenset(self._recorder.step_regions())

    def _make_clock(self) -> StepClock:
        loop = self._run.loop
        return make_clock(find_module(loop.device), capacity=max(loop.measured_steps, loop.profiled_steps, 1))

    def _conclude(self) -> None:
        """Every step was seen: put everything on disk, and let training go on undisturbed."""
        self._hooks.close()
        receipts = read_profiler_receipts(self._trace, self._run.loop.device, self._settings)
        self._write_record(self._make_record().model_copy(update={"receipts": receipts}))
        self._peers.say_left("")
        if self._peers.rank == 0:
            self._close(None)

    def leave(self) -> None:
        """The person's loop has ended; where that is too early, keep what there is and say so."""
        self._end_broken_off()
        if self.is_done or self._is_left:
            return
        reason = self._why_short()
        self._give_up(reason)
        if self._peers.rank == 0:
            self._close(reason)
            warnings.warn(f"dtbench.capture: {reason}; what was measured is kept in {self.folder}", stacklevel=4)

    def fail(self, error: BaseException) -> None:
        """The person's loop raised: record where and what; never hides the error itself."""
        if self.is_done or self._is_left:
            return
        said = "".join(traceback.format_exception_only(error)).strip()
        reason = f"raised in step {self._number} ({self._phase}): {said}"
        failure = RankFailure(
            rank=self._peers.rank,
            what="raised",
            last_step=self._number,
            last_phase=str(self._phase),
            last_region=None if self._recorder.region is None else str(self._recorder.region),
            last_lines=tuple("".join(traceback.format_exception(error)).splitlines()[-20:]),
        )
        with suppress(Exception):  # whatever fails now is an effect of the error that is on its way
            self._give_up(reason)
            self._record_end(f"rank {self._peers.rank} {reason}", (failure,))

    def _give_up(self, reason: str) -> None:
        """Take the hooks out, keep what was found out, tell the others."""
        self._is_left = True
        self._script.close()
        self._hooks.close()
        self._events.say("failed", reason)
        self._judge.leave()
        if self._time_to_first_step_ns:
            self._write_record(self._make_record())
        self._peers.say_left(reason)

    def _why_short(self) -> str:
        loop = self._run.loop
        return (
            f"the loop ended after {self._number} steps, in {self._phase}; dtbench needs "
            f"{loop.min_warmup_steps} to {loop.max_warmup_steps} to warm up, {loop.measured_steps} MEASURED, "
            f"one untimed and {loop.profiled_steps} PROFILED"
        )

    def _close(self, reason: str | None) -> None:
        """Wait for what the other ranks say, then say how the run ended; on rank 0 only."""
        heard = hear_reasons(self._peers, self._run.launch)
        self._record_end(join_reasons([reason or "", *heard]), ())

    def _record_end(self, reason: str | None, failures: tuple[RankFailure, ...]) -> None:
        if self._peers.is_first("closed"):
            mesh = name_mesh(self._names)
            loop = self._run.loop.model_copy(update={"mesh": mesh, "notes": self._notes()})
            self._run.with_loop(loop).close(reason, failures)

    def _write_record(self, record: RankRecord) -> None:
        write_record(self._run.launch.rank_record(self._peers.rank), record)
        self._journal.set_state(RankState.DONE, time.time_ns())
        self._events.say("results written")

    def _make_record(self) -> RankRecord:
        issues = self._issues[-1] if self._issues else ()
        traffic = summarize_issues(issues)
        unsettled = WarmupEnd(steps=self._number, settled=False, reason="the loop ended before warm-up did")
        return RankRecord(
            place=find_place(self._run.launch),
            rank=self._peers.rank,
            host=socket.gethostname(),
            kernel=read_kernel(),
            pid=os.getpid(),
            time_to_first_step_ns=self._time_to_first_step_ns,
            memory=self._memory or read_memory(self._device),
            warmup=self._warmup or unsettled,
            correctness=None,
            losses=(),
            receipts=(),
            traffic=traffic,
            traffic_is_stable=len(set(self._issues)) <= 1,
            overlap_possible=tuple(read_overlap(traffic)),
            process_groups=describe_groups(self._names),
            bucket_bytes_per_step=(*self._buckets, bucket_bytes(issues)),
            fsdp_units=(),
            stolen_fraction=self._stolen.read_fraction(),
        )

    def _notes(self) -> tuple[str, ...]:
        lacking = (f"this torch has no {name}: the region is not known there" for name in self._lacking)
        is_mute = self._peers.backend == "gloo" and self._peers.recorder is None and self._peers.size > 1
        return (*self._run.loop.notes, *lacking, *([NAME_YOUR_GLOO] if is_mute else []))


def _silence(recorder: Recorder) -> None:
    """Let the named backend's recorder, which lives as long as the process group, keep nothing more."""
    recorder.begin_step()
    recorder.enter(None)
    recorder.is_recording = False
    recorder.on_region, recorder.on_issue = Recorder().on_region, Recorder().on_issue

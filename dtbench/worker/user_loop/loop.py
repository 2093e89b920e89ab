"""A person's own training loop, measured like dtbench's: same phases, same files, no scenario and no plan.

::

    with capture(...) as step:        step()   step() ...            step() ...    step()    step() ...    more steps
                                      |-- WARMUP until settled --|-- MEASURED --|-untimed-|-- PROFILED --|  untouched

The loop belongs to the person; ``StepContext`` tells ``phases`` when a step begins and when it ends. After the last
PROFILED step everything is on disk, the hooks are gone, and training may go on. Nothing that is trained depends on
being measured: not the number of batches, nor their order, nor a bit of a loss.
"""

import atexit
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dtbench.base.errors import CaptureError, StoreError
from dtbench.base.vocabulary import Region
from dtbench.store.journal import JournalWriter
from dtbench.worker.loop.capture import read_profiler_receipts
from dtbench.worker.network.named_gloo import BACKEND_NAME, is_registered, register_named_gloo
from dtbench.worker.recording.events import Events
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.user_loop.axes import read_axes
from dtbench.worker.user_loop.context import Found, LoopContext
from dtbench.worker.user_loop.end import LoopEnd
from dtbench.worker.user_loop.options import CaptureOptions, check, describe, read_profiler
from dtbench.worker.user_loop.peers import Peers, find_peers
from dtbench.worker.user_loop.phases import LoopPhases
from dtbench.worker.user_loop.regions import RegionMarks, find_marks, watch_regions
from dtbench.worker.user_loop.run import OwnRun, begin_run

_Batch = TypeVar("_Batch")


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
        context = LoopContext(
            run=run,
            peers=peers,
            recorder=peers.recorder or Recorder(),
            journal=journal,
            events=Events(run.launch.events(peers.rank), journal),
            trace=run.launch.trace(peers.rank, time.time_ns()),
            settings=settings,
        )
        steps = StepContext(context, names)
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
    steps.stop_with(opened)
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

    def __init__(self, context: LoopContext, names: dict[str, str]) -> None:
        self._context = context
        context.recorder.is_recording = True
        context.recorder.on_region = lambda region: context.journal.beat(region, time.time_ns())
        context.recorder.on_issue = context.journal.count_issue
        marks = RegionMarks(context.recorder, self.stop)
        self._marks = marks
        self._hooks = ExitStack()
        self._hooks.callback(_silence, context.recorder)
        lacking = self._hooks.enter_context(watch_regions(marks))
        self._opened = ExitStack()
        """What ``stop`` leaves; nothing within a ``with`` of the person's own."""
        self._found = Found(context.run.loop, names)
        self._end_of_loop = LoopEnd(context, self._found, lacking)
        self._raised: BaseException | None = None
        self._is_open = self._is_broken_off = self._is_left = False
        self.is_done = False
        """Every step was seen and everything is on disk; further steps run as if dtbench were not there."""
        context.journal.begin(time.time_ns())
        context.events.say("started", f"pid {os.getpid()}")
        self._phases = LoopPhases(context, self._found, marks)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._context.run.folder.path

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
                if self._is_open and not self._is_left:
                    self._is_broken_off = True
                    self._phases.break_off()
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
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        self._opened.__exit__(kind, error, trace)

    def stop_with(self, opened: AbstractContextManager[Any]) -> None:
        """Let ``stop`` leave this, and the end of the program ``stop``, with the error that ended it."""
        self._opened.push(opened)
        atexit.register(self._stop_at_exit)
        self._opened.callback(atexit.unregister, self._stop_at_exit)

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

    def leave(self) -> None:
        """The person's loop has ended; where that is too early, keep what there is and say so."""
        self._end_broken_off()
        if not self._is_over:
            self._take_leave()
            self._end_of_loop.end_early()

    def fail(self, error: BaseException) -> None:
        """The person's loop raised: record where and what; never hides the error itself."""
        if not self._is_over:
            failure = self._end_of_loop.describe(error)
            with suppress(Exception):  # whatever fails now is an effect of the error that is on its way
                self._take_leave()
                self._end_of_loop.fail(error, failure)

    @property
    def _is_over(self) -> bool:
        return self.is_done or self._is_left

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except BaseException as error:
            self._raised = error
            raise
        self._end()

    def _begin(self) -> None:
        if self._raised is not None and not self._is_left:
            self.fail(self._raised)  # and was caught: training goes on, without being measured
            step = self._found.step
            warnings.warn(f"dtbench.capture: step {step} raised; nothing after it is measured", stacklevel=4)
        self._end_broken_off()
        if self._is_over:
            return
        if self._is_open:
            raise CaptureError(f"step {self._found.step} has not ended, and another begins; leave `with step():` first")
        self._is_open, self._is_broken_off = True, False
        self._phases.begin()

    def _end(self) -> None:
        if not self._is_open or self._is_left:
            return
        if self._phases.end():
            self._conclude()
            self.is_done = True
        self._is_open = False

    def _end_broken_off(self) -> None:
        if self._is_broken_off:
            self._is_broken_off = False
            self._end()

    def _conclude(self) -> None:
        """Every step was seen: put everything on disk, and let training go on undisturbed."""
        self._hooks.close()
        context = self._context
        self._end_of_loop.conclude(read_profiler_receipts(context.trace, self._found.loop.device, context.settings))

    def _take_leave(self) -> None:
        """Take the hooks out of a loop that is measured no longer."""
        self._is_left = True
        self._phases.leave()
        self._hooks.close()


def _silence(recorder: Recorder) -> None:
    """Let the named backend's recorder, which lives as long as the process group, keep nothing more."""
    recorder.begin_step()
    recorder.enter(None)
    recorder.is_recording = False
    recorder.on_region, recorder.on_issue = Recorder().on_region, Recorder().on_issue

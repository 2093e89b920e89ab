"""What ``dtbench.monitor`` gives: it watches each step of a loop, and reports every so many.

::

    with monitor.step(): ...            |-- step --| between |-- step --| between
    monitor.step() after each step      |-- step --|-- step --|-- step --|

The first step is in no number: after it every model is wrapped, and what each process group is for is looked up.
"""

import math
import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import torch.distributed as dist

from dtbench.base.errors import CaptureError
from dtbench.base.units import NS_PER_MS, count_things
from dtbench.base.vocabulary import DeviceKind
from dtbench.live.account import LiveStep, Window
from dtbench.live.exchange import Exchange, find_group
from dtbench.live.groups import Groups
from dtbench.live.hooks import Hooks
from dtbench.live.numbers import Rows, find_late, summarize
from dtbench.live.sinks import Report, Sink, print_line
from dtbench.live.waits import Label, Waits
from dtbench.worker.machine.accelerator import find_device
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.user_loop.regions import RegionMarks, find_marks, watch_regions

_HISTORY: Final = 256
"""Steps that ``Monitor.steps`` keeps."""
_NOT_CPU: Final = (
    "dtbench.monitor sees where a thread waits, on CPU; this rank computes on a device, whose streams wait instead. "
    "dtbench.capture measures such a loop"
)


@contextmanager
def watch_loop(sinks: Iterable[Sink], every: int) -> Iterator["Monitor"]:
    """Watch the steps of the loop inside; see ``dtbench.monitor``.

    Raises:
        CaptureError: this program cannot be watched as it is written.
    """
    if not isinstance(every, int) or every < 1:
        raise CaptureError(f"dtbench.monitor: every={every!r} must be a whole number of at least 1")
    if find_marks() is not None:
        raise CaptureError("dtbench.monitor: a dtbench.capture or another monitor is open; leave it first")
    group = _find_ranks()
    waits, recorder = Waits(), Recorder(is_recording=False)
    groups = Groups(None if group is None else group.group_name)
    watch = Watch(waits, recorder, groups, Hooks(waits, recorder, groups), RegionMarks(recorder, _stop_nothing))
    is_first = group is None or dist.get_rank() == 0
    monitor = Monitor(watch, Exchange(group), tuple(sinks) or (print_line(),), every, is_first=is_first)
    with watch.hooks.installed(), watch_regions(watch.marks):
        yield monitor
    monitor.finish()


def _find_ranks() -> Any:
    """Return the group over which ranks tell each other their rows; None: this process is alone."""
    is_grouped = dist.is_available() and dist.is_initialized()
    if find_device(str(dist.get_backend_config()) if is_grouped else "") is not DeviceKind.CPU:
        raise CaptureError(_NOT_CPU)
    if is_grouped:
        return find_group() if dist.get_world_size() > 1 else None
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        raise CaptureError(
            f"{ranks} ranks were started (WORLD_SIZE), but they have no process group yet; "
            "call torch.distributed.init_process_group before dtbench.monitor"
        )
    return None


def _stop_nothing() -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """What sees a loop's steps."""

    waits: Waits
    recorder: Recorder
    groups: Groups
    hooks: Hooks
    marks: RegionMarks


@dataclass(frozen=True)
class _Given:
    """What comes back with the rows of an exchange: of which step they are, and what this rank's slots are."""

    step: int
    labels: tuple[Label, ...]


class Monitor:
    """The steps of a loop: ``with monitor.step(): ...`` around each, or ``monitor.step()`` after each.

    Attributes:
        steps: the last ones of this rank, at most 256; not the first, nor those that raised.
    """

    def __init__(
        self, watch: Watch, exchange: Exchange, sinks: tuple[Sink, ...], every: int, *, is_first: bool
    ) -> None:
        self.steps: deque[LiveStep] = deque(maxlen=_HISTORY)
        self._report: Report | None = None
        self._heard: tuple[Rows, _Given] | None = None
        self._watch, self._exchange = watch, exchange
        self._sinks, self._every, self._is_first = list(sinks), every, is_first
        self._window = Window()
        self._in_window = 0
        self._scope = _Scope(self)
        self._uses_with = False
        self._number = -1
        self._is_ready = False
        self._begun_ns = self._between_ns = self._cost_ns = 0
        self._left_ns: int | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def report(self) -> Report | None:
        """The latest, on every rank; None: there was none yet."""
        if self._heard is not None:
            self._report, self._heard = self._make_report(*self._heard), None
        return self._report

    def owner_wait_ms(self) -> dict[str, float]:
        """Return how long this rank stood still for each FSDP2 unit, ms: mean of ``steps``, of their first 64 waits."""
        sums: Counter[str] = Counter()
        for step in self.steps:
            for wait in step.waits.waits:
                if wait.label.owner:
                    sums[wait.label.owner] += wait.wait_ns
        return {owner: wait_ns / len(self.steps) / NS_PER_MS for owner, wait_ns in sums.items()}

    def step(self) -> AbstractContextManager[None]:
        """Put ``with monitor.step():`` around a step; or call it after each, and use nothing that it gives."""
        if not self._uses_with:
            if self._watch.waits.is_open:
                self._end()
            self._begin()
            self._between_ns = 0
        return self._scope

    def enter(self) -> None:
        """A step begins, in a ``with``."""
        if not self._uses_with:
            self._uses_with = True  # and `step` has just begun it
        elif self._watch.waits.is_open:
            raise CaptureError("a step has not ended, and another begins; leave `with monitor.step():` first")
        else:
            self._begin()

    def leave(self, *, has_raised: bool) -> None:
        """It ends; one that raised is in no number."""
        if has_raised:
            self._close()
        else:
            self._end()

    def finish(self) -> None:
        """The loop is over: report what is on its way still."""
        if self._watch.waits.is_open:
            self._close()
        for rows, given in self._exchange.hear_last():
            self._tell(rows, given)

    def _begin(self) -> None:
        watch = self._watch
        entered_ns = watch.waits.now_ns()
        self._between_ns = 0 if self._left_ns is None else entered_ns - self._left_ns
        watch.recorder.begin_step()
        watch.hooks.begin_step()
        watch.marks.begin_step()
        self._begun_ns = watch.waits.begin_step()
        self._cost_ns += self._begun_ns - entered_ns

    def _close(self) -> tuple[LiveStep, int]:
        """End a step; gives it, and when it ended."""
        watch = self._watch
        waits, ended_ns = watch.waits.end_step()
        watch.marks.end_step()
        unseen = waits.unseen + watch.hooks.end_step()
        step = LiveStep(
            number=self._number + 1,
            step_ns=ended_ns - self._begun_ns,
            between_ns=self._between_ns,
            cost_ns=self._cost_ns,
            waits=waits,
            regions=watch.recorder.step_regions(),
            unseen=unseen,
        )
        self._number += 1
        self._left_ns, self._cost_ns = watch.waits.now_ns(), 0
        return step, ended_ns

    def _end(self) -> None:
        step, ended_ns = self._close()
        if self._is_ready:
            self._keep(step)
        is_first, self._is_ready = not self._is_ready, True
        if is_first or self._watch.groups.has_new:
            self._look_up()
        if (heard := self._exchange.hear()) is not None:
            self._tell(*heard)
        self._left_ns = self._watch.waits.now_ns()
        self._cost_ns = 0 if is_first else self._left_ns - ended_ns

    def _look_up(self) -> None:
        """Find out what each group is for, and what this monitor cannot see."""
        self._watch.groups.find_axes()
        if find_device("") is not DeviceKind.CPU:
            self._notes = (_NOT_CPU,)

    def _keep(self, step: LiveStep) -> None:
        self.steps.append(step)
        self._window.add(step)
        self._in_window += 1
        if self._in_window == self._every:
            self._in_window = 0
            row, labels = self._window.close()
            self._exchange.give(row, _Given(step.number, labels))

    def _tell(self, rows: Rows, given: _Given) -> None:
        self._heard = rows, given
        if self._is_first and (report := self.report) is not None:
            for sink in tuple(self._sinks):
                self._give(sink, report)

    def _make_report(self, rows: Rows, given: _Given) -> Report:
        late = find_late(rows, given.labels)
        numbers = summarize(rows)
        if self._watch.groups.uncounted:  # what nobody counts is not known to be none
            numbers["unseen"] = numbers["unseen"] or math.nan
            numbers["hidden_fraction"] = math.nan
        numbers["slowest_rank"] = math.nan if late is None else float(late.rank)
        numbers["slowest_late_ms"] = math.nan if late is None else late.late_ns / NS_PER_MS
        return Report(given.step, numbers, late, tuple(self._say(numbers)))

    def _say(self, numbers: dict[str, float]) -> Iterator[str]:
        yield from self._notes
        if uncounted := self._watch.groups.uncounted:
            what = count_things(uncounted, "group")
            yield f"{what} without a count of what the backend issues: more may be waited for"
        if numbers["unseen"] > 0:
            yield f"{numbers['unseen']:.3g} collectives a step were not seen to be waited for"
        if self._exchange.is_given_up:
            yield "of this rank alone: the others do not answer"

    def _give(self, sink: Sink, report: Report) -> None:
        try:
            sink(report)
        except Exception as error:  # noqa: BLE001 - whatever a sink does, training goes on
            self._sinks.remove(sink)
            warnings.warn(f"dtbench.monitor: a sink failed, and gets no more reports: {error!r}", stacklevel=2)


@dataclass(frozen=True)
class _Scope:
    """One for all steps of a loop: they do not nest."""

    monitor: Monitor = field(repr=False)

    def __enter__(self) -> None:
        self.monitor.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.monitor.leave(has_raised=kind is not None)

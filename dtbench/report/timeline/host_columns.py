"""What threads of a host did, as columns of a timeline's document; see ``document.py``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from dtbench.base.ranges import parse_wait_range
from dtbench.traces.spans.host import Host, HostSpans
from dtbench.traces.time.intervals import Ints

NO_CALL: Final = -1
"""In place of a call: none is known to have launched it, or it is not drawn."""
_OWN_PREFIX: Final = "dtbench::"


@dataclass(frozen=True)
class HostSpanColumns:
    """Spans of one thread in order of start; ``level``: of ranges, how many others lie around each."""

    text: list[int]
    start: list[int]
    duration: list[int]
    level: list[int] | None = None


@dataclass(frozen=True)
class HostThreadColumns:
    """What one thread of a host did.

    Attributes:
        lane: ``"<process>/<thread>"``.
        name: what a person calls it.
        ranges: what ``record_function`` names.
        operators: the innermost at each moment, and so one that calls others once for each part of its own.
        calls: of the runtime; those of a rank are numbered from thread to thread.
    """

    lane: str
    name: str
    ranges: HostSpanColumns
    operators: HostSpanColumns
    calls: HostSpanColumns


@dataclass(frozen=True)
class HostWriter:
    """Writes the threads of one rank, the busiest first; those of which nothing is drawn are left out.

    Attributes:
        host: of it what is drawn.
        codes: gives strings their numbers.
        from_origin: makes moments of the rank those of the picture.
        is_tied: its calls may be tied to what ran on the device.
    """

    host: Host
    codes: Callable[[Iterable[object]], list[int]]
    from_origin: Callable[[Ints], list[int]]
    is_tied: bool

    def write_threads(self) -> list[HostThreadColumns]:
        """Return the columns of its threads."""
        return [self._write_thread(thread) for thread in self._threads]

    def number_calls(self, events: Sequence[int]) -> list[int]:
        """Return which of the rank's calls, from thread to thread, some events are; ``NO_CALL``: none."""
        return [self._numbers.get(event, NO_CALL) for event in events]

    @cached_property
    def _threads(self) -> list[int]:
        times_ns = dict.fromkeys(range(len(self.host.threads)), 0)
        for spans in (self.host.operators, self.host.calls, self.host.ranges):
            for thread in np.unique(spans.thread).tolist():
                times_ns[thread] += int(spans.length_ns[spans.thread == thread].sum())
        return sorted((one for one, time_ns in times_ns.items() if time_ns), key=lambda one: -times_ns[one])

    @cached_property
    def _numbers(self) -> dict[int, int]:
        calls = self.host.calls
        events = [event for thread in self._threads for event in calls.event[calls.thread == thread].tolist()]
        return {event: number for number, event in enumerate(events)} if self.is_tied else {}

    def _write_thread(self, thread: int) -> HostThreadColumns:
        host, lane = self.host, self.host.threads[thread]
        ranges, operators, calls = (one.keep(one.thread == thread) for one in (host.ranges, host.operators, host.calls))
        role = " · autograd" if lane in host.engine else ""
        return HostThreadColumns(
            lane=lane,
            name=f"thread {lane.rpartition('/')[2].removeprefix('thread ')}{role}",
            ranges=replace(self._write_spans(ranges), level=ranges.level.tolist()),
            operators=self._write_spans(operators),
            calls=self._write_spans(calls),
        )

    def _write_spans(self, spans: HostSpans) -> HostSpanColumns:
        used, text = np.unique(spans.name, return_inverse=True)
        codes = np.array(self.codes(_spell(self.host.names[name]) for name in used.tolist()), dtype=np.int64)
        return HostSpanColumns(codes[text].tolist(), self.from_origin(spans.start_ns), spans.length_ns.tolist())


def _spell(name: str) -> str:
    """Return the name of a range, an operator or a call, dtbench's own ranges in words."""
    waited = parse_wait_range(name)
    if waited is not None:
        return f"waits for collective {waited.seq} of group {waited.group}"
    return name.removeprefix(_OWN_PREFIX)

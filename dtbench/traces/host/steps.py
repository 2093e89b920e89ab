"""The steps of a trace and their windows: half-open, each running to the next, so that steps tile the trace.

On a CPU dtbench's own steps end where they end: what is done between them (a batch is fetched, a loss is logged) is in
no MEASURED step either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.ranges import REGION_PREFIX, STEP_PREFIX
from dtbench.base.vocabulary import Kind
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, unite_all
from dtbench.traces.trace import Trace

_WHOLE: Final = 0.8  # of its host range, and of other steps, a step on a device is no part of one
_STEP: Final = re.compile(rf"{STEP_PREFIX}\d{{1,18}}")  # at most 18 digits: a number that the tables hold


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        number: as in ``ProfilerStep#12``.
        host: from its host range's start to the next step's, or to its range's end where it is the last, or dtbench's
            own: what is issued here is the step's.
        window: what its account covers.
    """

    number: int
    host: Window
    window: Window


@dataclass(frozen=True)
class Cut:
    """A last step on a device that is not all in the trace.

    Attributes:
        step: its number.
        seen_ns: from its first kernel to the trace's last.
        host_ns: what the host took for it.
        others_ns: median of the windows of the steps before it; None: there is none.
    """

    step: int
    seen_ns: int
    host_ns: int
    others_ns: int | None


def find_host_ranges(trace: Trace) -> list[tuple[int, Window]]:
    """Find number and host range of every step, in order of time; a number that comes twice keeps its first range.

    So what is in the others counts to the step before them: ``count_repeated`` says how many there are.
    """
    found: dict[int, Window] = {}
    for number, window in _find_ranges(trace):
        found[number] = min(found.get(number, window), window, key=lambda one: one.start_ns)
    return sorted(found.items(), key=lambda item: item[1].start_ns)


def count_repeated(trace: Trace) -> int:
    """Count the host ranges of steps whose number another range has before them."""
    ranges = list(_find_ranges(trace))
    return len(set(ranges)) - len({number for number, _ in ranges})


def _find_ranges(trace: Trace) -> Iterator[tuple[int, Window]]:
    for event in np.flatnonzero(trace.is_named(_STEP.fullmatch)).tolist():
        if trace.category_of(event) != DEVICE_RANGE:
            number = int(trace.name_of(event).removeprefix(STEP_PREFIX))
            yield number, Window(int(trace.start_ns[event]), int(trace.end_ns[event]))


def find_cpu_hosts(trace: Trace, ranges: list[tuple[int, Window]]) -> list[Window]:
    """Find where a CPU trace's steps issue: each in its own range in a trace of dtbench's, else up to the next one's.

    Args:
        trace: the events.
        ranges: as from ``find_host_ranges``.
    """
    is_ours = any(name.startswith(REGION_PREFIX) for name in trace.names)
    return [window for _, window in ranges] if is_ours else _tile(ranges)


def cpu_steps(ranges: list[tuple[int, Window]], hosts: Sequence[Window], last_ends_ns: Sequence[int]) -> list[Step]:
    """Give the steps of a CPU trace: each ends with what it issued, at the latest where the next one begins.

    Args:
        ranges: as from ``find_host_ranges``.
        hosts: as from ``find_cpu_hosts``.
        last_ends_ns: for each, end of the last collective that it issued; 0: it issued none.
    """
    ends_ns = [max(host.end_ns, last_ns) for host, last_ns in zip(hosts, last_ends_ns, strict=True)]
    for at, following in enumerate(hosts[1:]):
        ends_ns[at] = min(ends_ns[at], following.start_ns)
    return [
        Step(number, host, Window(host.start_ns, end_ns))
        for (number, _), host, end_ns in zip(ranges, hosts, ends_ns, strict=True)
    ]


def device_steps(
    trace: Trace, nesting: Nesting, ranges: list[tuple[int, Window]], end_ns: int, main_lane: int | None = None
) -> list[Step]:
    """Tile a device trace: a boundary is the first start of the device events launched inside a step's host range.

    Not of those that begin while the main lane still works for the steps before: the next batch is copied on a stream
    of its own as soon as it is asked for. The last step ends with the trace. A step that launched nothing gets an empty
    window at the next boundary.

    Args:
        trace: the events.
        nesting: who launched what.
        ranges: as from ``find_host_ranges``.
        end_ns: end of the last step.
        main_lane: the lane with most compute; None: nothing computes.
    """
    launched = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    launched = launched[nesting.launch[launched] != launched]
    launched_at = nesting.launch_ns(launched)
    order = np.argsort(launched_at, kind="stable")
    launched, launched_at = launched[order], launched_at[order]
    starts_ns, is_main = trace.start_ns[launched], trace.lane[launched] == (-1 if main_lane is None else main_lane)
    worked_until_ns = np.maximum.accumulate(np.where(is_main, trace.end_ns[launched], np.iinfo(np.int64).min))
    boundaries: list[int] = []
    for _, host in reversed(ranges):
        first, beyond = np.searchsorted(launched_at, (host.start_ns, host.end_ns)).tolist()
        following = boundaries[-1] if boundaries else end_ns
        begun_ns = starts_ns[first:beyond]
        after = begun_ns[begun_ns >= worked_until_ns[first - 1]] if first else begun_ns
        boundaries.append(int((after if len(after) else begun_ns).min(initial=following)))
    starts = boundaries[::-1]
    windows = [Window(start, end) for start, end in zip(starts, [*starts[1:], end_ns], strict=True)] if starts else []
    return [
        Step(number, host, window) for (number, _), host, window in zip(ranges, _tile(ranges), windows, strict=True)
    ]


def find_cut(steps: Sequence[Step]) -> Cut | None:
    """Find a last step that is not all there; None: it is.

    On a device a step goes to the next one's first kernel. The last one's window ends with the trace's last kernel
    instead: a part is missing where that makes it much shorter than its own host range, and than the others.
    """
    seen = [step for step in steps if step.window.length_ns]
    if not seen:
        return None
    *others, last = seen
    others_ns = round(median(step.window.length_ns for step in others)) if others else None
    cut = Cut(last.number, last.window.length_ns, last.host.length_ns, others_ns)
    whole_ns = last.host.length_ns if others_ns is None else min(last.host.length_ns, others_ns)
    return cut if cut.seen_ns < _WHOLE * whole_ns else None


def _tile(ranges: list[tuple[int, Window]]) -> list[Window]:
    ends = [window.start_ns for _, window in ranges[1:]] + [window.end_ns for _, window in ranges[-1:]]
    return [Window(window.start_ns, end) for (_, window), end in zip(ranges, ends, strict=True)]


def find_extent(trace: Trace, kinds: Mapping[Kind, Intervals]) -> Window:
    """Give first start to last end of what has a kind.

    Raises:
        TraceError: nothing has one.
    """
    everything = unite_all(*kinds.values())
    if not len(everything.starts_ns):
        reasons = ", ".join(f"{count} {reason}" for reason, count in trace.unread.events.items())
        unread = f", and {trace.unread.count} that could not be read: {reasons}" if trace.unread.count else ""
        raise TraceError(
            f"{trace.path}: nothing in it computes, copies or communicates ({len(trace.name)} events{unread}); "
            "was the profiler started with ProfilerActivity.CPU or CUDA, and did it see a step?"
        )
    return Window(int(everything.starts_ns[0]), int(everything.ends_ns[-1]))

"""The steps of a trace and their windows: half-open, each running to the next, so that steps tile the trace.

On a CPU dtbench's own steps, and anywhere those that a person names (``named_steps.py``), end where they end: what is
done between them (a batch is fetched, a loss is logged) is in no MEASURED step either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.ranges import REGION_PREFIX, STEP_PREFIX
from dtbench.base.vocabulary import Kind
from dtbench.traces.host.correlate import Link, find_links
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE, OPERATOR
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints, unite, unite_all
from dtbench.traces.trace import Trace

_WHOLE: Final = 0.8  # of its host range, and of other steps, a step on a device is no part of one
_LAUNCH_NS: Final = 20_000  # from launch to start, or from kernel to kernel; see ``account/gaps.py``
_APART: Final = 0.01  # of a step: a profiler ends the range of one with its call that begins the next one's
_STEP: Final = re.compile(rf"{STEP_PREFIX}\d{{1,18}}")  # at most 18 digits: a number that the tables hold


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        number: as in ``ProfilerStep#12``.
        host: from its host range's start to the next step's, or to its range's end where it is the last, or dtbench's
            own: what is issued here is the step's.
        window: what its account covers.
        unsure_ns: by how much earlier it may begin on a device, as work whose launch, or a copy, is lost may be its.
        unsure_end_ns: by how much earlier it may end, likewise.
    """

    number: int
    host: Window
    window: Window
    unsure_ns: int = 0
    unsure_end_ns: int = 0


@dataclass(frozen=True)
class TruncatedStep:
    """A last step on a device that is not all in the trace.

    Attributes:
        step: its number.
        seen_ns: from its first kernel to the trace's last.
        host_ns: what the host took for it.
        others_ns: median of the windows of the steps before it; None: there is none.
        unsure_ns: by how much earlier it may begin, as launches are lost; with that it may be all there.
    """

    step: int
    seen_ns: int
    host_ns: int
    others_ns: int | None
    unsure_ns: int = 0


def find_host_ranges(trace: Trace) -> list[tuple[int, Window]]:
    """Find number and host range of every step, in order of time; a number that comes twice keeps its first range.

    So what is in the others counts to the step before them, or, where steps end with their ranges, to none:
    ``count_repeated`` says how many there are.
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
    if _is_ours(trace) or trace.has_named_steps:
        return [window for _, window in ranges]
    filled = _fill_skipped(ranges, np.sort(trace.start_ns[trace.is_one_of((OPERATOR,))]))
    return [host for (number, _), host in zip(filled, _tile(filled), strict=True) if number is not None]


def _is_ours(trace: Trace) -> bool:
    """Tell whether dtbench made the ranges of steps, which end before the next ones begin."""
    return any(name.startswith(REGION_PREFIX) for name in trace.names)


def _fill(trace: Trace, ranges: list[tuple[int, Window]], launched_at: Ints) -> list[tuple[int | None, Window]]:
    """Put ranges without a number where what is launched is of no step."""
    if _is_ours(trace):
        return [*ranges]
    if not trace.has_named_steps:
        return _fill_skipped(ranges, launched_at)
    between = [
        (None, Window(one.end_ns, after.start_ns))
        for (_, one), (_, after) in pairwise(ranges)
        if after.start_ns > one.end_ns
    ]
    return sorted([*ranges, *between], key=lambda item: item[1].start_ns)


def _fill_skipped(ranges: list[tuple[int, Window]], work_ns: Ints) -> list[tuple[int | None, Window]]:
    """Put a range without a number where those of steps are missing, so that the step before them ends with its own.

    Not where a step's range does not run to the next one's: what is done between them is of the step before.
    """
    if not _are_tiled(ranges, work_ns):
        return [*ranges]
    pairs = list(pairwise(ranges))
    filled: list[tuple[int | None, Window]] = [*ranges[:1]]
    for (first, one), (second, after) in pairs:
        if second > first + 1 and after.start_ns > one.end_ns:
            filled.append((None, Window(one.end_ns, after.start_ns)))
        filled.append((second, after))
    return filled


def _are_tiled(ranges: Sequence[tuple[int, Window]], work_ns: Ints) -> bool:
    """Tell whether each step's range runs to the next one's: they hardly lie apart, or nothing is done between them.

    Args:
        ranges: as from ``find_host_ranges``.
        work_ns: rising, when what is done was launched, or began on a CPU.
    """
    longest_ns = max((window.length_ns for _, window in ranges), default=0)
    apart = [
        (one.end_ns, after.start_ns)
        for (first, one), (second, after) in pairwise(ranges)
        if second == first + 1 and after.start_ns - one.end_ns > _APART * longest_ns
    ]
    done = work_ns.searchsorted(np.array(apart, dtype=np.int64).reshape(-1, 2))
    return bool(np.all(done[:, 0] == done[:, 1]))


def cpu_steps(ranges: list[tuple[int, Window]], hosts: Sequence[Window], last_ends_ns: Sequence[int]) -> list[Step]:
    """Return the steps of a CPU trace: each ends with what it issued, at the latest where the next one begins.

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
    of its own as soon as it is asked for. The last step ends with the trace, but where ranges run to the next ones,
    with the first that was launched after its own. A step that launched nothing gets an empty window at the next
    boundary. Where launches are lost, see ``_find_unlaunched``.

    Args:
        trace: the events.
        nesting: who launched what.
        ranges: as from ``find_host_ranges``.
        end_ns: end of the trace.
        main_lane: the lane with most compute; None: nothing computes.
    """
    launched = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    launched = launched[nesting.launch[launched] != launched]
    launched_at = nesting.launch_ns(launched)
    order = np.argsort(launched_at, kind="stable")
    launched, launched_at = launched[order], launched_at[order]
    filled = _fill(trace, ranges, launched_at)
    starts_ns, is_main = trace.start_ns[launched], trace.lane[launched] == (-1 if main_lane is None else main_lane)
    worked_until_ns = np.maximum.accumulate(np.where(is_main, trace.end_ns[launched], np.iinfo(np.int64).min))
    boundaries: list[int] = []
    others_ns: list[int] = []  # when the last work began that was surely launched before

    def find_first(first: int, beyond: int, following: int) -> int:
        begun_ns = starts_ns[first:beyond]
        after = begun_ns[begun_ns >= worked_until_ns[first - 1]] if first else begun_ns
        return int((after if len(after) else begun_ns).min(initial=following))

    is_after = len(launched_at) > 0 and bool(filled) and int(launched_at[-1]) >= filled[-1][1].end_ns
    if is_after and (trace.has_named_steps or (_are_tiled(ranges, launched_at) and not _is_ours(trace))):
        filled.append((None, Window(filled[-1][1].end_ns, int(launched_at[-1]) + 1)))
    for _, host in reversed(filled):
        first, beyond = np.searchsorted(launched_at, (host.start_ns, host.end_ns)).tolist()
        following = boundaries[-1] if boundaries else end_ns
        boundaries.append(find_first(first, beyond, following))
        others_ns.append(int(starts_ns[:first].max(initial=host.start_ns)))
    hosts_ns = [host.start_ns for _, host in filled]
    starts, unsure_ns = _find_unlaunched(trace, nesting, hosts_ns, others_ns[::-1], boundaries[::-1])
    windows = [Window(start, end) for start, end in zip(starts, [*starts[1:], end_ns], strict=True)] if starts else []
    unsure_ends_ns = [*unsure_ns[1:], 0][: len(filled)]
    of_steps = zip(filled, _tile(filled), windows, unsure_ns, unsure_ends_ns, strict=True)
    return [
        Step(number, host, window, unsure_begin, unsure_end)
        for (number, _), host, window, unsure_begin, unsure_end in of_steps
        if number is not None
    ]


def _find_unlaunched(
    trace: Trace, nesting: Nesting, hosts_ns: Sequence[int], others_ns: Sequence[int], known_ns: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return when steps begin where launches are lost, and by how much earlier each may.

    When the device stood idle in a host range, all had run that was launched before: what begins then is the step's.
    Where that leaves something open, each begins with the first that is known to be its own: what is lost of one is
    mostly lost of the next, too, so that lengths are right. A step of which that is not so has no account; see
    ``job/set_clocks.py``.

    Args:
        trace: the events.
        nesting: who launched what.
        hosts_ns: when the host range of each begins.
        others_ns: when the last work began that was launched before.
        known_ns: when the first work began that was launched in it.
    """
    work = _Unlaunched.of(trace, nesting)
    if work is None:
        return [*known_ns], [0] * len(known_ns)
    found = [work.find_begin(*of_step) for of_step in zip(hosts_ns, others_ns, known_ns, strict=True)]
    for begins_ns in (found, known_ns):
        unsure_ns = [work.measure(*of_step) for of_step in zip(hosts_ns, begins_ns, strict=True)]
        if not any(unsure_ns):
            break
    return [*begins_ns], unsure_ns


@dataclass(frozen=True)
class _Unlaunched:
    """Work of which the trace does not hold the launch, though it was made in it.

    Attributes:
        starts_ns: shape ``(m,)``, rising.
        latest_ns: shape ``(m,)``, after which it was not launched: a lane runs its work in the order of its launches.
        earlier_ns: when the last work began that was launched before the trace, and so before any step of it.
        busy: when anything ran on the device.
    """

    starts_ns: Ints
    latest_ns: Ints
    earlier_ns: int
    busy: Intervals

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting) -> "_Unlaunched | None":
        """Collect it; None: there is none."""
        events, links = find_links(trace, nesting)
        is_lost = links == Link.MISSING
        if not is_lost.any():
            return None
        launches_ns = np.where(nesting.launch[events] == events, trace.start_ns[events], nesting.launch_ns(events))
        for lane in np.unique(trace.lane[events[is_lost]]).tolist():
            mine = np.flatnonzero(trace.lane[events] == lane)
            mine = mine[np.argsort(-trace.start_ns[events[mine]], kind="stable")]
            launches_ns[mine] = np.minimum.accumulate(launches_ns[mine])
        order = np.argsort(trace.start_ns[events[is_lost]], kind="stable")
        return cls(
            starts_ns=trace.start_ns[events[is_lost]][order],
            latest_ns=launches_ns[is_lost][order],
            earlier_ns=int(trace.start_ns[events[links == Link.BEFORE_WINDOW]].max(initial=np.iinfo(np.int64).min)),
            busy=unite(trace.start_ns[events], trace.end_ns[events]),
        )

    def find_begin(self, from_ns: int, last_ns: int, known_ns: int) -> int:
        """Return when a step begins.

        Args:
            from_ns: its host range does.
            last_ns: the last of what is known to be of the steps before began.
            known_ns: the first of what is known to be its own began.
        """
        starts_ns = self.busy.starts_ns[1:]  # what ran before the first is not in the trace
        idle_ns = starts_ns - np.maximum(self.busy.ends_ns[:-1], from_ns)
        is_its = (idle_ns > _LAUNCH_NS) & (starts_ns > max(last_ns, self.earlier_ns))
        return int(starts_ns[is_its].min(initial=known_ns))

    def measure(self, from_ns: int, begins_ns: int) -> int:
        """Return by how much earlier a step may begin whose host range begins at a moment."""
        first, beyond = self.starts_ns.searchsorted([from_ns, begins_ns]).tolist()
        may_be_its = self.starts_ns[first:beyond][self.latest_ns[first:beyond] >= from_ns]
        return begins_ns - int(may_be_its.min(initial=begins_ns))


def find_truncated_step(steps: Sequence[Step]) -> TruncatedStep | None:
    """Find a last step that is not all there; None: it is.

    On a device a step goes to the next one's first kernel. The last one's window ends with the trace's last kernel
    instead: a part is missing where that makes it much shorter than its own host range, and than the others.
    """
    seen = [step for step in steps if step.window.length_ns]
    if not seen:
        return None
    *others, last = seen
    others_ns = round(median(step.window.length_ns for step in others)) if others else None
    truncated = TruncatedStep(last.number, last.window.length_ns, last.host.length_ns, others_ns, last.unsure_ns)
    whole_ns = last.host.length_ns if others_ns is None else min(last.host.length_ns, others_ns)
    return truncated if truncated.seen_ns < _WHOLE * whole_ns else None


def _tile(ranges: Sequence[tuple[int | None, Window]]) -> list[Window]:
    ends = [window.start_ns for _, window in ranges[1:]] + [window.end_ns for _, window in ranges[-1:]]
    return [Window(window.start_ns, end) for (_, window), end in zip(ranges, ends, strict=True)]


def find_extent(trace: Trace, kinds: Mapping[Kind, Intervals]) -> Window:
    """Return first start to last end of what has a kind.

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

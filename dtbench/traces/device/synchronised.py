"""Waits for communication that the host carried: a thread sat in a synchronising call until a collective had ended.

::

    host          c [────── synchronising call ──────]  k      c: issue; k: launch of the next work of the lane
    comm            ├──────────c──────────────────┤
    main lane     ██                                       ██
    waited          ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░

The lane's next work was launched late, and the stream itself waited for nothing; but what it waited for through the
host is that collective. So it is told where the collective was issued before the call, ended inside it, and nothing of
another lane ended within ``RETURN_BOUND_NS`` before the call returned: then it may have been that.

A host that asks again and again whether the collective has ended, or waits inside C++ (``TORCH_NCCL_BLOCKING_WAIT``),
leaves no such call: its thread is silent until the end, and launches at once thereafter, or when it has asked again:
torch sleeps 1 ms or 10 between two questions (``kSynchronizeBusyWaitMillis``). It may as well have been busy with what
no trace shows, so neither is claimed; see ``find_silent``.

A copy into pageable memory of the host (``tensor.item()``, ``.cpu()``, ``.tolist()``) synchronises whatever its call is
named: CUDA comes back from ``cudaMemcpyAsync`` when it has been made ("API synchronization behavior" of the CUDA
Runtime API). What its thread waited for had ended when the copy began.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.kinds.categories import CALLS, COPIES, DEVICE_CATEGORIES
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, intersect, unite
from dtbench.traces.trace import Trace

RETURN_BOUND_NS: Final = 20_000
"""Longest time from the end of what a synchronising call waits for to its return; see ``gaps.LAUNCH_BOUND_NS``."""

# Of CUDA, HIP, MUSA, Ascend's ACL and Level Zero alike; the last two are Unified Runtime's (XPU).
_SYNCHRONISES: Final = re.compile(r"\w*Synchronize\w*|(?:cuda|hip|musa)Memcpy(?:WithStream)?|urQueueFinish|urEventWait")
_COPIES: Final = re.compile(r"(?:cuda|hip|musa|cu)Memcpy\w*Async\w*")
_ASKS: Final = re.compile(r"\w*(?:Event|Stream)Query\w*")
_PAGEABLE: Final = re.compile(r"Memcpy DtoH \(Device -> Pageable\)")
_TOLD_NS: Final = 1_000  # traces before 2024 know whole microseconds
_OPERATOR: Final = "cpu_op"
_NEVER: Final = np.iinfo(np.int64)  # before and after all


@dataclass(frozen=True)
class Synchronising:
    """Calls that wait for the device; arrays have shape ``(s,)``.

    Attributes:
        calls: events, in order of start.
        until_ns: when what each waited for had ended.
    """

    calls: Ints
    until_ns: Ints


def find_synchronising(trace: Trace) -> Synchronising:
    """Return the calls that wait for the device."""
    named = np.flatnonzero(trace.is_named(_SYNCHRONISES.fullmatch) & trace.is_one_of(CALLS))
    copying, copies = _find_blocking_copies(trace)
    calls = np.concatenate((named, copying))
    until_ns = np.concatenate((trace.end_ns[named], trace.start_ns[copies]))
    order = np.argsort(trace.start_ns[calls], kind="stable")
    return Synchronising(calls[order], until_ns[order])


def _find_blocking_copies(trace: Trace) -> tuple[Ints, Ints]:
    """Return the calls that came back when their copy into pageable memory had been made, and these copies."""
    tied, ids = trace.correlation.events, trace.correlation.values
    is_copy = (trace.is_one_of(COPIES) & trace.is_named(_PAGEABLE.fullmatch))[tied]
    is_call = (trace.is_one_of(CALLS) & trace.is_named(_COPIES.fullmatch))[tied]
    copies = tied[is_copy][np.argsort(ids[is_copy], kind="stable")]
    copy_ids, calls = np.sort(ids[is_copy]), tied[is_call]
    place = np.searchsorted(copy_ids, ids[is_call], side="left")
    found = np.flatnonzero(place < len(copy_ids))
    found = found[copy_ids[place[found]] == ids[is_call][found]]
    calls, copies = calls[found], copies[place[found]]
    waited = trace.end_ns[calls] + _TOLD_NS >= trace.end_ns[copies]
    return calls[waited], copies[waited]


@dataclass(frozen=True)
class LateGaps:
    """Gaps of a lane, in order of time; arrays have shape ``(m,)``.

    Attributes:
        starts_ns: when the lane had nothing more to do.
        launch: the call that launched what closes each; ``NOTHING``: not in the trace.
    """

    starts_ns: Ints
    launch: Ints


def find_sitting(trace: Trace, gaps: LateGaps, launched_ns: Ints, *, by_any: bool = False) -> Intervals:
    """Find when a lane had nothing to do because the thread that was to launch for it sat in a synchronising call.

    Args:
        trace: the events.
        gaps: of the lane.
        launched_ns: shape ``(m,)``, when what closes each was launched, no later than it began.
        by_any: where it is not told which thread that was to do, take any that sat; False: none.
    """
    calls = find_synchronising(trace).calls
    is_late = launched_ns > gaps.starts_ns
    late = np.flatnonzero(is_late & (gaps.launch != NOTHING))
    threads = trace.lane[gaps.launch[late]]
    by_somebody = np.flatnonzero(is_late & (gaps.launch == NOTHING) & by_any)
    anybody = unite(trace.start_ns[calls], trace.end_ns[calls])
    found = [intersect(unite(gaps.starts_ns[by_somebody], launched_ns[by_somebody]), anybody)]
    for thread in sorted(set(threads.tolist())):
        mine, sat = late[threads == thread], calls[trace.lane[calls] == thread]
        sitting = unite(trace.start_ns[sat], trace.end_ns[sat])
        found.append(intersect(unite(gaps.starts_ns[mine], launched_ns[mine]), sitting))
    return unite(np.concatenate([one.starts_ns for one in found]), np.concatenate([one.ends_ns for one in found]))


@dataclass(frozen=True)
class Ends:
    """Ends of collectives; arrays have shape ``(c,)``.

    Attributes:
        ends_ns: the last end of each.
        issues_ns: when the host issued it; the largest int64: not known.
    """

    ends_ns: Ints
    issues_ns: Ints


@dataclass(frozen=True)
class HostWaits:
    """Times in which a lane waited for a collective through the host, in order of start; shape ``(k,)`` each.

    Attributes:
        gap: place of the gap in which it lies.
        closer: which end: index into what was asked.
        starts_ns: from when the lane stood still and its thread sat in the call.
        ends_ns: the collective's end.
    """

    gap: Ints
    closer: Ints
    starts_ns: Ints
    ends_ns: Ints


def find_host_waits(trace: Trace, gaps: LateGaps, ends: Ends) -> HostWaits:
    """Find when a lane waited for a collective through the thread that launches its work.

    Args:
        trace: the events.
        gaps: of the lane.
        ends: of the collectives.
    """
    synchronising = find_synchronising(trace)
    calls = synchronising.calls
    if not len(calls) or not len(ends.ends_ns) or not len(gaps.starts_ns):
        nothing = np.array([], dtype=np.int64)
        return HostWaits(nothing, nothing, nothing, nothing)
    closer = _find_awaited(trace, synchronising, ends)
    ends_ns = ends.ends_ns[closer]
    gap = np.searchsorted(gaps.starts_ns, ends_ns, side="left") - 1
    launch = np.where(gap >= 0, gaps.launch[gap], NOTHING)
    starts_ns = np.maximum(gaps.starts_ns[gap], trace.start_ns[calls])
    found = np.flatnonzero(
        (closer != NOTHING)
        & (launch != NOTHING)
        & (trace.lane[launch] == trace.lane[calls])
        & (trace.start_ns[launch] >= ends_ns)
        & (ends_ns > starts_ns)
    )
    # A call of the runtime lies around one of the driver: the first of both stays.
    _, first = np.unique(np.stack((gap[found], closer[found])), axis=1, return_index=True)
    kept = found[np.sort(first)]
    return HostWaits(gap[kept], closer[kept], starts_ns[kept], ends_ns[kept])


def find_silent(trace: Trace, gaps: LateGaps, launched_ns: Ints, ends: Ends) -> HostWaits:
    """Find when a lane may have waited for a collective through a host that shows nothing of it.

    From the last that its thread is seen to do before the collective ends, where it was silent for longer than
    ``RETURN_BOUND_NS``, and launches within that after it knew of the end: at once, or, where it or another thread
    of the model had asked in a silence of its own, after its silence is over.

    Args:
        trace: the events.
        gaps: of the lane.
        launched_ns: shape ``(m,)``, when what closes each was launched.
        ends: of the collectives.
    """
    nothing = np.array([], dtype=np.int64)
    if not len(ends.ends_ns):
        return HostWaits(nothing, nothing, nothing, nothing)
    order = np.argsort(ends.ends_ns, kind="stable")
    place = np.searchsorted(ends.ends_ns[order], launched_ns, side="right") - 1
    closer = order[np.maximum(place, 0)]
    ends_ns = ends.ends_ns[closer]
    late = np.flatnonzero((place >= 0) & (ends_ns > gaps.starts_ns) & (gaps.launch != NOTHING))
    silences = _find_silences(trace, gaps.launch[late], ends_ns[late])
    silent_ns = np.maximum(gaps.starts_ns[late], silences.starts_ns)
    is_silent = (ends_ns[late] - silent_ns > RETURN_BOUND_NS) & (ends.issues_ns[closer[late]] <= silent_ns)
    is_silent &= launched_ns[late] - silences.told_ns <= RETURN_BOUND_NS
    found = late[is_silent]
    return HostWaits(found, closer[found], silent_ns[is_silent], ends_ns[found])


@dataclass(frozen=True)
class _Silences:
    """What threads showed around ends on the device; arrays have shape ``(k,)``.

    Attributes:
        starts_ns: when each last began or ended anything but to ask, before the end.
        told_ns: when it knew of the end at the latest, if it waited: then, or, where it or another thread that runs
            operators had asked and shown nothing else until the end, when it next did anything else.
    """

    starts_ns: Ints
    told_ns: Ints


def _find_silences(trace: Trace, calls: Ints, ends_ns: Ints) -> _Silences:
    """Find the silence of the thread of each call around an end."""
    threads = trace.lane[calls]
    starts_ns, told_ns = np.empty_like(ends_ns), ends_ns.copy()
    asked = np.zeros(len(ends_ns), dtype=np.bool_)
    is_ask = trace.is_named(_ASKS.fullmatch) & trace.is_one_of(CALLS)
    models = np.intersect1d(trace.lane[is_ask], trace.lane[trace.is_one_of((_OPERATOR,))])  # not what watches over NCCL
    for thread in models.tolist():
        times_ns, asks_ns = _list_shown(trace, thread, is_ask), np.sort(trace.start_ns[is_ask & (trace.lane == thread)])
        last_ns = times_ns[np.searchsorted(times_ns, ends_ns, side="left") - 1]
        asked |= np.searchsorted(asks_ns, ends_ns) > np.searchsorted(asks_ns, last_ns)
    for thread in np.unique(threads).tolist():
        mine, times_ns = threads == thread, _list_shown(trace, thread, is_ask)
        place = np.searchsorted(times_ns, ends_ns[mine], side="left")
        starts_ns[mine] = times_ns[place - 1]
        told_ns[mine] = np.where(asked[mine], times_ns[place], ends_ns[mine])
    return _Silences(starts_ns, told_ns)


def _list_shown(trace: Trace, thread: int, is_ask: Bools) -> Ints:
    """Return when a thread began or ended anything but to ask, rising, between a moment before all and one after."""
    shown = (trace.lane == thread) & ~is_ask
    return np.sort(np.concatenate(([_NEVER.min], trace.start_ns[shown], trace.end_ns[shown], [_NEVER.max])))


def _find_awaited(trace: Trace, synchronising: Synchronising, ends: Ends) -> Ints:
    """Return for each call the collective that it waited for, shape ``(s,)``; ``NOTHING``: none, or not surely."""
    device = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    device = device[np.argsort(trace.end_ns[device], kind="stable")]
    device_ends, device_lanes = trace.end_ns[device], trace.lane[device].astype(np.int64)
    calls, returned_ns = synchronising.calls, synchronising.until_ns + _TOLD_NS
    before = np.searchsorted(device_ends, returned_ns, side="right")
    since = np.searchsorted(device_ends, returned_ns - RETURN_BOUND_NS - _TOLD_NS, side="left")
    is_alone = _have_one_lane(device_lanes, since, before)
    last_ns = device_ends[np.maximum(before, 1) - 1] if len(device) else np.zeros(len(calls), dtype=np.int64)
    order = np.argsort(ends.ends_ns, kind="stable")
    place = np.minimum(np.searchsorted(ends.ends_ns[order], last_ns, side="left"), len(order) - 1)
    closer = order[place]
    is_it = (
        is_alone
        & (before > since)
        & (ends.ends_ns[closer] == last_ns)
        & (last_ns > trace.start_ns[calls])
        & (ends.issues_ns[closer] <= trace.start_ns[calls])
    )
    return np.where(is_it, closer, NOTHING)


def _have_one_lane(lanes: Ints, firsts: Ints, beyond: Ints) -> Bools:
    """Tell of stretches of lanes, ``[first, beyond)``, whether all of each are the same."""
    changes = np.concatenate(([0], np.cumsum(np.diff(lanes) != 0))) if len(lanes) else np.zeros(1, dtype=np.int64)
    last = np.clip(beyond - 1, 0, len(changes) - 1)
    return np.asarray(changes[last] == changes[np.minimum(firsts, last)], dtype=np.bool_)

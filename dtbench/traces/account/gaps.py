"""Why the main compute lane stood still: every gap between its work split into parts that add up to it.

The main compute lane is the stream with most compute; whatever runs on it is its work, copies and collectives too. A
gap is closed by the next work that starts on the lane, ``k``::

    lane           ████                                                  ████ k
    launch of k              |
    collective         ├──────────────┤
    lane 2                    ├──────────────────────┤
                       aaaaaaabbbbbbbbcccccccccccccccddddddddddddeeeeeee
                              l       e                          k - bound

    a  host_wait        until k was launched: the host was late, and the device computed nothing on another lane
    b  comm_wait        from there until the last collective that ended in the gap ended; of the time before also what
                        the host waited for a collective in a synchronising call, see ``synchronised.py``
    c  beside_...       k was launched and nobody's end was waited for, but the device worked on another lane; of the
                        time before also what it computed there
    d  unexplained
    e  launch_gap       the last ``LAUNCH_BOUND_NS`` of what a and b left: from launch to start, or from kernel to
                        kernel

``c`` and ``d`` together, and what two rarer parts take in their place, are ``other``. Of a launch that the trace does
not hold it is known between which moments it was made (``device/launched.py``): what a gap is either way, as early and
as late as that may be, it is, and of the rest nothing is claimed (``launch_unknown``); nor where the host may have
waited for a collective, and shows nothing of that or anything else (``synchronised.find_silent``). Where all launches
are known, ``b`` is what ``waits.find_device_waits`` finds, less collectives on the lane itself, which leave no gap.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.device.launched import Launched
from dtbench.traces.device.main_lane import find_main_lane, work_on_lane
from dtbench.traces.device.synchronised import Ends, HostWaits, LateGaps, find_host_waits, find_silent, find_sitting
from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, intersect, subtract, unite, unite_all
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

LAUNCH_BOUND_NS: Final = 20_000
"""Longest time from launch to start, or from one kernel to the next, that needs no other reason.

In recorded traces (V100, A100, H800, MI300X) 99 % of the times from launch to start on an idle stream are below 21 us,
of those from kernel to kernel below 10 us, and from a collective's end to the kernel that waited for it below 18 us.
"""

_VENDORS: Final = re.compile(r"(?:cu|hip|mu|ur|ze|mc|acl)[a-z]*[A-Z]")
"""Calls of drivers and runtimes whose synchronising calls these are; of others they have names that nobody knows."""
_NOT_KNOWN: Final = np.iinfo(np.int64).max  # of what no work closes


class GapPart(StrEnum):
    """Why a part of a gap passed; those after ``LAUNCH_GAP`` are together called ``other``.

    Where the next work was launched and nobody's end was waited for, the device may have been held by what ran beside
    it on other lanes; of several, the first of compute, communication and copies is named.
    """

    COMM_WAIT = "comm_wait"
    HOST_WAIT = "host_wait"
    LAUNCH_GAP = "launch_gap"
    BESIDE_COMPUTE = "beside_compute"
    BESIDE_COMM = "beside_comm"  # of a collective that went on when the gap was closed
    BESIDE_COPY = "beside_copy"
    LAUNCH_UNKNOWN = "launch_unknown"  # the trace does not say when the next work was launched, or why no earlier
    TRACE_END = "trace_end"  # no work follows
    UNEXPLAINED = "unexplained"


_OTHER: Final = tuple(GapPart)[3:]


@dataclass(frozen=True)
class Gaps:
    """All gaps of the main compute lane.

    Attributes:
        lane: ``"<process>/<stream>"``.
        parts: the time of each part; disjoint, together the gaps.
        synchronising: the part of ``HOST_WAIT`` in which the thread that was late sat in a call that waits for the
            device, and not for a collective.
        knows_synchronising: the names of such calls are known for whatever launched late.
        wait_starts_ns: shape ``(m,)``, rising, ``COMM_WAIT`` gap by gap.
        wait_ends_ns: shape ``(m,)``.
        waited_for: shape ``(m,)``, index of the collective whose end was waited for.
    """

    lane: str
    parts: Mapping[GapPart, Intervals]
    synchronising: Intervals
    knows_synchronising: bool
    wait_starts_ns: Ints
    wait_ends_ns: Ints
    waited_for: Ints


@dataclass(frozen=True)
class CommWait:
    """Time that the main compute lane waited for one collective.

    ``collective`` is its index among those of the analysis; the lane may have waited for something else: None.
    """

    collective: int
    wait_ns: int | None


@dataclass(frozen=True)
class GapTime:
    """The gaps of one window; ``comm_wait + host_wait + launch_gap + other = gap`` to the nanosecond.

    None counts as nothing in that sum: no such time was seen, and launches that are not known may hide some; but for a
    wait that was seen and may have been for something else, which is in no part.

    Attributes:
        lane: ``"<process>/<stream>"``.
        gap_ns: time in which the lane had no work: the window less its work.
        comm_wait_ns: the next work was launched and waited for a collective; None also where it may have waited for
            something else.
        host_wait_ns: the next work was not launched yet, and no compute ran on another lane.
        host_sync_ns: part of ``host_wait_ns`` in which the late thread sat in a synchronising call.
        launch_gap_ns: from launch to start or from kernel to kernel.
        other_ns: the rest; the sum of the six that follow.
        beside_compute_ns: compute ran on another lane.
        beside_comm_ns: a collective ran on another lane, and ran on when the gap was closed.
        beside_copy_ns: a copy ran on another lane.
        launch_unknown_ns: the trace does not say when the next work was launched, or whether it, or the host that
            launched it, had waited for a collective.
        trace_end_ns: no work followed.
        unexplained_ns: nothing is known.
        perhaps_comm_ns: part of ``launch_unknown_ns`` of which the launch is known: the end that was waited for may be
            that of a collective that is not there.
        waits: the collectives behind ``comm_wait_ns``, longest first.
    """

    lane: str
    gap_ns: int
    comm_wait_ns: int | None
    host_wait_ns: int | None
    host_sync_ns: int | None
    launch_gap_ns: int | None
    other_ns: int
    beside_compute_ns: int
    beside_comm_ns: int
    beside_copy_ns: int
    launch_unknown_ns: int
    trace_end_ns: int
    unexplained_ns: int
    waits: tuple[CommWait, ...]
    perhaps_comm_ns: int = 0


@dataclass(frozen=True)
class _Borders:
    """Each gap with the work that closes it, columns of shape ``(m,)``.

    It was launched from ``earliest_ns`` to ``latest_ns``, ``_NOT_KNOWN`` of the last gap, which none closes; ``launch``
    is the call, ``NOTHING`` where the trace has none.
    """

    lane: str
    starts_ns: Ints
    ends_ns: Ints
    earliest_ns: Ints
    latest_ns: Ints
    launch: Ints
    is_last: Bools


def find_gaps(
    trace: Trace, launched: Launched, kinds: Mapping[Kind, Bools], collectives: Sequence[Collective], window: Window
) -> Gaps | None:
    """Split the gaps of the main compute lane; None: nothing computes.

    Args:
        trace: the events.
        launched: when its events were.
        kinds: the device events of each kind, as from ``device_kinds``.
        collectives: of the trace.
        window: where to look; what lies before the lane's first and after its last work are gaps too.
    """
    lane = find_main_lane(trace, kinds[Kind.COMPUTE])
    if lane is None:
        return None
    borders = _find_borders(trace, launched, lane, window)
    early = _split(trace, kinds, collectives, borders, borders.earliest_ns)
    if np.array_equal(borders.earliest_ns, borders.latest_ns):
        return early
    return _join(borders, early, _split(trace, kinds, collectives, borders, borders.latest_ns))


def _join(borders: _Borders, early: Gaps, late: Gaps) -> Gaps:
    """Return what gaps are whether launches that are not told were as early, or as late, as they may have been.

    Work that was launched late waited for no more than if it had been launched early. What is unexplained of a gap
    whose launch is not told, that may have explained.
    """
    parts = {part: intersect(early.parts[part], late.parts[part]) for part in GapPart}
    untold = _select(borders.starts_ns, borders.ends_ns, borders.launch == NOTHING)
    parts[GapPart.UNEXPLAINED] = subtract(parts[GapPart.UNEXPLAINED], untold)
    claimed = unite_all(*(parts[part] for part in GapPart if part is not GapPart.LAUNCH_UNKNOWN))
    parts[GapPart.LAUNCH_UNKNOWN] = subtract(unite(borders.starts_ns, borders.ends_ns), claimed)
    return replace(
        late,
        parts=parts,
        synchronising=intersect(early.synchronising, late.synchronising),
        knows_synchronising=early.knows_synchronising and late.knows_synchronising,
    )


def _split(
    trace: Trace, kinds: Mapping[Kind, Bools], collectives: Sequence[Collective], gaps: _Borders, launched_ns: Ints
) -> Gaps:
    """Split gaps whose closing work was launched at given moments, shape ``(m,)``."""
    is_known = launched_ns != _NOT_KNOWN
    host_until = np.where(is_known, np.clip(launched_ns, gaps.starts_ns, gaps.ends_ns), gaps.starts_ns)
    closer, closed_ns = _last_collective(collectives, gaps.ends_ns)
    waited = is_known & (closed_ns > host_until)
    comm_until = np.where(waited, closed_ns, host_until)
    launch_from = np.maximum(comm_until, gaps.ends_ns - np.where(gaps.is_last, 0, LAUNCH_BOUND_NS))
    explained = is_known & ~gaps.is_last
    late = LateGaps(gaps.starts_ns, gaps.launch)
    through_host = find_host_waits(trace, late, _read_ends(collectives))
    by_host = unite(through_host.starts_ns, through_host.ends_ns)
    silent = find_silent(trace, late, host_until, _read_ends(collectives))
    host_late = subtract(unite(gaps.starts_ns, host_until), by_host)
    beside = _find_beside(trace, kinds[Kind.COMPUTE], host_late)
    ended_ns = np.where(gaps.launch == NOTHING, _last_collective(collectives, host_until)[1], gaps.starts_ns)
    hidden = unite(gaps.starts_ns, np.maximum(ended_ns, gaps.starts_ns))  # by a host of which no thread is known
    silent_or_hidden = unite_all(unite(silent.starts_ns, silent.ends_ns), hidden)
    perhaps = subtract(subtract(silent_or_hidden, by_host), beside)
    by_others = unite_all(by_host, beside, perhaps)
    split = _split_by_neighbours(trace, kinds, _select(comm_until, launch_from, explained))
    waits = _order_waits(through_host, closer[waited], host_until[waited], comm_until[waited])
    return Gaps(
        lane=gaps.lane,
        parts={
            **split,
            GapPart.BESIDE_COMPUTE: unite_all(split[GapPart.BESIDE_COMPUTE], beside),
            GapPart.HOST_WAIT: subtract(host_late, by_others),
            GapPart.COMM_WAIT: unite_all(unite(host_until, comm_until), by_host),
            GapPart.LAUNCH_GAP: unite(launch_from, gaps.ends_ns),
            GapPart.TRACE_END: unite(comm_until[gaps.is_last], launch_from[gaps.is_last]),
            GapPart.LAUNCH_UNKNOWN: unite_all(_select(comm_until, launch_from, ~is_known & ~gaps.is_last), perhaps),
        },
        synchronising=subtract(find_sitting(trace, late, host_until), by_others),
        knows_synchronising=_knows_synchronising(trace, gaps, host_until),
        wait_starts_ns=waits[0],
        wait_ends_ns=waits[1],
        waited_for=waits[2],
    )


def _read_ends(collectives: Sequence[Collective]) -> Ends:
    """Return ends and issues of the collectives; of one that was not seen to run an end before all gaps."""
    ends_ns = [one.end_ns if len(one.span.starts_ns) else np.iinfo(np.int64).min for one in collectives]
    issues_ns = [_NOT_KNOWN if one.issue_ns is None else one.issue_ns for one in collectives]
    return Ends(np.array(ends_ns, dtype=np.int64), np.array(issues_ns, dtype=np.int64))


def _order_waits(through_host: HostWaits, closer: Ints, starts_ns: Ints, ends_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """Put waits through the host and waits of the stream in order: starts, ends, collectives."""
    starts = np.concatenate((through_host.starts_ns, starts_ns))
    order = np.argsort(starts, kind="stable")
    ends = np.concatenate((through_host.ends_ns, ends_ns))
    return starts[order], ends[order], np.concatenate((through_host.closer, closer))[order]


def _select(starts_ns: Ints, ends_ns: Ints, chosen: Bools) -> Intervals:
    return unite(starts_ns[chosen], ends_ns[chosen])


def _split_by_neighbours(trace: Trace, kinds: Mapping[Kind, Bools], rest: Intervals) -> dict[GapPart, Intervals]:
    """Split time of gaps by what ran then, which is on other lanes."""
    parts = {}
    for kind, part in (
        (Kind.COMPUTE, GapPart.BESIDE_COMPUTE),
        (Kind.COMM, GapPart.BESIDE_COMM),
        (Kind.COPY, GapPart.BESIDE_COPY),
    ):
        parts[part] = _find_beside(trace, kinds[kind], rest)
        rest = subtract(rest, parts[part])
    return {**parts, GapPart.UNEXPLAINED: rest}


def _find_beside(trace: Trace, chosen: Bools, rest: Intervals) -> Intervals:
    """Return when some events ran in time of gaps; only spans that share time with it are united."""
    starts, ends = trace.start_ns[chosen], trace.end_ns[chosen]
    return intersect(rest, _select(starts, ends, rest.covered_before(ends) > rest.covered_before(starts)))


def _find_borders(trace: Trace, launched: Launched, lane: int, window: Window) -> _Borders:
    work = work_on_lane(trace, lane)
    busy_until = np.maximum.accumulate(trace.end_ns[work])
    starts = np.clip(np.concatenate(([window.start_ns], busy_until)), window.start_ns, window.end_ns)
    ends = np.clip(np.concatenate((trace.start_ns[work], [window.end_ns])), window.start_ns, window.end_ns)
    launch = launched.nesting.calls(work)
    latest = launched.latest_ns[work]
    is_at_start = (launch == NOTHING) & (latest + 1 >= trace.start_ns[work])  # as nothing else bounds it
    latest = np.where(is_at_start, trace.start_ns[work], latest)
    is_gap = ends > starts
    return _Borders(
        starts_ns=starts[is_gap],
        ends_ns=ends[is_gap],
        earliest_ns=np.append(launched.earliest_ns[work], _NOT_KNOWN)[is_gap],
        latest_ns=np.append(latest, _NOT_KNOWN)[is_gap],
        lane="/".join(trace.lanes[lane]),
        launch=np.append(launch, NOTHING)[is_gap],
        is_last=np.arange(len(starts))[is_gap] == len(work),
    )


def _last_collective(collectives: Sequence[Collective], times_ns: Ints) -> tuple[Ints, Ints]:
    """Return index and end of the last collective that had ended by each time; else ``NOTHING`` and the least int64."""
    seen = [index for index, one in enumerate(collectives) if len(one.span.starts_ns)]
    ends = np.array([collectives[index].end_ns for index in seen], dtype=np.int64)
    order = np.argsort(ends, kind="stable")
    place = np.searchsorted(ends[order], times_ns, side="right")
    index = np.concatenate(([NOTHING], np.array(seen, dtype=np.int64)[order]))
    return index[place], np.concatenate(([np.iinfo(np.int64).min], ends[order]))[place]


def _knows_synchronising(trace: Trace, gaps: _Borders, host_until: Ints) -> bool:
    """Tell whether a thread that was late and sat in a synchronising call would have been seen to."""
    is_late = host_until > gaps.starts_ns
    if np.any(is_late & (gaps.launch == NOTHING)):
        return False
    called = np.unique(trace.name[gaps.launch[is_late]]).tolist()
    return all(_VENDORS.match(trace.names[name]) is not None for name in called)


def account_gaps(
    gaps: Gaps, windows: Sequence[Window], unwatched: Sequence[int] = (), doubtful: Collection[int] = ()
) -> list[GapTime]:
    """Sum the gaps of each window; what crosses its borders is clipped.

    Args:
        gaps: of the main lane.
        windows: in any order.
        unwatched: above zero for each window in which a wait would not be seen; left out: there are none.
        doubtful: indices of collectives whose ends compute may have waited for, or for something else.
    """
    borders_ns = window_borders(windows)
    columns = {part: gaps.parts[part].covered_inside(borders_ns) for part in GapPart}
    synchronising = gaps.synchronising.covered_inside(borders_ns)
    return [
        _account_gaps(
            gaps,
            {part: column[index] for part, column in columns.items()},
            synchronising[index],
            _sum_waits(gaps, window, doubtful),
            is_watched=not (unwatched and unwatched[index]),
        )
        for index, window in enumerate(windows)
    ]


def _account_gaps(
    gaps: Gaps, times: Mapping[GapPart, int], host_sync_ns: int, waits: tuple[CommWait, ...], *, is_watched: bool
) -> GapTime:
    def seen(time_ns: int, *, is_certain: bool = True) -> int | None:
        """Return what was seen; None where there is nothing, and gaps are left that anything may have made."""
        return time_ns if time_ns or (is_certain and not times[GapPart.LAUNCH_UNKNOWN]) else None

    comm_wait_ns = seen(times[GapPart.COMM_WAIT], is_certain=is_watched)
    perhaps_comm_ns = 0 if is_watched else times[GapPart.UNEXPLAINED]
    return GapTime(
        lane=gaps.lane,
        gap_ns=sum(times.values()),
        comm_wait_ns=None if any(wait.wait_ns is None for wait in waits) else comm_wait_ns,
        host_wait_ns=seen(times[GapPart.HOST_WAIT]),
        host_sync_ns=seen(host_sync_ns, is_certain=gaps.knows_synchronising),
        launch_gap_ns=seen(times[GapPart.LAUNCH_GAP]),
        other_ns=sum(times[part] for part in _OTHER),
        beside_compute_ns=times[GapPart.BESIDE_COMPUTE],
        beside_comm_ns=times[GapPart.BESIDE_COMM],
        beside_copy_ns=times[GapPart.BESIDE_COPY],
        launch_unknown_ns=times[GapPart.LAUNCH_UNKNOWN] + perhaps_comm_ns,
        trace_end_ns=times[GapPart.TRACE_END],
        unexplained_ns=times[GapPart.UNEXPLAINED] - perhaps_comm_ns,
        waits=waits,
        perhaps_comm_ns=perhaps_comm_ns,
    )


def doubt_gaps(one: GapTime) -> GapTime:
    """Return the gaps of a window in which, as was found out later, a wait would not have been seen."""
    return replace(
        one,
        comm_wait_ns=one.comm_wait_ns or None,
        launch_unknown_ns=one.launch_unknown_ns + one.unexplained_ns,
        unexplained_ns=0,
        perhaps_comm_ns=one.perhaps_comm_ns + one.unexplained_ns,
    )


def _sum_waits(gaps: Gaps, window: Window, doubtful: Collection[int]) -> tuple[CommWait, ...]:
    first = int(np.searchsorted(gaps.wait_ends_ns, window.start_ns, side="right"))
    last = max(first, int(np.searchsorted(gaps.wait_starts_ns, window.end_ns, side="left")))
    starts = np.maximum(gaps.wait_starts_ns[first:last], window.start_ns)
    lengths = np.minimum(gaps.wait_ends_ns[first:last], window.end_ns) - starts
    which, place = np.unique(gaps.waited_for[first:last], return_inverse=True)
    times = np.zeros(len(which), dtype=np.int64)
    np.add.at(times, place, lengths)
    found = sorted(zip(which.tolist(), times.tolist(), strict=True), key=lambda wait: (-wait[1], wait[0]))
    return tuple(CommWait(index, None if index in doubtful else wait_ns) for index, wait_ns in found)

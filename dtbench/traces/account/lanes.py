"""What each lane was busy with: one row per window and stream, or thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.host.nesting import Nesting, innermost_time
from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.intervals import Bools, Intervals, unite, unite_all
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

LaneSpans = Mapping[str, Mapping[Kind, Intervals]]
"""By lane, ``"<process>/<thread>"``: when each kind ran on it; every kind is there."""


@dataclass(frozen=True)
class LaneTime:
    """One lane in one window; None is what was not seen.

    That is all but communication where what computes was not recorded, and zeros of communication where collectives
    were issued that were not seen to run, of copies where copies are lost: each may have run on any lane.

    Attributes:
        lane: ``"<process>/<stream>"``; on CPU ``"<process>/<thread>"``.
        busy_ns: anything ran; less than the sum of the kinds where they run at once.
        compute_ns: compute ran.
        comm_ns: communication ran.
        copy_ns: a copy ran.
    """

    lane: str
    busy_ns: int | None
    compute_ns: int | None
    comm_ns: int | None
    copy_ns: int | None


def device_lanes(trace: Trace, kinds: Mapping[Kind, Bools]) -> LaneSpans:
    """Collect the spans of each stream, in the order of the trace's lanes.

    Args:
        trace: the events.
        kinds: the device events of each kind, as from ``device_kinds``.
    """
    found: dict[int, dict[Kind, Intervals]] = {}
    for kind, mask in kinds.items():
        events = np.flatnonzero(mask)
        events = events[np.argsort(trace.lane[events], kind="stable")]
        lanes, first = np.unique(trace.lane[events], return_index=True)
        for lane, mine in zip(lanes.tolist(), np.split(events, first[1:]), strict=False):
            found.setdefault(lane, {})[kind] = unite(trace.start_ns[mine], trace.end_ns[mine])
    return {"/".join(trace.lanes[lane]): _complete(found[lane]) for lane in sorted(found)}


def compute_of_threads(
    trace: Trace, nesting: Nesting, threads: frozenset[int], computing: frozenset[int]
) -> dict[str, Intervals]:
    """Find when each thread that runs the model computes.

    Args:
        trace: the events.
        nesting: its nesting.
        threads: lanes of the threads that run the model.
        computing: indices into ``trace.names`` of what computes.
    """
    return {
        "/".join(trace.lanes[thread]): innermost_time(trace, nesting, frozenset((thread,)), computing)
        for thread in sorted(threads)
    }


def thread_lanes(compute: Mapping[str, Intervals], collectives: Sequence[Collective]) -> LaneSpans:
    """Collect the spans of the threads that run the model and of those that communicate.

    Args:
        compute: as from ``compute_of_threads``.
        collectives: of the trace; those without a span are left out.
    """
    found = {lane: {Kind.COMPUTE: spans} for lane, spans in compute.items()}
    by_lane: dict[str, list[Intervals]] = {}
    for collective in collectives:
        if len(collective.span.starts_ns):
            by_lane.setdefault(collective.lane, []).append(collective.span)
    for lane in sorted(by_lane):
        found.setdefault(lane, {})[Kind.COMM] = unite_all(*by_lane[lane])
    return {lane: _complete(kinds) for lane, kinds in found.items()}


def _complete(kinds: Mapping[Kind, Intervals]) -> dict[Kind, Intervals]:
    return {kind: kinds.get(kind, unite([], [])) for kind in Kind}


def account_lanes(
    lanes: LaneSpans,
    windows: Sequence[Window],
    recorded: Intervals | None = None,
    *,
    lost: Sequence[int] = (),
    lost_copies: Sequence[bool] = (),
) -> list[tuple[LaneTime, ...]]:
    """Measure each lane in each window; what crosses borders is clipped. Lanes that did nothing have a row too.

    Not so in a window in which the threads that compute were not recorded: what is known there is communication.

    Args:
        lanes: the spans of each.
        windows: in any order.
        recorded: when what computes was recorded; None: always.
        lost: above zero for each window of which collectives were not seen to run; left out: there are none.
        lost_copies: likewise whether copies are lost.
    """
    borders_ns = window_borders(windows)
    rows = []
    for lane, kinds in lanes.items():
        sets = (unite_all(*kinds.values()), kinds[Kind.COMPUTE], kinds[Kind.COMM], kinds[Kind.COPY])
        columns = [spans.covered_inside(borders_ns) for spans in sets]
        rows.append([LaneTime(lane, *times_ns) for times_ns in zip(*columns, strict=True)])
    found: list[tuple[LaneTime, ...]] = [()] * len(windows)
    if rows:
        found = [tuple(of_window) for of_window in zip(*rows, strict=True)]
    if lost:
        found = [
            tuple(map(_doubt_comm, of_window)) if count else of_window
            for of_window, count in zip(found, lost, strict=True)
        ]
    if lost_copies:
        found = [
            tuple(map(_doubt_copies, of_window)) if is_lossy else of_window
            for of_window, is_lossy in zip(found, lost_copies, strict=True)
        ]
    if recorded is None:
        return found
    known_ns = recorded.covered_inside(borders_ns)
    return [
        of_window if time_ns == window.length_ns else tuple(_leave_comm(lane) for lane in of_window if lane.comm_ns)
        for window, of_window, time_ns in zip(windows, found, known_ns, strict=True)
    ]


def _doubt_comm(one: LaneTime) -> LaneTime:
    return replace(one, busy_ns=one.busy_ns or None, comm_ns=one.comm_ns or None)


def _doubt_copies(one: LaneTime) -> LaneTime:
    return replace(one, busy_ns=one.busy_ns or None, copy_ns=one.copy_ns or None)


def _leave_comm(one: LaneTime) -> LaneTime:
    return LaneTime(one.lane, busy_ns=None, compute_ns=None, comm_ns=one.comm_ns, copy_ns=None)

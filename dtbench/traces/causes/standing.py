"""Compute that stood launched until a collective had ended, and needed nothing of it.

::

    host          c   k                               c: issue, k: launch of the next compute of the main lane
    comm                ├──────c───────┤
    main lane     ████████              ██k███        k could have run from where its lane was free
    standing              ░░░░░░░░░░░░░░              at most as long as the compute that stood there

Nothing holds it but the device: streams that share one hardware queue (``CUDA_DEVICE_MAX_CONNECTIONS=1``), or a
collective that leaves no multiprocessor free. That is claimed only where no wait for the collective can have been
queued before ``k`` was launched (``awaited.py``), and where ``k`` began with its end: within ``LAUNCH_BOUND_NS``, or of
the end of other work that ``k`` needed nothing of either and that filled the time between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Kind, Purpose
from dtbench.traces.account.gaps import LAUNCH_BOUND_NS
from dtbench.traces.causes.awaited import Awaited, find_awaited
from dtbench.traces.device.main_lane import MainLane
from dtbench.traces.device.synchronised import LateGaps, find_sitting
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, KERNEL
from dtbench.traces.time.intervals import Bools, Ints, unite
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, Regions


@dataclass(frozen=True)
class Device:
    """A device's work, of which some lies on the main lane.

    Attributes:
        trace: the events.
        nesting: its nesting.
        kinds: shape ``(n,)`` each, the device events by kind.
        main: the lane on which the model computes.
        regions: what the training loop was doing when.
    """

    trace: Trace
    nesting: Nesting
    kinds: Mapping[Kind, Bools]
    main: MainLane
    regions: Regions


def find_standing(
    device: Device, beside_ns: Ints, collectives: Sequence[Collective], *, is_late: bool
) -> tuple[Collective, ...]:
    """Fill in of collectives when they were first awaited, what stood behind them, how long the host was late.

    Args:
        device: its work.
        beside_ns: shape ``(n,)``, when what ran beside the main lane was launched.
        collectives: of the trace.
        is_late: launches of the main lane that are not told are as late as they may have been, by whatever thread, and
            waits that a lost collective may have been issued with are nobody's.
    """
    awaited = find_awaited(device.trace, device.nesting, device.regions, collectives, is_late=is_late)
    standing = _Standing(device, _read_beside(device, beside_ns, collectives), awaited)
    late_ns = _measure_late(device, collectives, awaited)
    blocked_ns = _measure_blocked(device, collectives, by_any=is_late)
    return tuple(
        replace(standing.fill(index, one, wait), host_late_ns=late_ns[index], blocked_ns=blocked_ns[index])
        for index, (one, wait) in enumerate(zip(collectives, awaited, strict=True))
    )


def _measure_late(device: Device, collectives: Sequence[Collective], awaited: Sequence[Awaited | None]) -> list[int]:
    """Return how long each ran while the main lane stood still for work that the host had not launched yet.

    That is work that could have run beside it: for a reduction of gradients any; for another one what did begin before
    its end, and what was launched before anything can have waited for it.
    """
    main = device.main
    late = unite(main.busy_until_ns, np.minimum(main.launches_ns, main.starts_ns))
    launched_ns = np.maximum.accumulate(main.launches_ns)
    spans = []
    for one, wait in zip(collectives, awaited, strict=True):
        beyond = len(main.starts_ns)
        if one.purpose is not Purpose.GRAD_REDUCE:
            beyond = int(main.starts_ns.searchsorted(one.end_ns))
            if wait is not None and wait.is_known and wait.from_ns is not None:
                beyond = max(beyond, int(launched_ns.searchsorted(wait.from_ns)))
        last_ns = int(main.starts_ns[beyond - 1]) if beyond else one.start_ns
        spans.append((one.start_ns, max(one.start_ns, min(one.end_ns, last_ns))))
    return late.covered_inside(np.array(spans, dtype=np.int64).reshape(-1, 2))


def _measure_blocked(device: Device, collectives: Sequence[Collective], *, by_any: bool) -> list[int]:
    """Return how long each ran while the main lane stood still because its thread sat in a synchronising call.

    ``by_any``: where that thread is not told, any that did.
    """
    main = device.main
    gaps = LateGaps(main.busy_until_ns, main.calls)
    blocked = find_sitting(device.trace, gaps, np.minimum(main.launches_ns, main.starts_ns), by_any=by_any)
    spans = [(one.start_ns, one.end_ns) for one in collectives]
    return blocked.covered_inside(np.array(spans, dtype=np.int64).reshape(-1, 2))


@dataclass(frozen=True)
class _Beside:
    """What ran beside the main lane, in order of start; a collective is one entry.

    Attributes:
        starts_ns: shape ``(m,)``, rising.
        ends_ns: shape ``(m,)``.
        latest_ends_ns: shape ``(m,)``, rising, the latest end up to each.
        launches_ns: shape ``(m,)``, host's clock.
        collective: shape ``(m,)``, index of the collective; -1: it is none.
        fills: shape ``(m,)``: a collective or another kernel, not a copy.
    """

    starts_ns: Ints
    ends_ns: Ints
    latest_ends_ns: Ints
    launches_ns: Ints
    collective: Ints
    fills: Bools


def _read_beside(device: Device, launches_ns: Ints, collectives: Sequence[Collective]) -> _Beside:
    trace = device.trace
    events = np.flatnonzero(
        trace.is_one_of(DEVICE_CATEGORIES) & ~device.kinds[Kind.COMM] & (trace.lane != device.main.lane)
    )
    main = "" if device.main.lane is None else "/".join(trace.lanes[device.main.lane])
    others = [i for i, one in enumerate(collectives) if len(one.span.starts_ns) and one.lane != main]
    starts = np.append(trace.start_ns[events], np.array([collectives[i].start_ns for i in others], dtype=np.int64))
    ends = np.append(trace.end_ns[events], np.array([collectives[i].end_ns for i in others], dtype=np.int64))
    launches = np.append(launches_ns[events], np.array([collectives[i].issue_ns or 0 for i in others], dtype=np.int64))
    indices = np.append(np.full(len(events), -1), np.array(others, dtype=np.int64))
    fills = np.append(trace.is_one_of((KERNEL,))[events], np.ones(len(others), dtype=np.bool_))
    order = np.argsort(starts, kind="stable")
    return _Beside(
        starts_ns=starts[order],
        ends_ns=ends[order],
        latest_ends_ns=np.maximum.accumulate(ends[order]),
        launches_ns=launches[order],
        collective=indices[order],
        fills=fills[order],
    )


class _Standing:
    """Finds what stood behind one collective after the other."""

    def __init__(self, device: Device, beside: _Beside, awaited: Sequence[Awaited | None]) -> None:
        self._main = device.main
        self._computes = device.kinds[Kind.COMPUTE][device.main.events]
        self._lengths_ns = device.trace.end_ns[device.main.events] - device.main.starts_ns
        self._beside = beside
        self._awaited = awaited

    def fill(self, index: int, one: Collective, wait: Awaited | None) -> Collective:
        """Fill in what is known of one collective."""
        if wait is None:
            return one
        standing_ns = self._find_ns(index, one, wait)
        return replace(
            one,
            awaited_ns=wait.from_ns if wait.is_known else None,
            standing_ns=standing_ns if wait.is_known else 0,
            undecided_ns=0 if wait.is_known else standing_ns,
        )

    def _find_ns(self, index: int, one: Collective, wait: Awaited) -> int:
        """Return how long compute that was launched before its first wait stood until its end."""
        place = int(self._main.starts_ns.searchsorted(one.end_ns, side="left"))
        if one.issue_ns is None or not len(one.span.starts_ns) or place == len(self._main.starts_ns):
            return 0
        launch_ns = int(self._main.launches_ns[place])
        free_ns = max(int(self._main.busy_until_ns[place]), launch_ns, one.start_ns)
        if free_ns >= one.end_ns or wait.is_before(launch_ns):
            return 0
        released_ns = self._released_ns(place, free_ns, index, one)
        return min(max(one.end_ns - released_ns, 0), self._stood_ns(place, one, wait))

    def _released_ns(self, place: int, free_ns: int, index: int, one: Collective) -> int:
        """Return from when the work at a place waited for nothing that it may need; its start if it waited to the last.

        What it may need held it until that ended. From the collective's end to its start the time must be filled.
        """
        beside, start_ns, filled_ns = self._beside, int(self._main.starts_ns[place]), one.end_ns
        first = int(beside.latest_ends_ns.searchsorted(free_ns, side="right"))
        last = int(beside.starts_ns.searchsorted(start_ns, side="left"))
        for entry in range(first, last):
            end_ns = int(beside.ends_ns[entry])
            if beside.collective[entry] == index:
                continue
            if free_ns < end_ns <= start_ns and self._may_need(place, entry, one):
                free_ns = end_ns
            elif end_ns > filled_ns and beside.fills[entry] and beside.starts_ns[entry] - filled_ns <= LAUNCH_BOUND_NS:
                filled_ns = end_ns
        is_held = start_ns - filled_ns <= LAUNCH_BOUND_NS < start_ns - free_ns  # a launch alone takes as long
        return free_ns if is_held else start_ns

    def _may_need(self, place: int, entry: int, one: Collective) -> bool:
        """Tell whether work may have waited for what ran beside; no wait was queued from one's issue to its launch."""
        index = int(self._beside.collective[entry])
        if index < 0:
            return int(self._beside.launches_ns[entry]) <= (one.issue_ns or 0)
        wait = self._awaited[index]
        return wait is None or not wait.is_known or wait.is_before(int(self._main.launches_ns[place]))

    def _stood_ns(self, place: int, one: Collective, wait: Awaited) -> int:
        """Return the length of the compute from a place on that was launched while the collective ran or before.

        Up to the first work that may need it.
        """
        total_ns = 0
        while place < len(self._main.starts_ns) and total_ns < one.end_ns - one.start_ns:
            launch_ns = int(self._main.launches_ns[place])
            if launch_ns >= one.end_ns or wait.is_before(launch_ns):
                break
            total_ns += int(self._lengths_ns[place]) * bool(self._computes[place])
            place += 1
        return total_ns

"""The stream on which the model computes, and the gaps in its work.

::

    main lane    ████        ████        next kernel launched here ^ before the collective ended
    collective      ├──────┤
    gap              ░░░░░░░░            until the next kernel
    wait             ███████             from the end of the kernel before, or from the launch if that is later

Before the lane's first work the gap begins with the device's. A wait that the host carried, in a synchronising call, is
another matter: see ``synchronised.py``.

A collective that runs on the main lane itself leaves no gap: the lane waits for as long as it runs. There torch puts,
from 2.8 on, what is issued with ``async_op=False``, unless another stream is current.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace


@dataclass(frozen=True)
class MainLane:
    """The work of the stream with most compute in order of start, its copies and communication too.

    Attributes:
        lane: its place among the trace's lanes; None: nothing computes, or streams are not told apart.
        events: shape ``(m,)``; empty for a trace without compute.
        starts_ns: shape ``(m,)``, rising.
        busy_until_ns: shape ``(m,)``, latest end of all that started before; of the first, when the device began.
        launches_ns: shape ``(m,)``, start of the call that launched it; its own start where the trace does not hold it.
        calls: shape ``(m,)``, that call; ``NOTHING``: not in the trace.
        worked_until_ns: its last end; the least int64 without any work.
    """

    lane: int | None
    events: Ints
    starts_ns: Ints
    busy_until_ns: Ints
    launches_ns: Ints
    calls: Ints
    worked_until_ns: int = np.iinfo(np.int64).min

    def launched_at(self, launches_ns: Ints) -> "MainLane":
        """Return the same with other moments of launch; ``launches_ns``: shape ``(n,)``, of all events of the trace."""
        return replace(self, launches_ns=launches_ns[self.events])


_NONE: Final = np.array([], dtype=np.int64)
NO_LANE: Final = MainLane(None, _NONE, _NONE, _NONE, _NONE, _NONE)
"""Of a trace that does not tell which stream did what, or in which nothing computes."""


def is_wait_seen(lane: MainLane, ends_ns: Ints) -> Bools:
    """Tell of some ends whether the lane would be seen to wait for each: work follows whose launch is in the trace.

    Where none follows, nothing waited for an end until which the lane worked.

    Args:
        lane: the main lane.
        ends_ns: shape ``(c,)``, in any order.

    Returns:
        Shape ``(c,)``.
    """
    following = np.searchsorted(lane.starts_ns, ends_ns, side="left")
    has_launch = np.append(lane.launches_ns < lane.starts_ns, False)
    is_outlived = (following == len(lane.starts_ns)) & (ends_ns <= lane.worked_until_ns)
    return np.asarray(has_launch[following] | is_outlived, dtype=np.bool_)


def find_main_lane(trace: Trace, compute: Bools) -> int | None:
    """Return the lane with most compute, of equals the first by name; None: nothing computes.

    Args:
        trace: the events.
        compute: shape ``(n,)``, the device events that are compute.
    """
    times_ns = np.zeros(len(trace.lanes), dtype=np.int64)
    events = np.flatnonzero(compute)
    np.add.at(times_ns, trace.lane[events], trace.end_ns[events] - trace.start_ns[events])
    longest = np.flatnonzero(times_ns == times_ns.max(initial=1)).tolist()  # whatever stands first in the file
    return min(longest, key=lambda lane: trace.lanes[lane], default=None)


def work_on_lane(trace: Trace, lane: int) -> Ints:
    """Return the device events of a lane in order of start, copies and communication too."""
    events = np.flatnonzero((trace.lane == lane) & trace.is_one_of(DEVICE_CATEGORIES))
    return np.asarray(events[np.argsort(trace.start_ns[events], kind="stable")], dtype=np.int64)


def read_main_lane(trace: Trace, nesting: Nesting, compute: Bools) -> MainLane:
    """Collect the work of the stream with most compute.

    Args:
        trace: the events.
        nesting: its nesting.
        compute: shape ``(n,)``, the device events that are compute.
    """
    lane = find_main_lane(trace, compute)
    events = np.array([], dtype=np.int64) if lane is None else work_on_lane(trace, lane)
    starts_ns = trace.start_ns[events]
    begun_ns = trace.start_ns[trace.is_one_of(DEVICE_CATEGORIES)]
    first = begun_ns.min(keepdims=True) if len(events) else starts_ns
    busy_until_ns = np.concatenate((first, np.maximum.accumulate(trace.end_ns[events])[:-1]))
    until_ns = int(trace.end_ns[events].max(initial=np.iinfo(np.int64).min))
    return MainLane(lane, events, starts_ns, busy_until_ns, nesting.launch_ns(events), nesting.calls(events), until_ns)


@dataclass(frozen=True)
class ClosedGaps:
    """Gaps of the main lane that the end of something else closes.

    Attributes:
        closer: shape ``(k,)``, which end: index into what was asked; each at most once.
        starts_ns: shape ``(k,)``, from when the lane, and the launch of its next work, waited for nothing else.
        ends_ns: shape ``(k,)``, the end that closes the gap.
        events: shape ``(k,)``, the work that went on then.
    """

    closer: Ints
    starts_ns: Ints
    ends_ns: Ints
    events: Ints


def find_closed_gaps(lane: MainLane, ends_ns: Ints) -> ClosedGaps:
    """Find the gaps that one of some ends closes: the last that lies inside the gap.

    A gap counts only if the work after it had been launched by then (else it waited for the host), and if the trace
    says when that was.

    Args:
        lane: the main lane.
        ends_ns: shape ``(c,)``, ends of collectives, in any order.
    """
    if not len(ends_ns):
        nothing = np.array([], dtype=np.int64)
        return ClosedGaps(nothing, nothing, nothing, nothing)
    order = np.argsort(ends_ns, kind="stable")
    last = np.searchsorted(ends_ns[order], lane.starts_ns, side="right") - 1
    closer = order[np.maximum(last, 0)]
    starts_ns = np.maximum(lane.busy_until_ns, lane.launches_ns)
    # Without a launch, `launches_ns` is the start and no end lies between; nor before the first event.
    closed = np.flatnonzero((last >= 0) & (ends_ns[closer] > starts_ns))
    return ClosedGaps(closer[closed], starts_ns[closed], ends_ns[closer[closed]], lane.events[closed])

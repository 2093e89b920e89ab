"""Whether the device's times fit the host's: nothing runs before it was launched, nor after a wait for it was over.

::

    host        [launch a]  [launch b]                 [launch c] [─synchronise─]
    device   ██a            ██b                                       ████████c██████
             early by this much                                                |late by at least this much

Profilers put the device's times on the host's clock. Where they do so wrongly, all work of the device is shifted alike:
lengths, and what ran beside what, are right all the same. Nothing that sets the host against the device is: whether the
host was late, what could have run, what waited for what.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

BOUND_NS: Final = 5_000
"""By which times of the two may differ without saying anything.

In recorded traces (V100, A100, H200, H800, MI300X) no work begins sooner than 5 us after its call, and none ends later
than 5 us before the return of a call that waited for it; some of them know whole microseconds only.
"""

_WAITS_FOR_ALL: Final = re.compile(r"(?:cuda|hip|musa)DeviceSynchronize|cuCtxSynchronize")


@dataclass(frozen=True)
class DeviceClock:
    """What shows that the device's times are off; None where nothing could.

    Attributes:
        early: events that begin before the call that launched them, by more than ``BOUND_NS``.
        early_ns: the most by which one does.
        late: events that end after a call that waited for them had returned, by more than that.
        late_ns: the most by which one does.
        launched: events whose launch is known; None, and so ``early``: there is none.
        awaited: those of them for which a call waited; None, and so ``late``: there is none.
    """

    early: int | None = None
    early_ns: int | None = None
    late: int | None = None
    late_ns: int | None = None
    launched: int | None = None
    awaited: int | None = None

    @property
    def is_off(self) -> bool:
        """Whether times of the host and of the device say nothing about each other."""
        return bool(self.early or self.late)


def find_device_clock(trace: Trace, nesting: Nesting) -> DeviceClock:
    """Find what shows that the device's times do not fit the host's.

    Args:
        trace: the events.
        nesting: its nesting, for launches.
    """
    events = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    calls = nesting.calls(events)
    is_sure = (calls != NOTHING) & ~np.isin(events, nesting.reused)
    events, calls = events[is_sure], calls[is_sure]
    early_ns = trace.start_ns[calls] - trace.start_ns[events]
    is_awaited, late_ns = _measure_late(trace, events, calls)
    early = _count_beyond(early_ns) if len(events) else (None, None)
    late = _count_beyond(late_ns) if is_awaited.any() else (None, None)
    awaited = int(np.count_nonzero(is_awaited))
    return DeviceClock(early[0], early[1], late[0], late[1], len(events) or None, awaited or None)


def _count_beyond(times_ns: Ints) -> tuple[int, int]:
    """Return how many times are beyond the bound, and the longest of these; 0 where none is."""
    return int(np.count_nonzero(times_ns > BOUND_NS)), _find_most(times_ns)


def _find_most(times_ns: Ints) -> int:
    """Return the longest of some times; 0 where none is beyond the bound."""
    most_ns = int(times_ns.max(initial=0))
    return most_ns if most_ns > BOUND_NS else 0


def _measure_late(trace: Trace, events: Ints, calls: Ints) -> tuple[Bools, Ints]:
    """Return which events a call waited for, and by how much each ends after the return of the first that did.

    Where several devices worked, nobody knows for which of them a call waited.
    """
    nothing = np.zeros(len(events), dtype=np.bool_), np.zeros(len(events), dtype=np.int64)
    waits = np.flatnonzero(trace.is_named(_WAITS_FOR_ALL.fullmatch) & trace.is_one_of(CALLS))
    devices = {trace.lanes[lane][0] for lane in np.unique(trace.lane[events]).tolist()}
    if not len(waits) or len(devices) != 1:
        return nothing
    waits = waits[np.argsort(trace.start_ns[waits], kind="stable")]
    place = trace.start_ns[waits].searchsorted(trace.end_ns[calls], side="left")
    is_awaited = place < len(waits)
    until_ns = trace.end_ns[waits[np.minimum(place, len(waits) - 1)]]
    return is_awaited, np.where(is_awaited, trace.end_ns[events] - until_ns, 0)

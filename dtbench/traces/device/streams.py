"""Whether a trace tells the streams of a device apart.

::

    stream 7    ██████ mm ██████          a lane runs one thing after the other, so what runs beside a
                   ███ all-reduce ███     collective on its own lane ran on another stream

Tools that merge, cut or rename traces may give all work of a device one lane. Whose end a stream waited for, what stood
in line behind what, and what was issued blocking is read from lanes; of such a trace none of it is known. How long
something ran, and beside what, is.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_LEAST_NS: Final = 5_000
"""Of one overlap: more than clocks of a microsecond and kernels that are launched early (programmatic dependent launch)
make; in no real trace do two collectives, or a collective and compute, of one stream overlap at all."""
_LEAST_SUM_NS: Final = 20_000
"""Of all of them."""
_CLOCK_NS: Final = 2_000
"""By as much two ends are known that are sums of whole microseconds cut off: a start, and how long it took."""


@dataclass(frozen=True)
class MixedStreams:
    """Communication that ran beside other work of its own lane; true where the lane is surely no stream.

    What is launched early waits inside for what was before it, and ends after it: one end before that is enough.

    Attributes:
        count: of overlaps.
        time_ns: of all.
        inside: how many of them ended before what they ran beside, and began after it.
    """

    count: int = 0
    time_ns: int = 0
    inside: int = 0

    def __bool__(self) -> bool:
        return self.inside > 0 or self.time_ns >= _LEAST_SUM_NS


def find_mixed_streams(trace: Trace, compute: Bools, comm: Bools) -> MixedStreams:
    """Find what cannot have run on one stream.

    Args:
        trace: of a device.
        compute: shape ``(n,)``, the events that are compute.
        comm: shape ``(n,)``, those that are communication.
    """
    events = np.flatnonzero(compute | comm)
    events = events[np.lexsort((trace.start_ns[events], trace.lane[events]))]
    borders = np.flatnonzero(np.diff(trace.lane[events])) + 1
    measured = [_measure(trace, lane, comm[lane]) for lane in np.split(events, borders) if comm[lane].any()]
    if not measured:
        return MixedStreams()
    overlaps_ns, before_ns = np.concatenate(measured, axis=1)
    is_inside = (overlaps_ns > 0) & (before_ns >= _CLOCK_NS)
    long_ns = overlaps_ns[is_inside | (overlaps_ns >= _LEAST_NS)]
    return MixedStreams(len(long_ns), int(long_ns.sum()), int(is_inside.sum()))


def _measure(trace: Trace, events: Ints, is_comm: Bools) -> Ints:
    """Return for how long each event of a lane overlaps one before it, and how long before it ends; shape ``(2, n)``.

    Of two that compute nothing is asked.
    """
    starts_ns, ends_ns = trace.start_ns[events], trace.end_ns[events]
    never = np.iinfo(np.int64).min
    of_any_ns = _shift(np.maximum.accumulate(ends_ns))
    of_comm_ns = _shift(np.maximum.accumulate(np.where(is_comm, ends_ns, never)))
    until_ns = np.maximum(np.where(is_comm, of_any_ns, of_comm_ns), starts_ns)
    return np.stack((np.minimum(ends_ns, until_ns) - starts_ns, np.maximum(0, until_ns - ends_ns)))


def _shift(until_ns: Ints) -> Ints:
    return np.concatenate(([np.iinfo(np.int64).min], until_ns[:-1]))

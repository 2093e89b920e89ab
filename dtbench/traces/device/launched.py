"""When the host launched what ran on a device: exactly where its call is in the trace, else between two moments.

Rows of calls can be lost without those of the kernels that they launched: profilers hand their buffers over thread by
thread. What is left bounds when such a call was made::

    calls by id    7    8         9 is lost        10
    host           |    |                           |
    launched            ├────────────────────────────┤     work 9: after call 8, before call 10, before it began,
    lane                ██████8█████████  ███9███          after what the lane ran before was launched, and before
                                                           what it ran thereafter was

Runtimes number their calls as they are made, whatever thread makes them: in recorded traces of CUDA and ROCm ids rise
with time over all threads. Where those of a trace do not, only its lanes order its launches: a lane runs its work in
the order in which it was launched.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.device.main_lane import work_on_lane
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_ROUNDED_NS: Final = 1_000  # traces before 2024 know whole microseconds
_NEVER: Final = np.iinfo(np.int64).min // 2


@dataclass(frozen=True)
class Launched:
    """When each event of a device was launched, on the host's clock; of other events their own start.

    Attributes:
        nesting: which call launched each, where that is told.
        earliest_ns: shape ``(n,)``.
        latest_ns: shape ``(n,)``, nowhere before that; the same where it is told.
    """

    nesting: Nesting
    earliest_ns: Ints
    latest_ns: Ints

    def when(self, *, is_late: bool) -> Ints:
        """Return when each was launched if that was as late, or else as early, as it may have been."""
        return self.latest_ns if is_late else self.earliest_ns

    def find_untold(self, events: Ints) -> tuple[Ints, Ints]:
        """Return those of some events of which it is not told when they were launched, and between when, ``(u, 2)``."""
        untold = events[self.earliest_ns[events] < self.latest_ns[events]]
        return untold, np.stack((self.earliest_ns[untold], self.latest_ns[untold]), axis=1)

    def are_settled(self, events: Ints, first_ns: int) -> bool:
        """Tell whether all of some events have one moment, or surely come before the first that anybody asks for."""
        latest_ns = self.latest_ns[events]
        return bool(np.all((self.earliest_ns[events] == latest_ns) | (latest_ns < first_ns)))


def find_launched(trace: Trace, nesting: Nesting) -> Launched:
    """Find when all events of a device were launched.

    Args:
        trace: the events.
        nesting: its nesting, for launches.
    """
    earliest_ns, latest_ns = trace.start_ns.copy(), trace.start_ns.copy()
    events = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    is_told = nesting.calls(events) != NOTHING
    told, untold = events[is_told], events[~is_told]
    earliest_ns[told] = latest_ns[told] = nesting.launch_ns(told)
    if not len(untold):
        return Launched(nesting, earliest_ns, latest_ns)
    earliest_ns[untold] = int(trace.start_ns.min()) - 1
    latest_ns[untold] -= 1
    for lane in np.unique(trace.lane[untold]).tolist():
        work = work_on_lane(trace, lane)
        _bound(earliest_ns, latest_ns, work, np.isin(work, told))
    _bound_by_ids(trace, untold, earliest_ns, latest_ns)
    earliest_ns[untold] = np.minimum(earliest_ns, trace.start_ns - 1)[untold]
    return Launched(nesting, earliest_ns, np.maximum(earliest_ns, latest_ns))


def launched_as_started(trace: Trace, nesting: Nesting) -> Launched:
    """Take all events of a device as launched when they began, as where its times do not fit the host's."""
    return Launched(nesting, trace.start_ns, trace.start_ns)


def launched_at_any_time(trace: Trace, nesting: Nesting) -> Launched:
    """Take all events of a device as launched at any time before they began, as where clocks do not tell."""
    return Launched(nesting, np.full(len(trace), trace.start_ns.min(initial=0) - 1), trace.start_ns)


def _bound(earliest_ns: Ints, latest_ns: Ints, work: Ints, is_told: Bools) -> None:
    """Put work of which the launch is not told between those of the work before and after it, which is in order."""
    bounds = np.iinfo(np.int64)
    before_ns = np.maximum.accumulate(np.where(is_told, latest_ns[work], bounds.min))
    after_ns = np.minimum.accumulate(np.where(is_told, earliest_ns[work], bounds.max)[::-1])[::-1]
    untold = work[~is_told]
    earliest_ns[untold] = np.maximum(earliest_ns[untold], before_ns[~is_told] + 1)
    latest_ns[untold] = np.minimum(latest_ns[untold], after_ns[~is_told] - 1)


def _bound_by_ids(trace: Trace, untold: Ints, earliest_ns: Ints, latest_ns: Ints) -> None:
    """Put work between the calls of the ids below and above its own, where the ids of all calls rise with time.

    Nor may any of it have begun before the call of an id below its own.
    """
    tied, ids = trace.correlation.events, trace.correlation.values
    is_call = trace.is_one_of(CALLS)[tied]
    order = np.argsort(ids[is_call], kind="stable")
    called_ids, called_ns = ids[is_call][order], trace.start_ns[tied[is_call][order]]
    until_ns = np.maximum.accumulate(called_ns)
    if not len(called_ids) or np.any(until_ns - called_ns > _ROUNDED_NS):
        return
    own_ids = trace.correlation.values_at(untold, 0)
    untold, own_ids = untold[own_ids > 0], own_ids[own_ids > 0]
    from_ns = np.minimum.accumulate(called_ns[::-1])[::-1]
    place = called_ids.searchsorted(own_ids)
    if np.any(np.append(_NEVER, until_ns)[place] - trace.start_ns[untold] > _ROUNDED_NS):  # it began before a lower id
        return
    after, before = untold[place > 0], untold[place < len(called_ids)]
    earliest_ns[after] = np.maximum(earliest_ns[after], until_ns[place[place > 0] - 1] + 1)
    latest_ns[before] = np.minimum(latest_ns[before], from_ns[place[place < len(called_ids)]] - 1)

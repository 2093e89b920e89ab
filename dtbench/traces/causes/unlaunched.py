"""How far compute whose launch the trace does not hold leaves open what made a collective's input, or could hide it.

The rows of launches can be lost without those of kernels: the profiler's buffers are handed over thread by thread::

    host       c                                    c: issue
    main lane  ████████ ▒▒▒▒▒▒▒▒▒▒                  █  launched before c    ▒  nobody knows when
    comm                          ├────c────┤
    ready              |---------?                  perhaps with the end of ▒, perhaps not

A lane runs its work in the order of its launches, so that what was launched before and after on the same lane bounds
when one was launched that is not told; an id below that of every call tells that it was before the trace. What was so
launched only after the issue made no input of it; what was launched only before it, or after its region, could not have
been beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.traces.causes.ready import is_fsdps_unshard
from dtbench.traces.device.main_lane import work_on_lane
from dtbench.traces.host.correlate import Link, find_links
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, Regions


def find_unlaunched(
    trace: Trace, nesting: Nesting, compute: Bools, regions: Regions, collectives: Sequence[Collective]
) -> tuple[Collective, ...]:
    """Fill ``unlaunched_ns`` of collectives of a device.

    Args:
        trace: the events.
        nesting: its nesting.
        compute: shape ``(n,)``, the device events that compute.
        regions: what the training loop was doing when.
        collectives: of the trace, with ``ready_ns``.
    """
    lanes = _find_lanes(trace, nesting, compute)
    if not lanes:
        return tuple(collectives)
    events, links = find_links(trace, nesting)
    earlier = events[links == Link.BEFORE_WINDOW]
    works = [_Unlaunched.of(trace, nesting, compute, earlier, lane) for lane in lanes]
    return tuple(replace(one, unlaunched_ns=max(work.measure(one, regions) for work in works)) for one in collectives)


def _find_lanes(trace: Trace, nesting: Nesting, compute: Bools) -> list[int]:
    """Return the lanes with compute of which no launch is known."""
    events = np.flatnonzero(compute)
    return [int(lane) for lane in np.unique(trace.lane[events[nesting.calls(events) == NOTHING]])]


@dataclass(frozen=True)
class _Unlaunched:
    """Compute of one lane of which no launch is known, in its order.

    Attributes:
        ends_ns: shape ``(m,)``, rising.
        earliest_ns: shape ``(m,)``, rising, before which none was launched.
        latest_ns: shape ``(m,)``, rising, after which none was.
        totals_ns: shape ``(m + 1,)``, rising, how long those before each ran.
        earlier: how many of the first were launched before the trace began.
    """

    ends_ns: Ints
    earliest_ns: Ints
    latest_ns: Ints
    totals_ns: Ints
    earlier: int

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting, compute: Bools, earlier: Ints, lane: int) -> "_Unlaunched":
        """Collect that of a lane; ``earlier``: events that were launched before the trace began."""
        events = work_on_lane(trace, lane)
        is_launched = nesting.calls(events) != NOTHING
        bounds = np.iinfo(np.int64)
        launches_ns = nesting.launch_ns(events)
        before_ns = np.maximum.accumulate(np.where(is_launched, launches_ns, bounds.min))
        after_ns = np.where(is_launched, launches_ns, bounds.max)
        after_ns[np.isin(events, earlier)] = bounds.min
        after_ns = np.minimum.accumulate(after_ns[::-1])[::-1]
        after_ns = np.maximum.accumulate(np.minimum(after_ns, trace.start_ns[events]))
        own = np.flatnonzero(~is_launched & compute[events])
        latest_ns = np.maximum(after_ns, before_ns)[own]
        lengths_ns = trace.end_ns[events[own]] - trace.start_ns[events[own]]
        return cls(
            ends_ns=np.maximum.accumulate(trace.end_ns[events[own]]),
            earliest_ns=before_ns[own],
            latest_ns=latest_ns,
            totals_ns=np.concatenate([[0], np.cumsum(lengths_ns)]),
            earlier=int(latest_ns.searchsorted(bounds.min, side="right")),
        )

    def measure(self, one: Collective, regions: Regions) -> int:
        """Give the longer of how much later one may have been ready, and what more its region may have launched."""
        if one.issue_ns is None or one.is_captured or not len(one.span.starts_ns):
            return 0
        return max(self._ready_later_ns(one, one.issue_ns), self._beside_ns(one.issue_ns, regions))

    def _ready_later_ns(self, one: Collective, issue_ns: int) -> int:
        """Give how much later its input may have been there; for FSDP's unshard, what may have stood before it."""
        ready_ns = issue_ns if one.ready_ns is None else one.ready_ns
        is_unshard = is_fsdps_unshard(one)
        ready_ns = min(ready_ns, issue_ns) if is_unshard else ready_ns
        before = min(
            int(self.earliest_ns.searchsorted(issue_ns, side="left")),
            int(self.ends_ns.searchsorted(one.start_ns, side="right")),
        )
        first = self.earlier if is_unshard else 0  # the unit before it was computed in the trace
        return max(0, int(self.ends_ns[before - 1]) - ready_ns) if before > first else 0

    def _beside_ns(self, issue_ns: int, regions: Regions) -> int:
        """Give how long compute ran that may have been launched after the issue, in its region."""
        region = regions.place_at(issue_ns)
        if region is None:
            return 0
        first = int(self.latest_ns.searchsorted(issue_ns, side="right"))
        beyond = int(self.earliest_ns.searchsorted(int(regions.ends_ns[region]), side="left"))
        return max(0, int(self.totals_ns[beyond]) - int(self.totals_ns[first]))

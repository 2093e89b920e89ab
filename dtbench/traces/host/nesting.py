"""Which span encloses which on a CPU thread, and which call launched a device event.

("The last operator that started before" is wrong for 8 to 82 % of launches in real traces: that operator may have
ended.)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.kinds.categories import CALLS
from dtbench.traces.time.enclosures import NOTHING, find_enclosures, set_clock
from dtbench.traces.time.intervals import Bools, Intervals, Ints, find_cuts, unite, unite_all
from dtbench.traces.trace import Trace

_ENCLOSES: Final = ("cpu_op", "user_annotation")
# cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel, cudaGraphLaunch, cudaMemcpyAsync, hipMemsetAsync; not
# cudaStreamSynchronize, cudaEventRecord and the like, which may carry an id too
STARTS_WORK: Final = re.compile(r"Launch|Mem(cpy|set)", re.IGNORECASE)


@dataclass(frozen=True)
class Nesting:
    """Enclosing spans and launches of one trace.

    Attributes:
        in_order: operators and annotations of threads by (thread, start), outermost first.
        parent: shape ``(n,)``, int32, the innermost operator or annotation around an operator, an annotation or a call;
            the event itself: none.
        launch: shape ``(n,)``, int32, for device events the runtime or driver call; the event itself: none in the
            trace.
        reused: events whose call was chosen among several, not nested, with its correlation id.
        trace: the events.
    """

    in_order: Ints
    parent: NDArray[np.int32]
    launch: NDArray[np.int32]
    reused: Ints
    trace: Trace

    def enclosing(self, event: int) -> Iterator[int]:
        """Walk outwards, without the event itself; from any event of a thread."""
        while (above := int(self.parent[event])) != event:
            yield above
            event = above

    def innermost(self, events: Ints, chosen: Bools) -> Ints:
        """Return the innermost of some operators and annotations that is open when each event of a thread begins.

        Args:
            events: of threads; ``NOTHING`` stays.
            chosen: shape ``(n,)``, the spans that are looked at.

        Returns:
            Events, never the same; ``NOTHING`` where there is none.
        """
        found = np.where(events == NOTHING, NOTHING, self.parent[events]).astype(np.int64)
        found[found == events] = NOTHING
        climbing = np.flatnonzero(found != NOTHING)
        while len(climbing):
            place = found[climbing]
            # Where spans overlap, one on the way out may have ended before.
            missed = ~chosen[place] | (self.trace.end_ns[place] <= self.trace.start_ns[events[climbing]])
            climbing, place = climbing[missed], place[missed]
            above = self.parent[place]
            found[climbing] = np.where(above == place, NOTHING, above)
            climbing = climbing[above != place]
        return found

    def without_launches(self) -> "Nesting":
        """Return the same of a trace of which it is not known when the host launched what ran on the device."""
        return replace(self, launch=np.arange(len(self.trace), dtype=np.int32))

    def calls(self, events: Ints) -> Ints:
        """Return the call that launched each device event; ``NOTHING``: not in the trace."""
        return np.where(self.launch[events] == events, NOTHING, self.launch[events]).astype(np.int64)

    def launch_ns(self, events: Ints) -> Ints:
        """Return when each of some device events was launched; its start where the trace does not hold the call."""
        return self.trace.start_ns[self.launch[events]]


def find_nesting(trace: Trace) -> Nesting:
    """Find parents and launches of all events."""
    launch, reused = _find_launches(trace)
    events = np.flatnonzero(trace.is_one_of(_ENCLOSES))
    spans = find_enclosures(events, trace.lane, trace.start_ns, trace.end_ns)
    parent = np.arange(len(trace), dtype=np.int32)
    inside = spans.above >= 0
    parent[spans.events[inside]] = spans.events[spans.above[inside]]
    calls = np.flatnonzero(trace.is_one_of(CALLS))
    around = spans.around(trace.lane[calls], trace.start_ns[calls])
    parent[calls[around != NOTHING]] = around[around != NOTHING]
    return Nesting(spans.events, parent, launch, reused, trace)


def _find_launches(trace: Trace) -> tuple[NDArray[np.int32], Ints]:
    """Return ``Nesting.launch`` and ``Nesting.reused``.

    Where several calls carry an id (torch reuses ids across processes, a driver call lies inside a runtime call), those
    that start work come before the others, and of these the last that began before the event did.
    """
    launch = np.arange(len(trace), dtype=np.int32)
    tied, ids = trace.correlation.events, trace.correlation.values
    is_call = trace.is_one_of(CALLS)[tied]
    starts_work = np.array([STARTS_WORK.search(name) is not None for name in trace.names], dtype=np.bool_)
    reused = []
    missing, missing_ids = tied[~is_call], ids[~is_call]
    for wanted in (True, False):
        chosen = is_call.copy()
        chosen[is_call] = starts_work[trace.name[tied[is_call]]] == wanted
        calls, several = _match_calls(trace, (tied[chosen], ids[chosen]), (missing, missing_ids))
        found = calls != NOTHING
        launch[missing[found]] = calls[found]
        reused.append(missing[several])
        missing, missing_ids = missing[~found], missing_ids[~found]
    return launch, np.concatenate(reused)


def _match_calls(trace: Trace, calls: tuple[Ints, Ints], events: tuple[Ints, Ints]) -> tuple[Ints, Bools]:
    """Return the call of each event by its id, ``NOTHING`` if there is none, and whether there were several."""
    call_events, call_ids = calls
    order = np.argsort(call_ids, kind="stable")
    if np.any(call_ids[order[1:]] == call_ids[order[:-1]]):
        order = np.lexsort((trace.start_ns[call_events], call_ids))
    call_events, call_ids = call_events[order], call_ids[order]
    device_events, ids = events
    first = np.searchsorted(call_ids, ids, side="left")
    beyond = np.searchsorted(call_ids, ids, side="right")
    found = np.full(len(ids), NOTHING, dtype=np.int64)
    found[beyond > first] = call_events[first[beyond > first]]
    several = beyond > first + 1
    if several.any():
        choice = first[several], beyond[several]
        latest = _latest_before(trace.start_ns[call_events], choice, trace.start_ns[device_events[several]])
        found[several] = call_events[latest]
        several[several] = ~_is_nested(trace, call_events, choice)
    return found, several


def _latest_before(starts_ns: Ints, choice: tuple[Ints, Ints], times_ns: Ints) -> Ints:
    """Return the place in ``[first, beyond)``, where starts rise, of the last one not after a time; or the first."""
    first, beyond = choice
    group = np.zeros(len(starts_ns), dtype=np.int64)
    group[first] = 1
    group = np.cumsum(group)  # every choice has a number of its own; what lies between two choices goes with the former
    clock = set_clock(group, starts_ns, starts_ns)
    keys = clock.keys(group, starts_ns)
    sorted_keys = np.maximum.accumulate(keys)
    places = np.searchsorted(sorted_keys, clock.keys(group[first], times_ns), side="right") - 1
    return np.asarray(np.clip(places, first, beyond - 1), dtype=np.int64)


def _is_nested(trace: Trace, call_events: Ints, choice: tuple[Ints, Ints]) -> Bools:
    """Tell whether the last call of each choice lies inside the first: a driver call that a runtime call makes."""
    first, last = call_events[choice[0]], call_events[choice[1] - 1]
    return np.asarray(
        (trace.lane[first] == trace.lane[last]) & (trace.start_ns[last] < trace.end_ns[first]), dtype=np.bool_
    )


def innermost_time(trace: Trace, nesting: Nesting, lanes: frozenset[int], counts: frozenset[int]) -> Intervals:
    """Return the time in which the innermost open span of one of these threads is one that counts.

    ::

        autograd node   ├──────────────────────┤
        aten::mm           ├────────────┤            counts
        wait                    ├───┤                does not
        time               ░░░░░     ░░░░

    Args:
        trace: the events.
        nesting: its nesting.
        lanes: threads to look at.
        counts: indices into ``trace.names`` of the spans whose own time counts.
    """
    does_count = np.zeros(len(trace.names), dtype=np.bool_)
    does_count[list(counts)] = True
    return unite_all(*(_own_time(trace, nesting, lane, does_count) for lane in lanes))


def _own_time(trace: Trace, nesting: Nesting, lane: int, does_count: Bools) -> Intervals:
    """Cut a thread wherever a span begins or ends and keep the pieces whose innermost span counts."""
    starts, ends, _ = _own_pieces(trace, nesting, lane, does_count)
    return unite(starts, ends)


def _own_pieces(trace: Trace, nesting: Nesting, lane: int, does_count: Bools) -> tuple[Ints, Ints, Ints]:
    events = nesting.in_order[trace.lane[nesting.in_order] == lane]
    cuts = find_cuts(trace.start_ns[events], trace.end_ns[events])
    starts, ends = cuts[:-1], cuts[1:]
    spans = find_enclosures(events, trace.lane, trace.start_ns, trace.end_ns)
    innermost = spans.around(np.full(len(starts), lane, dtype=np.int32), starts)
    counted = (innermost != NOTHING) & does_count[trace.name[innermost]]
    return starts[counted], ends[counted], innermost[counted]


def innermost_spans(trace: Trace, nesting: Nesting, lane: int, counts: frozenset[int]) -> tuple[Ints, Ints, Ints]:
    """Return what ``innermost_time`` unites, span by span: start, end and event of each, in order of time.

    A span that is interrupted by another comes once for every part of it. Arguments as for ``innermost_time``.
    """
    does_count = np.zeros(len(trace.names), dtype=np.bool_)
    does_count[list(counts)] = True
    starts, ends, events = _own_pieces(trace, nesting, lane, does_count)
    if not len(starts):
        return starts, ends, events
    goes_on = (events[1:] == events[:-1]) & (starts[1:] == ends[:-1])
    return starts[np.append(True, ~goes_on)], ends[np.append(~goes_on, True)], events[np.append(True, ~goes_on)]

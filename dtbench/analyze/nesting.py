"""Which span encloses which on a CPU thread, and which call launched a device event.

Found by a stack over start order, per thread. ("The last operator that started before" is wrong for 8 to 82 % of
launches in real traces: that operator may have ended.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.analyze.intervals import Intervals, Ints, unite
from dtbench.analyze.trace import Trace

_ON_THREADS: Final = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"})
_LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver"})


@dataclass(frozen=True)
class Nesting:
    """Enclosing spans and launches of one trace.

    Attributes:
        parent: shape ``(n,)``, int64, the innermost enclosing span of an event on a thread; the event itself: none.
        launch: shape ``(n,)``, int64, for device events the runtime or driver call; the event itself: none in the
            trace.
        in_order: events on threads by (thread, start), outermost first.
    """

    parent: Ints
    launch: Ints
    in_order: Ints

    def enclosing(self, event: int) -> Iterator[int]:
        """Walk outwards, without the event itself."""
        while (above := int(self.parent[event])) != event:
            yield above
            event = above

    def launchers(self, event: int) -> Iterator[int]:
        """Walk outwards from the call that launched a device event; nothing when the trace does not hold it."""
        if (launch := int(self.launch[event])) != event:
            yield launch
            yield from self.enclosing(launch)


def find_nesting(trace: Trace) -> Nesting:
    """Find parents and launches of all events."""
    on_threads = np.array([category in _ON_THREADS for category in trace.categories], dtype=np.bool_)
    is_launch = np.array([category in _LAUNCHES for category in trace.categories], dtype=np.bool_)
    events = np.flatnonzero(on_threads[trace.category]) if len(trace.name) else np.array([], dtype=np.int64)
    # Equal borders happen in traces of whole microseconds: the longer span is outside, a call into the runtime inside.
    keys = (is_launch[trace.category[events]], -trace.end_ns[events], trace.start_ns[events], trace.lane[events])
    in_order = events[np.lexsort(keys)]
    return Nesting(parent=_find_parents(trace, in_order), launch=_find_launches(trace, is_launch), in_order=in_order)


def _find_parents(trace: Trace, in_order: Ints) -> Ints:
    parent = np.arange(len(trace.name), dtype=np.int64)
    lanes, starts, ends = (column[in_order].tolist() for column in (trace.lane, trace.start_ns, trace.end_ns))
    open_spans: list[tuple[int, int, int]] = []  # lane, end, event
    for event, lane, start, end in zip(in_order.tolist(), lanes, starts, ends, strict=True):
        while open_spans and (open_spans[-1][0] != lane or open_spans[-1][1] <= start):
            open_spans.pop()
        if open_spans:
            parent[event] = open_spans[-1][2]
        open_spans.append((lane, end, event))
    return parent


def _find_launches(trace: Trace, is_launch: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Ints:
    launch = np.arange(len(trace.name), dtype=np.int64)
    tied = trace.correlation.events
    is_call = is_launch[trace.category[tied]] if len(tied) else np.array([], dtype=np.bool_)
    calls = zip(trace.correlation.values[is_call].tolist(), tied[is_call].tolist(), strict=True)
    by_correlation = dict(calls)
    for event, correlation in zip(tied[~is_call].tolist(), trace.correlation.values[~is_call].tolist(), strict=True):
        launch[event] = by_correlation.get(correlation, event)
    return launch


def innermost_time(trace: Trace, nesting: Nesting, lanes: frozenset[int], counts: frozenset[int]) -> Intervals:
    """Give the time in which the innermost open span of one of these threads is one that counts.

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
    pieces: list[tuple[int, int]] = []
    for lane in lanes:
        events = nesting.in_order[trace.lane[nesting.in_order] == lane]
        pieces += _own_pieces(trace, events, counts)
    columns = np.array(pieces, dtype=np.int64).reshape(-1, 2)
    return unite(columns[:, 0], columns[:, 1])


def _own_pieces(trace: Trace, events: Ints, counts: frozenset[int]) -> Iterator[tuple[int, int]]:
    open_spans: list[tuple[int, bool]] = []  # end, counts
    now = 0
    names, starts, ends = (column[events].tolist() for column in (trace.name, trace.start_ns, trace.end_ns))
    # One empty span after all others closes what is still open.
    last = max(ends, default=0)
    for name, start, end in zip([*names, 0], [*starts, last], [*ends, last], strict=True):
        while open_spans and open_spans[-1][0] <= start:
            top_end, top_counts = open_spans.pop()
            if top_counts and top_end > now:
                yield now, top_end
            now = max(now, top_end)
        if open_spans and open_spans[-1][1] and start > now:
            yield now, start
        now = max(now, start)
        open_spans.append((end, name in counts))

"""What the host of a rank did: ranges of its threads, the innermost operator at each moment, calls that launched work.

::

    range       ├──── Optimizer.step ────┤
    operator      ├──── aten::add_ ────┤ ├ aten::mul_ ┤      the innermost one, once for each part of its own
    call             ├ cudaLaunchKernel ┤
    device                                     ████ add     its ``call`` names the one above

On CPU operators are the compute that is drawn, and a collective has no call: only ranges are found there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dtbench.base.ranges import COLLECTIVE_PREFIX, LINK_PREFIX, REGION_PREFIX, STEP_PREFIX
from dtbench.traces.cpu.gloo import model_lanes
from dtbench.traces.host.forwards import is_engine_node
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES, OPERATOR
from dtbench.traces.notes.note import Note, join_ranks
from dtbench.traces.notes.spans import HostShortestNotDrawn, LaunchesNotDrawn, LaunchesNotLinked
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.enclosures import NOTHING, find_enclosures
from dtbench.traces.time.intervals import Bools, Ints, find_cuts, unite
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

LONG_CALL_NS: Final = 10_000
"""Of a call that launches nothing that is drawn: a shorter one kept nothing waiting."""
NO_HOST: Final = ("operators", "ranges", "launches")
"""What a trace of a device lacks that holds nothing of its host."""
_RANGE: Final = "user_annotation"
_DRAWN_ELSEWHERE: Final = (STEP_PREFIX, REGION_PREFIX, COLLECTIVE_PREFIX, LINK_PREFIX)


@dataclass(frozen=True)
class HostSpans:
    """Spans of threads as parallel columns of shape ``(n,)``, by start.

    Attributes:
        event: of the trace; an interrupted operator comes several times.
        name: index into the names of ``Host``.
        thread: index into the threads of ``Host``.
        level: of a range, how many others lie around it.
        start_ns: the trace's own clock.
        end_ns: all after their start.
    """

    event: Ints
    name: Ints
    thread: Ints
    level: Ints
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.event)

    @property
    def length_ns(self) -> Ints:
        """How long each took."""
        return np.asarray(self.end_ns - self.start_ns)

    def keep(self, chosen: Bools) -> "HostSpans":
        """Return some of the spans; ``chosen`` has shape ``(n,)``."""
        columns = (self.event, self.name, self.thread, self.level, self.start_ns, self.end_ns)
        return HostSpans(*(column[chosen] for column in columns))


@dataclass(frozen=True)
class Host:
    """What a trace holds of its host.

    Attributes:
        threads: distinct threads, ``"<process>/<thread>"``.
        engine: of these, beside a device, those that mostly run nodes of autograd's engine.
        names: all of the trace.
        ranges: what ``record_function`` names, but for steps, regions and collectives, drawn as such.
        operators: the innermost at each moment; empty on CPU, where they are the compute that is drawn.
        calls: of the runtime and the driver.
        collective_calls: of each collective of the rank the event of the call that launched it; ``NOTHING``: not known.
        lacks: what of it a trace of a device should hold and does not.
    """

    threads: tuple[str, ...]
    engine: frozenset[str]
    names: tuple[str, ...]
    ranges: HostSpans
    operators: HostSpans
    calls: HostSpans
    collective_calls: Ints
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostView:
    """What of one rank's host may be drawn.

    Attributes:
        rank: which.
        host: all that its trace holds.
        window: what is drawn of the device.
        calls: of what is drawn there, shape ``(m,)``, those that launched it; ``NOTHING`` is left out.
        lengths_ns: of what is drawn there, likewise.
        fits: whether the device's times fit the host's; where they do not, ``calls`` has none.
        launches_ns: by call the length of the longest that it launched; empty until ``cut``.
    """

    rank: int
    host: Host
    window: Window
    calls: Ints
    lengths_ns: Ints
    fits: bool = True
    launches_ns: Mapping[int, int] = field(default_factory=dict)

    def cut(self) -> "HostView":
        """Keep what overlaps the window and the launches of what is drawn in it, and of other calls the long ones."""
        host, launched = self.host, np.isin(self.host.calls.event, self.calls)
        start_ns = min([self.window.start_ns, *host.calls.start_ns[launched][:1].tolist()])
        is_long = (host.calls.length_ns >= LONG_CALL_NS) & _overlaps(host.calls, start_ns, self.window.end_ns)
        order = np.argsort(self.lengths_ns, kind="stable")
        longest = dict(zip(self.calls[order].tolist(), self.lengths_ns[order].tolist(), strict=True))
        return replace(
            self,
            host=replace(
                host,
                ranges=host.ranges.keep(_overlaps(host.ranges, start_ns, self.window.end_ns)),
                operators=host.operators.keep(_overlaps(host.operators, start_ns, self.window.end_ns)),
                calls=host.calls.keep(launched | is_long),
            ),
            launches_ns=longest,
        )

    @property
    def weights_ns(self) -> Ints:
        """Of each call the length of the longest that it launched; -1: nothing that is drawn."""
        return np.array([self.launches_ns.get(event, -1) for event in self.host.calls.event.tolist()], dtype=np.int64)


def find_host(trace: Trace, nesting: Nesting, collectives: Sequence[Collective]) -> Host | None:
    """Find what the host did; None: the trace holds nothing of it.

    Args:
        trace: as read.
        nesting: of it.
        collectives: of its rank.
    """
    device = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    is_device = len(device) > 0
    is_told = trace.is_one_of((_RANGE,)) & ~trace.is_named(lambda name: name.startswith(_DRAWN_ELSEWHERE))
    if not is_device:
        is_told &= np.isin(trace.lane, list(model_lanes(trace)))  # gloo's threads have its own, which are drawn
    ranges = np.flatnonzero(is_told & (trace.end_ns > trace.start_ns))
    pieces = _find_pieces(trace) if is_device else (np.array([], dtype=np.int64),) * 3
    calls = np.flatnonzero(trace.is_one_of(CALLS) & (trace.end_ns > trace.start_ns)) if is_device else pieces[2]
    found = np.concatenate((ranges, pieces[2], calls))
    if not len(found):
        return None
    lanes, thread = np.unique(trace.lane[found], return_inverse=True)
    threads = tuple("/".join(trace.lanes[lane]) for lane in lanes.tolist())
    parts = np.split(thread.astype(np.int64), np.cumsum((len(ranges), len(pieces[2]))))
    return Host(
        threads=threads,
        engine=frozenset(
            "/".join(trace.lanes[lane]) for lane in lanes.tolist() if is_device and _is_engine(trace, lane)
        ),
        names=trace.names,
        ranges=_columns(trace, (ranges, parts[0], _find_levels(trace, ranges)), _times_of(trace, ranges)),
        operators=_columns(trace, (pieces[2], parts[1], np.zeros_like(parts[1])), pieces[:2]),
        calls=_columns(trace, (calls, parts[2], np.zeros_like(parts[2])), _times_of(trace, calls)),
        collective_calls=_find_collective_calls(trace, nesting, device, collectives),
        lacks=tuple(_name_lacks(pieces[2], calls)) if is_device else (),
    )


def _is_engine(trace: Trace, lane: int) -> bool:
    """Tell whether nodes of autograd's engine take most of the time of a thread's operators."""
    operators = np.flatnonzero(trace.is_one_of((OPERATOR,)) & (trace.lane == lane))
    nodes = operators[is_engine_node(trace)[operators]]
    lengths = [unite(trace.start_ns[some], trace.end_ns[some]).length_ns for some in (nodes, operators)]
    return 2 * lengths[0] > lengths[1]


def _name_lacks(operators: Ints, calls: Ints) -> Iterable[str]:
    if not len(operators):
        yield "operators"
    if not len(calls):
        yield "launches"


def _times_of(trace: Trace, events: Ints) -> tuple[Ints, Ints]:
    return trace.start_ns[events], trace.end_ns[events]


def _columns(trace: Trace, spans: tuple[Ints, Ints, Ints], times_ns: tuple[Ints, Ints]) -> HostSpans:
    """Put spans (event, thread, level) in order of start."""
    order = np.argsort(times_ns[0], kind="stable")
    event, thread, level = (column[order] for column in spans)
    return HostSpans(event, trace.name[event].astype(np.int64), thread, level, times_ns[0][order], times_ns[1][order])


def _find_pieces(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """Return start, end and event of each part of an operator in which no other operator is open in it."""
    operators = np.flatnonzero(trace.is_one_of((OPERATOR,)) & (trace.end_ns > trace.start_ns))
    around = find_enclosures(operators, trace.lane, trace.start_ns, trace.end_ns)
    found = []
    for lane in np.unique(trace.lane[operators]).tolist():
        mine = operators[trace.lane[operators] == lane]
        cuts = find_cuts(trace.start_ns[mine], trace.end_ns[mine])
        innermost = around.around(np.full(len(cuts) - 1, lane, dtype=np.int32), cuts[:-1])
        begins = np.append(True, innermost[1:] != innermost[:-1])
        ends = np.append(begins[1:], True)
        found.append(np.stack((cuts[:-1][begins], cuts[1:][ends], innermost[begins])))
    starts_ns, ends_ns, events = np.concatenate([np.zeros((3, 0), dtype=np.int64), *found], axis=1)
    is_open = events != NOTHING
    return starts_ns[is_open], ends_ns[is_open], events[is_open]


def _find_levels(trace: Trace, ranges: Ints) -> Ints:
    """Return for each range how many others lie around it."""
    around = find_enclosures(ranges, trace.lane, trace.start_ns, trace.end_ns)
    levels = np.zeros(len(ranges), dtype=np.int64)
    for place, above in enumerate(around.above.tolist()):
        levels[place] = 0 if above == NOTHING else levels[above] + 1
    level_of = dict(zip(around.events.tolist(), levels.tolist(), strict=True))
    return np.array([level_of[event] for event in ranges.tolist()], dtype=np.int64)


def _find_collective_calls(trace: Trace, nesting: Nesting, device: Ints, collectives: Sequence[Collective]) -> Ints:
    """Find the call of each collective by lane and start of what ran on the device."""
    keys = [(one.lane, int(one.span.starts_ns[0])) if len(one.span.starts_ns) else None for one in collectives]
    starts_ns = np.array([key[1] for key in keys if key], dtype=np.int64)
    events = device[np.isin(trace.start_ns[device], starts_ns)]
    lanes = ["/".join(lane) for lane in trace.lanes]
    places = zip(trace.lane[events].tolist(), trace.start_ns[events].tolist(), strict=True)
    calls = {
        (lanes[lane], start_ns): call
        for (lane, start_ns), call in zip(places, nesting.calls(events).tolist(), strict=True)
    }
    return np.array([calls.get(key, NOTHING) if key else NOTHING for key in keys], dtype=np.int64)


def _overlaps(spans: HostSpans, start_ns: int, end_ns: int) -> Bools:
    return np.asarray((spans.start_ns < end_ns) & (spans.end_ns > start_ns))


def thin_hosts(views: Sequence[HostView], most_spans: int) -> tuple[list[Host], tuple[Note, ...]]:
    """Choose what is drawn of the hosts of a job, so that it is at most so many spans.

    First come launches, those of the longest work; then the longest of everything else.

    Args:
        views: of each rank whose trace holds something of its host.
        most_spans: over all ranks.

    Returns:
        Each rank's host, and what is said of what is not drawn.
    """
    cut = [one.cut() for one in views]
    launched, launch_notes = _thin_launches(cut, most_spans)
    drawn, host_notes = _thin_rest(launched, most_spans)
    unlinked = join_ranks(LaunchesNotLinked((one.rank,)) for one in cut if not one.fits)
    return [one.host for one in drawn], (*unlinked, *launch_notes, *host_notes)


def _thin_launches(views: Sequence[HostView], most_spans: int) -> tuple[list[HostView], tuple[Note, ...]]:
    weights = [view.weights_ns for view in views]
    every = np.concatenate([np.array([], dtype=np.int64), *weights])
    every = every[every >= 0]
    least_ns = _find_least(every, most_spans)
    kept = [
        replace(view, host=replace(view.host, calls=view.host.calls.keep((weight < 0) | (weight > least_ns))))
        for view, weight in zip(views, weights, strict=True)
    ]
    lost = int(np.count_nonzero(every <= least_ns))
    return kept, (LaunchesNotDrawn(lost, len(every), least_ns),) if lost else ()


def _thin_rest(views: Sequence[HostView], most_spans: int) -> tuple[list[HostView], tuple[Note, ...]]:
    are_launches = [view.weights_ns >= 0 for view in views]
    room = max(0, most_spans - sum(int(np.count_nonzero(one)) for one in are_launches))
    lengths = [
        np.concatenate((one.host.ranges.length_ns, one.host.operators.length_ns, one.host.calls.length_ns[~launches]))
        for one, launches in zip(views, are_launches, strict=True)
    ]
    every = np.concatenate([np.array([], dtype=np.int64), *lengths])
    least_ns = _find_least(every, room)
    kept = [
        replace(
            one,
            host=replace(
                one.host,
                ranges=one.host.ranges.keep(one.host.ranges.length_ns > least_ns),
                operators=one.host.operators.keep(one.host.operators.length_ns > least_ns),
                calls=one.host.calls.keep(launches | (one.host.calls.length_ns > least_ns)),
            ),
        )
        for one, launches in zip(views, are_launches, strict=True)
    ]
    lost = int(np.count_nonzero(every <= least_ns))
    return kept, (HostShortestNotDrawn(lost, len(every), least_ns),) if lost else ()


def _find_least(lengths_ns: Ints, most: int) -> int:
    """Return the length from which on spans are drawn, itself excluded, so that at most so many are; -1: all are."""
    if len(lengths_ns) <= most:
        return -1
    return int(np.partition(lengths_ns, len(lengths_ns) - most - 1)[len(lengths_ns) - most - 1])

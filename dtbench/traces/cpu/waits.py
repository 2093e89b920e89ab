"""Who stood still for which collective in a CPU trace.

A wait is a range or operator of a thread that runs the model: ``dtbench::wait`` (it names its collective),
``_c10d_functional::wait_tensor``, and three waits that are no event: DDP's in C++ at the end of backward and for the
buffers that it broadcasts, and in traces without our ranges those inside a synchronous call. See each function for its
rule.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dtbench.base.ranges import STEP_PREFIX, parse_wait_range
from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.traces.account.waits import Wait
from dtbench.traces.host.backwards import engine_nodes, find_further_backwards
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.operators import ENGINE, is_wait_tensor
from dtbench.traces.time.intervals import Ints, unite
from dtbench.traces.trace import Details, Trace
from dtbench.traces.who.buckets import find_forward_starts, is_reducers
from dtbench.traces.who.collectives import Collective, find_regions
from dtbench.traces.who.owners import BUFFERS
from dtbench.traces.who.payload import count_elements, item_bytes, span_bytes
from dtbench.traces.who.purposes import ACCUMULATES, is_functional
from dtbench.traces.who.strategy import Strategy, find_strategies

_FSDP2_WAITS: Final = ("FSDP::all_gather", "FSDP::post_backward_reduce")
_OPEN: Final = 64
"""Functional collectives that may be outstanding at a time: one that nobody waits for is forgotten after so many."""


def find_cpu_waits(trace: Trace, nesting: Nesting, collectives: Sequence[Collective]) -> tuple[Wait, ...]:
    """Find every wait of a CPU trace; one whose collective had ended already has no length.

    Of a collective that was not seen to run only its consumer's own range tells how long it waited.
    """
    labelled = list(_labelled_waits(trace, collectives))
    told = {wait.collective for wait in labelled}
    others = [index for index, one in enumerate(collectives) if index not in told and len(one.span.starts_ns)]
    return (
        *labelled,
        *_functional_waits(trace, collectives),
        *_reducer_waits(trace, nesting, collectives, others),
        *_buffer_waits(collectives, others),
        *_blocking_waits(trace, collectives, others),
    )


def tell_waits(collectives: Sequence[Collective], waits: Iterable[Wait]) -> tuple[Collective, ...]:
    """Fill in when each collective's consumers stood still for it, and when the first began to and went on."""
    of_each: dict[int, list[Wait]] = {}
    for wait in waits:
        if wait.collective is not None:
            of_each.setdefault(wait.collective, []).append(wait)
    return tuple(_tell_waits(one, of_each[index]) if index in of_each else one for index, one in enumerate(collectives))


def _tell_waits(one: Collective, waits: Sequence[Wait]) -> Collective:
    first = min(waits, key=lambda wait: wait.start_ns)
    return replace(
        one,
        first_wait_ns=first.start_ns,
        first_wait_end_ns=first.end_ns,
        waited=unite([wait.start_ns for wait in waits], [wait.end_ns for wait in waits]),
        is_wait_seen=True,
    )


def _labelled_waits(trace: Trace, collectives: Sequence[Collective]) -> Iterator[Wait]:
    """``dtbench::wait``: it names its collective; ``other`` if that was issued before the trace."""
    known = {(one.group, one.seq): index for index, one in enumerate(collectives) if one.seq is not None}
    labels = {i: label for i, name in enumerate(trace.names) if (label := parse_wait_range(name)) is not None}
    for event in np.flatnonzero(np.isin(trace.name, list(labels))).tolist():
        label = labels[int(trace.name[event])]
        index = known.get((label.group, label.seq))
        purpose = Purpose.OTHER if index is None else collectives[index].purpose
        yield Wait(purpose, int(trace.start_ns[event]), int(trace.end_ns[event]), index)


def _functional_waits(trace: Trace, collectives: Sequence[Collective]) -> Iterator[Wait]:
    """``_c10d_functional::wait_tensor``: for the oldest functional collective with that output.

    The wait does not say what it waits for, but the size of what it gives. It is for the latest where some outputs are
    not known, and for none where all are and none is so large: a view of what was waited for before, used again. Such
    a wait has the purpose of the latest before it. One for several tensors (``wait_tensors``) is one for each of them.
    """
    issued = [
        (one.issue_ns, index)
        for index, one in enumerate(collectives)
        if one.issue_ns is not None and any(is_functional(name) for name in one.above)
    ]
    events = np.flatnonzero(trace.is_named(is_wait_tensor))
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    open_: list[int] = []
    latest: int | None = None
    place = 0
    for event in events.tolist():
        start_ns = int(trace.start_ns[event])
        while place < len(issued) and issued[place][0] <= start_ns:
            latest = issued[place][1]
            open_.append(latest)
            place += 1
        for awaited in _find_awaited(trace.details.get(event)):
            index = _pick_output(collectives, open_, awaited, latest)
            open_ = [one for one in open_[-_OPEN:] if one != index]
            like = latest if index is None else index
            purpose = Purpose.OTHER if like is None else collectives[like].purpose
            yield Wait(purpose, start_ns, int(trace.end_ns[event]), index)


@dataclass(frozen=True)
class _Awaited:
    """How large a tensor is that is waited for: in bytes, or, where a list does not say the dtype, in elements."""

    size_bytes: int | None = None
    elements: int | None = None

    def size_of(self, collective: Collective) -> int | None:
        """Return what the collective puts out on one rank, counted likewise; None: not known."""
        output_bytes = _output_bytes(collective)
        if self.elements is None or output_bytes is None:
            return output_bytes
        size = item_bytes(collective.dtype)
        return None if size is None else output_bytes // size


def _find_awaited(details: Details | None) -> tuple[_Awaited, ...]:
    """Return the tensors that a wait is for; at least one, since it waits."""
    shapes = details.shapes[0] if details is not None and len(details.shapes) == 1 else None
    if isinstance(shapes, list) and shapes and all(isinstance(shape, list) for shape in shapes):
        return tuple(_Awaited(elements=count_elements(shape)) for shape in shapes)
    return (_Awaited(span_bytes(details)),)


def _pick_output(
    collectives: Sequence[Collective], waited_for: Sequence[int], awaited: _Awaited, latest: int | None
) -> int | None:
    size = awaited.size_bytes if awaited.elements is None else awaited.elements
    if size is None:
        return latest
    outputs = [awaited.size_of(collectives[index]) for index in waited_for]
    fitting = next((index for index, output in zip(waited_for, outputs, strict=True) if output == size), None)
    return latest if fitting is None and None in outputs else fitting


def _output_bytes(collective: Collective) -> int | None:
    """Return the bytes of what a collective puts out on one rank; None where that depends on an unknown group size."""
    if collective.operation is not Operation.REDUCE_SCATTER or collective.size_bytes is None:
        return collective.size_bytes
    return collective.size_bytes // collective.group_size if collective.group_size else None


def _reducer_waits(
    trace: Trace, nesting: Nesting, collectives: Sequence[Collective], others: Sequence[int]
) -> Iterator[Wait]:
    """DDP's final wait, which C++ makes without an event.

    ::

        engine       ██ ██ ██ |                |          |
        bucket 0       ├─────────────┤         |
        bucket 1            ├──────────────────┤
        copies                |      ░░        |░░          compute, subtracted by the caller
        wait                  |██████  ████████|

    From the end of the engine's last node in a backward, while an all-reduce that DDP's reducer issued in it is
    outstanding, until it ends or the region does. Where DDP left no ranges there is none: what reduces gradients
    otherwise is waited for by its own code. In anyone's trace it is one that a hook of gradients issued.
    """
    is_ddp = Strategy.DDP in find_strategies(trace)
    buckets = [
        (issue_ns, index)
        for index in others
        if collectives[index].purpose is Purpose.GRAD_REDUCE
        and (issue_ns := collectives[index].issue_ns) is not None
        and _is_waited_for(collectives[index], is_ddp=is_ddp)
    ]
    issued_at = np.array([issue_ns for issue_ns, _ in buckets], dtype=np.int64)
    for start_ns, node_end_ns, end_ns in find_backwards(trace, nesting):
        for _, index in buckets[np.searchsorted(issued_at, start_ns) : np.searchsorted(issued_at, end_ns)]:
            last_ns = max(node_end_ns, min(collectives[index].end_ns, end_ns))
            yield Wait(Purpose.GRAD_REDUCE, node_end_ns, last_ns, index)


def _buffer_waits(collectives: Sequence[Collective], others: Sequence[int]) -> Iterator[Wait]:
    """DDP's wait for the buffers that it broadcasts, inside the call in C++ that issues them: until each has ended."""
    for index in others:
        one = collectives[index]
        if one.owner == BUFFERS and one.issue_end_ns is not None:
            yield Wait(one.purpose, one.issue_end_ns, max(one.issue_end_ns, one.end_ns), index)


def _is_waited_for(one: Collective, *, is_ddp: bool) -> bool:
    """Tell whether DDP waits for it after the engine's last node."""
    if not (is_ddp and is_reducers(one)):
        return False
    return one.seq is not None or any(ACCUMULATES.match(name) for name in one.above)


def find_backwards(trace: Trace, nesting: Nesting) -> Iterator[tuple[int, int, int]]:
    """Yield start, end of the engine's last node, and end of every backward.

    Where the trace has no region ranges, a backward ends where a step, a forward of DDP or another backward starts (the
    last with the trace): DDP waits for all its buckets before anything else computes, so that time after them is never
    counted.
    """
    nodes = np.flatnonzero(trace.is_named(lambda name: name.startswith(ENGINE)))
    if not len(nodes):
        return
    nodes = nodes[np.argsort(trace.start_ns[nodes], kind="stable")]
    starts_ns, ends_ns = trace.start_ns[nodes], trace.end_ns[nodes]
    regions = find_regions(trace)
    borders = (
        [
            (start, end)
            for region, start, end in zip(
                regions.regions, regions.starts_ns.tolist(), regions.ends_ns.tolist(), strict=True
            )
            if region is Region.BACKWARD
        ]
        if regions.regions
        else _engine_extents(trace, nesting, starts_ns)
    )
    for start, end in borders:
        inside = ends_ns[np.searchsorted(starts_ns, start) : np.searchsorted(starts_ns, end)]
        if len(inside):
            yield start, int(inside.max()), end


def _engine_extents(trace: Trace, nesting: Nesting, starts_ns: Ints) -> list[tuple[int, int]]:
    """Split the engine's nodes where a training step, a forward of DDP, or another backward starts."""
    first_ns, last_ns = int(starts_ns[0]), int(trace.end_ns.max())
    is_step = trace.is_named(lambda name: name.startswith(STEP_PREFIX))
    nodes = engine_nodes(trace, handing_over=True)
    further = nodes.starts_ns[find_further_backwards(trace, nesting, nodes)]
    starts = np.unique(np.concatenate((trace.start_ns[is_step], find_forward_starts(trace), further)))
    borders = starts[starts > first_ns].tolist()
    return list(zip([first_ns, *borders], [*borders, last_ns], strict=True))


def _blocking_waits(trace: Trace, collectives: Sequence[Collective], others: Sequence[int]) -> Iterator[Wait]:
    """Waits inside the call that issued, in traces without our ranges: from the return of the operator to the end.

    They are seen where the operator says that it was issued synchronously. FSDP2 waits so inside ``FSDP::all_gather``
    and ``FSDP::post_backward_reduce`` as well: where nothing is said, its ranges end the wait, so that an asynchronous
    issue, which returns from them at once, gives next to nothing.
    """
    ranges = _Ranges(trace)
    for index in others:
        one = collectives[index]
        start_ns = one.issue_end_ns
        if one.seq is not None or one.issue_ns is None or start_ns is None or one.is_async is True:
            continue
        unit = next((name for name in one.above if name.startswith(_FSDP2_WAITS)), None)
        if one.is_async is False:
            went_on_ns = one.end_ns if one.has_ended else _find_next_moment(trace, one, start_ns)
            yield Wait(one.purpose, start_ns, max(start_ns, min(one.end_ns, went_on_ns)), index)
        elif unit is not None:
            end_ns = min(one.end_ns, ranges.end_ns(unit, one.issue_ns))
            yield Wait(one.purpose, start_ns, max(start_ns, end_ns), index)


def _find_next_moment(trace: Trace, one: Collective, returned_ns: int) -> int:
    """Return when the thread that issued next began or ended anything after that call; the span's end: it did not."""
    issuing = (trace.start_ns == one.issue_ns) & (trace.end_ns == returned_ns)
    mine = np.isin(trace.lane, trace.lane[issuing])
    moments_ns = np.concatenate((trace.start_ns[mine], trace.end_ns[mine]))
    return int(moments_ns[moments_ns > returned_ns].min(initial=one.end_ns))


class _Ranges:
    """Where the ranges of a name end, looked up once for each name."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._numbers = {name: number for number, name in enumerate(trace.names)}
        self._found: dict[str, tuple[Ints, Ints]] = {}

    def end_ns(self, name: str, time_ns: int) -> int:
        """Return the end of the last of these ranges to begin before a time."""
        trace = self._trace
        if name not in self._found:
            events = np.flatnonzero(trace.name == self._numbers[name])
            events = events[np.argsort(trace.start_ns[events], kind="stable")]
            self._found[name] = trace.start_ns[events], trace.end_ns[events]
        starts_ns, ends_ns = self._found[name]
        return int(ends_ns[np.searchsorted(starts_ns, time_ns, side="right") - 1])

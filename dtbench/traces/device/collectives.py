"""The collectives of a device trace: what each kernel or copy says, who issued it, when the main lane waited for it.

What one collective operator launched is one collective: its copies, and its kernels on one lane. So is a kernel that
only opens what its library's next kernel on the lane carries out. Every other communication kernel is one by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from dtbench.base.ranges import COLLECTIVE_PREFIX, STEP_PREFIX, parse_collective_range
from dtbench.base.vocabulary import Axis, Operation, Region
from dtbench.traces.device.launched import Launched
from dtbench.traces.device.main_lane import MainLane, find_closed_gaps, is_wait_seen
from dtbench.traces.device.synchronised import Ends, LateGaps, find_host_waits, find_silent
from dtbench.traces.host.correlate import Attribution, attribute
from dtbench.traces.host.frames import find_frames
from dtbench.traces.host.modules import find_modules_of_experts
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, KERNEL
from dtbench.traces.kinds.kernels import KERNELS, KernelTable, find_algorithm, is_transfer
from dtbench.traces.kinds.operators import find_operation, is_issue
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite
from dtbench.traces.trace import Details, Trace
from dtbench.traces.who.collectives import Collective, find_axis, find_regions, is_captured
from dtbench.traces.who.exchanges import shows_stages
from dtbench.traces.who.functional import FunctionalIssue, find_functional
from dtbench.traces.who.owners import find_askers, find_owner, find_region
from dtbench.traces.who.payload import check_gradients, largest_argument_bytes, metadata_bytes
from dtbench.traces.who.purposes import (
    Functional,
    check_experts,
    find_data_parallel,
    find_purpose,
    is_data_parallels,
    is_functional,
    is_of_training,
)


def find_device_collectives(
    trace: Trace,
    launched: Launched,
    comm: Bools,
    *,
    lane: MainLane,
    process_groups: Mapping[str, Axis | None],
    kernels: KernelTable = KERNELS,
) -> tuple[Collective, ...]:
    """Find the collectives of a device trace, in order of start.

    Args:
        trace: the events.
        launched: when its events were launched, and by which call, as far as it says.
        comm: shape ``(n,)``, the device events that are communication.
        lane: whose gaps are waits.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        kernels: what kernels are, by name.
    """
    nesting = launched.nesting
    pieces = _find_pieces(trace, nesting, np.flatnonzero(comm), kernels)
    asked = attribute(trace, nesting, pieces.chain[:, 0])
    describer = _Describer(trace, pieces, asked, process_groups, kernels)
    describer.tell_functional(nesting)
    waits = _find_waits(trace, lane, pieces)
    is_on_main = (pieces.has_span & (trace.lane[pieces.event] == lane.lane) & ~_may_be_captured(trace, pieces)).tolist()
    is_seen = (pieces.has_span & is_wait_seen(lane, pieces.ends_ns) & ~_may_hide_waits(trace, lane, pieces)).tolist()
    found = (
        describer.describe(index, event, waits.get(index, (None, None)), is_on_main=is_on_main[index])
        for index, event in enumerate(pieces.event.tolist())
    )
    between_ns = np.stack((launched.earliest_ns[pieces.event], launched.latest_ns[pieces.event]), axis=1).tolist()
    return tuple(
        replace(
            one,
            is_wait_seen=seen or one.first_wait_ns is not None,
            issue_between_ns=(first_ns, last_ns) if one.issue_ns is None else None,
        )
        for one, seen, (first_ns, last_ns) in zip(found, is_seen, between_ns, strict=True)
    )


def _may_be_captured(trace: Trace, pieces: "_Pieces") -> Bools:
    """Tell of each collective whether it may be a CUDA graph's, whose launch is lost: all its kernels have one id."""
    ids = trace.correlation.values_at(pieces.event, 0)
    of_device = trace.correlation.values[trace.is_one_of(DEVICE_CATEGORIES)[trace.correlation.events]]
    several, times = np.unique(of_device, return_counts=True)
    return np.asarray((pieces.issue == NOTHING) & ((ids == 0) | np.isin(ids, several[times > 1])), dtype=np.bool_)


def _find_waits(trace: Trace, lane: MainLane, pieces: "_Pieces") -> dict[int, tuple[int, int]]:
    """Return from when until when the main lane waited for a collective, itself or through the host."""
    has_span, ends = _read_ends(trace, pieces)
    through_host = find_host_waits(trace, LateGaps(lane.busy_until_ns, lane.calls), ends)
    waits: dict[int, tuple[int, int]] = {}
    for found in (through_host, find_closed_gaps(lane, ends.ends_ns)):
        closers = has_span[found.closer].tolist()
        borders = zip(found.starts_ns.tolist(), found.ends_ns.tolist(), strict=True)
        waits.update(zip(closers, borders, strict=True))
    return waits


def _may_hide_waits(trace: Trace, lane: MainLane, pieces: "_Pieces") -> Bools:
    """Tell of each collective whether the main lane may have waited for it through a host that shows nothing."""
    has_span, ends = _read_ends(trace, pieces)
    silent = find_silent(trace, LateGaps(lane.busy_until_ns, lane.calls), lane.launches_ns, ends)
    return np.isin(np.arange(len(pieces.has_span)), has_span[silent.closer])


def _read_ends(trace: Trace, pieces: "_Pieces") -> tuple[Ints, Ends]:
    """Return which collectives have a span, and the ends and issues of those."""
    has_span = np.flatnonzero(pieces.has_span)
    launched_ns = np.where(pieces.issue == NOTHING, np.iinfo(np.int64).max, trace.start_ns[pieces.issue])
    return has_span, Ends(pieces.ends_ns[has_span], launched_ns[has_span])


@dataclass(frozen=True)
class _Pieces:
    """What runs on the device, by collective, in order of start.

    Attributes:
        event: shape ``(c,)``, first event of each collective in the file.
        chain: shape ``(c, depth)``, its call and what lies around that, outwards; ``NOTHING`` fills up.
        issue: shape ``(c,)``, outermost operator of the collective, else the call; ``NOTHING``: not in the trace.
        spans: when it ran.
        ends_ns: shape ``(c,)``, last end; of an empty span its issue, or 0.
        has_span: shape ``(c,)``.
    """

    event: Ints
    chain: Ints
    issue: Ints
    spans: tuple[Intervals, ...]
    ends_ns: Ints
    has_span: Bools


def _find_pieces(trace: Trace, nesting: Nesting, events: Ints, kernels: KernelTable) -> _Pieces:
    chain = _climb(nesting, nesting.calls(events))
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)
    operators = np.full(len(events), NOTHING, dtype=np.int64)
    innermost = operators.copy()
    for level in chain.T:
        is_operator = (level != NOTHING) & issues[trace.name[level]]
        operators = np.where(is_operator, level, operators)
        innermost = np.where(is_operator & (innermost == NOTHING), level, innermost)
    is_kernel = (trace.is_one_of((KERNEL,)) & ~trace.is_named(is_transfer))[events]
    together = np.where(is_kernel | (operators == NOTHING), events, operators)
    together[is_kernel] = _join_kernels(trace, events[is_kernel], innermost[is_kernel], chain[is_kernel], kernels)
    _, first, collective = np.unique(together, return_index=True, return_inverse=True)
    issue = np.where(operators[first] == NOTHING, chain[first, 0], operators[first])

    starts_ns, ends_ns = trace.start_ns[events], trace.end_ns[events]
    full = ends_ns > starts_ns
    has_span = np.bincount(collective[full], minlength=len(first)) > 0
    issued_ns = np.where(issue == NOTHING, 0, trace.start_ns[issue])
    begin_ns = np.where(has_span, np.iinfo(np.int64).max, issued_ns)
    end_ns = np.where(has_span, np.iinfo(np.int64).min, issued_ns)
    np.minimum.at(begin_ns, collective[full], starts_ns[full])
    np.maximum.at(end_ns, collective[full], ends_ns[full])
    order = np.lexsort((first, end_ns, begin_ns))

    by_collective = np.argsort(collective, kind="stable")
    borders = np.searchsorted(collective[by_collective], np.arange(len(first) + 1)).tolist()
    starts_ns, ends_ns = starts_ns[by_collective], ends_ns[by_collective]
    return _Pieces(
        event=events[first][order],
        chain=chain[first][order],
        issue=issue[order],
        spans=tuple(_span(starts_ns[borders[i] : borders[i + 1]], ends_ns[borders[i] : borders[i + 1]])
                    for i in order.tolist()),
        ends_ns=end_ns[order],
        has_span=has_span[order],
    )  # fmt: skip


def _join_kernels(trace: Trace, events: Ints, operators: Ints, chain: Ints, kernels: KernelTable) -> Ints:
    """Return for each kernel the first of those that carry out its collective with it, shape ``(k,)``.

    Args:
        trace: the events.
        events: shape ``(k,)``, kernels.
        operators: shape ``(k,)``, the innermost collective operator that launched each; ``NOTHING``: none did.
        chain: shape ``(k, depth)``, as in ``_Pieces``.
        kernels: what kernels are, by name.
    """
    joined = events.copy()
    rules = {name: kernels.find_rule(trace.names[name]) for name in np.unique(trace.name[events]).tolist()}
    around = chain[:, 1] if chain.shape[1] > 1 else np.full(len(events), NOTHING, dtype=np.int64)
    of_operator: dict[tuple[int, int, str | None, int | None], int] = {}
    opening: dict[int, int] = {}  # by lane, the place of the last kernel, where that only opens a collective
    for place in np.lexsort((events, trace.start_ns[events])).tolist():
        event, lane = int(events[place]), int(trace.lane[events[place]])
        rule, opener = rules[int(trace.name[event])], opening.pop(lane, None)
        if operators[place] != NOTHING:
            said = trace.details.get(event, _NOTHING_SAID)
            key = (int(operators[place]), lane, said.collective, said.seq)
            joined[place] = of_operator.setdefault(key, event)
        elif opener is not None and rule is not None and around[opener] == around[place]:
            opens = rules[int(trace.name[events[opener]])]
            if opens is not None and opens.family == rule.family and not rule.is_opening:
                joined[place] = joined[opener]
        if rule is not None and rule.is_opening:
            opening[lane] = place
    return joined


def _span(starts_ns: Ints, ends_ns: Ints) -> Intervals:
    if len(starts_ns) == 1 and ends_ns[0] > starts_ns[0]:
        return Intervals(starts_ns, ends_ns)
    return unite(starts_ns, ends_ns)


def _climb(nesting: Nesting, calls: Ints) -> Ints:
    """Return the calls and, column by column, what lies around them."""
    levels = [calls]
    while np.any(levels[-1] != NOTHING):
        below = levels[-1]
        above = nesting.parent[below]
        levels.append(np.where((below == NOTHING) | (above == below), NOTHING, above).astype(np.int64))
    return np.stack(levels, axis=1)


@dataclass(frozen=True)
class _Context:
    """What the names around an issue say; the last seven only where dtbench's worker made a range.

    Attributes:
        above: the names, innermost first, without the step's.
        operation: by the range, else by the innermost that says one.
    """

    above: tuple[str, ...]
    operation: Operation | None
    group: str = ""
    seq: int | None = None
    axis: Axis | None = None
    is_async: bool | None = None
    owner: str = ""
    caller: str = ""
    size_bytes: int | None = None


def _read_context(above: tuple[str, ...]) -> _Context:
    issues = [name for name in above if is_issue(name)]
    operators = (name for name in issues if not name.startswith(COLLECTIVE_PREFIX))
    operation = next((found for name in operators if (found := find_operation(name)) is not None), None)
    label = next((parsed for name in issues if (parsed := parse_collective_range(name)) is not None), None)
    if label is None:
        return _Context(above, operation)
    return _Context(
        above,
        label.operation or operation,
        group=label.group,
        seq=label.seq,
        axis=label.axis,
        is_async=label.is_async,
        owner=label.owner,
        caller=label.caller,
        size_bytes=label.size_bytes,
    )


def _read_contexts(trace: Trace, chain: Ints) -> list[_Context]:
    """Return the context of each row of a chain; equal rows share one, and without the step's name most are equal."""
    is_step = np.array([name.startswith(STEP_PREFIX) for name in trace.names], dtype=np.bool_)
    names = np.where(chain == NOTHING, NOTHING, trace.name[chain])
    names[is_step[names]] = NOTHING
    known: dict[bytes, _Context] = {}
    found = []
    for row in names:
        key = row.tobytes()
        if key not in known:
            known[key] = _read_context(tuple(trace.names[name] for name in row.tolist() if name != NOTHING))
        found.append(known[key])
    return found


_NOTHING_SAID: Final = Details(None, None, None, None, None, None, None, None, (), ())


class _Describer:
    """Puts together what is known about each collective; remembers what is the same for many."""

    def __init__(
        self,
        trace: Trace,
        pieces: _Pieces,
        asked: Attribution,
        process_groups: Mapping[str, Axis | None],
        kernels: KernelTable,
    ) -> None:
        self._trace = trace
        self._pieces = pieces
        self._contexts = [
            replace(context, above=(*context.above, *frames)) if frames else context
            for context, frames in zip(
                _read_contexts(trace, pieces.chain), find_frames(trace, pieces.issue), strict=True
            )
        ]
        self._askers = find_askers(trace, asked)
        self._of_experts = find_modules_of_experts(trace)
        lanes = ["/".join(lane) for lane in trace.lanes]
        self._lanes = [lanes[lane] for lane in trace.lane[pieces.event].tolist()]
        self._issues = _read_times(trace, pieces.issue)
        self._regions = self._find_regions(asked)
        self._axis_of = cache(lambda group, description: find_axis(group, description, process_groups))
        self._metadata_operation = cache(find_operation)
        self._operation_of = cache(kernels.operation_of)
        self._purpose_of = cache(find_purpose)
        self._shown = find_data_parallel(
            {(context.operation, context.above) for context in self._contexts},
            is_labelled=any(context.seq is not None for context in self._contexts),
        )
        self._shown = replace(self._shown, has_stages=shows_stages(trace, self._list_issues()))
        self._functional: Mapping[str, Functional] = {}
        self._owner_of = cache(find_owner)

    def _list_issues(self) -> Iterator[tuple[int, Operation | None, Sequence[str]]]:
        """Yield event, operation and names around the issue of each; of those whose launch is not there, the kernel."""
        for index, event in enumerate(self._pieces.event.tolist()):
            context, issue = self._contexts[index], int(self._pieces.issue[index])
            operation = self._find_operation(self._find_said(self._read_all(index, event)), context, event)
            yield event if issue == NOTHING else issue, operation, context.above

    def _find_regions(self, asked: Attribution) -> list[Region | None]:
        """Return the region of each: by dtbench's ranges, else, in a trace without any, by the names around."""
        regions = find_regions(self._trace)
        if regions.regions:
            return [None if issued_ns is None else regions.at(issued_ns) for issued_ns, _ in self._issues]
        region_of = cache(find_region)
        return [
            region_of(context.above, in_module=bool(module))
            for context, module in zip(self._contexts, asked.modules, strict=True)
        ]

    def describe(self, index: int, event: int, wait: tuple[int | None, int | None], *, is_on_main: bool) -> Collective:
        """Describe one collective by its index in order of start.

        Args:
            index: in ``_Pieces``.
            event: its first event.
            wait: start and end of the gap of the main lane that its end closes; None: it closes none.
            is_on_main: it runs on the main lane, which waits for as long as that takes.
        """
        trace, context = self._trace, self._contexts[index]
        everything = self._read_all(index, event)
        said = self._find_said(everything)
        operation = self._find_operation(said, context, event)
        group = said.group or context.group
        axis = self._axis_of(group, said.group_description or trace.group_descriptions.get(group)) or context.axis
        region = self._regions[index]
        around = (trace.name_of(event), *context.above)
        functional = self._functional.get(group, Functional.UNKNOWN)
        purpose = check_gradients(
            self._purpose_of(axis, operation, region, around, self._shown, functional), said.dtype
        )
        is_of_experts = self._askers[index].module in self._of_experts
        purpose = check_experts(purpose, operation, region, is_of_experts=is_of_experts)
        peer = _find_peer(said, operation)
        span = self._pieces.spans[index]
        answers = (said.is_async, context.is_async, *(one.is_async for one in everything))
        is_async = next((answer for answer in answers if answer is not None), None)
        if is_on_main and not is_captured(context.above):  # a graph's kernels are said to be where it was launched
            wait = int(span.starts_ns[0]), int(span.ends_ns[-1])
            is_async = False if is_async is None else is_async
        return Collective(
            group=group,
            axis=axis,
            seq=said.seq if context.seq is None else context.seq,
            comms_id=next((one.comms_id for one in everything if one.comms_id is not None), None),
            operation=operation,
            purpose=purpose,
            owner=context.owner or self._owner_of(purpose, context.above, self._askers[index], operation),
            size_bytes=_find_bytes(context, said, operation, everything),
            issue_ns=self._issues[index][0],
            issue_end_ns=self._issues[index][1],
            span=span,
            above=context.above,
            caller=context.caller,
            lane=self._lanes[index],
            region=region,
            group_size=said.group_size,
            group_ranks=said.ranks or trace.group_ranks.get(group, ()),
            dtype=said.dtype,
            algorithm=find_algorithm(trace.name_of(event)),
            peer=peer,
            root=next((one.root for one in everything if one.root is not None), None),
            is_async=is_async,
            first_wait_ns=wait[0],
            first_wait_end_ns=wait[1],
        )

    def tell_functional(self, nesting: Nesting) -> None:
        """Find out what functional collectives carry, before any is described."""
        issues, data_groups = [], set()
        for index, event in enumerate(self._pieces.event.tolist()):
            context, issue = self._contexts[index], int(self._pieces.issue[index])
            if is_data_parallels(context.operation, context.above):
                data_groups.add(self._find_said(self._read_all(index, event)).group or context.group)
            is_one = issue != NOTHING and any(is_functional(name) for name in context.above)
            if not is_one or not is_of_training(context.above, self._regions[index]):
                continue
            everything = self._read_all(index, event)
            said = self._find_said(everything)
            operation = self._find_operation(said, context, event)
            size_bytes = _find_bytes(context, said, operation, everything)
            issues.append(FunctionalIssue(issue, operation, said.group or context.group, size_bytes))
        self._functional = find_functional(self._trace, nesting, issues, data_groups)

    @staticmethod
    def _find_said(everything: Sequence[Details]) -> Details:
        """Return the innermost that speaks of a collective."""
        return next((one for one in everything if one.group is not None or one.collective is not None), _NOTHING_SAID)

    def _read_all(self, index: int, event: int) -> list[Details]:
        details, around = self._trace.details, self._pieces.chain[index].tolist()
        return [details[one] for one in (event, *around) if one in details]

    def _find_operation(self, said: Details, context: _Context, event: int) -> Operation | None:
        if context.seq is not None and context.operation is not None:
            return context.operation  # NCCL names a barrier an all-reduce
        by_metadata = self._metadata_operation(said.collective) if said.collective else None
        return by_metadata or context.operation or self._operation_of(self._trace.name_of(event))


def _read_times(trace: Trace, events: Ints) -> list[tuple[int, int] | tuple[None, None]]:
    """Return start and end of some events; of ``NOTHING`` neither."""
    rows = zip(events.tolist(), trace.start_ns[events].tolist(), trace.end_ns[events].tolist(), strict=True)
    return [(None, None) if event == NOTHING else (start_ns, end_ns) for event, start_ns, end_ns in rows]


def _find_bytes(
    context: _Context, said: Details, operation: Operation | None, everything: Sequence[Details]
) -> int | None:
    size_bytes = metadata_bytes(said, operation) if context.size_bytes is None else context.size_bytes
    return largest_argument_bytes(everything) if size_bytes is None else size_bytes


def _find_peer(said: Details, operation: Operation | None) -> int | None:
    match operation:
        case Operation.SEND:
            return said.destination_rank
        case Operation.RECV:
            return said.source_rank
        case _:
            return None

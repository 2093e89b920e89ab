"""Collectives of a CPU trace: what is known about each, from its label, its issue, its span and what lies around it.

gloo's spans lie on its own threads and say operation and size, never group or sequence number; ``gloo_match.py`` ties
them to issues. In our own runs every issue lies in a range ``dtbench::collective`` that says everything else. In other
people's traces the issue is the outermost ``c10d::*`` operator; its group is inferred from gloo's threads where they
tell, and empty elsewhere.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dtbench.base.ranges import COLLECTIVE_PREFIX, STEP_PREFIX, parse_collective_range, parse_link_range
from dtbench.base.vocabulary import POINT_TO_POINT, ROOTED, Axis, Operation, Purpose, Region, axis_described
from dtbench.traces.cpu.gloo_bounds import bound_spans, said_async
from dtbench.traces.cpu.gloo_match import Form, Issue, Span, infer_groups, match_spans
from dtbench.traces.cpu.gloo_sizes import (
    divide_reduction,
    fill_parts,
    fill_unissued,
    find_bytes,
    find_group_size,
    share_group_sizes,
)
from dtbench.traces.host.correlate import Attribution, attribute
from dtbench.traces.host.frames import find_frames
from dtbench.traces.host.modules import find_modules_of_experts
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.operators import ENGINE, Role, cpu_role, find_operation
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Intervals, Ints, unite
from dtbench.traces.trace import Details, Trace
from dtbench.traces.who.collectives import Collective, Regions, find_regions
from dtbench.traces.who.exchanges import shows_stages
from dtbench.traces.who.functional import FunctionalIssue, find_functional
from dtbench.traces.who.owners import Asker, find_askers, find_function, find_owner, find_region
from dtbench.traces.who.payload import check_gradients, item_bytes, span_bytes, tensor_elements
from dtbench.traces.who.purposes import (
    DataParallel,
    Functional,
    check_experts,
    find_data_parallel,
    find_purpose,
    find_unit,
    is_data_parallels,
    is_fsdps,
    is_functional,
    is_of_training,
)

_LONGEST_NS: Final = 1 << 60
"""Longer than any trace: a larger number was not read rightly."""
_COMPILED: Final = "Torch-Compiled Region"
"""What torch.compile's ranges around a compiled graph begin with."""
_GRAPH: Final = "CompiledFunction"
"""What the operators begin with that run one; they say when, not who."""
_OWNED: Final = (Purpose.UNSHARD, Purpose.GRAD_REDUCE, Purpose.TENSOR)


def find_gloo_collectives(trace: Trace, nesting: Nesting) -> tuple[Collective, ...]:
    """Find the collectives of a CPU trace, in order of issue; spans that no issue takes come last, as ``other``."""
    issues = _find_issues(trace, nesting)
    spans = _find_spans(trace)
    events = [issue.event for issue in issues]
    asked = attribute(trace, nesting, np.array(events, dtype=np.int64))
    evidence = _Evidence(
        trace=trace,
        nesting=nesting,
        groups=infer_groups(spans) if all(issue.label is None for issue in issues) else {},
        regions=find_regions(trace),
        said=_find_recorded_comms(trace, nesting),
        askers=dict(zip(events, find_askers(trace, asked), strict=True)),
        compiled=_find_compiled(trace, nesting, asked),
        frames=dict(zip(events, find_frames(trace, np.array(events, dtype=np.int64)), strict=True)),
        addressed=_find_operators_inside(
            trace,
            nesting,
            {int(trace.name[one.event]) for one in issues if one.label and one.operation in (*POINT_TO_POINT, *ROOTED)},
        ),
        of_experts=find_modules_of_experts(trace),
    )
    issues = bound_spans(trace, nesting, issues, evidence.above)
    matching = match_spans(issues, spans)
    taken = {event for span in matching.spans.values() for event in span.events}
    matches = {**matching.spans, **_find_link_spans(trace, issues, matching.spans)}
    shown = find_data_parallel(
        ((issue.operation, evidence.above(issue.event)) for issue in issues),
        is_labelled=any(issue.label is not None for issue in issues),
    )
    sent = [(issue.event, issue.operation, evidence.above(issue.event)) for issue in issues]
    shown = replace(shown, has_stages=shows_stages(trace, sent))
    data_groups = {_said_group(one) for one in issues if is_data_parallels(one.operation, evidence.above(one.event))}
    carried = find_functional(trace, nesting, _find_functional_issues(evidence, issues, matches), data_groups)
    found = [
        _describe(evidence, issue, matches.get(issue.event), shown, carried.get(_said_group(issue), Functional.UNKNOWN))
        for issue in issues
    ]
    purposes = {issue.event: one.purpose for issue, one in zip(issues, found, strict=True)}
    found += [
        _describe_orphan(evidence, span, {purposes[event] for event in matching.untold.get(span.event, ())})
        for span in spans
        if span.event not in taken
    ]
    shared = share_group_sizes(found)
    return (*fill_parts(trace, issues, matches, shared), *fill_unissued(trace, shared[len(issues) :]))


def _find_functional_issues(
    evidence: "_Evidence", issues: Sequence[Issue], matches: Mapping[int, Span]
) -> Iterator[FunctionalIssue]:
    for issue in issues:
        above = evidence.above(issue.event)
        is_one = any(is_functional(name) for name in above)
        if is_one and is_of_training(above, evidence.region_of(issue, above)):
            size_bytes = find_bytes(issue, matches.get(issue.event))
            yield FunctionalIssue(issue.event, issue.operation, _said_group(issue), size_bytes)


def _said_group(issue: Issue) -> str:
    return issue.label.group if issue.label else ""


def model_lanes(trace: Trace) -> frozenset[int]:
    """Return the threads that run the model: all with a training step or the autograd engine on them.

    Where there is none, the one with most operators. gloo's threads run operators too (copies inside a reduce-scatter);
    they never count. Sends and receives lie on the thread that asked for them, which is none of gloo's.
    """
    marks = trace.is_named(lambda name: name.startswith((STEP_PREFIX, ENGINE)))
    lanes = set(trace.lane[marks].tolist())
    if lanes:
        return frozenset(lanes)
    gloo = set(trace.lane[trace.is_named(_runs_on_gloos_thread)].tolist())
    counts = Counter(trace.lane[trace.is_one_of(("cpu_op",))].tolist())
    return frozenset(lane for lane, _ in [item for item in counts.most_common() if item[0] not in gloo][:1])


def _runs_on_gloos_thread(name: str) -> bool:
    return cpu_role(name, "") is Role.COLLECTIVE and find_operation(name) not in POINT_TO_POINT


def _find_span_events(trace: Trace) -> Ints:
    return np.flatnonzero(trace.is_named(lambda name: cpu_role(name, "") is Role.COLLECTIVE))


def _find_spans(trace: Trace) -> list[Span]:
    spans = [
        Span(
            event=event,
            start_ns=int(trace.start_ns[event]),
            lane=int(trace.lane[event]),
            form=_form(find_operation(trace.name_of(event)), trace.details.get(event)),
            dtype=_first_dtype(trace.details.get(event)),
        )
        for event in _find_span_events(trace).tolist()
    ]
    return sorted(spans, key=lambda span: (span.start_ns, span.event))


def _find_link_spans(trace: Trace, issues: Sequence[Issue], by_gloo: Mapping[int, Span]) -> dict[int, Span]:
    """Return the span on the emulated link of each issue that it carried, by the issue's event.

    Consumers wait for the link, not for gloo, which has moved the data meanwhile: its spans are not counted beside.
    """
    labels = {
        i: label
        for i, name in enumerate(trace.names)
        if (label := parse_link_range(name)) is not None and label.begun_ns <= _LONGEST_NS
    }
    events = np.flatnonzero(np.isin(trace.name, list(labels))).tolist() if labels else []
    carried = {(labels[int(trace.name[e])].group, labels[int(trace.name[e])].seq): e for e in events}
    found = {}
    for issue in issues:
        event = carried.get((issue.label.group, issue.label.seq)) if issue.label else None
        if event is not None:
            moved = by_gloo.get(issue.event)
            found[issue.event] = Span(
                event=event,
                start_ns=int(trace.start_ns[event]),
                lane=int(trace.lane[event]),
                form=moved.form if moved else Form(issue.operation, None, None),
                dtype=moved.dtype if moved else None,
                begun_ns=labels[int(trace.name[event])].begun_ns,
                on_link=True,
            )
    return found


def _form(operation: Operation | None, details: Details | None) -> Form:
    elements = tensor_elements(details) if details else ()
    return Form(operation, sum(elements) if elements else None, span_bytes(details))


def _first_dtype(details: Details | None) -> str | None:
    return next((dtype for dtype in (details.dtypes if details else ()) if item_bytes(dtype) is not None), None)


def _find_issues(trace: Trace, nesting: Nesting) -> list[Issue]:
    """Find the issues, in order of start; of one in words of another version c10d's operator says the operation."""
    ranges = {
        i: parse_collective_range(name) for i, name in enumerate(trace.names) if name.startswith(COLLECTIVE_PREFIX)
    }
    chosen = frozenset(ranges) or frozenset(i for i, name in enumerate(trace.names) if name.startswith("c10d::"))
    unsaid = {
        i
        for i, label in ranges.items()
        if label is None
        or label.operation in (None, Operation.REDUCE_SCATTER)  # whose lists only torch's operator says
    }
    inside = _find_operators_inside(trace, nesting, unsaid) if unsaid else {}
    issues = []
    for event in np.flatnonzero(np.isin(trace.name, list(chosen))).tolist():
        label = ranges.get(int(trace.name[event]))
        operator = inside.get(event, event)
        operation = label.operation if label else None
        operation = operation or (find_operation(trace.name_of(operator)) if operator != event or not ranges else None)
        is_inside = any(int(trace.name[above]) in chosen for above in _enclosing(trace, nesting, event))
        if is_inside or (operation is None and not ranges):
            continue  # an operator inside another of the same collective, or none that communicates
        details = trace.details.get(operator)
        elements = tensor_elements(details) if label is None and details else ()
        issue = Issue(event, int(trace.start_ns[event]), operation, label, elements)
        issues.append(divide_reduction(trace, issue, operator))
    return sorted(issues, key=lambda issue: (issue.start_ns, issue.event))


def _find_operators_inside(trace: Trace, nesting: Nesting, ranges: Collection[int]) -> dict[int, int]:
    """Return c10d's operator inside each range with one of these names, by the range's event."""
    found: dict[int, int] = {}
    for event in np.flatnonzero(trace.is_named(lambda name: name.startswith("c10d::"))).tolist():
        for above in _enclosing(trace, nesting, event):
            if int(trace.name[above]) in ranges:
                found.setdefault(above, event)
    return found


def _enclosing(trace: Trace, nesting: Nesting, event: int) -> Iterator[int]:
    """Walk outwards past what only seems to enclose.

    ``dist.record_comm`` leaves a span on the issuing thread that begins inside the issue and ends with the collective:
    what the thread does meanwhile is not inside it, nor inside the issue, which had ended.
    """
    start_ns = trace.start_ns[event]
    for above in nesting.enclosing(event):
        if trace.end_ns[above] > start_ns and not _is_recorded_comm(trace, nesting, above):
            yield above


def _is_recorded_comm(trace: Trace, nesting: Nesting, event: int) -> bool:
    parent = int(nesting.parent[event])
    is_range = trace.category_of(event) == "user_annotation"
    return is_range and parent != event and trace.name_of(parent).startswith("c10d::")


def _find_recorded_comms(trace: Trace, nesting: Nesting) -> dict[int, str]:
    """Return what ``dist.record_comm`` calls each collective, by its issuing operator; FSDP units' names only."""
    events = np.flatnonzero(trace.is_named(lambda name: find_unit([name]))).tolist()
    return {
        int(nesting.parent[event]): trace.name_of(event) for event in events if _is_recorded_comm(trace, nesting, event)
    }


def _find_compiled(trace: Trace, nesting: Nesting, asked: Attribution) -> dict[int, str]:
    """Name the compiled region that each collective was issued in, or whose backward it was issued in."""
    regions = trace.is_named(lambda name: name.startswith(_COMPILED))
    if not regions.any():
        return {}
    here, there = nesting.innermost(asked.calls, regions), nesting.innermost(asked.forwards, regions)
    found = np.where(here == NOTHING, there, here)
    return {
        event: trace.name_of(region).removeprefix("Torch-")
        for event, region in zip(asked.calls.tolist(), found.tolist(), strict=True)
        if region != NOTHING
    }


@dataclass(frozen=True)
class _Evidence:
    """What a collective is described from, beside its issue and its span.

    Attributes:
        groups: group of gloo's threads, where it was inferred.
        said: what ``dist.record_comm`` calls a collective, by the operator that issued it.
        askers: what lies around each issue, by its event.
        compiled: in which compiled region, or in whose backward, likewise; none where it was in none.
        frames: of Python around each issue, by its event.
        addressed: c10d's operator of each send, receive and collective with a root that a range of ours names, by the
            range's event.
        of_experts: modules of which a part is experts.
    """

    trace: Trace
    nesting: Nesting
    groups: Mapping[int, str]
    regions: Regions
    said: Mapping[int, str]
    askers: Mapping[int, Asker]
    compiled: Mapping[int, str]
    frames: Mapping[int, tuple[str, ...]]
    addressed: Mapping[int, int]
    of_experts: frozenset[str]

    def above(self, event: int) -> tuple[str, ...]:
        """Return the names around an issue, innermost first, frames last.

        What ``dist.record_comm`` calls it comes before all.
        """
        said = self.said.get(event)
        names = (self.trace.name_of(above) for above in _enclosing(self.trace, self.nesting, event))
        return (*(() if said is None else (said,)), *names, *self.frames[event])

    def region_of(self, issue: Issue, above: Sequence[str]) -> Region | None:
        """Return the part of the step that issued: by dtbench's ranges, else, in a trace without any, by the names."""
        if self.regions.regions:
            return self.regions.at(issue.start_ns)
        return find_region(above, in_module=bool(self.askers[issue.event].module))

    def details_of(self, issue: Issue) -> Details | None:
        """Return what torch's operator says whom it is to or from: the issue itself, or inside our range."""
        return self.trace.details.get(self.addressed.get(issue.event, issue.event))

    def sent_by(self, issue: Issue) -> "_Sent | None":
        """Return what is known of a send or receive; None: it is none, or it is not known on which group.

        In our own runs torch's operator, which says the peer, lies inside the range that says the group.
        """
        if issue.operation not in POINT_TO_POINT:
            return None
        details = self.details_of(issue)
        peer = details.peer if details else None
        group = issue.label.group if issue.label else _find_sending_group(self.trace)
        ranks = self.trace.group_ranks.get(group or "", ())
        if group is None or peer is None or peer >= len(ranks):
            return None
        return _Sent(group, ranks, ranks[peer], axis_described(self.trace.group_descriptions.get(group)))

    def time_of(self, span: Span | None) -> Intervals:
        """Return when it ran; never, where the span was not found."""
        events = [] if span is None else span.events
        begun_ns = 0 if span is None else span.begun_ns
        return unite(self.trace.start_ns[events] - begun_ns, self.trace.end_ns[events])

    def has_ended(self, span: Span | None) -> bool:
        """Tell whether its span was closed by what ran in it, not by the end of the trace."""
        found = [self.trace.details.get(event) for event in span.events] if span else []
        return all(details is None or details.is_finished for details in found)

    def lane_of(self, span: Span | None) -> str:
        """Return the thread that it ran on."""
        return "" if span is None else "/".join(self.trace.lanes[span.lane])


@dataclass(frozen=True)
class _Sent:
    """Between whom a send or receive goes; ``peer`` is a global rank."""

    group: str
    ranks: tuple[int, ...]
    peer: int
    axis: Axis | None


def _find_sending_group(trace: Trace) -> str | None:
    """Return the group that sends go over: the only one of several ranks, or the only one of a pipeline or context."""
    groups = [group for group, ranks in trace.group_ranks.items() if len(ranks) > 1 and trace.rank in (None, *ranks)]
    if len(groups) == 1:
        return groups[0]
    sending = (Axis.PIPELINE, Axis.CONTEXT)
    likely = [group for group in groups if axis_described(trace.group_descriptions.get(group)) in sending]
    return likely[0] if len(likely) == 1 else None


def _describe(
    evidence: _Evidence, issue: Issue, span: Span | None, shown: DataParallel, functional: Functional
) -> Collective:
    above = evidence.above(issue.event)
    label = issue.label
    sent = evidence.sent_by(issue)
    axis = label.axis if label else sent.axis if sent else None
    dtype = span.dtype if span else None
    region = evidence.region_of(issue, above)
    purpose = check_gradients(find_purpose(axis, issue.operation, region, above, shown, functional), dtype)
    is_of_experts = evidence.askers[issue.event].module in evidence.of_experts
    purpose = check_experts(purpose, issue.operation, region, is_of_experts=is_of_experts)
    inferred = evidence.groups.get(span.lane, "") if span else ""
    return Collective(
        group=label.group if label else sent.group if sent else inferred,
        axis=axis,
        seq=label.seq if label else None,
        operation=issue.operation,
        purpose=purpose,
        owner=_find_owner(evidence, issue, purpose, above),
        size_bytes=find_bytes(issue, span),
        issue_ns=issue.start_ns,
        issue_end_ns=int(evidence.trace.end_ns[issue.event]),
        span=evidence.time_of(span),
        above=above,
        caller=label.caller if label else "",
        lane=evidence.lane_of(span),
        region=evidence.regions.at(issue.start_ns),
        group_size=len(sent.ranks) if sent else find_group_size(issue),
        group_ranks=sent.ranks if sent else (),
        peer=sent.peer if sent else None,
        root=said.root if (said := evidence.details_of(issue)) else None,
        dtype=dtype,
        has_ended=evidence.has_ended(span),
        on_link=span is not None and span.on_link,
        is_async=said_async(evidence.trace, issue),
    )


def _find_owner(evidence: _Evidence, issue: Issue, purpose: Purpose, above: Sequence[str]) -> str:
    """Return the FSDP unit or torch's function around it, what the label says, or what lies around it.

    Elsewhere it is as on devices; empty: nobody is known to own it.
    """
    unit = find_unit(above) if purpose in _OWNED else ""  # DTensor's too: FSDP2 completes partial gradients
    if function := find_function(above):
        return function
    if unit or any(is_fsdps(name) for name in above):
        return unit  # an all-reduce over replicas in FSDP1, which names no unit, is no bucket of DDP's either
    asker = evidence.askers[issue.event]
    if purpose is Purpose.TENSOR and asker.module:
        return asker.module
    found = (issue.label.owner if issue.label else "") or find_owner(purpose, above, asker, issue.operation)
    is_graph = not found or found.startswith(_GRAPH)
    return evidence.compiled.get(issue.event, found) if is_graph else found


def _describe_orphan(evidence: _Evidence, span: Span, may_be: Collection[Purpose]) -> Collective:
    """Describe a span that no issue took.

    Args:
        evidence: of the trace.
        span: of the collective.
        may_be: what the issues are for of which it is one's, where it is not told whose.
    """
    return Collective(
        group=evidence.groups.get(span.lane, ""),
        axis=None,
        seq=None,
        operation=span.form.operation,
        purpose=next(iter(may_be)) if len(may_be) == 1 else Purpose.OTHER,
        owner="",
        size_bytes=span.form.size_bytes,
        issue_ns=None,
        issue_end_ns=None,
        span=evidence.time_of(span),
        above=(),
        lane=evidence.lane_of(span),
        dtype=span.dtype,
        has_ended=evidence.has_ended(span),
        is_issue_untold=bool(may_be),
    )

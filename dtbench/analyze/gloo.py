"""Collectives of a CPU trace: which ``gloo:*`` span belongs to which issue.

gloo's spans lie on its own threads and say operation and size, never group or sequence number. They are matched first
in, first out: each issue takes the earliest free span of its operation and size that starts after it. In our own runs
every issue lies in a range ``dtbench::collective`` that says everything else, and gloo's threads are first learnt to
belong to a group by majority. In other people's traces the issue is the outermost ``c10d::*`` operator, and the group
stays unknown.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.analyze.collectives import Collective, find_regions
from dtbench.analyze.intervals import Intervals, unite
from dtbench.analyze.kinds.operators import Role, cpu_role, find_operation
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.payload import item_bytes, span_bytes, tensor_elements
from dtbench.analyze.purposes import find_purpose, find_unit
from dtbench.analyze.trace import Trace
from dtbench.ranges import CollectiveLabel, parse_collective_range
from dtbench.vocabulary import Operation, Purpose, Region

# gloo runs a reduce-scatter as an all-reduce; all others under their own name.
_RUNS_AS: Final = {Operation.REDUCE_SCATTER: (Operation.REDUCE_SCATTER, Operation.ALL_REDUCE)}
# Their spans name one rank's part of the payload.
_IN_PARTS: Final = (Operation.ALL_GATHER, Operation.GATHER, Operation.SCATTER, Operation.ALL_TO_ALL)


@dataclass(frozen=True)
class _Issue:
    event: int
    start_ns: int
    operation: Operation
    label: CollectiveLabel | None
    elements: tuple[int, ...]  # of each tensor argument; empty where the label says the bytes

    def fits(self, span: "_Span") -> bool:
        """Tell whether a span may be this collective."""
        if span.start_ns < self.start_ns or span.operation not in _RUNS_AS.get(self.operation, (self.operation,)):
            return False
        if self.label is None:
            return span.elements is None or not self.elements or span.elements in self.elements
        if not span.size_bytes:
            return True
        is_part = self.operation in _IN_PARTS and self.label.size_bytes % span.size_bytes == 0
        return is_part or self.label.size_bytes == span.size_bytes


@dataclass(frozen=True)
class _Span:
    event: int
    start_ns: int
    lane: int
    operation: Operation | None
    elements: int | None
    size_bytes: int | None
    item_bytes: int | None


def find_gloo_collectives(trace: Trace, nesting: Nesting) -> tuple[Collective, ...]:
    """Find the collectives of a CPU trace, in order of issue; spans that no issue takes come last, as ``other``."""
    issues = _find_issues(trace, nesting)
    spans = _find_spans(trace)
    matches = _match(issues, spans)
    taken = {span.event for span in matches.values()}
    regions = find_regions(trace)
    found = [_describe(trace, nesting, issue, matches.get(issue.event), regions.at(issue.start_ns)) for issue in issues]
    return (*found, *(_describe_orphan(trace, span) for span in spans if span.event not in taken))


def model_lanes(trace: Trace) -> frozenset[int]:
    """Give the threads that run the model: all with a training step or the autograd engine on them.

    Where there is none, the one with most operators. gloo's threads run operators too (copies inside a reduce-scatter);
    they never count.
    """
    gloo = {span.lane for span in _find_spans(trace)}
    marks = tuple(
        i
        for i, name in enumerate(trace.names)
        if name.startswith(("ProfilerStep#", "autograd::engine::evaluate_function"))
    )
    lanes = set(trace.lane[np.isin(trace.name, marks)].tolist()) - gloo
    if lanes:
        return frozenset(lanes)
    is_operator = np.array([category == "cpu_op" for category in trace.categories], dtype=np.bool_)
    counts = Counter(trace.lane[is_operator[trace.category]].tolist())
    return frozenset(lane for lane, _ in [item for item in counts.most_common() if item[0] not in gloo][:1])


def _find_spans(trace: Trace) -> list[_Span]:
    is_gloo = np.array([cpu_role(name, "") is Role.COLLECTIVE for name in trace.names], dtype=np.bool_)
    spans = []
    for event in np.flatnonzero(is_gloo[trace.name]).tolist():
        details = trace.details.get(event)
        elements = tensor_elements(details) if details else ()
        dtypes = [size for dtype in (details.dtypes if details else ()) if (size := item_bytes(dtype)) is not None]
        spans.append(
            _Span(
                event=event,
                start_ns=int(trace.start_ns[event]),
                lane=int(trace.lane[event]),
                operation=find_operation(trace.name_of(event)),
                elements=sum(elements) if elements else None,
                size_bytes=span_bytes(details),
                item_bytes=dtypes[0] if dtypes else None,
            )
        )
    return sorted(spans, key=lambda span: (span.start_ns, span.event))


def _find_issues(trace: Trace, nesting: Nesting) -> list[_Issue]:
    labels = {i: label for i, name in enumerate(trace.names) if (label := parse_collective_range(name)) is not None}
    chosen = frozenset(labels) or frozenset(i for i, name in enumerate(trace.names) if name.startswith("c10d::"))
    issues = []
    for event in np.flatnonzero(np.isin(trace.name, list(chosen))).tolist():
        label = labels.get(int(trace.name[event]))
        operation = label.operation if label else find_operation(trace.name_of(event))
        if operation is None or any(int(trace.name[above]) in chosen for above in nesting.enclosing(event)):
            continue  # an operator inside another of the same collective, or none that communicates
        details = trace.details.get(event)
        elements = tensor_elements(details) if label is None and details else ()
        issues.append(_Issue(event, int(trace.start_ns[event]), operation, label, elements))
    return sorted(issues, key=lambda issue: (issue.start_ns, issue.event))


def _match(issues: Sequence[_Issue], spans: Sequence[_Span]) -> dict[int, _Span]:
    """Give the span of each issue, by the issue's event."""
    group_of = _learn_threads(issues, spans)
    return _first_in_first_out(
        issues,
        spans,
        lambda issue, span: issue.label is None or group_of.get(span.lane, issue.label.group) == issue.label.group,
    )


def _learn_threads(issues: Sequence[_Issue], spans: Sequence[_Span]) -> dict[int, str]:
    """Give the group that each of gloo's threads works for: a thread serves one group only.

    Learnt from collectives whose operation and size only one group has; a thread that ran none of these is left out.
    """
    groups: dict[tuple[Operation, int], set[str]] = {}
    labelled = [(issue, issue.label) for issue in issues if issue.label is not None]
    for issue, label in labelled:
        groups.setdefault((issue.operation, label.size_bytes), set()).add(label.group)
    telling = [issue for issue, label in labelled if len(groups[issue.operation, label.size_bytes]) == 1]
    matches = _first_in_first_out(telling, spans, lambda _issue, _span: True)
    votes = Counter(
        (matches[issue.event].lane, issue.label.group) for issue in telling if issue.label and issue.event in matches
    )
    group_of: dict[int, str] = {}
    for (lane, group), _ in votes.most_common():
        group_of.setdefault(lane, group)
    return group_of


def _first_in_first_out(
    issues: Sequence[_Issue], spans: Sequence[_Span], may_take: Callable[[_Issue, _Span], bool]
) -> dict[int, _Span]:
    free: dict[Operation | None, list[_Span]] = {}
    for span in spans:
        free.setdefault(span.operation, []).append(span)
    matches: dict[int, _Span] = {}
    for issue in issues:
        firsts = (
            next((span for span in free.get(operation, ()) if issue.fits(span) and may_take(issue, span)), None)
            for operation in _RUNS_AS.get(issue.operation, (issue.operation,))
        )
        candidates = [span for span in firsts if span is not None]
        if candidates:
            span = min(candidates, key=lambda one: (one.start_ns, one.event))
            matches[issue.event] = span
            free[span.operation].remove(span)
    return matches


def _describe(trace: Trace, nesting: Nesting, issue: _Issue, span: _Span | None, region: Region | None) -> Collective:
    above = tuple(trace.name_of(event) for event in nesting.enclosing(issue.event))
    label = issue.label
    axis = label.axis if label else None
    purpose = find_purpose(axis, issue.operation, region, above)
    owner = label.owner if label else ""
    if not owner and purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE):
        owner = find_unit(above)
    return Collective(
        group=label.group if label else "",
        axis=axis,
        seq=label.seq if label else None,
        operation=issue.operation,
        purpose=purpose,
        owner=owner,
        size_bytes=label.size_bytes if label else _foreign_bytes(issue, span),
        issue_ns=issue.start_ns,
        issue_end_ns=int(trace.end_ns[issue.event]),
        span=_time_of(trace, span),
        above=above,
        lane=_lane(trace, span),
        region=region,
        is_async=label.is_async if label else None,
    )


def _foreign_bytes(issue: _Issue, span: _Span | None) -> int | None:
    """Take the larger of input and output (an all-gather's output, a reduce-scatter's input) in the span's dtype."""
    if span is None or span.item_bytes is None or not issue.elements:
        return span.size_bytes if span else None
    return max(issue.elements) * span.item_bytes


def _describe_orphan(trace: Trace, span: _Span) -> Collective:
    return Collective(
        group="",
        axis=None,
        seq=None,
        operation=span.operation,
        purpose=Purpose.OTHER,
        owner="",
        size_bytes=span.size_bytes,
        issue_ns=None,
        issue_end_ns=None,
        span=_time_of(trace, span),
        above=(),
        lane=_lane(trace, span),
    )


def _lane(trace: Trace, span: _Span | None) -> str:
    return "" if span is None else "/".join(trace.lanes[span.lane])


def _time_of(trace: Trace, span: _Span | None) -> Intervals:
    events = [] if span is None else [span.event]
    return unite(trace.start_ns[events], trace.end_ns[events])

"""Before when the span of each collective of a CPU trace began, as whoever waited for it then went on.

::

    model thread   | a   b   c |wait a|   d   |      c issued blocking: it was over when its thread issued d
    backward       ├───────────┤                     a, b: DDP's, which waits for all its buckets in backward
    group          a, b before c                    one group begins its collectives in the order of their issues
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.ranges import parse_wait_range
from dtbench.base.vocabulary import POINT_TO_POINT, Axis, Operation
from dtbench.traces.cpu.gloo_match import Issue
from dtbench.traces.cpu.waits import find_backwards
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.trace import Trace
from dtbench.traces.who.purposes import ACCUMULATES, is_fsdps, is_functional
from dtbench.traces.who.strategy import Strategy, find_strategies

_NEVER: Final = np.iinfo(np.int64).max


def bound_spans(
    trace: Trace, nesting: Nesting, issues: Sequence[Issue], above: Callable[[int], Sequence[str]]
) -> list[Issue]:
    """Fill in ``until_ns`` of issues.

    Args:
        trace: the events.
        nesting: of the trace.
        issues: in order of start.
        above: names around the issue with an event, innermost first.
    """
    bounds_ns = [
        min(of_issue)
        for of_issue in zip(
            _bound_blocking(trace, issues),
            _bound_labelled(trace, issues),
            _bound_buckets(trace, nesting, issues, above),
            strict=True,
        )
    ]
    groups = [_find_group(trace, issue) for issue in issues]
    latest_ns: dict[str, int] = {}
    for index in reversed(range(len(issues))):
        group = groups[index]
        if group is not None:
            bounds_ns[index] = latest_ns[group] = min(bounds_ns[index], latest_ns.get(group, _NEVER))
    return [
        replace(issue, until_ns=None if bound_ns == _NEVER else bound_ns)
        for issue, bound_ns in zip(issues, bounds_ns, strict=True)
    ]


def _bound_blocking(trace: Trace, issues: Sequence[Issue]) -> list[int]:
    """Return when the thread issued the next that issued a collective which is said to be blocking."""
    bounds_ns = [_NEVER] * len(issues)
    next_ns: dict[int, int] = {}
    for index in reversed(range(len(issues))):
        issue, lane = issues[index], int(trace.lane[issues[index].event])
        if said_async(trace, issue) is False:
            bounds_ns[index] = next_ns.get(lane, _NEVER)
        next_ns[lane] = issue.start_ns
    return bounds_ns


def _bound_labelled(trace: Trace, issues: Sequence[Issue]) -> list[int]:
    """Return when the last consumer that a ``dtbench::wait`` shows went on; one before may only have asked."""
    waited = {i: label for i, name in enumerate(trace.names) if (label := parse_wait_range(name)) is not None}
    ends_ns: dict[tuple[str, int], int] = {}
    for event in np.flatnonzero(np.isin(trace.name, list(waited))).tolist() if waited else ():
        label = waited[int(trace.name[event])]
        ends_ns[label.group, label.seq] = max(int(trace.end_ns[event]), ends_ns.get((label.group, label.seq), 0))
    return [
        ends_ns.get((issue.label.group, issue.label.seq), _NEVER) if issue.label is not None else _NEVER
        for issue in issues
    ]


def _bound_buckets(
    trace: Trace, nesting: Nesting, issues: Sequence[Issue], above: Callable[[int], Sequence[str]]
) -> list[int]:
    """Return when the backward was over in which DDP's reducer issued a bucket: it waits for all of them."""
    if Strategy.DDP not in find_strategies(trace):
        return [_NEVER] * len(issues)
    backwards = sorted(find_backwards(trace, nesting))
    starts_ns = np.array([start_ns for start_ns, _, _ in backwards], dtype=np.int64)
    bounds_ns = []
    for issue in issues:
        place = int(starts_ns.searchsorted(issue.start_ns, side="right")) - 1
        is_inside = place >= 0 and issue.start_ns < backwards[place][2] and _is_bucket(issue, above(issue.event))
        bounds_ns.append(backwards[place][2] if is_inside else _NEVER)
    return bounds_ns


def _is_bucket(issue: Issue, above: Sequence[str]) -> bool:
    if issue.operation is not Operation.ALL_REDUCE or any(is_fsdps(name) or is_functional(name) for name in above):
        return False
    is_of_replicas = issue.label is not None and issue.label.axis is Axis.REPLICATE
    return is_of_replicas or any(ACCUMULATES.match(name) for name in above)


def _find_group(trace: Trace, issue: Issue) -> str | None:
    """Return the group that begins an issue in order; None: it is not told, or its thread does itself what it issues.

    In a trace that has only one group of several ranks every issue is of that.
    """
    if issue.operation in POINT_TO_POINT:
        return None
    if issue.label is not None:
        return issue.label.group
    groups = [group for group, ranks in trace.group_ranks.items() if len(ranks) > 1]
    return groups[0] if len(groups) == 1 else None


def said_async(trace: Trace, issue: Issue) -> bool | None:
    """Tell whether the call that issued may return before the collective is done; None: neither is said."""
    if issue.label is not None:
        return issue.label.is_async
    details = trace.details.get(issue.event)
    return None if details is None else details.is_async

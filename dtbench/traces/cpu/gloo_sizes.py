"""How large a collective of a CPU trace is, and its group, as far as the arguments of its operator or its span tell."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.vocabulary import Operation
from dtbench.traces.cpu.gloo_match import Issue, Span
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.payload import item_bytes, list_elements, tensor_elements

# Their whole payload is a multiple of one rank's part: output or input, by argument of c10d's operator.
_SPREADS: Final = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
_OF_LISTS: Final = re.compile(r"c10d::(allgather_(coalesced_)?|reduce_scatter_|gather_|scatter_)")
"""Of a list of a tensor for each rank no trace has the sizes; of the one tensor beside it, a rank's part, it has."""
_SPANS_OF_PARTS: Final = (Operation.ALL_GATHER, Operation.GATHER)
"""Their spans name what each rank gives (torch's ``ProcessGroupGloo.cpp``, ``AsyncAllgatherWork`` and the like)."""
_FROM_LIST: Final = "c10d::reduce_scatter_"
_COALESCED: Final = "c10d::reduce_scatter_tensor_coalesced_"


def find_bytes(issue: Issue, span: Span | None) -> int | None:
    """Return the bytes of a collective, as its label says, else its arguments, else its span."""
    said = issue.label.size_bytes if issue.label else None
    return _foreign_bytes(issue, span) if said is None else said


def _foreign_bytes(issue: Issue, span: Span | None) -> int | None:
    """Take the larger of input and output (an all-gather's output, a reduce-scatter's input) in the span's dtype."""
    size = item_bytes(span.dtype) if span else None
    if size is None or not issue.elements:
        return span.form.size_bytes if span else None
    return max(issue.elements) * size


def _find_only_size(trace: Trace) -> int | None:
    """Return the ranks of the only group of several; None: there are others, or the trace does not say."""
    sizes = [len(ranks) for ranks in trace.group_ranks.values() if len(ranks) > 1]
    return sizes[0] if len(sizes) == 1 else None


def divide_reduction(trace: Trace, issue: Issue, operator: int) -> Issue:
    """Say which spans carry out a reduce-scatter: from lists one for each rank, of several tensors one for each.

    Measured on torch 2.13 (``ProcessGroupGloo::reduce_scatter``, ``reduce_scatter_tensor_coalesced``); each is an
    all-reduce of the part that the rank gets, or of the whole input.

    Args:
        trace: the events.
        issue: the collective.
        operator: c10d's, which is the issue itself, or inside it.
    """
    name, details = trace.name_of(operator), trace.details.get(operator)
    if name == _FROM_LIST:
        label = issue.label
        ranks = len(trace.group_ranks.get(label.group, ())) if label else _find_only_size(trace)
        elements = tensor_elements(details) if details else ()
        return replace(issue, parts=(max(elements, default=None),) * (ranks or 1), may_have_more=not ranks)
    if name == _COALESCED and details is not None:
        return replace(issue, parts=list_elements(details))
    return issue


def find_group_size(issue: Issue) -> int | None:
    """Divide output and input of an all-gather or reduce-scatter: what one of them has, each rank has a part of."""
    if issue.operation not in _SPREADS or len(issue.elements) != 2 or not min(issue.elements):
        return None
    size, rest = divmod(max(issue.elements), min(issue.elements))
    return None if rest else size


def share_group_sizes(collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return each group's size to all its collectives, where those that tell it agree."""
    told: dict[str, set[int]] = {}
    for one in collectives:
        if one.group and one.group_size is not None:
            told.setdefault(one.group, set()).add(one.group_size)
    sizes = {group: next(iter(found)) for group, found in told.items() if len(found) == 1}
    return tuple(
        replace(one, group_size=sizes[one.group]) if one.group_size is None and one.group in sizes else one
        for one in collectives
    )


def fill_parts(
    trace: Trace, issues: Sequence[Issue], spans: Mapping[int, Span], found: Sequence[Collective]
) -> Iterator[Collective]:
    """Yield the whole bytes of collectives of which a trace has one rank's part only.

    Not known where the size of the group is not, unless the trace has one group only.

    Args:
        trace: the events.
        issues: the collectives.
        spans: of each, by the issue's event, where it was found.
        found: what is known of each issue.
    """
    only = _find_only_size(trace)
    for issue, one in zip(issues, found, strict=False):
        span = spans.get(issue.event)
        if _has_whole(trace, issue):
            yield one
            continue
        ranks = one.group_size or _count_given(issue, span) or only
        is_part = issue.operation is not Operation.REDUCE_SCATTER or _is_of_lists(trace, issue)
        yield _multiply(one, ranks) if is_part else replace(one, size_bytes=None)


def fill_unissued(trace: Trace, found: Sequence[Collective]) -> Iterator[Collective]:
    """Yield the whole bytes of collectives that only their spans show, as ``fill_parts`` does."""
    only = _find_only_size(trace)
    for one in found:
        yield _multiply(one, one.group_size or only) if one.operation in _SPANS_OF_PARTS else one


def _multiply(one: Collective, ranks: int | None) -> Collective:
    whole_bytes = None if ranks is None or one.size_bytes is None else one.size_bytes * ranks
    return replace(one, group_size=ranks, size_bytes=whole_bytes)


def _has_whole(trace: Trace, issue: Issue) -> bool:
    """Tell whether what is known of a collective's size is of all of it, and not one rank's part, or of one tensor."""
    if issue.label is not None and issue.label.size_bytes is not None:
        return True
    if issue.elements:
        return not _is_of_lists(trace, issue)
    return issue.operation not in (*_SPANS_OF_PARTS, Operation.REDUCE_SCATTER)


def _is_of_lists(trace: Trace, issue: Issue) -> bool:
    return issue.label is None and _OF_LISTS.fullmatch(trace.name_of(issue.event)) is not None


def _count_given(issue: Issue, span: Span | None) -> int | None:
    """Return to how many ranks a scatter gives a part each, as the span of the one that gives tells; None: another."""
    if issue.operation is not Operation.SCATTER or span is None or not issue.elements or not max(issue.elements):
        return None
    ranks, rest = divmod(span.form.elements or 0, max(issue.elements))
    return ranks if ranks > 1 and not rest else None

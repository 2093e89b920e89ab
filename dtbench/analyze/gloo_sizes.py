"""How large a collective of a CPU trace is, and its group, as far as the arguments of its operator or its span tell."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dtbench.analyze.collectives import Collective
from dtbench.analyze.gloo_match import Issue, Span
from dtbench.analyze.payload import item_bytes, list_elements, tensor_elements
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Operation

# Their whole payload is a multiple of one rank's part: output or input, by argument of c10d's operator.
_SPREADS: Final = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
_OF_LISTS: Final = re.compile(r"c10d::(allgather_(coalesced_)?|reduce_scatter_)")
"""Of a list of a tensor for each rank no trace has the sizes."""
_FROM_LIST: Final = "c10d::reduce_scatter_"
_COALESCED: Final = "c10d::reduce_scatter_tensor_coalesced_"


def find_bytes(issue: Issue, span: Span | None) -> int | None:
    """Give the bytes of a collective, as its label says, else its arguments, else its span."""
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
    """Give each group's size to all its collectives, where those that tell it agree."""
    told: dict[str, set[int]] = {}
    for one in collectives:
        if one.group and one.group_size is not None:
            told.setdefault(one.group, set()).add(one.group_size)
    sizes = {group: next(iter(found)) for group, found in told.items() if len(found) == 1}
    return tuple(
        replace(one, group_size=sizes[one.group]) if one.group_size is None and one.group in sizes else one
        for one in collectives
    )


def fill_lists(trace: Trace, issues: Sequence[Issue], found: Sequence[Collective]) -> Iterator[Collective]:
    """Give the whole bytes of gathers into lists, and scatters from lists, of which a trace has one rank's part only.

    Not known where the size of the group is not, unless the trace has one group only.
    """
    only = _find_only_size(trace)
    for issue, one in zip(issues, found, strict=False):
        if issue.label is not None or not _OF_LISTS.fullmatch(trace.name_of(issue.event)):
            yield one
            continue
        size = one.group_size or only
        whole_bytes = None if size is None or one.size_bytes is None else one.size_bytes * size
        yield replace(one, group_size=size, size_bytes=whole_bytes)

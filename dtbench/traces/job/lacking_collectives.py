"""Collectives that one rank's trace lacks, as those of the ranks that ran them with it show.

::

    rank 0   step 3 [ all-reduce all-reduce all-reduce ]     of ranks 0 and 1
    rank 1   step 3 [ all-reduce                       ]     it ran two more: no rank leaves one before all are in it

Nothing is lacking where it may be there: in no step, in a step too many of it, of a group that is not told, or known to
be lost.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dtbench.base.vocabulary import END_TOGETHER, Operation
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.who.collectives import Collective

_Kind: TypeAlias = tuple[tuple[int, ...], Operation]


@dataclass(frozen=True)
class _Ran:
    """What a rank ran with others.

    Attributes:
        counts: collectives by the ranks of their group and operation, and by number of step.
        spare: collectives of which one of these is not told, or which were launched before the trace began.
    """

    counts: dict[_Kind, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    spare: int = 0


def find_lacking_collectives(
    analyses: Sequence[TraceAnalysis], *, strangers: Container[int] = ()
) -> dict[int, dict[int, int]]:
    """Count, by rank and number of step, how many fewer it ran in a group than another rank of that did with it.

    None in steps of which nothing is known, or that the other does not have.

    Args:
        analyses: distinct ranks of one job.
        strangers: ranks that may be of another; they lack something only where they show no communication at all.
    """
    ran = {one.rank: _count(one) for one in analyses}
    found: dict[int, dict[int, int]] = {}
    for one in analyses:
        if one.rank in strangers and one.collectives:
            continue
        most = Counter[tuple[_Kind, int]]()
        for other in analyses:
            if other is not one and _are_alike(one, other):
                most |= _compare(ran[one.rank], ran[other.rank], one.rank)
        lacks = Counter[int]()
        for (_, number), count in most.items():
            lacks[number] += count
        known = _list_known_steps(one)
        lost = {step.step: step.lost + ran[one.rank].spare for step in one.steps}
        if own := {number: count - lost[number] for number, count in lacks.items() if number in known}:
            found[one.rank] = {number: count for number, count in sorted(own.items()) if count > 0}
    return {rank: own for rank, own in found.items() if own}


def _are_alike(one: TraceAnalysis, other: TraceAnalysis) -> bool:
    """Tell whether two traces were made alike, as of ranks of one job of which both tell how many it has."""
    is_one_size = one.timeline.world_size is not None and one.timeline.world_size == other.timeline.world_size
    return is_one_size and one.timeline.is_device == other.timeline.is_device


def _list_known_steps(one: TraceAnalysis) -> set[int]:
    cut = () if one.truncated_step is None else (one.truncated_step.step,)
    return {step.step for step in one.steps if step.overlap.step_ns} - {*one.lost.steps, *cut}


def _compare(own: _Ran, other: _Ran, rank: int) -> Counter[tuple[_Kind, int]]:
    """Count, of groups that a rank is in, by step of the other, how many fewer it ran than that did."""
    fewer = Counter[tuple[_Kind, int]]()
    for kind, counts in other.counts.items():
        if rank in kind[0]:
            mine = own.counts.get(kind, Counter())
            more = sum(max(0, count - counts[number]) for number, count in mine.items())
            fewer.update({(kind, number): count - mine[number] - more for number, count in counts.items()})
    return +fewer


def _count(one: TraceAnalysis) -> _Ran:
    counts = defaultdict[_Kind, Counter[int]](Counter)
    spare = 0
    for collective, step in zip(one.collectives, one.step_of, strict=True):
        if collective.is_issue_untold and collective.is_seen:
            continue
        kind = _find_kind(collective)
        if kind is None or step is None or collective.issue_ns is None:
            spare += collective.group_size != 1
        else:
            counts[kind][one.timeline.step_numbers[step]] += 1
    return _Ran(counts, spare)


def _find_kind(collective: Collective) -> _Kind | None:
    """Return what all ranks of a group run together; None: not told, or a rank may have nothing to do in it."""
    if collective.operation not in END_TOGETHER or collective.operation is None or not collective.group_ranks:
        return None
    return collective.group_ranks, collective.operation

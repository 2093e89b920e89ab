"""Ranks whose traces do not tell their process groups apart: those share one that leave their collectives together.

That ends agree by chance is the less likely the more of them do; ``Lead.chance`` says how likely. Where it stays open,
nothing is matched, and a note says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.ranks.align import ABSENT, Series, estimate_lead
from dtbench.traces.ranks.groups import GroupEvents, read_series
from dtbench.traces.skeleton import Skeleton
from dtbench.traces.time.intervals import Ints

_SAME_GROUP_NS: Final = 50_000  # ends of one collective agree better on clocks that agree
_FEW: Final = 8  # events; fewer may end apart by chance, or together
_UNDECIDED: Final = 0.4  # spread of ends (see ``Lead``) below which ranks may share a group after all
_NEARLY_ALL: Final = 0.7  # of few events some may be missing; of two groups on one lane at most about half agree
_FAR: Final = 16  # times the first quartile of deviations; 5 standard deviations where they are normal
_SAMPLE: Final = 400  # events that tell whether two ranks share a group


@dataclass(frozen=True)
class Part:
    """Ranks that share a group; ``is_clear``: no other rank may belong to them."""

    group: GroupEvents
    is_clear: bool = True


@dataclass(frozen=True)
class Split:
    """What one name, or none, turned out to mean.

    Attributes:
        parts: the groups.
        undecided: ranks that are in no part, as it stays open which of them share one.
    """

    parts: tuple[Part, ...]
    undecided: frozenset[int] = frozenset()


def split_group(group: GroupEvents, by_rank: Mapping[int, Skeleton]) -> Split:
    """Divide what may be several groups by ends that agree."""
    ranks = list(group.events)
    samples = read_series([by_rank[rank] for rank in ranks], [group.events[rank][:_SAMPLE] for rank in ranks])
    series = dict(zip(ranks, samples, strict=True))
    parts: list[list[int]] = []
    doubtful: set[int] = set()  # first ranks of parts
    for rank in ranks:
        shares = {part[0]: _share_a_group(series[part[0]], series[rank]) for part in parts}
        first = next((first for first, share in shares.items() if share), rank)
        if first == rank:
            parts.append([rank])
        else:
            next(part for part in parts if part[0] == first).append(rank)
        unsure = {other for other, share in shares.items() if share is None}
        doubtful |= unsure | ({first} if unsure else set())
    are_few = min(len(one) for one in samples) < _FEW
    kept = [part for part in parts if len(part) > 1 and (are_few or part[0] not in doubtful)]
    return Split(
        parts=tuple(
            Part(
                GroupEvents(group.name, group.ranks, group.size, {rank: group.events[rank] for rank in part}),
                is_clear=part[0] not in doubtful,
            )
            for part in kept
        ),
        undecided=frozenset(ranks).difference(*kept),
    )


def _share_a_group(first: Series, second: Series) -> bool | None:
    """Tell whether two ranks leave their collectives together; None: it cannot be told."""
    lead = estimate_lead(first, second)
    are_few = min(len(first), len(second)) < _FEW
    clocks_agree = abs(lead.ns) <= _SAME_GROUP_NS and lead.tolerance_ns <= _SAME_GROUP_NS
    if lead.spread <= lead.chance or (are_few and clocks_agree):
        return True
    return None if are_few or lead.spread < _UNDECIDED else False


def is_one_group(index: Ints, end_ns: Ints) -> bool:
    """Tell whether events that were lined up are those of one group and not of several on the same lane.

    Then every rank has nearly every event, as long as all traces last, and nearly all end together.

    Args:
        index: shape ``(m, r)``, rows in order of time, ``ABSENT`` where a rank has no such event.
        end_ns: shape ``(m, r)``, each rank's own clock; means nothing where absent.
    """
    there = index != ABSENT
    has_begun = np.logical_or.accumulate(there, axis=0)
    goes_on = np.logical_or.accumulate(there[::-1], axis=0)[::-1]
    all_last = (has_begun & goes_on).all(axis=1)
    full = all_last & there.all(axis=1)
    if full.sum() < max(_NEARLY_ALL * all_last.sum(), 1):
        return False
    late_ns = end_ns[full, 1:] - end_ns[full, :1]
    off_ns = np.abs(late_ns - np.median(late_ns, axis=0))
    together_ns = np.maximum(_FAR * np.quantile(off_ns, 0.25, axis=0), _SAME_GROUP_NS)
    return bool((off_ns <= together_ns).mean() >= _NEARLY_ALL)

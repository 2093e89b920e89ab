"""Which host the others wait for: whose ranks began last in what ranks of several hosts do together.

::

    node0   rank 0  [wwwwwwwwtt]          rank 9 is late; rank 8 only hands on to rank 0 how long it waited for it
    node1   rank 8  [wwwwA]  [tt]         of ranks that is told of no one: of hosts, node0 waits for node1
            rank 9      [A]

A host is said to wait for another where that is most of all that its ranks waited, also of what it is not known for
whom, and where the other had not only waited for a third before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.by_group.groupings import Grouping
from dtbench.traces.ranks.match import MatchedGroup
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline

_MOST: Final = 0.5  # part of all that a host's ranks waited from which it waits for one other


@dataclass(frozen=True)
class AwaitedHost:
    """A host that others wait for.

    Attributes:
        host: its name.
        ranks: of it.
        waiting: names of the hosts that wait mostly for it.
        hosts: how many hosts there are.
        waited_ns: how long the ranks of those waited for ranks of it, summed.
    """

    host: str
    ranks: tuple[int, ...]
    waiting: tuple[str, ...]
    hosts: int
    waited_ns: int


def find_awaited_host(hosts: Grouping, over_ranks: OverRanks, timelines: Sequence[RankTimeline]) -> AwaitedHost | None:
    """Return the host for which others wait longest, of those for which any waits mostly; None: there is none.

    Args:
        hosts: of the ranks.
        over_ranks: how long each waited in each collective, and who was last.
        timelines: of all ranks; where any has steps, only what these issued counts.
    """
    members = hosts.members()
    names = list(members)
    place_of = {rank: place for place, ranks in enumerate(members.values()) for rank in ranks}
    waits_ns = np.zeros((len(names), len(names)), dtype=np.int64)  # of the row's ranks for the column's
    total_ns = np.zeros(len(names), dtype=np.int64)
    counted = _find_counted(timelines)
    for group in over_ranks.matches.groups:
        if any(rank in place_of for rank in group.ranks):
            _add_group(group, over_ranks.collectives, counted, place_of, waits_ns, total_ns)
    between_ns = waits_ns - np.diag(np.diag(waits_ns))
    sizes = np.array([len(ranks) for ranks in members.values()])
    handed_on_ns = np.outer(sizes, between_ns.sum(axis=1) / sizes)  # at most, to a row's ranks by a column's
    waits_mostly = (between_ns > 0) & (between_ns - handed_on_ns >= _MOST * total_ns[:, None])
    claimed_ns = np.where(waits_mostly, between_ns, 0).sum(axis=0)
    place = int(claimed_ns.argmax())
    if not claimed_ns[place]:
        return None
    waiting = tuple(names[row] for row in np.flatnonzero(waits_mostly[:, place]).tolist())
    return AwaitedHost(names[place], members[names[place]], waiting, len(names), int(claimed_ns[place]))


def _find_counted(timelines: Sequence[RankTimeline]) -> Mapping[int, Sequence[bool]]:
    """Tell of each rank's collectives whether they count."""
    any_steps = any(one.steps for one in timelines)
    return {one.rank: [not any_steps or step is not None for step in one.step_of] for one in timelines}


def _add_group(
    group: MatchedGroup,
    skews: Mapping[int, Sequence[CollectiveSkew]],
    counted: Mapping[int, Sequence[bool]],
    place_of: Mapping[int, int],
    waits_ns: Ints,
    total_ns: Ints,
) -> None:
    """Add the waits of one group's collectives, by host that waited and host waited for."""
    for row in group.index.tolist():
        told = [
            (rank, skews[rank][index])
            for rank, index in zip(group.ranks, row, strict=True)
            if index != ABSENT and counted[rank][index] and rank in place_of
        ]
        awaited = {place_of.get(rank) for rank in _find_last(told)}
        late = awaited.pop() if len(awaited) == 1 else None
        for rank, skew in told:
            waited_ns = skew.skew_wait_ns or 0
            total_ns[place_of[rank]] += waited_ns
            if late is not None:
                waits_ns[place_of[rank], late] += waited_ns


def _find_last(told: Sequence[tuple[int, CollectiveSkew]]) -> set[int]:
    """Return the rank that began last, or those that did together; empty: it is not known."""
    last = {rank for rank, skew in told if skew.is_last}
    return last or {rank for _, skew in told for rank in skew.late_together}

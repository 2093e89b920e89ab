"""When ranks waited, or may have, outside the collectives of which it is known who waited for whom.

::

    rank 1   send to rank 3 [....==]       .  rank 3 was not there: known where their clocks can be compared
             all-gather     [??????]       ?  with ranks that have no trace: all of it may have been waiting
             compute            ████          but what overlapped with compute kept nothing else that long
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.point_to_point import Partner, find_standing
from dtbench.traces.ranks.skew import GroupSkew
from dtbench.traces.time.intervals import Bools, Intervals, subtract, unite
from dtbench.traces.timeline import RankTimeline


@dataclass(frozen=True)
class Elsewhere:
    """What ranks waited beside the waits that their groups' skew tells.

    Attributes:
        ranks: those that communicate in more than one group, or send or receive: they may hand on a delay.
        waited: by rank, when it waited for the other end of a send or receive, on the common clock.
        untold: by rank, when it was in what does not say how long it waited, with no compute beside, likewise.
    """

    ranks: frozenset[int] = frozenset()
    waited: Mapping[int, Intervals] = field(default_factory=dict)
    untold: Mapping[int, Intervals] = field(default_factory=dict)


def find_elsewhere(
    skews: Sequence[GroupSkew],
    partners: Mapping[int, Mapping[int, Partner]],
    timelines: Sequence[RankTimeline],
    clocks: Clocks,
) -> Elsewhere:
    """Find when ranks that can be compared waited, or may have, outside what the skew of their groups tells.

    Args:
        skews: of all matched groups.
        partners: by rank and index of its send or receive, the other end.
        timelines: distinct ranks.
        clocks: of all ranks.
    """
    several: set[int] = set()
    waited, untold = dict[int, Intervals](), dict[int, Intervals]()
    for timeline in timelines:
        rank = timeline.rank
        if rank in clocks.out_of_step:
            continue
        if sum(rank in skew.group.ranks for skew in skews) > 1 or _count_groups(timeline) > 1:
            several.add(rank)
        own = partners.get(rank, {})
        is_told = _find_told(timeline, skews)
        waits: list[tuple[int, int]] = []
        stays: list[tuple[int, int]] = []
        for index, one in enumerate(timeline.collectives):
            if is_told[index] or one.group_size == 1 or not len(one.span.starts_ns):
                continue
            from_ns, until_ns = (
                find_standing(one, is_device=timeline.is_device)
                if one.operation in POINT_TO_POINT
                else (one.start_ns, one.end_ns)
            )
            if index in own:
                waits.append((from_ns, from_ns + own[index].waited_ns))
            else:
                stays.append((from_ns, until_ns))
        clock = clocks.by_rank.get(rank, Clock())
        waited[rank] = _to_common(_unite(waits), clock)
        untold[rank] = _to_common(subtract(_unite(stays), timeline.compute), clock)
    return Elsewhere(frozenset(several), waited, untold)


def _count_groups(timeline: RankTimeline) -> int:
    """Count the groups in which a rank meets others, as far as its trace tells them apart; each peer is one."""
    return len(
        {
            (one.operation, one.peer) if one.operation in POINT_TO_POINT else (one.group, one.group_ranks)
            for one in timeline.collectives
            if one.group_size != 1
        }
    )


def _find_told(timeline: RankTimeline, skews: Sequence[GroupSkew]) -> Bools:
    """Tell of which collectives it is known when each rank of their group began, shape ``(n,)``."""
    is_told = np.zeros(len(timeline.collectives), dtype=np.bool_)
    for skew in skews:
        if timeline.rank in skew.group.ranks:
            own = skew.group.index[skew.is_known & skew.begins_everywhere, skew.group.ranks.index(timeline.rank)]
            is_told[own[own != ABSENT]] = True
    return is_told


def _unite(spans_ns: Sequence[tuple[int, int]]) -> Intervals:
    borders_ns = np.array(spans_ns, dtype=np.int64).reshape(-1, 2)
    return unite(borders_ns[:, 0], borders_ns[:, 1])


def _to_common(own: Intervals, clock: Clock) -> Intervals:
    return unite(clock.to_common(own.starts_ns), clock.to_common(own.ends_ns))

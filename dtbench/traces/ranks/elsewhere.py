"""When ranks waited, or may have, outside the collectives of which it is known who waited for whom.

::

    rank 1   send to rank 3 [....==]       .  rank 3 was not there: known where their clocks can be compared
             all-gather     [??????]       ?  with ranks that have no trace: all of it may have been waiting
             compute            ████          but what overlapped with compute kept nothing else that long
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock, take_rows
from dtbench.traces.ranks.point_to_point import Partner, find_standing
from dtbench.traces.ranks.skew import GroupSkew
from dtbench.traces.skeleton import Skeleton, are_among
from dtbench.traces.time.intervals import Intervals, Ints, subtract, unite

_NEVER: Final = Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


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
    timelines: Sequence[Skeleton],
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
    told = _find_told(skews)
    for timeline in timelines:
        rank = timeline.rank
        if rank in clocks.out_of_step:
            continue
        own_told = told.get(rank, [])
        if len(own_told) > 1 or _count_groups(timeline) > 1:
            several.add(rank)
        waits_ns, stays_ns = _find_spans(timeline, own_told, partners.get(rank, {}))
        clock = clocks.by_rank.get(rank, Clock())
        waited[rank] = _to_common(waits_ns, clock)
        untold[rank] = _to_common(subtract(stays_ns, timeline.compute) if len(stays_ns.starts_ns) else stays_ns, clock)
    return Elsewhere(frozenset(several), waited, untold)


def _find_spans(
    timeline: Skeleton, told: Sequence[Ints], partners: Mapping[int, Partner]
) -> tuple[Intervals, Intervals]:
    """Return when a rank waited for the other ends of its sends and receives, and when it was in what is not told.

    Args:
        timeline: the rank.
        told: its collectives of which it is known when each rank of their group began, group by group.
        partners: by index of its send or receive, the other end.
    """
    columns = timeline.columns
    is_open = columns.is_seen & ~columns.of_groups(said.size == 1 for said in columns.groups)
    for events in told:
        is_open[events] = False
    if not is_open.any():
        return _NEVER, _NEVER
    is_sent = is_open & are_among(columns.operation, POINT_TO_POINT)
    rows = np.flatnonzero(is_open & ~is_sent)
    waits: list[tuple[int, int]] = []
    stays = list(zip(columns.start_ns[rows].tolist(), columns.end_ns[rows].tolist(), strict=True))
    for index in np.flatnonzero(is_sent).tolist():
        from_ns, until_ns = find_standing(timeline.read(index), is_device=timeline.is_device)
        if index in partners:
            waits.append((from_ns, from_ns + partners[index].waited_ns))
        else:
            stays.append((from_ns, until_ns))
    return _unite(waits), _unite(stays)


def _count_groups(timeline: Skeleton) -> int:
    """Count the groups in which a rank meets others, as far as its trace tells them apart; each peer is one."""
    columns = timeline.columns
    is_shared = columns.of_groups(said.size != 1 for said in columns.groups)
    is_sent = are_among(columns.operation, POINT_TO_POINT)
    shown = set(columns.group[is_shared & ~is_sent].tolist())  # np.unique loads numpy.ma, for one trace too
    groups = {(columns.groups[code].name, columns.groups[code].ranks) for code in shown}
    sent = (timeline.read(index) for index in np.flatnonzero(is_shared & is_sent).tolist())
    return len(groups) + len({(one.operation, one.peer) for one in sent})


def _find_told(skews: Sequence[GroupSkew]) -> dict[int, list[Ints]]:
    """Return, by rank and for each of its groups, its collectives of which it is known when each rank began."""
    told: dict[int, list[Ints]] = {}
    for skew in skews:
        index = take_rows(skew.group.index, skew.is_known & skew.begins_everywhere)
        for rank, own in zip(skew.group.ranks, np.ascontiguousarray(index.T), strict=True):
            told.setdefault(rank, []).append(own if skew.group.is_everywhere else own[own != ABSENT])
    return told


def _unite(spans_ns: Sequence[Sequence[int]]) -> Intervals:
    if not spans_ns:
        return _NEVER
    borders_ns = np.array(spans_ns, dtype=np.int64)
    return unite(borders_ns[:, 0], borders_ns[:, 1])


def _to_common(own: Intervals, clock: Clock) -> Intervals:
    if not len(own.starts_ns):
        return own
    return unite(clock.to_common(own.starts_ns), clock.to_common(own.ends_ns))

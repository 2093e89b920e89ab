"""How fast the link of a process group was: bytes over the time in which any of its collectives moved some.

::

    bucket 0   [wwww════════]             w  waits for the last rank: no transfer
    bucket 1           [════════════]     two at once: each alone is told half the link's speed
    union          [════════════════]     the link moved the bytes of both in this

What each collective is told by itself (``busbw``) understates the link where several of a group run at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.time.intervals import Intervals, clip, unite_all
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective

_AT_ONCE: Final = 0.02
"""Part of their time that collectives share from which several ran at once."""


@dataclass(frozen=True)
class LinkSpeed:
    """How fast bytes moved on the groups of one axis.

    Attributes:
        axis: of the mesh; empty: groups of which that is not told.
        group: their name, where the axis is not told; on every rank that has it.
        size: ranks of each.
        ranks: that have one of which all is known.
        collectives: of those, summed over ranks.
        busbw: bytes per second over the union of transfers, with nccl-tests' factors, median over ranks.
        alone: the same of each collective by itself, median.
        at_once: part of the time of transfers in which another of the group ran, over all.
    """

    axis: str
    group: str
    size: int
    ranks: int
    collectives: int
    busbw: float
    alone: float
    at_once: float

    @property
    def is_understated(self) -> bool:
        """Whether what each collective is told by itself understates the link."""
        return self.at_once >= _AT_ONCE


class _OfRank(NamedTuple):
    """The transfers of one rank on one group."""

    busbw: float
    alone: tuple[float, ...]
    union_ns: int
    sum_ns: int


_Key = tuple[str, str, int]


def measure_links(
    timelines: Sequence[RankTimeline], skews: Sequence[Sequence[CollectiveSkew]]
) -> tuple[LinkSpeed, ...]:
    """Measure the links of all groups, those that moved bytes for longest first.

    A group of a rank is left out where of one of its collectives the size or when its transfer began is not known: it
    may have run beside the others. So are sends and receives, which share no link.

    Args:
        timelines: of the ranks.
        skews: of the collectives of each.
    """
    found: dict[_Key, list[_OfRank]] = {}
    for timeline, own in zip(timelines, skews, strict=True):
        groups: dict[_Key, list[tuple[Collective, CollectiveSkew]]] = {}
        for one, skew in zip(timeline.collectives, own, strict=True):
            if one.operation not in POINT_TO_POINT and one.group_size and one.group_size > 1:
                axis = str(one.axis or "")
                groups.setdefault((axis, "" if axis else one.group, one.group_size), []).append((one, skew))
        for key, members in groups.items():
            measured = _measure(members)
            if measured is not None:
                found.setdefault(key, []).append(measured)
    ordered = sorted(found.items(), key=lambda item: -sum(one.union_ns for one in item[1]))
    return tuple(_sum_up(key, ranks) for key, ranks in ordered)


def _measure(members: Sequence[tuple[Collective, CollectiveSkew]]) -> _OfRank | None:
    transfers: list[Intervals] = []
    alone, moved = [], 0.0
    for one, skew in members:
        factor = bus_factor(one.operation, one.group_size)
        if math.isnan(factor):  # a barrier moves nothing
            continue
        if not one.size_bytes or not skew.transfer_ns or skew.skew_wait_ns is None or skew.lag_ns or not one.has_ended:
            return None
        transfers.append(clip(one.span, one.start_ns + skew.skew_wait_ns, one.end_ns))
        alone.append(skew.busbw)
        moved += one.size_bytes * factor
    if not transfers:
        return None
    union_ns = unite_all(*transfers).length_ns
    busbw = algorithm_bandwidth(round(moved), union_ns)
    if any(map(math.isnan, (busbw, *alone))):
        return None
    return _OfRank(busbw, tuple(alone), union_ns, sum(one.length_ns for one in transfers))


def _sum_up(key: _Key, ranks: Sequence[_OfRank]) -> LinkSpeed:
    axis, group, size = key
    alone = [number for one in ranks for number in one.alone]
    return LinkSpeed(
        axis=axis,
        group=group,
        size=size,
        ranks=len(ranks),
        collectives=len(alone),
        busbw=median(one.busbw for one in ranks),
        alone=median(alone),
        at_once=1 - sum(one.union_ns for one in ranks) / sum(one.sum_ns for one in ranks),
    )

"""How fast the link of a process group was: bytes over the time in which any of its collectives moved some.

::

    bucket 0   [wwww════════]             w  waits for the last rank: no transfer
    bucket 1           [════════════]     two at once: each alone is told half the link's speed
    union          [════════════════]     the link moved the bytes of both in this

What each collective is told by itself (``busbw``) understates the link where several of a group run at once. What ran
beside one of which it is not known when it moved bytes, or how many, is left out with it: it may have had a part of the
link alone.
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
        ranks: that have one which is measured.
        collectives: of those, summed over ranks.
        left_out: that are not measured, summed over ranks: of them, or of one beside them, not all is known.
        busbw: bytes per second over the union of transfers, with nccl-tests' factors, median over ranks.
        alone: the same of each collective by itself, median.
        at_once: part of the time of transfers in which another of the group ran, over all.
    """

    axis: str
    group: str
    size: int
    ranks: int
    collectives: int
    left_out: int
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
    left_out: int
    union_ns: int
    sum_ns: int


class _Transfer(NamedTuple):
    """When one collective moved how many bytes, with nccl-tests' factor; None: not known."""

    span: Intervals
    moved: float | None
    busbw: float


_Key = tuple[str, str, int]
"""Axis, name of the group where no axis is told, and ranks of it."""


def measure_links(
    timelines: Sequence[RankTimeline], skews: Sequence[Sequence[CollectiveSkew]]
) -> tuple[LinkSpeed, ...]:
    """Measure the links of all groups, those that moved bytes for longest first.

    Sends and receives, which share no link, are not among them. Where a trace does not tell how many ranks a group has
    (gloo's do not), those that were found to have its collectives count.

    Args:
        timelines: of the ranks.
        skews: of the collectives of each.
    """
    found: dict[_Key, list[_OfRank]] = {}
    for timeline, own in zip(timelines, skews, strict=True):
        groups: dict[tuple[str, str], list[tuple[Collective, CollectiveSkew]]] = {}
        for one, skew in zip(timeline.collectives, own, strict=True):
            if one.operation not in POINT_TO_POINT:
                axis = str(one.axis or "")
                groups.setdefault((axis, "" if axis else one.group), []).append((one, skew))
        for (axis, name), members in groups.items():
            for size, measured in _measure_sizes(members).items():
                found.setdefault((axis, name, size), []).append(measured)
    ordered = sorted(found.items(), key=lambda item: -sum(one.union_ns for one in item[1]))
    return tuple(_sum_up(key, ranks) for key, ranks in ordered)


def _measure_sizes(members: Sequence[tuple[Collective, CollectiveSkew]]) -> dict[int, _OfRank]:
    """Measure groups of one name, or along one axis, by their size; one whose size is not told may be of each."""
    sizes = [one.group_size or skew.ranks for one, skew in members]
    found = {}
    for size in sorted({size for size in sizes if size is not None and size > 1}):
        transfers = [
            transfer
            for (one, skew), its in zip(members, sizes, strict=True)
            if its in (None, size) and (transfer := _find_transfer(one, skew, size)) is not None
        ]
        measured = _measure(transfers)
        if measured is not None:
            found[size] = measured
    return found


def _find_transfer(one: Collective, skew: CollectiveSkew, size: int) -> _Transfer | None:
    """Return when a collective moved bytes, all of its time where that is not known; None: a barrier moves nothing."""
    factor = bus_factor(one.operation, size)
    if math.isnan(factor):
        return None
    is_known = one.size_bytes and skew.transfer_ns and skew.skew_wait_ns is not None and not skew.lag_ns
    if not is_known or not one.has_ended or math.isnan(skew.busbw):
        return _Transfer(one.span, None, math.nan)
    assert one.size_bytes is not None
    assert skew.skew_wait_ns is not None
    span = clip(one.span, one.start_ns + skew.skew_wait_ns, one.end_ns)
    return _Transfer(span, one.size_bytes * factor, skew.busbw)


def _measure(transfers: Sequence[_Transfer]) -> _OfRank | None:
    """Measure the transfers of a rank that ran beside none of which not all is known; None: there are none."""
    unknown = unite_all(*(one.span for one in transfers if one.moved is None))
    blurred = _keep_touching(unite_all(*(one.span for one in transfers)), unknown)
    kept = [one for one in transfers if one.moved is not None and not _touches(blurred, one.span)]
    union_ns = unite_all(*(one.span for one in kept)).length_ns
    busbw = algorithm_bandwidth(round(sum(one.moved or 0 for one in kept)), union_ns)
    if not kept or math.isnan(busbw):
        return None
    sum_ns = sum(one.span.length_ns for one in kept)
    return _OfRank(busbw, tuple(one.busbw for one in kept), len(transfers) - len(kept), union_ns, sum_ns)


def _keep_touching(spans: Intervals, others: Intervals) -> Intervals:
    """Keep of some intervals those in which others lie, whole."""
    touching = others.touches(spans.starts_ns, spans.ends_ns)
    return Intervals(spans.starts_ns[touching], spans.ends_ns[touching])


def _touches(spans: Intervals, one: Intervals) -> bool:
    return bool(spans.touches(one.starts_ns, one.ends_ns).any())


def _sum_up(key: _Key, ranks: Sequence[_OfRank]) -> LinkSpeed:
    axis, group, size = key
    alone = [number for one in ranks for number in one.alone]
    return LinkSpeed(
        axis=axis,
        group=group,
        size=size,
        ranks=len(ranks),
        collectives=len(alone),
        left_out=sum(one.left_out for one in ranks),
        busbw=median(one.busbw for one in ranks),
        alone=median(alone),
        at_once=1 - sum(one.union_ns for one in ranks) / sum(one.sum_ns for one in ranks),
    )

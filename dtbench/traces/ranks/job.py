"""Whether several traces are ranks of one job, and what of them cannot be used."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from dtbench.base.units import find_absent
from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.notes.job import (
    BeyondSize,
    ForeignGroups,
    HasNoSteps,
    LacksSteps,
    NoOtherEnd,
    NotElsewhere,
    OtherEndUntold,
    OtherJobSize,
    RanksAbsent,
    SendsApart,
    SharesNothing,
    SizeNotTold,
    ThereAlready,
)
from dtbench.traces.notes.note import Note, join_ranks
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.match import Matches
from dtbench.traces.ranks.point_to_point import Transfers
from dtbench.traces.skeleton import Skeleton, are_among

_Rank = TypeVar("_Rank", bound=Skeleton)


def keep_distinct_ranks(timelines: Sequence[_Rank]) -> tuple[tuple[_Rank, ...], tuple[Note, ...]]:
    """Return one timeline per rank, in order of rank, the first of each; and a note for every one left out."""
    kept: dict[int, _Rank] = {}
    notes = []
    for timeline in timelines:
        first = kept.setdefault(timeline.rank, timeline)
        if first is not timeline:
            notes.append(ThereAlready(timeline.rank, timeline.path, first.path))
    return tuple(kept[rank] for rank in sorted(kept)), tuple(notes)


def check_job(timelines: Sequence[Skeleton], matches: Matches, transfers: Transfers) -> tuple[Note, ...]:
    """Return what speaks against these being all ranks of one job, and what is still used.

    Args:
        timelines: distinct ranks.
        matches: of these ranks.
        transfers: likewise, sends and receives.
    """
    if len(timelines) < 2:
        return ()
    return join_ranks(
        (
            *_check_world(timelines),
            *_check_groups(timelines),
            *_check_matches(timelines, matches, transfers),
            *_check_steps(timelines),
            *matches.notes,
        )
    )


def is_one_job(timelines: Sequence[Skeleton], matches: Matches, transfers: Transfers) -> bool:
    """Tell whether nothing speaks against these being ranks of one job: one size, and no rank alone.

    Alone is a rank that shares no collective with any other and sends nothing to it, or may share some but ran at
    another time.
    """
    sizes = {one.world_size for one in timelines if one.world_size is not None}
    matched = _find_matched(matches, transfers)
    strange = [one for one in timelines if one.rank not in matched and _find_apart_ns(one, timelines)]
    return len(timelines) < 2 or not (len(sizes) > 1 or strange or _find_lonely(timelines, matches, transfers))


def _check_world(timelines: Sequence[Skeleton]) -> Iterator[Note]:
    sizes = Counter(one.world_size for one in timelines if one.world_size is not None)
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        for size in sizes:
            others = [one for one in timelines if one.world_size == size]
            if size != usual:
                yield OtherJobSize(_ranks(others), others[0].path, size, usual)
    if not any(one.told_size for one in timelines) and any(_communicates(one) for one in timelines):
        yield SizeNotTold()
    for one in timelines:
        if one.world_size is not None and one.rank >= one.world_size:
            yield BeyondSize(one.rank, one.path, one.world_size, is_said=one.said_rank == one.rank)
    known = max(sizes, default=0)
    absent = find_absent((one.rank for one in timelines), known) if len(sizes) == 1 else []
    if absent:
        yield RanksAbsent(tuple(absent), len(timelines), known)


def _check_groups(timelines: Sequence[Skeleton]) -> Iterator[Note]:
    """Find ranks that communicate on groups they are not in: ranks numbered wrongly, or of another job."""
    for timeline in timelines:
        said = timeline.columns.groups
        foreign = sorted({one.name for one in said if one.ranks and timeline.rank not in one.ranks})
        if foreign:
            yield ForeignGroups(timeline.rank, timeline.path, tuple(foreign))


def _check_matches(timelines: Sequence[Skeleton], matches: Matches, transfers: Transfers) -> Iterator[Note]:
    matched = _find_matched(matches, transfers)
    by_rank = {one.rank: one for one in timelines}
    for one in _find_lonely(timelines, matches, transfers):
        yield SharesNothing((one.rank,), one.path, _find_apart_ns(one, timelines))
    for rank, count in matches.alone.items():
        if rank in matched:
            yield NotElsewhere((rank,), by_rank[rank].path, count, len(by_rank[rank].columns))


def check_transfers(timelines: Sequence[Skeleton], transfers: Transfers, clocks: Clocks) -> tuple[Note, ...]:
    """Return of which sends and receives it is not known how long they waited for their other end.

    Args:
        timelines: distinct ranks.
        transfers: of these ranks.
        clocks: theirs.
    """
    if len(timelines) < 2:
        return ()
    by_rank = {timeline.rank: timeline for timeline in timelines}
    sent = {rank: int(are_among(by_rank[rank].columns.operation, POINT_TO_POINT).sum()) for rank in transfers.alone}
    ends_of = ((rank, count, transfers.untold.get(rank, 0)) for rank, count in transfers.alone.items())
    found = [(rank, count - untold, untold) for rank, count, untold in ends_of]
    notes = (
        *join_ranks(NoOtherEnd((rank,), count, sent[rank]) for rank, count, _ in found if count),
        *join_ranks(OtherEndUntold((rank,), untold, sent[rank]) for rank, _, untold in found if untold),
    )
    ends = {rank for one in transfers.matched if not one.is_comparable for rank in (one.sender, one.receiver)}
    apart = sorted(ends - clocks.out_of_step)
    return (*notes, SendsApart(tuple(apart))) if apart else notes


def _find_matched(matches: Matches, transfers: Transfers) -> set[int]:
    """Find ranks that share a collective with another, or a send that was there before its receive ended.

    Where nothing tells how far their clocks are apart, a send and its receive are one whenever they were.
    """
    shared = {
        group.ranks[column] for group in matches.groups for column in np.flatnonzero(group.there.any(axis=0)).tolist()
    }
    sent = {
        rank
        for one in transfers.matched
        if one.sent_ns is not None or not one.is_comparable
        for rank in (one.sender, one.receiver)
    }
    return shared | sent


def _find_lonely(timelines: Sequence[Skeleton], matches: Matches, transfers: Transfers) -> list[Skeleton]:
    known = _find_matched(matches, transfers) | matches.undecided
    return [one for one in timelines if one.rank not in known and _communicates(one)]


def _communicates(timeline: Skeleton) -> bool:
    columns = timeline.columns
    return bool((columns.is_seen & columns.of_groups(said.size != 1 for said in columns.groups)).any())


def _find_apart_ns(timeline: Skeleton, timelines: Sequence[Skeleton]) -> int | None:
    """Return how far a trace lies from all others; None where it overlaps with one or nothing is known."""
    own = _extent(timeline)
    others = [extent for one in timelines if one is not timeline and (extent := _extent(one)) is not None]
    if own is None or not others:
        return None
    gap_ns = min(max(other[0] - own[1], own[0] - other[1]) for other in others)
    return gap_ns if gap_ns > 0 else None


def _extent(timeline: Skeleton) -> tuple[int, int] | None:
    times_ns = np.concatenate((timeline.columns.start_ns, timeline.columns.end_ns))
    return (int(times_ns.min()), int(times_ns.max())) if len(times_ns) else None


def _check_steps(timelines: Sequence[Skeleton]) -> Iterator[Note]:
    """Find steps that some ranks have and others lack; ranks without any steps are a matter of their own."""
    with_steps = [one for one in timelines if one.step_numbers]
    every = set().union(*(one.step_numbers for one in with_steps))
    lacking: dict[tuple[int, ...], list[Skeleton]] = defaultdict(list)
    for one in with_steps:
        lacking[tuple(sorted(every.difference(one.step_numbers)))].append(one)
    for steps, those in lacking.items():
        if steps:
            yield LacksSteps(_ranks(those), those[0].path, steps)
    without = [one for one in timelines if not one.step_numbers]
    if with_steps and without:
        yield HasNoSteps(_ranks(without), without[0].path)


def _ranks(timelines: Sequence[Skeleton]) -> tuple[int, ...]:
    return tuple(one.rank for one in timelines)

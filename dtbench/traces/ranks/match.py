"""Which collectives of several ranks are one: by (process group, sequence number), else by order of issue.

Order is read with holes: a rank whose trace lacks one event still matches with all others (``align.py``). Ranks
without a trace, and groups that the traces do not name, are allowed; what cannot be known is then not called whole.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.units import find_absent
from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.job import GroupUndecided
from dtbench.traces.ranks.align import ABSENT, line_up
from dtbench.traces.ranks.groups import GroupEvents, find_groups, read_series
from dtbench.traces.ranks.split import Part, Split, is_one_group, split_group
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import INFERRED_PREFIX, Collective, Launch


@dataclass(frozen=True)
class Match:
    """One collective over its ranks.

    Attributes:
        group: name of its process group; empty: the traces do not say.
        members: by rank, index into that rank's collectives.
        is_whole: every rank of the group is there.
    """

    group: str
    members: Mapping[int, int]
    is_whole: bool


@dataclass(frozen=True)
class MatchedGroup:
    """The collectives of one process group, lined up over its ranks.

    Attributes:
        name: as torch calls it on the first rank; empty: the traces do not say.
        ranks: those that have a trace, one per column.
        is_complete: every rank of the group has a trace, and an event of the group in it.
        index: shape ``(m, len(ranks))``, index into that rank's collectives, ``ABSENT`` where its trace has no such
            event; every row has at least two.
    """

    name: str
    ranks: tuple[int, ...]
    is_complete: bool
    index: Ints

    @property
    def there(self) -> Bools:
        """Shape ``(m, len(ranks))``: that rank has the event."""
        return np.asarray(self.index != ABSENT, dtype=np.bool_)

    @property
    def is_whole(self) -> Bools:
        """Shape ``(m,)``: every rank of the group has the event."""
        return np.asarray(self.there.all(axis=1) & self.is_complete, dtype=np.bool_)


@dataclass(frozen=True)
class Matches:
    """All collectives that several ranks have in common.

    Attributes:
        groups: each collective is in at most one of them.
        alone: by rank, number of collectives (with a span, on a group of more than one) that no other rank has.
        undecided: ranks with collectives whose group the traces do not tell; these are in none of the others.
        notes: what could not be matched.
        is_size_told: some trace tells how many ranks the job, or a group of it, has; else any may be missing.
    """

    groups: tuple[MatchedGroup, ...]
    alone: Mapping[int, int]
    undecided: frozenset[int]
    notes: tuple[GroupUndecided, ...]
    is_size_told: bool = True

    def __iter__(self) -> Iterator[Match]:
        """Yield one match after the other, group by group, in order of time."""
        for group in self.groups:
            for row, is_whole in zip(group.index.tolist(), group.is_whole.tolist(), strict=True):
                members = {rank: index for rank, index in zip(group.ranks, row, strict=True) if index != ABSENT}
                yield Match(group.name, members, is_whole)


def match_collectives(timelines: Sequence[RankTimeline]) -> Matches:
    """Match the collectives of several ranks; sends and receives are left to ``point_to_point.py``.

    Args:
        timelines: distinct ranks.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    has_all_ranks = _has_all_ranks(timelines)
    groups: list[MatchedGroup] = []
    notes: list[GroupUndecided] = []
    alone: Counter[int] = Counter()
    undecided: set[int] = set()
    for group in find_groups(timelines):
        is_sure = _is_sure(group, timelines, has_all_ranks=has_all_ranks)
        split = Split((Part(group),)) if is_sure else split_group(group, by_rank)
        undecided |= split.undecided
        notes += [_note_undecided(group, split.undecided)] if split.undecided else []
        for part in split.parts:
            index = _line_up(part.group, by_rank)
            if not is_sure and not is_one_group(index, _ends(index, part.group, by_rank)):
                undecided |= set(part.group.events)
                notes.append(_note_undecided(part.group, part.group.events))
                continue
            shared = (index != ABSENT).sum(axis=1) > 1
            is_complete = part.is_clear and _is_complete(part.group, timelines, has_all_ranks=has_all_ranks)
            if shared.any():
                groups.append(MatchedGroup(group.name, tuple(part.group.events), is_complete, index[shared]))
            if group.size != 1:
                alone.update(_count(index[~shared], part.group))
    return Matches(
        groups=tuple(groups),
        alone={rank: count for rank, count in sorted(alone.items()) if count},
        undecided=frozenset(undecided),
        notes=tuple(notes),
        is_size_told=any(timeline.told_size for timeline in timelines),
    )


def _note_undecided(group: GroupEvents, ranks: Iterable[int]) -> GroupUndecided:
    known = tuple(sorted(ranks))
    return GroupUndecided(known, group.name, sum(len(group.events[rank]) for rank in known))


def _count(index: Ints, group: GroupEvents) -> dict[int, int]:
    return dict(zip(group.events, (index != ABSENT).sum(axis=0).tolist(), strict=True))


def _ends(index: Ints, group: GroupEvents, by_rank: Mapping[int, RankTimeline]) -> Ints:
    ends = [np.array([one.end_ns for one in by_rank[rank].collectives], dtype=np.int64) for rank in group.events]
    return np.stack([own[index[:, column]] for column, own in enumerate(ends)], axis=1)


def _has_all_ranks(timelines: Sequence[RankTimeline]) -> bool:
    ranks = {timeline.rank for timeline in timelines}
    size = max((timeline.told_size or 0 for timeline in timelines), default=0)
    return size > 0 and not find_absent(ranks, max(size, len(ranks)))


def _is_complete(group: GroupEvents, timelines: Sequence[RankTimeline], *, has_all_ranks: bool) -> bool:
    """Tell whether every rank of a group has events of it.

    Where the traces do not say its ranks nor their number, no other may have lost its own.
    """
    if group.ranks:
        return set(group.ranks) <= set(group.events)
    if group.size is not None:
        return len(group.events) == group.size
    return has_all_ranks and not any(
        timeline.rank not in group.events and _may_be_of(timeline, group, timelines) for timeline in timelines
    )


def _may_be_of(timeline: RankTimeline, group: GroupEvents, timelines: Sequence[RankTimeline]) -> bool:
    """Tell whether a rank without events of a group may have lost them: it launched such, or shows no communication."""
    by_rank = {one.rank: one.collectives for one in timelines}
    operations = {by_rank[rank][event].operation for rank, own in group.events.items() for event in own.tolist()}
    issued: Sequence[Launch | Collective] = (
        *timeline.unseen,
        *(one for one in timeline.collectives if one.is_span_missing),
    )
    return not any(one.is_seen for one in timeline.collectives) or any(
        (not one.group or not group.name or one.group == group.name)
        and (one.operation is None or None in operations or one.operation in operations)
        for one in issued
    )


def _line_up(group: GroupEvents, by_rank: Mapping[int, RankTimeline]) -> Ints:
    """Return shape ``(m, number of ranks)``, index into each rank's collectives or ``ABSENT``."""
    numbered: list[Ints] = []
    rest: list[Ints] = []
    for rank, events in group.events.items():
        collectives = by_rank[rank].collectives
        has_number = np.array([collectives[event].seq is not None for event in events.tolist()], dtype=np.bool_)
        numbered.append(events[has_number])
        rest.append(events[~has_number])
    timelines = [by_rank[rank] for rank in group.events]
    return np.concatenate((_by_number(timelines, numbered), _by_order(timelines, rest)))


def _by_number(timelines: Sequence[RankTimeline], events: Sequence[Ints]) -> Ints:
    """Match by sequence number; several of one operation under one number (coalesced) by their order."""
    rows: dict[tuple[int | None, Operation | None, int], list[int]] = defaultdict(lambda: [ABSENT] * len(timelines))
    for column, (timeline, own) in enumerate(zip(timelines, events, strict=True)):
        seen: Counter[tuple[int | None, Operation | None]] = Counter()
        for event in own.tolist():
            key = (timeline.collectives[event].seq, timeline.collectives[event].operation)
            rows[*key, seen[key]][column] = event
            seen[key] += 1
    ordered = sorted(rows.items(), key=lambda item: item[0][0] or 0)
    return np.array([row for _, row in ordered], dtype=np.int64).reshape(-1, len(timelines))


def _by_order(timelines: Sequence[RankTimeline], events: Sequence[Ints]) -> Ints:
    rows = line_up(read_series(timelines, events))
    for column, own in enumerate(events):
        there = rows[:, column] != ABSENT
        rows[there, column] = own[rows[there, column]]
    return rows


def _is_sure(group: GroupEvents, timelines: Sequence[RankTimeline], *, has_all_ranks: bool) -> bool:
    """Tell whether one name, or none, can only mean one group.

    DeviceMesh gives all groups along an axis one name when it splits a communicator, so that without their ranks only
    the size tells, and only where no rank is missing.
    """
    if group.ranks or group.is_told or (len(timelines) == 2 and has_all_ranks and timelines[0].world_size == 2):
        return True
    is_named = bool(group.name) and not group.name.startswith(INFERRED_PREFIX)
    return is_named and (group.size is None or (has_all_ranks and group.size == len(group.events)))

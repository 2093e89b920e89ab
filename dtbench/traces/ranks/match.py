"""Which collectives of several ranks are one: by (process group, sequence number), else by order of issue.

Order is read with holes: a rank whose trace lacks one event still matches with all others (``align.py``). Ranks
without a trace, and groups that the traces do not name, are allowed; what cannot be known is then not called whole.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtbench.base.units import find_absent
from dtbench.traces.notes.job import GroupUndecided
from dtbench.traces.ranks.align import ABSENT, line_up
from dtbench.traces.ranks.groups import GroupEvents, find_groups, read_series
from dtbench.traces.ranks.split import Part, Split, is_one_group, split_group
from dtbench.traces.skeleton import CollectiveColumns, Skeleton, are_equal, code_of
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.who.collectives import INFERRED_PREFIX


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
            event; every row has at least two. Each column lies in one piece (Fortran-contiguous).
    """

    name: str
    ranks: tuple[int, ...]
    is_complete: bool
    index: Ints

    @cached_property
    def there(self) -> Bools:
        """Shape ``(m, len(ranks))``: that rank has the event."""
        return np.asarray(self.index != ABSENT, dtype=np.bool_)

    @cached_property
    def is_everywhere(self) -> bool:
        """Whether every of these ranks has every event."""
        return bool(self.there.all())

    @cached_property
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


def match_collectives(timelines: Sequence[Skeleton], found: Sequence[GroupEvents] | None = None) -> Matches:
    """Match the collectives of several ranks; sends and receives are left to ``point_to_point.py``.

    Args:
        timelines: distinct ranks.
        found: their groups; None: not looked for yet.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    has_all_ranks = _has_all_ranks(timelines)
    groups: list[MatchedGroup] = []
    notes: list[GroupUndecided] = []
    alone: Counter[int] = Counter()
    undecided: set[int] = set()
    for group in find_groups(timelines) if found is None else found:
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
                kept = np.asfortranarray(index if shared.all() else index[shared])
                groups.append(MatchedGroup(group.name, tuple(part.group.events), is_complete, kept))
            if group.size != 1 and not shared.all():
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


def _ends(index: Ints, group: GroupEvents, by_rank: Mapping[int, Skeleton]) -> Ints:
    ends = [by_rank[rank].columns.end_ns for rank in group.events]
    return np.stack([own[index[:, column]] for column, own in enumerate(ends)], axis=1)


def _has_all_ranks(timelines: Sequence[Skeleton]) -> bool:
    ranks = {timeline.rank for timeline in timelines}
    size = max((timeline.told_size or 0 for timeline in timelines), default=0)
    return size > 0 and not find_absent(ranks, max(size, len(ranks)))


def _is_complete(group: GroupEvents, timelines: Sequence[Skeleton], *, has_all_ranks: bool) -> bool:
    """Tell whether every rank of a group has events of it.

    Where the traces do not say its ranks nor their number, no other may have lost its own.
    """
    if group.ranks:
        return set(group.ranks) <= set(group.events)
    if group.size is not None:
        return len(group.events) == group.size
    if not has_all_ranks:
        return False
    without = [timeline for timeline in timelines if timeline.rank not in group.events]
    return not without or not _may_lack(without, group, timelines)


def _may_lack(without: Sequence[Skeleton], group: GroupEvents, timelines: Sequence[Skeleton]) -> bool:
    """Tell whether ranks without events of a group may have lost them: they launched such, or show no communication."""
    by_rank = {one.rank: one.columns for one in timelines}
    operations = {code for rank, own in group.events.items() for code in set(by_rank[rank].operation[own].tolist())}
    return any(_may_be_of(timeline, group, operations) for timeline in without)


def _may_be_of(timeline: Skeleton, group: GroupEvents, operations: Collection[int]) -> bool:
    untold, columns = code_of(None), timeline.columns
    missing = np.flatnonzero(columns.is_span_missing)
    issued = [(one.group, code_of(one.operation)) for one in timeline.unseen]
    names, codes = (part[missing].tolist() for part in (columns.group, columns.operation))
    issued += [(columns.groups[name].name, code) for name, code in zip(names, codes, strict=True)]
    return not columns.is_seen.any() or any(
        (not name or not group.name or name == group.name)
        and (code == untold or untold in operations or code in operations)
        for name, code in issued
    )


def _line_up(group: GroupEvents, by_rank: Mapping[int, Skeleton]) -> Ints:
    """Return shape ``(m, number of ranks)``, index into each rank's collectives or ``ABSENT``."""
    timelines = [by_rank[rank] for rank in group.events]
    has_number = [one.columns.seq.is_told[own] for one, own in zip(timelines, group.events.values(), strict=True)]
    if all(told.all() for told in has_number):
        return _by_number([one.columns for one in timelines], list(group.events.values()))
    numbered = [own[told] for own, told in zip(group.events.values(), has_number, strict=True)]
    rest = [own[~told] for own, told in zip(group.events.values(), has_number, strict=True)]
    by_number = _by_number([one.columns for one in timelines], numbered)
    return np.concatenate((by_number, _by_order(timelines, rest))) if any(map(len, rest)) else by_number


def _by_number(columns: Sequence[CollectiveColumns], events: Sequence[Ints]) -> Ints:
    """Match by sequence number; several of one operation under one number (coalesced) by their order.

    Rows rise in number; those of one number come in the order in which the ranks have them, first rank first.
    """
    numbers = [own.seq.values[which] for own, which in zip(columns, events, strict=True)]
    codes = [own.operation[which] for own, which in zip(columns, events, strict=True)]
    are_alike = all(
        are_equal(numbers[0], number) and are_equal(codes[0], code) for number, code in zip(numbers, codes, strict=True)
    )
    if are_alike:
        order = np.argsort(numbers[0], kind="stable")
        return np.stack([own[order] for own in events]).T
    column = np.repeat(np.arange(len(events)), [len(own) for own in events])
    number, code = np.concatenate(numbers), np.concatenate(codes).astype(np.int64)
    place = np.arange(len(number))
    order = np.lexsort((place, code, number, column))
    before = _count_before((column[order], number[order], code[order]))
    which = np.empty_like(place)
    which[order] = before
    order = np.lexsort((place, which, code, number))
    is_first = _differ((number[order], code[order], which[order]))
    keys = np.lexsort((place[order][is_first], number[order][is_first]))
    row_of = np.empty_like(keys)
    row_of[keys] = np.arange(len(keys))
    rows = np.full((len(keys), len(events)), ABSENT, dtype=np.int64)
    rows[row_of[np.cumsum(is_first) - 1], column[order]] = np.concatenate(events)[order]
    return rows


def _differ(sorted_keys: Sequence[Ints]) -> Bools:
    """Tell of each row of some columns whether it is unlike the row before."""
    is_unlike = np.ones(len(sorted_keys[0]), dtype=np.bool_)
    if len(is_unlike):
        is_unlike[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in sorted_keys])
    return is_unlike


def _count_before(sorted_keys: Sequence[Ints]) -> Ints:
    """Count for each row of some sorted columns the rows before it that are like it."""
    is_first = _differ(sorted_keys)
    place = np.arange(len(is_first))
    return np.asarray(place - place[is_first][np.cumsum(is_first) - 1], dtype=np.int64)


def _by_order(timelines: Sequence[Skeleton], events: Sequence[Ints]) -> Ints:
    rows = line_up(read_series(timelines, events))
    for column, own in enumerate(events):
        there = rows[:, column] != ABSENT
        rows[there, column] = own[rows[there, column]]
    return rows


def _is_sure(group: GroupEvents, timelines: Sequence[Skeleton], *, has_all_ranks: bool) -> bool:
    """Tell whether one name, or none, can only mean one group.

    DeviceMesh gives all groups along an axis one name when it splits a communicator, so that without their ranks only
    the size tells, and only where no rank is missing.
    """
    if group.ranks or group.is_told or (len(timelines) == 2 and has_all_ranks and timelines[0].world_size == 2):
        return True
    is_named = bool(group.name) and not group.name.startswith(INFERRED_PREFIX)
    return is_named and (group.size is None or (has_all_ranks and group.size == len(group.events)))

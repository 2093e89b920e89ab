"""For whom ranks waited: each moment of each rank once, and not for one that only handed on another's delay.

::

    rank 2        [A]                     comes late, and rank 1 waits for it
    rank 1   [wwwwwA]  [B]                so comes late to B, through no fault of its own
    rank 0   [hhhhhhhhhhB]                h  handed on: had rank 1 waited for nobody, it would have come so much earlier

What a rank waited since it last met the one that waits for it, and that one did not wait as well, may have delayed it
by so much: whether it did (it may have lain beside compute) no trace says, so nobody is said to be waited for then.
It may as well have waited elsewhere: in a send, or with ranks that no trace is of (``elsewhere.py``).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.elsewhere import Elsewhere
from dtbench.traces.ranks.skew import GroupSkew
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite, unite_all

_LONG_AGO: Final = np.iinfo(np.int64).min // 2
_AT_ONCE: Final = 1 << 16  # waits that are gone through together: they stay in a core's caches


@dataclass(frozen=True)
class Caused:
    """Sums over all collectives of which it is known who began last.

    Attributes:
        waited_ns: by the rank that was late, or all that were late together, how long others waited for those alone,
            summed over them; in collectives at once, once.
        together: by ranks that were late together, in how many collectives.
        handed_on_ns: what ranks waited beside that for one that others before may have delayed.
        untold_ns: the part of that of which it is not known whether others delayed it, by the rank waited for.
    """

    waited_ns: Mapping[tuple[int, ...], int]
    together: Mapping[tuple[int, ...], int]
    handed_on_ns: int
    untold_ns: Mapping[int, int]


class _Waits(NamedTuple):
    """Waits of one rank on the common clock; ``late`` is the place of those that it waited for."""

    starts_ns: Ints
    ends_ns: Ints
    late: Ints


def sum_caused(skews: Sequence[GroupSkew], may_hand_on: Set[int]) -> Caused:
    """Sum for whom ranks waited, as ``find_handed_on`` found it, where it is known of every rank when it began.

    Args:
        skews: of every matched group.
        may_hand_on: ranks that meet others elsewhere.
    """
    ranks = sorted({rank for skew in skews for rank in skew.group.ranks})
    places: dict[tuple[int, ...], int] = {(rank,): place for place, rank in enumerate(ranks)}
    together = Counter[tuple[int, ...]]()
    found: dict[int, list[_Waits]] = {}
    handed_on_ns = 0
    untold_ns = Counter[int]()
    for skew in skews:
        handed_on_ns += int(skew.handed_on_ns.sum())
        has_last = skew.last_column != ABSENT
        by_last = np.zeros(len(skew.group.ranks), dtype=np.int64)
        np.add.at(by_last, skew.last_column[has_last], skew.untold_ns.sum(axis=1)[has_last])
        untold_ns.update(dict(zip(skew.group.ranks, by_last.tolist(), strict=True)))
        late = _place_late(skew, may_hand_on, places, together)
        for rank, waits in zip(skew.group.ranks, _read_waits(skew, late), strict=True):
            found.setdefault(rank, []).append(waits)
    waited_ns = _sum_by_late(list(found.values()), len(places))
    return Caused(dict(zip(places, waited_ns.tolist(), strict=True)), together, handed_on_ns, untold_ns)


def _read_waits(skew: GroupSkew, late: Ints) -> list[_Waits]:
    """Return the waits of each rank of a group that were not handed on, column by column.

    Args:
        skew: of the group.
        late: shape ``(m,)``, the place of those that were late; ``ABSENT``: it is not known.
    """
    is_waiting = (skew.is_waiting & (late != ABSENT)[:, None] & ~skew.is_late).T
    last_ns, apart_ns, late = (_repeat(own, is_waiting) for own in (skew.last_ns, skew.apart_ns, late))
    waited_ns = np.minimum(skew.wait_ns.T[is_waiting], apart_ns)
    starts_ns = last_ns - waited_ns
    ends_ns = last_ns - np.minimum(skew.handed_on_ns.T[is_waiting], waited_ns)
    return [_Waits(starts_ns[own], ends_ns[own], late[own]) for own in _divide_by_rank(is_waiting)]


def _repeat(values: Ints, kept: Bools) -> Ints:
    """Return what holds for all ranks of each collective, shape ``(m,)``, for those of ``(r, m)`` that are kept."""
    return np.asarray(np.broadcast_to(values, kept.shape)[kept], dtype=np.int64)


def _divide_by_rank(kept: Bools) -> list[slice]:
    """Return where those of each rank are in a row of all that are kept of shape ``(r, m)``."""
    return [slice(*borders) for borders in itertools.pairwise([0, *np.cumsum(kept.sum(axis=1)).tolist()])]


def _place_late(
    skew: GroupSkew, may_hand_on: Set[int], places: dict[tuple[int, ...], int], together: Counter[tuple[int, ...]]
) -> Ints:
    """Return the place of those that were late in each collective, shape ``(m,)``; ``ABSENT``: it is not known.

    Of several it is told only where none of them meets ranks elsewhere, whose delays it may hand on.

    Args:
        skew: of a group.
        may_hand_on: ranks that meet others elsewhere.
        places: of each rank; those of several that were late together are added.
        together: in how many collectives; likewise.
    """
    ranks, late = np.array(skew.group.ranks), np.full(len(skew.last_ns), ABSENT, dtype=np.int64)
    alone = skew.last_column != ABSENT
    late[alone] = np.array([places[rank,] for rank in skew.group.ranks], dtype=np.int64)[skew.last_column[alone]]
    for rows in _find_together(skew, may_hand_on):
        several = tuple(ranks[skew.is_late[rows[0]]].tolist())
        late[rows] = places.setdefault(several, len(places))
        together[several] += len(rows)
    return late


def _are_together(skew: GroupSkew, may_hand_on: Set[int]) -> Bools:
    """Tell in which collectives several ranks were late that meet no others elsewhere, shape ``(m,)``."""
    meets_elsewhere = np.isin(skew.group.ranks, list(may_hand_on))
    are_several: Bools = skew.late_count > 1
    if not are_several.any() or not meets_elsewhere.any():
        return are_several
    return np.asarray(are_several & ~(skew.is_late & meets_elsewhere).any(axis=1), dtype=np.bool_)


def _find_together(skew: GroupSkew, may_hand_on: Set[int]) -> list[list[int]]:
    """Return in which collectives, of which some waited, the same several ranks were late that meet none elsewhere."""
    rows = np.flatnonzero(_are_together(skew, may_hand_on))
    rows = rows[skew.wait_ns[rows].max(axis=1) > 0]
    of: dict[bytes, list[int]] = {}
    for row, members in zip(rows.tolist(), np.packbits(skew.is_late[rows], axis=1), strict=True):
        of.setdefault(members.tobytes(), []).append(row)
    return list(of.values())


def find_undecided(skew: GroupSkew, may_hand_on: Set[int]) -> Bools:
    """Tell in which collectives, of which every rank is compared, some waited and it is not known for whom.

    Returns:
        Shape ``(m,)``.
    """
    is_open: Bools = skew.is_known & skew.begins_everywhere & (skew.last_column == ABSENT)
    if not is_open.any():
        return is_open
    is_open &= skew.is_waiting.any(axis=1) & ~_are_together(skew, may_hand_on)
    return np.asarray(is_open, dtype=np.bool_)


def _sum_by_late(waits: Sequence[Sequence[_Waits]], places: int) -> Ints:
    """Sum what ranks waited for others, moments in which one did so for the same in several collectives once.

    Args:
        waits: of each rank, group by group.
        places: number of all that may be late.

    Returns:
        Shape ``(places,)``.
    """
    waited_ns = np.zeros(places, dtype=np.int64)
    for some in _batch(waits):
        late, sums_ns = _sum_of_some(some, places)
        np.add.at(waited_ns, late, sums_ns)
    return waited_ns


def _batch(waits: Iterable[Sequence[_Waits]]) -> Iterator[list[Sequence[_Waits]]]:
    """Yield the waits of so many ranks together that what is computed of them stays in a core's caches."""
    some, count = list[Sequence[_Waits]](), 0
    for own in waits:
        some.append(own)
        count += sum(len(part.late) for part in own)
        if count >= _AT_ONCE:
            yield some
            some, count = [], 0
    if count:
        yield some


def _sum_of_some(waits: Sequence[Sequence[_Waits]], places: int) -> tuple[Ints, Ints]:
    """Return who is waited for, each as often as ranks wait for it, and how long each of these does."""
    starts_ns, ends_ns, pairs = [], [], []
    for rank, own in enumerate(waits):
        first_ns = min((int(part.starts_ns.min()) for part in own if len(part.late)), default=0)
        for part in own:
            starts_ns.append(part.starts_ns - first_ns)
            ends_ns.append(part.ends_ns - first_ns)
            pairs.append(part.late + rank * places)
    pair = np.concatenate(pairs)
    number = np.zeros(len(waits) * places, dtype=np.int64)
    number[pair] = 1
    found = np.flatnonzero(number)
    number[found] = np.arange(len(found))
    last_ns = np.concatenate(ends_ns)
    apart_ns = int(last_ns.max()) + 1
    own_ns = number[pair] * apart_ns  # each pair of ranks has a stretch of time of its own
    borders_ns = np.arange(len(found) + 1, dtype=np.int64) * apart_ns
    covered_ns = unite(np.concatenate(starts_ns) + own_ns, last_ns + own_ns).covered_before(borders_ns)
    return found % places, np.asarray(np.diff(covered_ns), dtype=np.int64)


def find_handed_on(skews: Sequence[GroupSkew], elsewhere: Elsewhere) -> list[GroupSkew]:
    """Return the skews with how much of each wait the last rank may only have handed on."""
    groups_of: dict[int, list[int]] = {}
    waits: dict[int, list[_Spans]] = {}
    for place, skew in enumerate(skews):
        for rank, spans in zip(skew.group.ranks, _find_waits(skew), strict=True):
            groups_of.setdefault(rank, []).append(place)
            waits.setdefault(rank, []).append(spans)
    told = {rank: _unite_waits(own, elsewhere.waited.get(rank)) for rank, own in waits.items()}
    either = {rank: _add(own, elsewhere.untold.get(rank)) for rank, own in told.items()}
    search = _Search(
        skews=skews,
        groups_of={rank: frozenset(own) for rank, own in groups_of.items()},
        told=told,
        either=either,
        may_hand_on=frozenset(rank for rank in elsewhere.ranks if rank in either and either[rank].length_ns),
    )
    return [search.find(skew) for skew in skews]


class _Spans(NamedTuple):
    """Waits on the common clock."""

    starts_ns: Ints
    ends_ns: Ints


def _find_waits(skew: GroupSkew) -> list[_Spans]:
    """Return when each rank of a group waited, column by column."""
    is_waiting = skew.is_waiting.T
    last_ns = _repeat(skew.last_ns, is_waiting)
    starts_ns = last_ns - skew.wait_ns.T[is_waiting]
    return [_Spans(starts_ns[own], last_ns[own]) for own in _divide_by_rank(is_waiting)]


def _unite_waits(waits: Sequence[_Spans], elsewhere: Intervals | None) -> Intervals:
    """Return when a rank waited, as far as it is known, on the common clock."""
    also = [] if elsewhere is None else [_Spans(elsewhere.starts_ns, elsewhere.ends_ns)]
    starts_ns, ends_ns = zip(*waits, *also, strict=True)
    return unite(np.concatenate(starts_ns), np.concatenate(ends_ns))


def _add(told: Intervals, untold: Intervals | None) -> Intervals:
    return told if untold is None or not len(untold.starts_ns) else unite_all(told, untold)


@dataclass(frozen=True)
class _Search:
    """What tells how much of the waits in a group was handed on.

    Attributes:
        skews: of all groups.
        groups_of: by rank, the places of its groups.
        told: when ranks waited, as far as it is known.
        either: when they did, or may have.
        may_hand_on: ranks that may have waited, and meet others elsewhere.
    """

    skews: Sequence[GroupSkew]
    groups_of: Mapping[int, frozenset[int]]
    told: Mapping[int, Intervals]
    either: Mapping[int, Intervals]
    may_hand_on: Set[int]
    _meetings: dict[frozenset[int], Ints] = field(default_factory=dict)

    def find(self, skew: GroupSkew) -> GroupSkew:
        """Return one group's skew with how much of each wait the last rank may only have handed on."""
        ranks = skew.group.ranks
        late = [at for at in np.unique(skew.last_column[skew.last_column != ABSENT]) if ranks[at] in self.may_hand_on]
        is_waiting = (skew.is_waiting & np.isin(skew.last_column, late)[:, None]).T if late else None
        if is_waiting is None or not is_waiting.any():
            return skew
        told = _Group(skew, is_waiting, self.told, self.groups_of)
        is_all_told = all(self.either[rank] is self.told[rank] for rank in ranks)
        either = told if is_all_told else _Group(skew, is_waiting, self.either, self.groups_of)
        handed_ns, untold_ns = (np.zeros(is_waiting.shape, dtype=np.int64) for _ in range(2))
        for last in late:
            rows = np.flatnonzero(skew.last_column == last)
            for shared, columns in told.divide(last):
                meetings_ns = self._find_meetings(shared)
                for some in _divide(columns, len(rows)):
                    place = np.ix_(some, rows)
                    told_ns = told.compare(last, place, shared, meetings_ns)
                    either_ns = told_ns if is_all_told else either.compare(last, place, shared, meetings_ns)
                    waited_ns = np.where(is_waiting[place], skew.wait_ns.T[place], 0)
                    handed_ns[place] = np.clip(np.maximum(told_ns, either_ns), 0, waited_ns)
                    if not is_all_told:
                        untold_ns[place] = handed_ns[place] - np.clip(told_ns, 0, waited_ns)
        return replace(skew, handed_on_ns=handed_ns.T, untold_ns=skew.untold_ns if is_all_told else untold_ns.T)

    def _find_meetings(self, shared: frozenset[int]) -> Ints:
        """Return when all ranks of some groups had come to a collective, rising: from then on all were equally late."""
        if shared not in self._meetings:
            skews = (self.skews[place] for place in sorted(shared))
            met_ns = [skew.last_ns[skew.is_known & skew.all_await] for skew in skews]
            self._meetings[shared] = np.sort(np.concatenate(met_ns))
        return self._meetings[shared]


def _divide(columns: Ints, rows: int) -> Iterator[Ints]:
    """Yield so many of some columns at once that what is computed of them stays in a core's caches."""
    size = max(1, _AT_ONCE // rows)
    yield from (columns[at : at + size] for at in range(0, len(columns), size))


class _Group:
    """How long the ranks of one group had waited, anywhere, by some moments."""

    def __init__(
        self,
        skew: GroupSkew,
        is_waiting: Bools,
        waits: Mapping[int, Intervals],
        groups_of: Mapping[int, frozenset[int]],
    ) -> None:
        """Find how long each had when it began to wait.

        Args:
            skew: of the group.
            is_waiting: shape ``(r, m)``, of which waits that is asked.
            waits: by rank, when it waited.
            groups_of: by rank, the places of its groups.
        """
        self._skew = skew
        self._waits = [waits[rank] for rank in skew.group.ranks]
        self._groups = [groups_of[rank] for rank in skew.group.ranks]
        self._columns: dict[frozenset[int], list[int]] = {}
        for column, own in enumerate(self._groups):
            self._columns.setdefault(own, []).append(column)
        self._begin_ns = skew.last_ns - skew.wait_ns.T
        self._before_ns = np.zeros_like(self._begin_ns)
        for column in np.flatnonzero(is_waiting.any(axis=1)).tolist():
            rows = np.flatnonzero(is_waiting[column])
            self._before_ns[column, rows] = self._waits[column].covered_before(self._begin_ns[column, rows])
        self._divided: dict[frozenset[int], list[tuple[frozenset[int], Ints]]] = {}
        self._by_meeting: dict[frozenset[int], tuple[Ints, Ints]] = {}

    def divide(self, last: int) -> list[tuple[frozenset[int], Ints]]:
        """Divide the columns by the groups that they share with that of the last rank."""
        own = self._groups[last]
        if own not in self._divided:
            shared: dict[frozenset[int], list[int]] = {}
            for groups, columns in self._columns.items():
                shared.setdefault(own & groups, []).extend(columns)
            self._divided[own] = [(groups, np.array(columns)) for groups, columns in shared.items()]
        return self._divided[own]

    def compare(self, last: int, place: tuple[Ints, ...], shared: frozenset[int], meetings_ns: Ints) -> Ints:
        """Return how much longer the last rank had waited than those that waited for it, since they had met.

        Args:
            last: column of the last rank.
            place: columns that share the same groups with it, and rows in which it was, as ``np.ix_`` gives them.
            shared: these groups.
            meetings_ns: of all their ranks, rising.
        """
        columns, rows = place
        at, by_meeting_ns = self._tabulate(shared, meetings_ns)
        met = np.searchsorted(meetings_ns, self._begin_ns[place], side="right") - 1  # -1, the last: before the first
        late_ns = self._waits[last].covered_before(self._skew.last_ns[rows]) - by_meeting_ns[at[last]][met]
        return np.asarray(late_ns - (self._before_ns[place] - by_meeting_ns[at[columns], met]), dtype=np.int64)

    def _tabulate(self, shared: frozenset[int], meetings_ns: Ints) -> tuple[Ints, Ints]:
        """Return the row of each column in a table, and how long each had waited by each meeting, and before the first.

        The table has rows for the ranks that are in all of the groups.
        """
        if shared not in self._by_meeting:
            moments_ns = np.append(meetings_ns, _LONG_AGO)
            columns = [column for column, groups in enumerate(self._groups) if groups >= shared]
            at = np.zeros(len(self._groups), dtype=np.int64)
            at[columns] = np.arange(len(columns))
            table_ns = np.stack([self._waits[column].covered_before(moments_ns) for column in columns])
            self._by_meeting[shared] = at, table_ns
        return self._by_meeting[shared]

"""For whom ranks waited: each moment of each rank once, and not for one that only handed on another's delay.

::

    rank 2        [A]                     comes late, and rank 1 waits for it
    rank 1   [wwwwwA]  [B]                so comes late to B, through no fault of its own
    rank 0   [hhhhhhhhhhB]                h  handed on: had rank 1 waited for nobody, it would have come so much earlier

What a rank waited since it last met the one that waits for it, and that one did not wait as well, may have delayed it
by so much: whether it did (it may have lain beside compute) no trace says, so nobody is said to be waited for then.
It may as well have waited elsewhere: in a send, or with ranks that no trace is of (``elsewhere.py``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.elsewhere import Elsewhere
from dtbench.traces.ranks.skew import GroupSkew
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite, unite_all

_LONG_AGO: Final = np.iinfo(np.int64).min // 2


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
        for column, rank in enumerate(skew.group.ranks):
            untold_ns[rank] += int(skew.untold_ns[skew.last_column == column].sum())
        late = _place_late(skew, may_hand_on, places, together)
        for column, rank in enumerate(skew.group.ranks):
            rows = np.flatnonzero(_is_waiting(skew, column) & (late != ABSENT) & ~skew.is_late[:, column])
            from_ns = skew.last_ns[rows] - np.minimum(skew.wait_ns[rows, column], skew.apart_ns[rows])
            until_ns = from_ns + skew.own_ns[rows, column]
            found.setdefault(rank, []).append(_Waits(from_ns, until_ns, late[rows]))
    waited_ns = np.zeros(len(places), dtype=np.int64)
    for waits in found.values():
        waited_ns += _sum_by_late(waits, len(places))
    return Caused(dict(zip(places, waited_ns.tolist(), strict=True)), together, handed_on_ns, untold_ns)


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
    sets, which = np.unique(skew.is_late, axis=0, return_inverse=True)
    for number, members in enumerate(sets):
        several = tuple(ranks[members].tolist())
        if len(several) > 1 and may_hand_on.isdisjoint(several):
            rows = np.flatnonzero((which.reshape(-1) == number) & (skew.wait_ns.max(axis=1) > 0))
            late[rows] = places.setdefault(several, len(places))
            together[several] += len(rows)
    return late


def find_undecided(skew: GroupSkew, may_hand_on: Set[int]) -> Bools:
    """Tell in which collectives, of which every rank is compared, some waited and it is not known for whom.

    Returns:
        Shape ``(m,)``.
    """
    meets_elsewhere = np.isin(skew.group.ranks, list(may_hand_on))
    is_together = (skew.is_late.sum(axis=1) > 1) & ~(skew.is_late & meets_elsewhere).any(axis=1)
    waits = skew.awaits & skew.begins & (skew.wait_ns > 0)
    is_told = (skew.last_column != ABSENT) | is_together
    return np.asarray(skew.is_known & skew.begins_everywhere & waits.any(axis=1) & ~is_told, dtype=np.bool_)


def _is_waiting(skew: GroupSkew, column: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray(
        skew.is_known & skew.begins[:, column] & skew.awaits[:, column] & (skew.wait_ns[:, column] > 0), dtype=np.bool_
    )


def _sum_by_late(waits: Sequence[_Waits], places: int) -> Ints:
    """Sum what one rank waited for others, moments in which it did so for the same in several collectives once."""
    starts_ns, ends_ns, late = (np.concatenate(part) for part in zip(*waits, strict=True))
    if not len(starts_ns):
        return np.zeros(places, dtype=np.int64)
    first_ns = starts_ns.min()
    apart_ns = int(ends_ns.max() - first_ns) + 1
    own_ns = late * apart_ns - first_ns  # whoever is waited for has a stretch of time of its own
    borders_ns = np.arange(places, dtype=np.int64)[:, None] * apart_ns + np.array([0, apart_ns])
    return np.array(unite(starts_ns + own_ns, ends_ns + own_ns).covered_inside(borders_ns), dtype=np.int64)


def find_handed_on(skews: Sequence[GroupSkew], elsewhere: Elsewhere) -> list[GroupSkew]:
    """Return the skews with how much of each wait the last rank may only have handed on."""
    groups_of: dict[int, set[int]] = {}
    for place, skew in enumerate(skews):
        for rank in skew.group.ranks:
            groups_of.setdefault(rank, set()).add(place)
    told = {
        rank: _unite_waits([skews[place] for place in sorted(own)], rank, elsewhere.waited.get(rank))
        for rank, own in groups_of.items()
    }
    either = {rank: unite_all(own, elsewhere.untold.get(rank, unite([], []))) for rank, own in told.items()}
    meetings: dict[frozenset[int], Ints] = {}
    found = []
    for skew in skews:
        handed_ns, untold_ns = np.zeros_like(skew.wait_ns), np.zeros_like(skew.wait_ns)
        for late in np.unique(skew.last_column[skew.last_column >= 0]).tolist():
            late_rank = skew.group.ranks[late]
            if late_rank not in elsewhere.ranks or not either[late_rank].length_ns:
                continue
            for column, rank in enumerate(skew.group.ranks):
                shared = frozenset(groups_of[late_rank] & groups_of[rank])
                if shared not in meetings:
                    meetings[shared] = _find_meetings([skews[place] for place in sorted(shared)])
                rows = np.flatnonzero(_is_waiting(skew, column) & (skew.last_column == late))
                waited_ns, late_ns = skew.wait_ns[rows, column], skew.last_ns[rows]
                own_ns = late_ns - waited_ns
                met_ns = np.append(_LONG_AGO, meetings[shared])[np.searchsorted(meetings[shared], own_ns, side="right")]
                told_ns, either_ns = (
                    _sum_since(waits[late_rank], met_ns, late_ns) - _sum_since(waits[rank], met_ns, own_ns)
                    for waits in (told, either)
                )
                handed_ns[rows, column] = np.clip(np.maximum(told_ns, either_ns), 0, waited_ns)
                untold_ns[rows, column] = handed_ns[rows, column] - np.clip(told_ns, 0, waited_ns)
        found.append(replace(skew, handed_on_ns=handed_ns, untold_ns=untold_ns))
    return found


def _unite_waits(skews: Sequence[GroupSkew], rank: int, elsewhere: Intervals | None) -> Intervals:
    """Return when a rank waited, as far as it is known, on the common clock."""
    elsewhere = unite([], []) if elsewhere is None else elsewhere
    starts_ns, ends_ns = [elsewhere.starts_ns], [elsewhere.ends_ns]
    for skew in skews:
        column = skew.group.ranks.index(rank)
        rows = _is_waiting(skew, column)
        ends_ns.append(skew.last_ns[rows])
        starts_ns.append(skew.last_ns[rows] - skew.wait_ns[rows, column])
    return unite(np.concatenate(starts_ns), np.concatenate(ends_ns))


def _find_meetings(skews: Sequence[GroupSkew]) -> Ints:
    """Return when all ranks of some groups had come to a collective, rising: from then on all were equally late."""
    return np.sort(np.concatenate([skew.last_ns[skew.is_known & skew.awaits.all(axis=1)] for skew in skews]))


def _sum_since(waits: Intervals, since_ns: Ints, until_ns: Ints) -> Ints:
    return np.asarray(waits.covered_before(until_ns) - waits.covered_before(since_ns), dtype=np.int64)

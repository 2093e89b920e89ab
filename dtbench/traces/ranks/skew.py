"""How much of a collective is waiting for the last rank to come, and how much is transfer.

::

    rank 0   [wwwwwwwtttt]        w  skew_wait: until the last rank has begun
    rank 1        [wwtttt]        t  transfer: from then on
    rank 2          [tttt]        the last one waits for nobody

All wait for rank 2 alone only from when rank 1 has begun: had rank 2 been in time, they would wait for rank 1. Where
others begin hardly before the last, it is not one rank that is late, but several.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, overload

import numpy as np

from dtbench.base.vocabulary import GIVEN_BY_ROOT, Operation
from dtbench.traces.ranks.align import ABSENT, ENDS_APART_NS
from dtbench.traces.ranks.awaiting import find_awaiting
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.in_step import find_impossible
from dtbench.traces.ranks.clocks.lost import LostStarts, find_lost_starts
from dtbench.traces.ranks.clocks.times import GroupTimes, ends_together
from dtbench.traces.ranks.match import MatchedGroup, Matches
from dtbench.traces.skeleton import OPERATIONS, Skeleton, are_among, code_of
from dtbench.traces.time.intervals import Bools, Ints

_MOST_DOUBT: Final = 0.25  # of the time that the rank that waited longest was in a collective
_NEVER: Final = np.iinfo(np.int64).max // 4
_TOGETHER: Final = 0.1  # part of the longest wait by which ranks begin apart that come late together
_MOSTLY: Final = 0.5  # part of a wait from which it is told for whom it was


@dataclass(frozen=True)
class GroupSkew:
    """Skew of the collectives of one group; tables of shape ``(m, r)`` are Fortran-contiguous, or say one number.

    Attributes:
        group: which collectives.
        is_astray: shape ``(m,)``: clocks of some ranks were not then as they are taken to be (``astray.py``), or may be
            off by much of the time that it took.
        there: shape ``(m, r)``: that rank has the event, is in step and not astray.
        is_launched: shape ``(m, r)``: its trace has only the launch, which stands for the start, and the end of the
            others for its end; see ``lost.py``.
        awaits: shape ``(m, r)``: that rank surely waits for the last one; see ``awaiting.py``.
        is_known: shape ``(m,)``: at least two ranks have it, one of them surely waits for the last, the times are
            possible, and how far their clocks are apart is known.
        last_column: shape ``(m,)``, column of the rank that began last; ``ABSENT`` where two did, as far as clocks
            tell, or several came late together, or it is not known, as where a rank's event is lost.
        is_late: shape ``(m, r)``: that rank began last, or before it by less than a part of the longest wait; none
            where clocks may be off by as much as these and the others are apart, or a rank's event is lost.
        apart_ns: shape ``(m,)``, from when all others had begun, as far as their beginning is waited for, to when the
            last rank began: what the others waited for those that were late alone.
        last_ns: shape ``(m,)``, when the last rank began, on the common clock.
        start_ns: shape ``(m, r)``, when each rank began, on its own clock.
        late_ns: shape ``(m, r)``, how much later than it the last rank began.
        wait_ns: shape ``(m, r)``, ``max over ranks (start) - own start``, clipped to the span; no wait of who does not
            await the last.
        span_ns: shape ``(m, r)``, first start to last end.
        lag_ns: shape ``(m, r)``, how much later than the first rank it left, where data took no part of that; 0 where
            it may have, or clocks do not tell.
        handed_on_ns: shape ``(m, r)``, the part of its wait that the last rank may only have handed on, once
            ``handed_on.py`` has found it.
        untold_ns: shape ``(m, r)``, the part of that of which no trace tells whether the last rank waited so long.

    Where the group is not whole, waits are lower bounds: the rank that is not seen may have been later. Entries that
    are not ``is_known``, or neither there nor launched, mean nothing.
    """

    group: MatchedGroup
    is_astray: Bools
    there: Bools
    is_launched: Bools
    awaits: Bools
    is_known: Bools
    last_column: Ints
    is_late: Bools
    apart_ns: Ints
    last_ns: Ints
    start_ns: Ints
    late_ns: Ints
    wait_ns: Ints
    span_ns: Ints
    lag_ns: Ints
    handed_on_ns: Ints
    untold_ns: Ints

    @cached_property
    def begins(self) -> Bools:
        """Shape ``(m, r)``: when that rank began is known, if only by its launch."""
        return np.asarray(self.there | self.is_launched, dtype=np.bool_) if self.is_launched.any() else self.there

    @cached_property
    def begins_everywhere(self) -> Bools:
        """Shape ``(m,)``: of every rank of the group it is known when it began."""
        return np.asarray(self.begins.all(axis=1) & self.group.is_complete, dtype=np.bool_)

    @cached_property
    def described(self) -> Ints:
        """Rows of which it is known of every rank when it began: rising."""
        return np.flatnonzero(self.is_known & self.is_whole)

    @cached_property
    def is_waiting(self) -> Bools:
        """Shape ``(m, r)``: that rank waits for the last one, as far as it is known."""
        return np.asarray(self.begins & self.awaits & self.is_known[:, None] & (self.wait_ns > 0), dtype=np.bool_)

    @cached_property
    def all_await(self) -> Bools:
        """Shape ``(m,)``: every rank surely waits for the last one."""
        return np.asarray(self.awaits.all(axis=1), dtype=np.bool_)

    @cached_property
    def late_count(self) -> Ints:
        """Shape ``(m,)``, how many ranks are late."""
        return np.asarray(self.is_late.sum(axis=1), dtype=np.int64)

    @property
    def leaves_out(self) -> Bools:
        """Shape ``(m,)``: every rank of the group has it, and one is not in step, of which nothing is said."""
        return np.asarray(self.group.is_whole & ~self.begins_everywhere, dtype=np.bool_)

    @property
    def is_whole(self) -> Bools:
        """Shape ``(m,)``: every rank of the group is there."""
        return np.asarray(self.there.all(axis=1) & self.group.is_complete, dtype=np.bool_)


@dataclass(frozen=True)
class CollectiveSkew:
    """One collective of one rank against the others of its group; None and NaN where it cannot be known.

    Attributes:
        last_start_ns: when the last rank of the whole group began, on this rank's clock.
        skew_wait_ns: how long this rank waited for it, inside its own span.
        transfer_ns: the rest of its span; adds up with ``skew_wait_ns``.
        is_last: whether this rank was the one that the others waited for.
        own_ns: the part of ``skew_wait_ns`` that was for the last rank alone: no other was late as well, and it did not
            only hand it on; see ``handed_on.py``.
        untold_ns: the part of ``skew_wait_ns``, where it is most, that the last rank may only have handed on from ranks
            of which no trace, or no clock, tells when they came; else 0.
        last_rank: the rank that most of it was for alone; None also where several came last together.
        late_together: the ranks that did; empty: they did not, or that is not known.
        lag_ns: how much later than the first rank its thread left, where data took no part of that; else 0.
        ranks: of its group, all of which have it.
        algbw: bytes per second over ``transfer_ns``; NaN also where that is more than data took.
        busbw: algbw with nccl-tests' factor.
    """

    last_start_ns: int | None = None
    skew_wait_ns: int | None = None
    own_ns: int = 0
    untold_ns: int = 0
    transfer_ns: int | None = None
    is_last: bool | None = None
    last_rank: int | None = None
    late_together: tuple[int, ...] = ()
    lag_ns: int | None = None
    ranks: int | None = None
    algbw: float = math.nan
    busbw: float = math.nan


class _Begun(NamedTuple):
    """When the ranks of a group began, as far as events and launches tell.

    Attributes:
        is_told: shape ``(m, r)``.
        start_ns: shape ``(m, r)``, on the common clock.
        last_ns: shape ``(m,)``, the latest of them.
        is_last: shape ``(m, r)``: no rank began later.
    """

    is_told: Bools
    start_ns: Ints
    last_ns: Ints
    is_last: Bools


class _Read(NamedTuple):
    """What is known of a group: its collectives, their times on each rank's own clock and on the common one, begins."""

    group: MatchedGroup
    own: GroupTimes
    common: GroupTimes
    lost: LostStarts
    begun: _Begun


def measure_skew(
    matches: Matches, times: Sequence[GroupTimes], clocks: Clocks, timelines: Sequence[Skeleton]
) -> list[GroupSkew]:
    """Measure the skew of every matched group.

    Args:
        matches: the groups.
        times: of each of them, as ``read_times`` gives them.
        clocks: of all ranks.
        timelines: distinct ranks; say what was launched and not seen.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    found = []
    for group, own in zip(matches.groups, times, strict=True):
        is_astray = clocks.astray.covers(own, clocks.machines)
        common = own.on_common_clock(clocks.by_rank).without(clocks.out_of_step).only(~is_astray)
        lost = find_lost_starts(group, common, by_rank, clocks)
        begun = _find_begun(common, lost)
        doubts_ns = _find_doubts(common, clocks)
        is_unsure = _is_unsure(common, doubts_ns)
        awaits = find_awaiting(group, common, begun.is_last, by_rank)
        is_possible = ~find_impossible(common.only(awaits), clocks.by_rank, common.last_start_ns)
        is_possible &= clocks.can_compare_rows(common) & ~is_unsure
        skew = _measure_group(_Read(group, own, common, lost, begun), awaits, is_possible)
        found.append(
            replace(
                skew,
                is_astray=np.asarray(is_astray.any(axis=1) | is_unsure, dtype=np.bool_),
                last_column=_keep_certain(skew, common, clocks),
                is_late=skew.is_late & (skew.apart_ns > doubts_ns)[:, None],
                lag_ns=_find_lags(common, ENDS_APART_NS + doubts_ns + _find_longest_lags(common)),
            )
        )
    return found


def _find_begun(common: GroupTimes, lost: LostStarts) -> _Begun:
    is_told, start_ns, last_ns = common.there, common.start_ns, common.last_start_ns
    if lost.is_known.any():
        is_told, start_ns = is_told | lost.is_known, np.where(lost.is_known, lost.start_ns, start_ns)
        last_ns = np.where(is_told, start_ns, np.iinfo(np.int64).min).max(axis=1)
    return _Begun(is_told, start_ns, last_ns, is_told & (start_ns == last_ns[:, None]))


def _measure_group(read: _Read, awaits: Bools, is_possible: Bools) -> GroupSkew:
    group, times, common, lost, begun = read
    several = common.are_several
    is_known = several & awaits.any(axis=1) & is_possible
    last_ns = np.where(several, begun.last_ns, 0)
    span_ns = times.end_ns - times.start_ns
    if lost.is_known.any():
        span_ns = np.where(lost.is_known, common.last_end_ns[:, None] - lost.start_ns, span_ns)
    late_ns = last_ns[:, None] - begun.start_ns
    wait_ns = np.maximum(late_ns, 0)
    np.minimum(wait_ns, span_ns, out=wait_ns)
    is_last = begun.is_last & several[:, None]
    is_late, apart_ns = _find_late(common, begun.is_told, awaits, is_last, late_ns)
    is_late &= (is_known & begun.is_told.all(axis=1) & group.is_complete)[:, None]
    nothing_ns = np.broadcast_to(np.int64(0), span_ns.shape)
    return GroupSkew(
        group=group,
        is_astray=np.zeros(len(several), dtype=np.bool_),
        there=common.there,
        is_launched=lost.is_known,
        awaits=awaits,
        is_known=is_known,
        last_column=_find_single(is_late),
        is_late=is_late,
        apart_ns=apart_ns,
        last_ns=last_ns,
        start_ns=times.start_ns,
        late_ns=late_ns,
        wait_ns=wait_ns,
        span_ns=span_ns,
        lag_ns=nothing_ns,
        handed_on_ns=nothing_ns,
        untold_ns=nothing_ns,
    )


def _find_late(common: GroupTimes, begins: Bools, awaits: Bools, is_last: Bools, late_ns: Ints) -> tuple[Bools, Ints]:
    """Return who came last or hardly before, shape ``(m, r)``, and how much later than all others, shape ``(m,)``.

    Of what a root gives to the others only the root is waited for.
    """
    may_wait = begins & awaits
    longest_ns = (late_ns if may_wait.all() else np.where(may_wait, late_ns, 0)).max(axis=1)
    together_ns = np.floor(_TOGETHER * longest_ns).astype(np.int64)
    is_given = are_among(common.operation, GIVEN_BY_ROOT)
    is_awaited = np.where(is_given[:, None], is_last, begins) if is_given.any() else begins
    is_late = is_last | (is_awaited & (late_ns <= together_ns[:, None]))
    return np.asarray(is_late, dtype=np.bool_), np.where(is_awaited & ~is_late, late_ns, _NEVER).min(axis=1)


def _find_single(is_late: Bools) -> Ints:
    """Return the column of the rank that alone is late, shape ``(m,)``; ``ABSENT``: none is, or several are."""
    is_single = is_late.sum(axis=1) == 1
    columns, rows = np.divmod(np.flatnonzero((is_late & is_single[:, None]).T), max(len(is_late), 1))
    found = np.full(len(is_late), ABSENT, dtype=np.int64)
    found[rows] = columns
    return found


def _find_lags(common: GroupTimes, longest_ns: Ints) -> Ints:
    """Return how much later than the first each rank left, 0 where not later than it may have; shape ``(m, r)``."""
    rows = np.flatnonzero(common.are_several & (common.last_end_ns - common.first_end_ns > longest_ns))
    if not len(rows):
        return np.broadcast_to(np.int64(0), common.there.shape)
    found = np.zeros(common.there.shape, dtype=np.int64, order="F")
    after_ns = common.end_ns[rows] - common.first_end_ns[rows, None]
    found[rows] = np.where(common.there[rows] & (after_ns > longest_ns[rows, None]), after_ns, 0)
    return found


def _find_longest_lags(common: GroupTimes) -> Ints:
    """Return by how much later than the first a rank may leave each collective because data still goes to it.

    Of a barrier not at all. Of a sum every byte goes twice around all ranks, so that what a slow link still brings to
    one when the first has all of it takes no longer than everything had taken: two ranks are the worst case. Of a
    gather a slow link may keep one rank alone, for any time.

    Returns:
        Shape ``(m,)``.
    """
    took_ns = np.maximum(common.first_end_ns - common.last_start_ns, 0)
    is_barrier, is_sum = (common.operation == code_of(one) for one in (Operation.BARRIER, Operation.ALL_REDUCE))
    return np.where(is_barrier, 0, np.where(is_sum, took_ns, _NEVER)).astype(np.int64)


def _is_unsure(common: GroupTimes, doubts_ns: Ints) -> Bools:
    """Tell of which collectives clocks may be off by so much of the time they took that it says nothing who waited.

    Returns:
        Shape ``(m,)``.
    """
    is_unsure = doubts_ns > ENDS_APART_NS
    if not is_unsure.any():
        return is_unsure
    took_ns = np.where(common.there, common.end_ns - common.start_ns, 0).max(axis=1)
    return np.asarray(is_unsure & (doubts_ns > _MOST_DOUBT * took_ns), dtype=np.bool_)


def _find_doubts(common: GroupTimes, clocks: Clocks) -> Ints:
    """Return the most by which the clocks of two ranks of each collective may be off; 0 where one machine has it.

    Returns:
        Shape ``(m,)``.
    """
    places, uncertain_ns = clocks.machines_of(common.ranks), clocks.uncertain_ns(common.ranks)
    there, rows = common.there, len(common.there)
    if common.is_everywhere:
        there = there[:1]  # all rows are alike
    lowest = np.where(there, places, np.iinfo(np.int64).max).min(axis=1)
    is_apart = np.broadcast_to((there & (places != lowest[:, None])).any(axis=1), rows)  # several machines have it
    doubts_ns = np.sort(np.where(there, uncertain_ns, 0), axis=1)[:, -2:].sum(axis=1)
    return np.asarray(np.where(is_apart, doubts_ns, 0), dtype=np.int64)


def _keep_certain(skew: GroupSkew, common: GroupTimes, clocks: Clocks) -> Ints:
    """Return the column of the rank that began last, ``ABSENT`` where doubt about clocks leaves it open.

    That is, where the last of the others began no longer before it than the clocks of the two may be off, for which
    also speaks by how much later it left what all leave together.
    """
    kept = skew.last_column.copy()
    places, uncertain_ns = clocks.machines_of(common.ranks), clocks.uncertain_ns(common.ranks)
    doubtful = _find_doubtful(skew, common, 2 * int(uncertain_ns.max()) if (places != places[0]).any() else None)
    together = common.there & ends_together(common)[:, None] if len(doubtful) else common.there
    for column in np.unique(kept[doubtful]).tolist():
        rows = doubtful[skew.last_column[doubtful] == column]
        doubts_ns = np.where(places == places[column], 0, uncertain_ns[column] + uncertain_ns)
        is_other = skew.begins[rows] & (np.arange(len(doubts_ns)) != column)
        after_ns = common.end_ns[rows, column][:, None] - common.end_ns[rows]
        tells = together[rows] & together[rows, column][:, None] & (doubts_ns > 0) & (after_ns > ENDS_APART_NS)
        doubts_ns = doubts_ns + np.where(tells, after_ns + ENDS_APART_NS, 0)
        kept[rows[(is_other & (skew.wait_ns[rows] <= doubts_ns)).any(axis=1)]] = ABSENT
    return kept


def _find_doubtful(skew: GroupSkew, common: GroupTimes, most_ns: int | None) -> Ints:
    """Return the rows with a rank that alone was last, unless the others began further before it than any doubt.

    Args:
        skew: of the group.
        common: its times on the common clock.
        most_ns: by which the clocks of any two may be off; None: they share one.
    """
    has_last = skew.last_column != ABSENT
    if not has_last.any():
        return np.flatnonzero(has_last)
    next_ns = np.where(skew.begins & ~skew.is_late, skew.wait_ns, _NEVER).min(axis=1)
    if most_ns is None:
        return np.flatnonzero(has_last & (next_ns <= 0))
    after_ns = np.where(common.are_several, common.last_end_ns - common.first_end_ns, 0)
    return np.flatnonzero(has_last & (next_ns <= most_ns + after_ns + ENDS_APART_NS))


class RankSkews(Sequence[CollectiveSkew]):
    """What is known of each collective of one rank against the others, in the order of its timeline.

    It stands in the columns of its groups until somebody asks for it.
    """

    def __init__(self, parts: Sequence[tuple[GroupSkew, int]], timeline: Skeleton) -> None:
        """Note where it stands.

        Args:
            parts: the groups of the rank, and its column in each.
            timeline: the rank.
        """
        self._parts = parts
        self._timeline = timeline

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """The part and the row of each collective, both of shape ``(n,)``; ``ABSENT``: nothing is known of it."""
        part_of, row_of = (np.full(len(self._timeline.columns), ABSENT, dtype=np.int64) for _ in range(2))
        for place, (skew, column) in enumerate(self._parts):
            rows = skew.described
            index = skew.group.index[rows, column]
            part_of[index], row_of[index] = place, rows
        return part_of, row_of

    def __len__(self) -> int:
        return len(self._timeline.columns)

    @overload
    def __getitem__(self, index: int) -> CollectiveSkew: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CollectiveSkew, ...]: ...
    def __getitem__(self, index: int | slice) -> CollectiveSkew | tuple[CollectiveSkew, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        part_of, row_of = self._places
        if part_of[index] == ABSENT:
            return CollectiveSkew()
        skew, column = self._parts[int(part_of[index])]
        return _describe(skew, int(row_of[index]), column, self._timeline)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def describe_collectives(skews: Sequence[GroupSkew], timelines: Sequence[Skeleton]) -> dict[int, RankSkews]:
    """Give, by rank, one entry per collective of its timeline, in the same order.

    Only collectives that every rank of the group has are described: with a rank missing, nobody knows who was last.
    """
    parts: dict[int, list[tuple[GroupSkew, int]]] = {timeline.rank: [] for timeline in timelines}
    for skew in skews:
        for column, rank in enumerate(skew.group.ranks):
            parts[rank].append((skew, column))
    return {timeline.rank: RankSkews(parts[timeline.rank], timeline) for timeline in timelines}


def _describe(skew: GroupSkew, row: int, column: int, timeline: Skeleton) -> CollectiveSkew:
    last_column = int(skew.last_column[row])
    is_last, last_rank = (None, None) if last_column < 0 else (last_column == column, skew.group.ranks[last_column])
    late = np.flatnonzero(skew.is_late[row]).tolist() if last_rank is None else []
    together = tuple(skew.group.ranks[one] for one in late) if len(late) > 1 else ()
    if not skew.awaits[row, column]:
        return CollectiveSkew(is_last=is_last, last_rank=last_rank, late_together=together, ranks=len(skew.group.ranks))
    index, columns = int(skew.group.index[row, column]), timeline.columns
    operation = OPERATIONS[columns.operation[index]]
    is_woken = not timeline.is_device and (not columns.on_link[index] or operation is Operation.BARRIER)
    wait_ns = int(skew.wait_ns[row, column])
    alone_ns = min(wait_ns, int(skew.apart_ns[row])) - int(skew.handed_on_ns[row, column])
    own_ns, untold_ns = max(alone_ns, 0), int(skew.untold_ns[row, column])
    transfer_ns = int(skew.span_ns[row, column]) - wait_ns
    lag_ns = int(skew.lag_ns[row, column]) if is_woken else 0
    algbw = algorithm_bandwidth(columns.size_bytes.at(index), None if lag_ns else transfer_ns)
    return CollectiveSkew(
        last_start_ns=int(skew.start_ns[row, column] + skew.late_ns[row, column]),
        skew_wait_ns=wait_ns,
        transfer_ns=transfer_ns,
        is_last=is_last,
        own_ns=own_ns,
        untold_ns=untold_ns if untold_ns >= _MOSTLY * wait_ns else 0,
        last_rank=None if own_ns < _MOSTLY * wait_ns else last_rank,
        late_together=together,
        lag_ns=lag_ns,
        ranks=len(skew.group.ranks),
        algbw=algbw,
        busbw=algbw * bus_factor(operation, len(skew.group.ranks)),
    )

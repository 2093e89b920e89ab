"""How far the clocks of ranks are apart, from the ends of collectives.

All ranks leave an all-reduce, all-gather, reduce-scatter or barrier within microseconds, whenever they entered it; an
all-to-all each when its own parts are sent and received, so that it tells nothing of clocks. The median difference of
ends is the distance of two clocks; what varies about it is the uncertainty. Two things no data can tell apart: a clock
that is behind, and a rank that always ends as much earlier.

::

    rank 0   ███████████|          ███████|
    rank 1         █████|              ███|     ends agree: only starts differ, and that is skew
    rank 2            ███████|           ████|  always later by the same: its clock is ahead
"""

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from dtbench.traces.notes.clocks import ClockCorrected, ClocksApart, ManyClocksCorrected, OutOfStep, TornHost
from dtbench.traces.notes.note import Note
from dtbench.traces.ranks.clocks.astray import Astray, find_astray, join_astray
from dtbench.traces.ranks.clocks.chain import (
    Edge,
    chain_clocks,
    divide_into_trees,
    find_edges,
    find_medians,
    keep_surest,
)
from dtbench.traces.ranks.clocks.in_step import find_out_of_step
from dtbench.traces.ranks.clocks.machines import Host, divide_by_host, group_by_host, share_clocks
from dtbench.traces.ranks.clocks.times import (
    RESOLUTION_NS,
    Clock,
    GroupTimes,
    ends_about_median,
    ends_together,
    ranks_are_apart,
    take_rows,
    waits_for_all,
)
from dtbench.traces.time.intervals import Bools, Ints

_HELPS: Final = 0.5  # a correction that helps leaves at most this part of the spread of ends
_ENOUGH_FOR_MEDIAN: Final = 4  # ranks; the median of two or three is one of them
_MOST: Final = 0.5  # of a rank's collectives of one group: beyond, its clock is not what most of its ends say
_MOST_NOTES: Final = 3  # about single clocks


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks.

    Attributes:
        by_rank: every rank's.
        out_of_step: ranks whose ends no clock explains; nothing may be said about their skew.
        notes: what was corrected, or why nothing was.
        islands: ranks whose clocks can be compared with each other, of one machine or by collectives in common; of
            ranks of two islands nothing tells how far their clocks are apart.
        machines: ranks that share one clock.
        astray: when clocks were not as ``by_rank`` says.
    """

    by_rank: Mapping[int, Clock]
    out_of_step: frozenset[int] = frozenset()
    notes: tuple[Note, ...] = ()
    islands: tuple[frozenset[int], ...] = ()
    machines: tuple[frozenset[int], ...] = ()
    astray: Astray = field(default_factory=Astray)

    def doubts_ns(self, rank: int, others: Sequence[int]) -> Ints:
        """Return by how much times of a rank may be off against those of each other one; 0 where they share a clock."""
        uncertain_ns, machines = self.uncertain_ns((rank, *others)), self.machines_of((rank, *others))
        return np.where(machines[1:] == machines[0], 0, uncertain_ns[0] + uncertain_ns[1:])

    @cached_property
    def machine_of(self) -> Mapping[int, int]:
        """The place of each rank's machine; ranks that are on none are not there."""
        return {rank: place for place, members in enumerate(self.machines) for rank in members}

    def machines_of(self, ranks: Sequence[int]) -> Ints:
        """Return the places of some ranks' machines, shape ``(ranks,)``; of who is on none a number of its own."""
        return np.array([self.machine_of.get(rank, -1 - rank) for rank in ranks], dtype=np.int64)

    def uncertain_ns(self, ranks: Sequence[int]) -> Ints:
        """Return by how much each rank's clock may be off, shape ``(ranks,)``."""
        return np.array([self.by_rank[rank].uncertainty_ns or 0 for rank in ranks], dtype=np.int64)

    def can_compare(self, *ranks: int) -> bool:
        """Tell whether it is known how far the clocks of some ranks are apart."""
        return not self.out_of_step & set(ranks) and any(island.issuperset(ranks) for island in self.islands)

    def can_compare_rows(self, times: GroupTimes) -> Bools:
        """Tell for each collective whether it is known how far the clocks of the ranks that have it are apart.

        Returns:
            Shape ``(m,)``; of ranks that are not in step as if these were not there.
        """
        left = set(times.ranks) - self.out_of_step
        if any(island.issuperset(left) for island in self.islands):
            return np.ones(len(times.there), dtype=np.bool_)
        there = times.without(self.out_of_step).there
        reaches_beyond = np.zeros((len(self.islands), len(there)), dtype=np.bool_)
        for row, island in enumerate(self.islands):
            reaches_beyond[row] = (there & ~np.isin(times.ranks, list(island))).any(axis=1)
        return np.asarray(~reaches_beyond.all(axis=0), dtype=np.bool_)


def estimate_clocks(times: Sequence[GroupTimes], hosts: Mapping[int, Host]) -> Clocks:
    """Estimate every rank's clock and decide whether to correct it; ranks of one host have one clock.

    Unless their collectives contradict, and no kernel is told: containers on many machines may bear one name.

    As few corrections are applied as leave at most twice the spread of ends that all would leave. What ends further
    apart than that is astray (``astray.py``). Ranks are out of step when, on the clocks so chosen, more than a tenth of
    their other collectives end on one rank before another has begun.

    Args:
        times: of every matched group, as ``read_times`` gives them.
        hosts: machine of each rank whose clock is asked for.
    """
    found = [_estimate_island(tree, times, hosts) for tree in divide_into_trees(keep_surest(find_edges(times)))]
    of_several_clocks = {rank for island in found for members in island.torn for rank in members}
    machines = group_by_host({rank: Host() if rank in of_several_clocks else host for rank, host in hosts.items()})
    clocks = Clocks(
        by_rank={rank: Clock() for rank in sorted(hosts)}
        | {rank: one for own in found for rank, one in own.clocks.items()},
        out_of_step=frozenset(rank for own in found for rank in own.stray),
        notes=tuple(note for own in found for note in own.notes),
        islands=_join([*(island.ranks for island in found), *machines]),
        machines=tuple(frozenset(members) for members in machines),
        astray=join_astray([own.astray for own in found]),
    )
    return replace(clocks, notes=(*clocks.notes, *_find_unknown(times, clocks)))


@dataclass(frozen=True)
class _Island:
    """What is known of ranks that collectives connect: fields as in ``Clocks``, clocks of those in step."""

    ranks: frozenset[int]
    clocks: Mapping[int, Clock]
    stray: Collection[int]
    torn: Sequence[Sequence[int]]
    astray: Astray
    notes: Sequence[Note]


def _estimate_island(tree: Sequence[Edge], times: Sequence[GroupTimes], hosts: Mapping[int, Host]) -> _Island:
    corrected = chain_clocks(tree)
    own = [one for one in times if corrected.keys() >= set(one.ranks)]
    refined = _refine(own, _refine(own, corrected))  # twice: where a neighbour was far off, so was the first median
    machines, torn = divide_by_host(own, refined, hosts)
    chosen = _choose(own, share_clocks(refined, machines), machines)
    astray = find_astray(own, chosen, machines)
    stray = find_out_of_step([_leave_astray(one, astray, machines) for one in own], chosen)
    in_step = {rank: clock for rank, clock in chosen.items() if rank not in stray}
    of_torn = (TornHost(tuple(members), hosts[members[0]].name or "") for members in torn)
    notes = (*of_torn, *astray.notes, *_find_corrected(in_step), *([OutOfStep(tuple(sorted(stray)))] if stray else []))
    return _Island(frozenset(corrected), in_step, stray, torn, astray, notes)


def _leave_astray(times: GroupTimes, astray: Astray, machines: Sequence[Sequence[int]]) -> GroupTimes:
    """Leave out what is astray of clocks that were set; not where that is most of a group's: that is no exception."""
    were_set = [rank for rank, time in astray.set_in.items() if time.length_ns]
    if ranks_are_apart(were_set, times.ranks):
        return times
    is_astray = astray.covers(times, machines)
    was_set = np.isin(times.ranks, were_set)
    return times.only(~(is_astray & was_set & (is_astray.sum(axis=0) <= _MOST * times.there.sum(axis=0))))


def _join(together: Iterable[Collection[int]]) -> tuple[frozenset[int], ...]:
    """Join sets that have a rank in common."""
    joined: list[frozenset[int]] = []
    for members in together:
        if any(island.issuperset(members) for island in joined):
            continue
        touched = [island for island in joined if not island.isdisjoint(members)]
        joined = [*(island for island in joined if island not in touched), frozenset(members).union(*touched)]
    return tuple(sorted(joined, key=min))


def _refine(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, Clock]:
    """Compare each rank with the median of all instead of with a neighbour, where a group has enough ranks for one."""
    common = [one.with_common_ends(clocks) for one in times]
    refined = dict(clocks)
    for rank, (middle, uncertainty_ns) in find_medians(
        ends_about_median(common, least_ranks=_ENOUGH_FOR_MEDIAN)
    ).items():
        refined[rank] = replace(
            clocks[rank], offset_ns=clocks[rank].offset_ns + round(middle), uncertainty_ns=uncertainty_ns
        )
    return refined


def _choose(
    times: Sequence[GroupTimes], estimated: Mapping[int, Clock], machines: Sequence[Sequence[int]]
) -> dict[int, Clock]:
    """Correct the fewest machines, largest first, that leave at most twice the spread of ends that all would leave.

    Args:
        times: of the ranks, each on its own clock.
        estimated: by rank; those of a machine are one.
        machines: ranks that share one clock.
    """
    furthest_ns = _find_furthest(times, estimated)
    order = sorted(machines, key=lambda members: max(furthest_ns[rank] for rank in members), reverse=True)

    def apply(number: int) -> dict[int, Clock]:
        corrected = {rank for members in order[:number] for rank in members}
        left_ns = [clock.offset_ns for rank, clock in estimated.items() if rank not in corrected]
        zero_ns = round(float(np.median(left_ns))) if left_ns else 0  # of the clocks that are left as they are
        applied: dict[int, Clock] = {}
        for place, members in enumerate(order):
            clock = estimated[members[0]]
            off_ns = clock.offset_ns - zero_ns
            is_corrected = place < number
            one = replace(clock, offset_ns=off_ns) if is_corrected else _leave(clock, abs(off_ns) if corrected else 0)
            applied.update(dict.fromkeys(members, one))
        return {rank: applied[rank] for rank in estimated}

    enough_ns = {
        rank: max(spread_ns / _HELPS, RESOLUTION_NS) for rank, spread_ns in _ends_spread(times, estimated).items()
    }

    may_change = _leave_alike(times, estimated, machines)

    def is_enough(number: int) -> bool:
        spreads_ns = _ends_spread(may_change, apply(number))
        return all(spread_ns <= enough_ns[rank] for rank, spread_ns in spreads_ns.items())

    return apply(bisect.bisect_left(range(len(order)), x=True, key=is_enough))


def _leave_alike(
    times: Sequence[GroupTimes], clocks: Mapping[int, Clock], machines: Sequence[Sequence[int]]
) -> list[GroupTimes]:
    """Leave out the groups of one machine whose clock does not drift: no correction changes how far apart they end."""
    machine_of = {rank: place for place, members in enumerate(machines) for rank in members}
    return [
        one
        for one in times
        if len({machine_of[rank] for rank in one.ranks}) > 1 or any(clocks[rank].drift for rank in one.ranks)
    ]


def _find_furthest(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, int]:
    """Return how much the correction of each rank moves anything of it at most."""
    furthest_ns = dict.fromkeys(clocks, 0)
    for one in times:
        for column in np.flatnonzero(one.there.any(axis=0)).tolist():
            rank = one.ranks[column]
            furthest_ns[rank] = max(furthest_ns[rank], _find_move_ns(one, column, clocks[rank]))
    return furthest_ns


def _find_move_ns(times: GroupTimes, column: int, clock: Clock) -> int:
    """Return how much the correction of a clock moves an end in one column at most; one is there."""
    if not clock.drift:
        return abs(clock.offset_ns)
    own_ns = times.end_ns[times.there[:, column], column]
    return int(np.abs(own_ns - clock.to_common(own_ns)).max())


def _ends_spread(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, float]:
    """Return for each rank the worst over its groups of the median of last end less first end.

    Not the median over all its collectives: where most stay on the machine (tensor parallel, experts), no clock of a
    machine would be seen to be off.
    """
    spreads: dict[int, float] = {}
    for one in times:
        rows = ends_together(one) & one.are_several
        ends_ns = one.common_end_ns(clocks)
        spread_ns = (one.last(ends_ns) - one.first(ends_ns))[rows]
        there = take_rows(one.there, rows)
        if there.all():
            found = dict.fromkeys(one.ranks, float(np.median(spread_ns))) if len(spread_ns) else {}
        else:
            columns = zip(one.ranks, np.ascontiguousarray(there.T), strict=True)
            found = {rank: float(np.median(spread_ns[own])) for rank, own in columns if own.any()}
        for rank, median_ns in found.items():
            spreads[rank] = max(spreads.get(rank, 0.0), median_ns)
    return spreads


def _find_unknown(times: Sequence[GroupTimes], clocks: Clocks) -> list[ClocksApart]:
    """Find ranks with collectives of which it is not known who was last, as nothing tells how far clocks are apart."""
    apart: set[int] = set()
    count = 0
    for one in times:
        if (can_compare := clocks.can_compare_rows(one)).all():
            continue
        there = one.without(clocks.out_of_step).there
        rows = waits_for_all(one) & (there.sum(axis=1) > 1) & ~can_compare
        count += int(rows.sum())
        apart.update(rank for rank, is_in in zip(one.ranks, there[rows].any(axis=0).tolist(), strict=True) if is_in)
    return [ClocksApart(tuple(sorted(apart)), count)] if count else []


def _leave(clock: Clock, off_ns: int) -> Clock:
    """Return a clock that is left as it is, and may, beside others that are corrected, be off by so much more."""
    return Clock(uncertainty_ns=None if clock.uncertainty_ns is None else clock.uncertainty_ns + off_ns)


def _find_corrected(clocks: Mapping[int, Clock]) -> list[ClockCorrected] | list[ManyClocksCorrected]:
    ranks_of: dict[Clock, list[int]] = defaultdict(list)
    for rank, clock in clocks.items():
        if clock.offset_ns or clock.drift:
            ranks_of[clock].append(rank)
    if len(ranks_of) > _MOST_NOTES:
        ranks = tuple(sorted(rank for ranks in ranks_of.values() for rank in ranks))
        most_ns = max(abs(clock.offset_ns) for clock in ranks_of)
        within_ns = max(clock.uncertainty_ns or 0 for clock in ranks_of)
        return [ManyClocksCorrected(ranks, len(ranks_of), most_ns, within_ns)]
    return [
        ClockCorrected(tuple(sorted(ranks)), clock.offset_ns, clock.uncertainty_ns or 0, clock.drift)
        for clock, ranks in ranks_of.items()
    ]

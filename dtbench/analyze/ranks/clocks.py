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
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dtbench.analyze.intervals import Bools, Ints
from dtbench.analyze.ranks.align import ENDS_APART_NS
from dtbench.analyze.ranks.clock_chain import chain_clocks, divide_into_trees, find_edges, find_median, keep_surest
from dtbench.analyze.ranks.clock_jumps import find_jumped_ranks
from dtbench.analyze.ranks.times import (
    RESOLUTION_NS,
    Clock,
    GroupTimes,
    ends_about_median,
    ends_together,
    waits_for_all,
)
from dtbench.units import NS_PER_S, count_things, format_ns, name_ranks

_HELPS: Final = 0.5  # a correction that helps leaves at most this part of the spread of ends
_ENOUGH_FOR_MEDIAN: Final = 4  # ranks; the median of two or three is one of them
_IN_STEP: Final = 0.9  # part of the collectives that no rank may leave before the last has entered
_ENOUGH_OF_GROUP: Final = 4  # collectives of one group that are judged by themselves
_ENOUGH_TO_TEAR: Final = 8  # ends; the range of fewer is no 99 % interval of their median
_ONE_CLOCK_NS: Final = 100_000  # devices of one machine tell its time within some microseconds
_FAR: Final = 8  # times the scatter of ends: no accident
_AS_FAR: Final = 0.99  # two ranks alone are off their median by the same: nobody knows which is wrong
_MOST_NOTES: Final = 8  # sentences about single clocks


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks.

    Attributes:
        by_rank: every rank's.
        out_of_step: ranks whose ends no clock explains; nothing may be said about their skew.
        notes: what was corrected, or why nothing was, a sentence each.
        islands: ranks whose clocks can be compared with each other, of one machine or by collectives in common; of
            ranks of two islands nothing tells how far their clocks are apart.
        machines: ranks that share one clock.
    """

    by_rank: Mapping[int, Clock]
    out_of_step: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    islands: tuple[frozenset[int], ...] = ()
    machines: tuple[frozenset[int], ...] = ()

    def doubts_ns(self, rank: int, others: Sequence[int]) -> Ints:
        """Return by how much times of a rank may be off against those of each other one; 0 where they share a clock."""
        own_ns, *others_ns = (self.by_rank[one].uncertainty_ns or 0 for one in (rank, *others))
        machine = next((members for members in self.machines if rank in members), frozenset((rank,)))
        pairs = zip(others, others_ns, strict=True)
        return np.array([0 if one in machine else own_ns + other_ns for one, other_ns in pairs], dtype=np.int64)

    def can_compare(self, *ranks: int) -> bool:
        """Tell whether it is known how far the clocks of some ranks are apart."""
        return not self.out_of_step & set(ranks) and any(island.issuperset(ranks) for island in self.islands)

    def can_compare_rows(self, times: GroupTimes) -> Bools:
        """Tell for each collective whether it is known how far the clocks of the ranks that have it are apart.

        Returns:
            Shape ``(m,)``; of ranks that are not in step as if these were not there.
        """
        there = times.without(self.out_of_step).there
        reaches_beyond = np.zeros((len(self.islands), len(there)), dtype=np.bool_)
        for row, island in enumerate(self.islands):
            reaches_beyond[row] = (there & ~np.isin(times.ranks, list(island))).any(axis=1)
        return np.asarray(~reaches_beyond.all(axis=0), dtype=np.bool_)


def estimate_clocks(times: Sequence[GroupTimes], hosts: Mapping[int, str | None]) -> Clocks:
    """Estimate every rank's clock and decide whether to correct it; ranks of one host have one clock.

    Unless their collectives contradict: containers on many machines may bear one name.

    As few corrections are applied as leave at most twice the spread of ends that all would leave. Ranks are out of step
    when, on the clocks so chosen, their ends jump (``clock_jumps.py``) or more than a tenth of their collectives end on
    one rank before another has begun.

    Args:
        times: of every matched group, as ``read_times`` gives them.
        hosts: machine of each rank whose clock is asked for; None: not told.
    """
    edges = keep_surest(find_edges(times))
    untouched = {rank: Clock() for rank in sorted(hosts)}
    by_rank = dict(untouched)
    out_of_step: set[int] = set()
    notes: list[str] = []
    together: list[Collection[int]] = []
    of_several_clocks: set[int] = set()
    for island in divide_into_trees(edges):
        corrected = chain_clocks(island)
        together.append(corrected)
        of_island = [one for one in times if set(one.ranks) <= set(corrected)]
        jumps = find_jumped_ranks([one.on_common_clock(corrected) for one in of_island])
        own = [one.without(jumps.ranks) for one in of_island]
        steady = {rank: clock for rank, clock in corrected.items() if rank not in jumps.ranks}
        refined = _refine(own, _refine(own, steady))  # twice: where a neighbour was far off, so was the first median
        machines, torn = _divide_by_host(own, refined, hosts)
        chosen = _choose(own, _share_clocks(refined, machines), machines)
        stray = _find_out_of_step(own, chosen)
        out_of_step |= stray | jumps.ranks
        in_step = {rank: clock for rank, clock in chosen.items() if rank not in stray}
        by_rank.update(in_step)
        of_several_clocks.update(rank for members in torn for rank in members)
        notes += [*_describe_torn(torn, hosts), *jumps.notes, *_describe(in_step, stray)]
    machines = _group_by_host({rank: None if rank in of_several_clocks else host for rank, host in hosts.items()})
    clocks = Clocks(
        by_rank=by_rank,
        out_of_step=frozenset(out_of_step),
        notes=tuple(notes),
        islands=_join([*together, *machines]),
        machines=tuple(frozenset(members) for members in machines),
    )
    return replace(clocks, notes=(*clocks.notes, *_describe_unknown(times, clocks)))


def _join(together: Iterable[Collection[int]]) -> tuple[frozenset[int], ...]:
    """Join sets that have a rank in common."""
    joined: list[frozenset[int]] = []
    for members in together:
        touched = [island for island in joined if not island.isdisjoint(members)]
        joined = [*(island for island in joined if island not in touched), frozenset(members).union(*touched)]
    return tuple(sorted(joined, key=min))


def _refine(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, Clock]:
    """Compare each rank with the median of all instead of with a neighbour, where a group has enough ranks for one."""
    common = [one.on_common_clock(clocks) for one in times]
    refined = dict(clocks)
    for rank, residual in ends_about_median(common, least_ranks=_ENOUGH_FOR_MEDIAN).items():
        middle, uncertainty_ns = find_median(residual)
        refined[rank] = replace(
            clocks[rank], offset_ns=clocks[rank].offset_ns + round(middle), uncertainty_ns=uncertainty_ns
        )
    return refined


def _divide_by_host(
    times: Sequence[GroupTimes], clocks: Mapping[int, Clock], hosts: Mapping[int, str | None]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Put together the ranks of one host; a rank whose host is not told stands alone.

    Args:
        times: of the ranks, each on its own clock.
        clocks: of the ranks, each for itself.
        hosts: by rank.

    Returns:
        The machines; and the ranks of hosts that cannot be one machine, each of which stands alone, too.
    """
    named = _group_by_host({rank: hosts.get(rank) for rank in clocks})
    torn = [members for members in named if len(members) > 1 and _are_of_several_clocks(times, clocks, members)]
    machines = [members for members in named if members not in torn]
    return [*machines, *((rank,) for members in torn for rank in members)], torn


def _group_by_host(hosts: Mapping[int, str | None]) -> list[tuple[int, ...]]:
    """Put together the ranks of one host; one whose host is not told stands alone."""
    together: dict[str | int, list[int]] = defaultdict(list)
    for rank, host in hosts.items():
        together[rank if host is None else host].append(rank)
    return [tuple(members) for members in together.values()]


def _are_of_several_clocks(times: Sequence[GroupTimes], clocks: Mapping[int, Clock], members: Collection[int]) -> bool:
    """Tell whether what ranks did together could not have been on one clock, and could on the clocks of each.

    That is, one would leave collectives before another enters them, or ends are always as far apart, and further than
    what they scatter by.
    """
    own = [among for one in times if (among := one.among(members)) is not None]
    if sum(int((ends_together(one) & (one.there.sum(axis=1) > 1)).sum()) for one in own) < _ENOUGH_TO_TEAR:
        return False
    shared = _share_clocks({rank: clocks[rank] for rank in members}, [tuple(members)])
    on_one = [one.on_common_clock(shared) for one in own]
    if _find_suspects(on_one, shared) and not _find_suspects([one.on_common_clock(clocks) for one in own], clocks):
        return True
    for residual in ends_about_median(on_one, least_ranks=2).values():
        middle = float(np.median(residual))
        scatter_ns = float(np.median(np.abs(residual - middle)))
        if len(residual) >= _ENOUGH_TO_TEAR and abs(middle) > max(_ONE_CLOCK_NS, _FAR * scatter_ns):
            return True
    return False


def _share_clocks(clocks: Mapping[int, Clock], machines: Iterable[Sequence[int]]) -> dict[int, Clock]:
    """Give all ranks of a machine the clock whose offset is the middle one of theirs."""
    shared = dict(clocks)
    for members in machines:
        middle = sorted((clocks[rank] for rank in members), key=lambda clock: clock.offset_ns)[len(members) // 2]
        shared.update(dict.fromkeys(members, middle))
    return shared


def _choose(
    times: Sequence[GroupTimes], estimated: Mapping[int, Clock], machines: Sequence[Sequence[int]]
) -> dict[int, Clock]:
    """Correct the fewest machines, largest first, that leave at most twice the spread of ends that all would leave."""
    furthest_ns = {rank: _most_ahead_ns(times, rank, clock) for rank, clock in estimated.items()}
    order = sorted(machines, key=lambda members: max(furthest_ns[rank] for rank in members), reverse=True)

    def apply(number: int) -> dict[int, Clock]:
        corrected = {rank for members in order[:number] for rank in members}
        return {
            rank: clock if rank in corrected else Clock(uncertainty_ns=clock.uncertainty_ns)
            for rank, clock in estimated.items()
        }

    enough_ns = {
        rank: max(spread_ns / _HELPS, RESOLUTION_NS) for rank, spread_ns in _ends_spread(times, estimated).items()
    }

    def is_enough(number: int) -> bool:
        return all(spread_ns <= enough_ns[rank] for rank, spread_ns in _ends_spread(times, apply(number)).items())

    return apply(bisect.bisect_left(range(len(order)), x=True, key=is_enough))


def _most_ahead_ns(times: Sequence[GroupTimes], rank: int, clock: Clock) -> int:
    """Give how much a correction moves anything of a rank at most."""
    own = [one.end_ns[one.there[:, one.ranks.index(rank)], one.ranks.index(rank)] for one in times if rank in one.ranks]
    ends = np.concatenate(own) if own else np.zeros(0, dtype=np.int64)
    return int(np.abs(ends - clock.to_common(ends)).max(initial=0))


def _ends_spread(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, float]:
    """Return for each rank the worst over its groups of the median of last end less first end.

    Not the median over all its collectives: where most stay on the machine (tensor parallel, experts), no clock of a
    machine would be seen to be off.
    """
    spreads: dict[int, float] = {}
    for one in times:
        rows = ends_together(one) & (one.there.sum(axis=1) > 1)
        common = one.on_common_clock(clocks)
        spread_ns = common.last(common.end_ns) - common.first(common.end_ns)
        for column, rank in enumerate(one.ranks):
            own = spread_ns[rows & one.there[:, column]]
            if len(own):
                spreads[rank] = max(spreads.get(rank, 0.0), float(np.median(own)))
    return spreads


def _find_out_of_step(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> set[int]:
    """Find the ranks without which the times of the others are possible, those whose ends are furthest off first."""
    stray: set[int] = set()
    while True:
        left = [one.on_common_clock(clocks).without(stray) for one in times]
        suspects = _find_suspects(left, clocks)
        if not suspects:
            return stray
        off_ns = _off_the_median(left, suspects)
        stray |= {rank for rank, off in off_ns.items() if off >= _AS_FAR * max(off_ns.values())}


def _find_suspects(common: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> set[int]:
    """Find the ranks of which more than a tenth of the collectives, of all or of one group, are impossible."""
    total: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    suspects: set[int] = set()
    for one in common:
        rows = ends_together(one) & (one.there.sum(axis=1) > 1)
        impossible = find_impossible(one, clocks)
        for column, rank in enumerate(one.ranks):
            there = rows & one.there[:, column]
            seen, wrong = int(there.sum()), int((impossible & there).sum())
            total[rank] = (total[rank][0] + seen, total[rank][1] + wrong)
            if seen >= _ENOUGH_OF_GROUP and wrong > (1 - _IN_STEP) * seen:
                suspects.add(rank)
    return suspects | {rank for rank, (seen, wrong) in total.items() if wrong > (1 - _IN_STEP) * seen}


def _off_the_median(common: Sequence[GroupTimes], ranks: set[int]) -> dict[int, float]:
    """Return how far the ends of some ranks are off their median ones, in the worst of a rank's groups."""
    off_ns = dict.fromkeys(ranks, 0.0)
    for one in common:
        for rank, residual in ends_about_median([one], least_ranks=2).items():
            if rank in ranks:
                off_ns[rank] = max(off_ns[rank], float(np.median(np.abs(residual))))
    return off_ns


def find_impossible(common: GroupTimes, clocks: Mapping[int, Clock]) -> Bools:
    """Tell for each collective whether a rank ends, beyond all doubt, before the last has begun.

    There is doubt about the clocks, and about how far apart ranks are seen to leave one collective: a clock is the
    median of many ends, and says nothing of that.

    Returns:
        Shape ``(m,)``.
    """
    present = [common.ranks[column] for column in np.flatnonzero(common.there.sum(axis=0)).tolist()]
    doubt_ns = max((clocks[rank].uncertainty_ns or 0 for rank in present), default=0) + ENDS_APART_NS
    several = common.there.sum(axis=1) > 1
    return np.asarray(several & (common.first(common.end_ns) < common.last(common.start_ns) - doubt_ns), dtype=np.bool_)


def _describe_unknown(times: Sequence[GroupTimes], clocks: Clocks) -> list[str]:
    """Say of which collectives nobody knows who was last, as nothing tells how far clocks are apart."""
    apart: set[int] = set()
    count = 0
    for one in times:
        there = one.without(clocks.out_of_step).there
        rows = waits_for_all(one) & (there.sum(axis=1) > 1) & ~clocks.can_compare_rows(one)
        count += int(rows.sum())
        apart.update(rank for rank, is_in in zip(one.ranks, there[rows].any(axis=0).tolist(), strict=True) if is_in)
    if not count:
        return []
    why = (
        "they are not of one machine, as far as their traces say, and have no collective in common that all leave"
        " together; an all-to-all is none"
    )
    what = f"who was last in {count_things(count, 'collective')}, and who waited, is not known"
    return [f"{name_ranks(apart)}: nothing tells how far their clocks are apart ({why}), so {what}"]


def _describe_torn(torn: Iterable[Sequence[int]], hosts: Mapping[int, str | None]) -> list[str]:
    return [
        f"{name_ranks(members)}: all of host {hosts.get(members[0])}, as their traces say, but their collectives do not"
        " end together on one clock; each is taken to have its own (do containers on several machines bear one name?)"
        for members in torn
    ]


def _describe(clocks: Mapping[int, Clock], stray: set[int]) -> list[str]:
    corrected: dict[Clock, list[int]] = defaultdict(list)
    for rank, clock in clocks.items():
        if clock.offset_ns or clock.drift:
            corrected[clock].append(rank)
    notes = [_describe_correction(ranks, clock) for clock, ranks in corrected.items()]
    if len(notes) > _MOST_NOTES:
        apart_ns = max(abs(clock.offset_ns) for clock in corrected)
        count = sum(len(ranks) for ranks in corrected.values())
        notes = [f"the clocks of {count} ranks are up to {format_ns(apart_ns)} off; corrected, by ends of collectives"]
    if stray:
        notes.append(
            f"{name_ranks(stray)}: not in step with the others, collectives end on one rank"
            " before they begin on another; are the traces of one moment of one job? Nothing is said about skew there"
        )
    return notes


def _describe_correction(ranks: Sequence[int], clock: Clock) -> str:
    whose = "its clock" if len(ranks) == 1 else "their clock"
    side = "ahead of" if clock.offset_ns > 0 else "behind"
    rate = "gains" if clock.drift > 0 else "loses"
    drift = f" and {rate} {format_ns(abs(clock.drift) * NS_PER_S)} a second" if clock.drift else ""
    doubt = f"within {format_ns(clock.uncertainty_ns or 0)}, from the ends of collectives"
    off = f"{format_ns(abs(clock.offset_ns))} {side} the others' ({doubt}){drift}"
    return f"{name_ranks(ranks)}: {whose} is {off}; corrected"

"""How far the clocks of ranks are apart, from the ends of collectives.

All ranks leave an all-reduce, all-gather, reduce-scatter, all-to-all or barrier within microseconds, whenever they
entered it. The median difference of ends is the distance of two clocks; what varies about it is the uncertainty. Two
things no data can tell apart: a clock that is behind, and a rank that always ends as much earlier.

::

    rank 0   ███████████|          ███████|
    rank 1         █████|              ███|     ends agree: only starts differ, and that is skew
    rank 2            ███████|           ████|  always later by the same: its clock is ahead
"""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.analyze.intervals import Bools, Ints
from dtbench.analyze.ranks.times import Clock, GroupTimes
from dtbench.units import NS_PER_S, format_ns
from dtbench.vocabulary import Operation

END_TOGETHER: Final = frozenset(
    {
        Operation.ALL_REDUCE,
        Operation.ALL_GATHER,
        Operation.REDUCE_SCATTER,
        Operation.ALL_TO_ALL,
        Operation.BARRIER,
    }
)
_Z: Final = 2.576  # 99 % of a normal distribution, for the order statistics that hold a median
_BLOCKS: Final = 8  # parts of a trace whose medians show a drift
_FEWEST_FOR_DRIFT: Final = 4 * _BLOCKS
_HELPS: Final = 0.5  # a correction that helps leaves at most this part of the spread of ends
_ENOUGH_FOR_MEDIAN: Final = 4  # ranks; the median of two or three is one of them
_IN_STEP: Final = 0.9  # part of the collectives that no rank may leave before the last has entered
_AS_FAR: Final = 0.99  # two ranks alone are off their median by the same: nobody knows which is wrong
_MOST_NOTES: Final = 8  # sentences about single clocks
_RESOLUTION_NS: Final = 1_000  # traces before 2024 know whole microseconds


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks.

    Attributes:
        by_rank: every rank's.
        out_of_step: ranks whose ends no clock explains; nothing may be said about their skew.
        notes: what was corrected, or why nothing was, a sentence each.
    """

    by_rank: Mapping[int, Clock]
    out_of_step: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Edge:
    """What the ends of two ranks say: ``second = first + offset + drift * (first - at)``, seen from the second."""

    first: int
    second: int
    clock: Clock


@dataclass(frozen=True)
class _Ends:
    """Ends of the collectives that two ranks share, each in its own clock."""

    first: list[Ints] = field(default_factory=list)
    second: list[Ints] = field(default_factory=list)


def estimate_clocks(times: Sequence[GroupTimes], ranks: Iterable[int]) -> Clocks:
    """Estimate every rank's clock and decide whether to correct it.

    As few corrections are applied as leave at most twice the spread of ends that all would leave. Ranks are out of step
    when, on the clocks so chosen, more than a tenth of their collectives end on one rank before another has begun.

    Args:
        times: of every matched group, as ``read_times`` gives them.
        ranks: whose clocks are asked for.
    """
    edges = _spanning_tree(_find_edges(times))
    untouched = {rank: Clock() for rank in sorted(ranks)}
    if not edges:
        return Clocks(untouched)
    by_rank = dict(untouched)
    out_of_step: set[int] = set()
    notes: list[str] = []
    for island in _islands(edges):
        corrected = _chain(island)
        own = [one for one in times if set(one.ranks) <= set(corrected)]
        refined = _refine(own, _refine(own, corrected))  # twice: where a neighbour was far off, so was the first median
        chosen = _choose(own, refined)
        stray = _find_out_of_step(own, chosen)
        out_of_step |= stray
        in_step = {rank: clock for rank, clock in chosen.items() if rank not in stray}
        by_rank.update(in_step)
        notes += _describe(in_step, stray)
    return Clocks(by_rank, frozenset(out_of_step), tuple(notes))


def ends_together(times: GroupTimes) -> Bools:
    """Tell for each collective whether all ranks leave it together, shape ``(m,)``."""
    return np.array([operation in END_TOGETHER for operation in times.operation], dtype=np.bool_)


def _find_edges(times: Sequence[GroupTimes]) -> list[_Edge]:
    """Compare every rank of a group with its first and with the one before; over all groups that a pair shares."""
    shared: dict[tuple[int, int], _Ends] = defaultdict(_Ends)
    for one in times:
        together = ends_together(one)
        columns = range(1, len(one.ranks))
        for first, second in sorted({(0, column) for column in columns} | {(column - 1, column) for column in columns}):
            both = one.there[:, first] & one.there[:, second] & together
            if both.any():
                ends = shared[one.ranks[first], one.ranks[second]]
                ends.first.append(one.end_ns[both, first])
                ends.second.append(one.end_ns[both, second])
    return [
        _Edge(first, second, _compare(np.concatenate(ends.first), np.concatenate(ends.second)))
        for (first, second), ends in shared.items()
    ]


def _compare(first_ns: Ints, second_ns: Ints) -> Clock:
    """Give the second clock against the first."""
    ahead = second_ns - first_ns
    base, at_ns = int(ahead[0]), int(np.median(second_ns - second_ns[0])) + int(second_ns[0])
    residual = (ahead - base).astype(np.float64)
    drift = _find_drift((second_ns - at_ns).astype(np.float64), residual)
    residual -= drift * (second_ns - at_ns)
    middle, uncertainty_ns = _median(residual)
    return Clock(base + round(middle), drift, at_ns, uncertainty_ns)


def _median(values: NDArray[np.float64]) -> tuple[float, int]:
    """Give the median and the half width of its 99 % confidence interval, from the order statistics that hold it."""
    ordered = np.sort(values)
    middle = float(np.median(ordered))
    reach = int(np.ceil(_Z * np.sqrt(len(ordered)) / 2))
    low = ordered[max(0, len(ordered) // 2 - reach)]
    high = ordered[min(len(ordered) - 1, (len(ordered) - 1) // 2 + reach)]
    return middle, int(np.ceil(max(high - middle, middle - low, _RESOLUTION_NS)))


def _find_drift(times_ns: NDArray[np.float64], ahead_ns: NDArray[np.float64]) -> float:
    """Give the median slope between parts of the trace (Theil 1950), 0 unless it clearly explains the residuals."""
    if len(times_ns) < _FEWEST_FOR_DRIFT:
        return 0.0
    order = np.argsort(times_ns)
    parts = [
        (np.median(times_ns[part]), np.median(ahead_ns[part])) for part in np.array_split(order, _BLOCKS) if len(part)
    ]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(parts, 2) if b[0] > a[0]]
    drift = float(np.median(slopes)) if slopes else 0.0
    before, after = _spread(ahead_ns), _spread(ahead_ns - drift * times_ns)
    return drift if before > _RESOLUTION_NS and after <= _HELPS * before else 0.0


def _spread(values: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _spanning_tree(edges: Sequence[_Edge]) -> list[_Edge]:
    """Keep the surest comparisons that connect all that can be connected (Kruskal)."""
    island = {rank: rank for edge in edges for rank in (edge.first, edge.second)}
    kept = []
    for edge in sorted(edges, key=lambda edge: (edge.clock.uncertainty_ns or 0, edge.first, edge.second)):
        first, second = island[edge.first], island[edge.second]
        if first != second:
            kept.append(edge)
            island = {rank: first if of == second else of for rank, of in island.items()}
    return kept


def _islands(edges: Sequence[_Edge]) -> list[list[_Edge]]:
    """Divide a forest into its trees."""
    trees: list[tuple[set[int], list[_Edge]]] = []
    for edge in edges:
        touching = [tree for tree in trees if tree[0] & {edge.first, edge.second}]
        merged = (
            {edge.first, edge.second}.union(*(tree[0] for tree in touching)),
            [edge, *(old for tree in touching for old in tree[1])],
        )
        trees = [tree for tree in trees if tree not in touching] + [merged]
    return [tree[1] for tree in trees]


def _chain(tree: Sequence[_Edge]) -> dict[int, Clock]:
    """Give each rank's clock against the median rank's, from comparisons of neighbours in the tree."""
    against_first = _chain_from(tree, min(edge.first for edge in tree))
    ordered = sorted(against_first, key=lambda rank: against_first[rank].offset_ns)
    return _chain_from(tree, ordered[(len(ordered) - 1) // 2])


def _chain_from(tree: Sequence[_Edge], root: int) -> dict[int, Clock]:
    found = {root: Clock(uncertainty_ns=0)}
    left = list(tree)
    while left:
        edge = next(edge for edge in left if (edge.first in found) is not (edge.second in found))
        left.remove(edge)
        if edge.first in found:
            found[edge.second] = _follow(found[edge.first], edge.clock)
        else:
            found[edge.first] = _follow(found[edge.second], _reverse(edge.clock))
    return dict(sorted(found.items()))


def _reverse(clock: Clock) -> Clock:
    """Give the first clock against the second."""
    return Clock(-clock.offset_ns, -clock.drift, clock.at_ns - clock.offset_ns, clock.uncertainty_ns)


def _follow(near: Clock, far: Clock) -> Clock:
    """Give a clock against the root, from that against a nearer one and that one's against the root."""
    there_ns = far.at_ns - far.offset_ns
    gained = round(near.drift * (there_ns - near.at_ns)) if near.drift else 0
    return Clock(
        offset_ns=far.offset_ns + near.offset_ns + gained,
        drift=near.drift + far.drift,
        at_ns=far.at_ns,
        uncertainty_ns=(near.uncertainty_ns or 0) + (far.uncertainty_ns or 0),
    )


def _refine(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> dict[int, Clock]:
    """Compare each rank with the median of all instead of with a neighbour, where a group has enough ranks for one."""
    common = [one.on_common_clock(clocks) for one in times]
    refined = dict(clocks)
    for rank, residual in _ends_about_median(common, least_ranks=_ENOUGH_FOR_MEDIAN).items():
        middle, uncertainty_ns = _median(residual)
        refined[rank] = replace(
            clocks[rank], offset_ns=clocks[rank].offset_ns + round(middle), uncertainty_ns=uncertainty_ns
        )
    return refined


def _ends_about_median(common: Sequence[GroupTimes], *, least_ranks: int) -> dict[int, NDArray[np.float64]]:
    """Give, by rank, how much later than the median rank it ended, for collectives of enough ranks."""
    residuals: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    for one in common:
        rows = ends_together(one) & (one.there.sum(axis=1) >= least_ranks)
        first_ns = one.first(one.end_ns)
        ends = np.where(one.there, one.end_ns - first_ns[:, None], np.nan)[rows]
        if len(ends):
            ends -= np.nanmedian(ends, axis=1, keepdims=True)
            for column, rank in enumerate(one.ranks):
                residuals[rank].append(ends[one.there[rows, column], column])
    together = {rank: np.concatenate(parts) for rank, parts in residuals.items()}
    return {rank: own for rank, own in together.items() if len(own)}


def _choose(times: Sequence[GroupTimes], estimated: Mapping[int, Clock]) -> dict[int, Clock]:
    """Apply the fewest corrections, largest first, that leave at most twice the spread of ends that all would leave."""
    order = sorted(estimated, key=lambda rank: _most_ahead_ns(times, rank, estimated[rank]), reverse=True)

    def apply(number: int) -> dict[int, Clock]:
        return {
            rank: estimated[rank] if rank in order[:number] else Clock(uncertainty_ns=estimated[rank].uncertainty_ns)
            for rank in estimated
        }

    enough_ns = {
        rank: max(spread_ns / _HELPS, _RESOLUTION_NS) for rank, spread_ns in _ends_spread(times, estimated).items()
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
    """Give for each rank the median over its collectives of last end less first end."""
    spreads: dict[int, list[Ints]] = defaultdict(list)
    for one in times:
        rows = ends_together(one) & (one.there.sum(axis=1) > 1)
        common = one.on_common_clock(clocks)
        spread_ns = common.last(common.end_ns) - common.first(common.end_ns)
        for column, rank in enumerate(one.ranks):
            spreads[rank].append(spread_ns[rows & one.there[:, column]])
    together = {rank: np.concatenate(parts) for rank, parts in spreads.items()}
    return {rank: float(np.median(own)) for rank, own in together.items() if len(own)}


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
    counted: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for one in common:
        rows = ends_together(one) & (one.there.sum(axis=1) > 1)
        impossible = find_impossible(one, clocks)
        for column, rank in enumerate(one.ranks):
            there = rows & one.there[:, column]
            counted[rank][0] += int(there.sum())
            counted[rank][1] += int((impossible & there).sum())
    return {rank for rank, (seen, wrong) in counted.items() if wrong > (1 - _IN_STEP) * seen}


def _off_the_median(common: Sequence[GroupTimes], ranks: set[int]) -> dict[int, float]:
    residuals = _ends_about_median(common, least_ranks=2)
    return {rank: float(np.median(np.abs(residuals[rank]))) for rank in ranks}


def find_impossible(common: GroupTimes, clocks: Mapping[int, Clock]) -> Bools:
    """Tell for each collective whether a rank ends, beyond the clocks' uncertainty, before the last has begun.

    Returns:
        Shape ``(m,)``.
    """
    present = [common.ranks[column] for column in np.flatnonzero(common.there.sum(axis=0)).tolist()]
    doubt_ns = max((clocks[rank].uncertainty_ns or 0 for rank in present), default=0) + _RESOLUTION_NS
    several = common.there.sum(axis=1) > 1
    return np.asarray(several & (common.first(common.end_ns) < common.last(common.start_ns) - doubt_ns), dtype=np.bool_)


def _describe(clocks: Mapping[int, Clock], stray: set[int]) -> list[str]:
    corrected = {rank: clock for rank, clock in clocks.items() if clock.offset_ns or clock.drift}
    notes = [_describe_correction(rank, clock) for rank, clock in corrected.items()]
    if len(notes) > _MOST_NOTES:
        apart_ns = max(abs(clock.offset_ns) for clock in corrected.values())
        notes = [
            f"the clocks of {len(notes)} ranks are up to {format_ns(apart_ns)} off; corrected, by ends of collectives"
        ]
    if stray:
        notes.append(
            f"rank {', '.join(map(str, sorted(stray)))}: not in step with the others, collectives end on one rank"
            " before they begin on another; are the traces of one moment of one job? Nothing is said about skew there"
        )
    return notes


def _describe_correction(rank: int, clock: Clock) -> str:
    side = "ahead of" if clock.offset_ns > 0 else "behind"
    rate = "gains" if clock.drift > 0 else "loses"
    drift = f" and {rate} {format_ns(abs(clock.drift) * NS_PER_S)} a second" if clock.drift else ""
    doubt = f"within {format_ns(clock.uncertainty_ns or 0)}, from the ends of collectives"
    return f"rank {rank}: its clock is {format_ns(abs(clock.offset_ns))} {side} the others' ({doubt}){drift}; corrected"

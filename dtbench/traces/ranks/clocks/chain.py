"""Clocks compared rank by rank, and chained so that every rank is compared with one."""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.ranks.clocks.times import RESOLUTION_NS, Clock, GroupTimes, ends_together, take_rows
from dtbench.traces.time.intervals import Ints

_Z: Final = 2.576  # 99 % of a normal distribution, for the order statistics that hold a median
_BLOCKS: Final = 8  # parts of a trace whose medians show a drift
_FEWEST_FOR_DRIFT: Final = 4 * _BLOCKS
_FEWEST_CLOSE: Final = 4  # ends; fewer lie close together by accident
_EXPLAINS: Final = 0.5  # a drift that is one leaves at most this part of the deviations
_ROUNDED_NS: Final = 1  # more than floats are off by
_FAR: Final = 12  # times the scatter of ends that lie closest together; what lies further is no accident
_LEAST_FAR_NS: Final = 100_000  # ranks that leave a collective one after another, and threads that are woken late
_AT_ONCE: Final = 1 << 18  # numbers that are gone through together: they stay in a core's caches

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Edge:
    """What the ends of two ranks say: ``second = first + offset + drift * (second - at)``."""

    first: int
    second: int
    clock: Clock


def find_edges(times: Sequence[GroupTimes]) -> list[Edge]:
    """Compare every rank of a group with its first and with the one before; over all groups that a pair shares."""
    shared: dict[tuple[int, int], list[tuple[Ints, Ints]]] = defaultdict(list)
    for one in times:
        together = ends_together(one)
        there, end_ns = (np.ascontiguousarray(take_rows(table, together).T) for table in (one.there, one.end_ns))
        is_full = bool(there.all())
        columns = range(1, len(one.ranks))
        for first, second in sorted({(0, column) for column in columns} | {(column - 1, column) for column in columns}):
            ends = (end_ns[first], end_ns[second])
            if not is_full:
                both = there[first] & there[second]
                ends = (ends[0][both], ends[1][both])
            if len(ends[0]):
                shared[one.ranks[first], one.ranks[second]].append(ends)
    clocks: dict[tuple[int, int], Clock] = {}
    for pairs in batch({pair: sum(len(first_ns) for first_ns, _ in parts) for pair, parts in shared.items()}):
        joined = [_join(shared[pair]) for pair in pairs]
        first_ns, second_ns = (np.stack([ends[side] for ends in joined]) for side in (0, 1))
        clocks.update(zip(pairs, _compare(first_ns, second_ns), strict=True))
    return [Edge(*pair, clocks[pair]) for pair in shared]


def _join(parts: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([first for first, _ in parts]), np.concatenate([second for _, second in parts])


def batch(lengths: Mapping[_Key, int]) -> Iterator[list[_Key]]:
    """Yield what is equally long together, as much of it at once as is quickly gone through."""
    by_length: dict[int, list[_Key]] = defaultdict(list)
    for key, length in lengths.items():
        by_length[length].append(key)
    for length, keys in by_length.items():
        size = max(1, _AT_ONCE // length)
        yield from (keys[at : at + size] for at in range(0, len(keys), size))


def _compare(first_ns: Ints, second_ns: Ints) -> list[Clock]:
    """Return the second clock against the first, of several pairs of ranks; both of shape ``(pairs, ends)``."""
    base_ns = second_ns[:, 0] - first_ns[:, 0]
    since_ns = second_ns - second_ns[:, :1]
    order = None if _do_all_rise(since_ns) else np.argsort(since_ns, axis=1, kind="stable")  # of few runs that rise
    rising_ns = since_ns if order is None else np.take_along_axis(since_ns, order, axis=1)
    at_ns = find_middles(rising_ns).astype(np.int64) + second_ns[:, 0]
    residual = (second_ns - first_ns - base_ns[:, None]).astype(np.float64)
    ordered = np.sort(residual, axis=1)
    drift = _find_drifts(rising_ns + (second_ns[:, 0] - at_ns)[:, None], residual, ordered, order)
    if len(drifts := np.flatnonzero(drift)):
        times_ns = (second_ns[drifts] - at_ns[drifts, None]).astype(np.float64)
        ordered[drifts] = np.sort(residual[drifts] - drift[drifts, None] * times_ns, axis=1)
    return [
        Clock(base + round(middle), gained, at, uncertainty_ns)
        for base, gained, at, (middle, uncertainty_ns) in zip(
            base_ns.tolist(), drift.tolist(), at_ns.tolist(), _find_medians(ordered), strict=True
        )
    ]


def _do_all_rise(values: NDArray[Any]) -> bool:
    """Tell whether no value of any row is less than the one before."""
    return not (values[:, 1:] < values[:, :-1]).any()


def find_middles(ordered: NDArray[Any]) -> NDArray[np.float64]:
    """Return the median of each row; each rises."""
    count = ordered.shape[1]
    return np.asarray((ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2, dtype=np.float64)


def find_scatter(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return middle and half width of the values that lie closest together, about a third of them.

    Half of the rest may be late by milliseconds, or of a time before or after a clock was set.
    """
    if not len(values):
        return 0.0, 0.0
    ordered = np.sort(values)
    count = _count_close(len(ordered))
    widths = ordered[count - 1 :] - ordered[: len(ordered) - count + 1]
    narrowest = int(np.argmin(widths))
    return float(ordered[narrowest] + widths[narrowest] / 2), float(widths[narrowest] / 2)


def _find_scatters(ordered: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what ``find_scatter`` does for each row; each rises."""
    count = ordered.shape[1]
    close = _count_close(count)
    widths = ordered[:, close - 1 :] - ordered[:, : count - close + 1]
    narrowest = np.argmin(widths, axis=1)[:, None]
    half_widths = np.take_along_axis(widths, narrowest, axis=1)[:, 0] / 2
    return np.take_along_axis(ordered, narrowest, axis=1)[:, 0] + half_widths, half_widths


def find_scattered(ordered: NDArray[np.float64]) -> list[int]:
    """Return the rows, which rise, of which a value lies further from those closest together than by chance."""
    wide = np.flatnonzero(ordered[:, -1] - ordered[:, 0] > _LEAST_FAR_NS)
    if not len(wide):
        return []
    ordered = ordered[wide]
    centres, half_widths = _find_scatters(ordered)
    reaches = np.maximum(_LEAST_FAR_NS, _FAR * half_widths)
    are_near = np.maximum(centres - ordered[:, 0], ordered[:, -1] - centres) <= reaches
    return [row for row, is_near in zip(wide.tolist(), are_near.tolist(), strict=True) if not is_near]


def _count_close(count: int) -> int:
    """Return how many of some values are taken to lie closest together."""
    return min(count, max(2, min((count + 1) // 2, _FEWEST_CLOSE), math.ceil(count / 3)))


def find_reach_ns(half_width_ns: float) -> float:
    """Return how far from the others' an end may lie that belongs to them, by what ``find_scatter`` returns."""
    return max(_LEAST_FAR_NS, _FAR * half_width_ns)


def find_median(values: NDArray[np.float64]) -> tuple[float, int]:
    """Return the median and the half width of its 99 % confidence interval, from the order statistics that hold it.

    Of values that lie together: a clock that was set has two middles, and what lies between is neither.
    """
    middle, half_width_ns = find_scatter(values)
    ordered = np.sort(values[np.abs(values - middle) <= find_reach_ns(half_width_ns)])
    middle = float(np.median(ordered))
    reach = int(np.ceil(_Z * np.sqrt(len(ordered)) / 2))
    low = ordered[max(0, len(ordered) // 2 - reach)]
    high = ordered[min(len(ordered) - 1, (len(ordered) - 1) // 2 + reach)]
    return middle, int(np.ceil(max(high - middle, middle - low, RESOLUTION_NS)))


def find_medians(values: Mapping[_Key, NDArray[np.float64]]) -> dict[_Key, tuple[float, int]]:
    """Return what ``find_median`` does, of many at once; none is empty."""
    found: dict[_Key, tuple[float, int]] = {}
    for keys in batch({key: len(own) for key, own in values.items()}):
        ordered = np.sort(np.stack([values[key] for key in keys]), axis=1)
        found.update(zip(keys, _find_medians(ordered), strict=True))
    return found


def _find_medians(ordered: NDArray[np.float64]) -> list[tuple[float, int]]:
    """Return what ``find_median`` does for each row, which rises; one by one only those of which some lie apart."""
    count = ordered.shape[1]
    middles = find_middles(ordered)
    reach = int(np.ceil(_Z * np.sqrt(count) / 2))
    low = ordered[:, max(0, count // 2 - reach)]
    high = ordered[:, min(count - 1, (count - 1) // 2 + reach)]
    doubts = np.ceil(np.maximum(np.maximum(high - middles, middles - low), RESOLUTION_NS)).astype(np.int64)
    found = list(zip(middles.tolist(), doubts.tolist(), strict=True))
    for row in find_scattered(ordered):
        found[row] = find_median(ordered[row])
    return found


def _find_drifts(
    rising_ns: Ints, ahead_ns: NDArray[np.float64], ordered: NDArray[np.float64], order: Ints | None
) -> NDArray[np.float64]:
    """Return the median slope between parts of each row (Theil 1950), 0 unless it clearly explains the residuals.

    Args:
        rising_ns: times, which rise in each row.
        ahead_ns: residuals.
        ordered: the same, rising in each row.
        order: places of the times in a row of residuals; None: these are in the order of time.
    """
    found = np.zeros(len(rising_ns))
    before = find_spreads(ordered)
    rows = np.flatnonzero(before > RESOLUTION_NS) if rising_ns.shape[1] >= _FEWEST_FOR_DRIFT else np.zeros(0, np.int64)
    if not len(rows):
        return found
    times_ns, ahead_ns, before = rising_ns[rows].astype(np.float64), ahead_ns[rows], before[rows]
    if order is not None:
        ahead_ns = np.take_along_axis(ahead_ns, order[rows], axis=1)
    drift = _find_slopes(times_ns, ahead_ns)
    # Without a drift a spread is less by at most as much as that moves the last value against the first.
    least = before - np.abs(drift) * (times_ns[:, -1] - times_ns[:, 0]) - _ROUNDED_NS
    may_explain = np.flatnonzero(least <= _EXPLAINS * before)
    after = find_spreads(np.sort(ahead_ns[may_explain] - drift[may_explain, None] * times_ns[may_explain], axis=1))
    for row, left in zip(may_explain.tolist(), after.tolist(), strict=True):
        if left <= _EXPLAINS * before[row] and left <= _spread_if_set(ahead_ns[row]):
            found[rows[row]] = drift[row]
    return found


def _find_slopes(times_ns: NDArray[np.float64], ahead_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median slope between parts of each row, whose times rise; 0 where no two parts have unlike times."""
    borders = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(times_ns.shape[1]), _BLOCKS))]).tolist()
    parts = list(itertools.pairwise(borders))
    when = np.stack([find_middles(times_ns[:, start:stop]) for start, stop in parts], axis=1)
    ahead = np.stack([find_middles(np.sort(ahead_ns[:, start:stop], axis=1)) for start, stop in parts], axis=1)
    first, second = np.triu_indices(_BLOCKS, 1)
    apart_ns = when[:, second] - when[:, first]
    is_apart = apart_ns > 0
    slopes = (ahead[:, second] - ahead[:, first]) / np.where(is_apart, apart_ns, 1)
    if is_apart.all():
        return np.asarray(np.median(slopes, axis=1), dtype=np.float64)
    medians = (np.median(own[told]) if told.any() else 0.0 for own, told in zip(slopes, is_apart, strict=True))
    return np.array([float(one) for one in medians], dtype=np.float64)


def find_spreads(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median distance of the values of each row from their median; each rises."""
    middles, count = find_middles(ordered)[:, None], ordered.shape[1]
    nearest = [_find_distances(ordered, middles, number) for number in sorted({(count + 1) // 2, count // 2 + 1})]
    return np.asarray((nearest[0] + nearest[-1]) / 2, dtype=np.float64)


def _find_distances(ordered: NDArray[np.float64], middles: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Return within what distance of its middle a number of the values of each row lie: they lie side by side."""
    left_ns = middles - ordered[:, : ordered.shape[1] - number + 1]
    return np.asarray(np.maximum(left_ns, ordered[:, number - 1 :] - middles).min(axis=1), dtype=np.float64)


def _spread_if_set(ahead_ns: NDArray[np.float64]) -> float:
    """Return what is left of deviations, in order of time, where a clock is taken to have been set once."""
    borders = np.linspace(0, len(ahead_ns), _BLOCKS + 1).astype(int)[1:-1].tolist()
    return min(_spread(np.concatenate([side - np.median(side) for side in np.split(ahead_ns, [at])])) for at in borders)


def _spread(values: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


class _Islands:
    """Ranks that edges connect, as they are joined one edge after the other (union-find)."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}

    def of(self, rank: int) -> int:
        """Return the rank that stands for all that it is connected with."""
        top = rank
        while (above := self._above.get(top, top)) != top:
            top = above
        while (above := self._above.get(rank, top)) != top:
            self._above[rank], rank = top, above
        return top

    def join(self, edge: Edge) -> bool:
        """Connect the ranks of an edge; False: they were."""
        first, second = self.of(edge.first), self.of(edge.second)
        self._above[second] = first
        return first != second


def keep_surest(edges: Sequence[Edge]) -> list[Edge]:
    """Keep the surest comparisons that connect all that can be connected (Kruskal)."""
    islands = _Islands()
    by_doubt = sorted(edges, key=lambda edge: (edge.clock.uncertainty_ns or 0, edge.first, edge.second))
    return [edge for edge in by_doubt if islands.join(edge)]


def divide_into_trees(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Divide a forest into its trees, in order of the last edge of each."""
    islands, trees = _Islands(), defaultdict[int, list[Edge]](list)
    for edge in edges:
        islands.join(edge)
    for edge in reversed(edges):
        trees[islands.of(edge.first)].append(edge)
    return list(trees.values())[::-1]


def chain_clocks(tree: Sequence[Edge]) -> dict[int, Clock]:
    """Return each rank's clock against the median rank's, from comparisons of neighbours in the tree."""
    against_first = _chain_from(tree, min(edge.first for edge in tree))
    ordered = sorted(against_first, key=lambda rank: against_first[rank].offset_ns)
    return _chain_from(tree, ordered[(len(ordered) - 1) // 2])


def _chain_from(tree: Sequence[Edge], root: int) -> dict[int, Clock]:
    near: dict[int, list[tuple[int, Clock]]] = defaultdict(list)
    for edge in tree:
        near[edge.first].append((edge.second, edge.clock))
        near[edge.second].append((edge.first, _reverse(edge.clock)))
    found, border = {root: Clock(uncertainty_ns=0)}, [root]
    while border:
        rank = border.pop()
        new = {other: _follow(found[rank], clock) for other, clock in near[rank] if other not in found}
        found.update(new)
        border += new
    return dict(sorted(found.items()))


def _reverse(clock: Clock) -> Clock:
    """Return the first clock against the second."""
    return Clock(-clock.offset_ns, -clock.drift, clock.at_ns - clock.offset_ns, clock.uncertainty_ns)


def _follow(near: Clock, far: Clock) -> Clock:
    """Return a clock against the root, from that against a nearer one and that one's against the root."""
    there_ns = far.at_ns - far.offset_ns
    gained = round(near.drift * (there_ns - near.at_ns)) if near.drift else 0
    return Clock(
        offset_ns=far.offset_ns + near.offset_ns + gained,
        drift=near.drift + far.drift,
        at_ns=far.at_ns,
        uncertainty_ns=(near.uncertainty_ns or 0) + (far.uncertainty_ns or 0),
    )

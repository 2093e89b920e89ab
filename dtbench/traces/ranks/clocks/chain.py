"""Clocks compared rank by rank, and chained so that every rank is compared with one."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.ranks.clocks.times import RESOLUTION_NS, Clock, GroupTimes, ends_together
from dtbench.traces.time.intervals import Ints

_Z: Final = 2.576  # 99 % of a normal distribution, for the order statistics that hold a median
_BLOCKS: Final = 8  # parts of a trace whose medians show a drift
_FEWEST_FOR_DRIFT: Final = 4 * _BLOCKS
_FEWEST_CLOSE: Final = 4  # ends; fewer lie close together by accident
_EXPLAINS: Final = 0.5  # a drift that is one leaves at most this part of the deviations
_FAR: Final = 12  # times the scatter of ends that lie closest together; what lies further is no accident
_LEAST_FAR_NS: Final = 100_000  # ranks that leave a collective one after another, and threads that are woken late


@dataclass(frozen=True)
class Edge:
    """What the ends of two ranks say: ``second = first + offset + drift * (second - at)``."""

    first: int
    second: int
    clock: Clock


@dataclass(frozen=True)
class _Ends:
    """Ends of the collectives that two ranks share, each in its own clock."""

    first: list[Ints] = field(default_factory=list)
    second: list[Ints] = field(default_factory=list)


def find_edges(times: Sequence[GroupTimes]) -> list[Edge]:
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
    return [Edge(first, second, _compare(ends)) for (first, second), ends in shared.items()]


def _compare(ends: _Ends) -> Clock:
    """Return the second clock against the first."""
    first_ns, second_ns = np.concatenate(ends.first), np.concatenate(ends.second)
    base, at_ns = int(second_ns[0] - first_ns[0]), int(np.median(second_ns - second_ns[0])) + int(second_ns[0])
    residual = (second_ns - first_ns - base).astype(np.float64)
    drift = _find_drift((second_ns - at_ns).astype(np.float64), residual)
    residual -= drift * (second_ns - at_ns)
    middle, uncertainty_ns = find_median(residual)
    return Clock(base + round(middle), drift, at_ns, uncertainty_ns)


def find_scatter(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return middle and half width of the values that lie closest together, about a third of them.

    Half of the rest may be late by milliseconds, or of a time before or after a clock was set.
    """
    if not len(values):
        return 0.0, 0.0
    ordered = np.sort(values)
    count = min(len(ordered), max(2, min((len(ordered) + 1) // 2, _FEWEST_CLOSE), math.ceil(len(ordered) / 3)))
    widths = ordered[count - 1 :] - ordered[: len(ordered) - count + 1]
    narrowest = int(np.argmin(widths))
    return float(ordered[narrowest] + widths[narrowest] / 2), float(widths[narrowest] / 2)


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


def _find_drift(times_ns: NDArray[np.float64], ahead_ns: NDArray[np.float64]) -> float:
    """Return the median slope between parts of the trace (Theil 1950), 0 unless it clearly explains the residuals."""
    if len(times_ns) < _FEWEST_FOR_DRIFT:
        return 0.0
    order = np.argsort(times_ns)
    parts = [
        (np.median(times_ns[part]), np.median(ahead_ns[part])) for part in np.array_split(order, _BLOCKS) if len(part)
    ]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(parts, 2) if b[0] > a[0]]
    drift = float(np.median(slopes)) if slopes else 0.0
    before, after = _spread(ahead_ns), _spread(ahead_ns - drift * times_ns)
    is_drift = before > RESOLUTION_NS and after <= min(_EXPLAINS * before, _spread_if_set(ahead_ns[order]))
    return drift if is_drift else 0.0


def _spread_if_set(ahead_ns: NDArray[np.float64]) -> float:
    """Return what is left of deviations, in order of time, where a clock is taken to have been set once."""
    borders = np.linspace(0, len(ahead_ns), _BLOCKS + 1).astype(int)[1:-1].tolist()
    return min(_spread(np.concatenate([side - np.median(side) for side in np.split(ahead_ns, [at])])) for at in borders)


def _spread(values: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def keep_surest(edges: Sequence[Edge]) -> list[Edge]:
    """Keep the surest comparisons that connect all that can be connected (Kruskal)."""
    island = {rank: rank for edge in edges for rank in (edge.first, edge.second)}
    kept = []
    for edge in sorted(edges, key=lambda edge: (edge.clock.uncertainty_ns or 0, edge.first, edge.second)):
        first, second = island[edge.first], island[edge.second]
        if first != second:
            kept.append(edge)
            island = {rank: first if of == second else of for rank, of in island.items()}
    return kept


def divide_into_trees(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Divide a forest into its trees."""
    trees: list[tuple[set[int], list[Edge]]] = []
    for edge in edges:
        touching = [tree for tree in trees if tree[0] & {edge.first, edge.second}]
        merged = (
            {edge.first, edge.second}.union(*(tree[0] for tree in touching)),
            [edge, *(old for tree in touching for old in tree[1])],
        )
        trees = [tree for tree in trees if tree not in touching] + [merged]
    return [tree[1] for tree in trees]


def chain_clocks(tree: Sequence[Edge]) -> dict[int, Clock]:
    """Return each rank's clock against the median rank's, from comparisons of neighbours in the tree."""
    against_first = _chain_from(tree, min(edge.first for edge in tree))
    ordered = sorted(against_first, key=lambda rank: against_first[rank].offset_ns)
    return _chain_from(tree, ordered[(len(ordered) - 1) // 2])


def _chain_from(tree: Sequence[Edge], root: int) -> dict[int, Clock]:
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

"""Clocks compared rank by rank, and chained so that every rank is compared with one."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.analyze.intervals import Ints
from dtbench.analyze.ranks.clock_jumps import find_jump
from dtbench.analyze.ranks.times import RESOLUTION_NS, Clock, GroupTimes, ends_together

_Z: Final = 2.576  # 99 % of a normal distribution, for the order statistics that hold a median
_BLOCKS: Final = 8  # parts of a trace whose medians show a drift
_FEWEST_FOR_DRIFT: Final = 4 * _BLOCKS
_EXPLAINS: Final = 0.5  # a drift that is one leaves at most this part of the deviations


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
    """Return the second clock against the first; one that jumps has no drift."""
    ahead = [second_ns - first_ns for first_ns, second_ns in zip(ends.first, ends.second, strict=True)]
    second_ns = np.concatenate(ends.second)
    base, at_ns = int(ahead[0][0]), int(np.median(second_ns - second_ns[0])) + int(second_ns[0])
    residuals = [(own - base).astype(np.float64) for own in ahead]
    residual = np.concatenate(residuals)
    has_jumped = any(find_jump(own) is not None for own in residuals)
    drift = 0.0 if has_jumped else _find_drift((second_ns - at_ns).astype(np.float64), residual)
    residual -= drift * (second_ns - at_ns)
    middle, uncertainty_ns = find_median(residual)
    return Clock(base + round(middle), drift, at_ns, uncertainty_ns)


def find_median(values: NDArray[np.float64]) -> tuple[float, int]:
    """Give the median and the half width of its 99 % confidence interval, from the order statistics that hold it."""
    ordered = np.sort(values)
    middle = float(np.median(ordered))
    reach = int(np.ceil(_Z * np.sqrt(len(ordered)) / 2))
    low = ordered[max(0, len(ordered) // 2 - reach)]
    high = ordered[min(len(ordered) - 1, (len(ordered) - 1) // 2 + reach)]
    return middle, int(np.ceil(max(high - middle, middle - low, RESOLUTION_NS)))


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
    return drift if before > RESOLUTION_NS and after <= _EXPLAINS * before else 0.0


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
    """Give each rank's clock against the median rank's, from comparisons of neighbours in the tree."""
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

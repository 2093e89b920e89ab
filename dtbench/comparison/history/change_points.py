"""Where a row of numbers changed its level: by how far means lie apart, against rows in which order means nothing.

[Note: which change points] Each number is a run, so as independent as runs are; the order is that in which they began.
The statistic is the largest standardized difference of two neighbours' means, over all places and over windows of many
lengths (seeded binary segmentation: Kovács, Bühlmann, Li and Munk, Biometrika 110, 2023), so that a rise that soon
falls back is no less seen than one that stays. How large it gets without a change is found by shuffling the row
(``TRIES`` times), as in E-divisive (Matteson and James, JASA 109, 2014): the largest of all places and windows is
compared with the largest of all, so however many places are looked at, a row without a change has one found in
``ALPHA`` of tries at most. Where one is found the row is cut, and both parts are searched in the same way, the largest
statistic over all parts against the largest over all shuffled parts, until none is found: so again at most ``ALPHA`` of
rows have one more than there are. Numbers that lie farther than ``_FAR`` spreads from the median of their part count as
if they lay there: one run that others disturbed neither makes a level nor hides one.

A level has ``LEAST_RUNS`` at least. Of fewer than ``LEAST_POINTS`` no order is so rare that it can show anything.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.runs.cell.shift import POWER, spread
from dtbench.runs.cell.statistics import SEED

ALPHA: Final = 0.01
"""Of rows without a change, or with no further one, in how many one is found, at most."""

LEAST_RUNS: Final = 4
"""Of a level; as launches of a side."""

LEAST_POINTS: Final = 12
"""Below, too few orders differ."""

TRIES: Final = 999
_FAR: Final = 3.5
_SHRINK: Final = math.sqrt(0.5)
"""Of the windows' length, from one layer to the next."""

_POWER_Z: Final = 0.8416
"""Standard errors above the bound at which a difference is found in ``POWER`` of tries."""

assert POWER == 0.8, "another power has another quantile"

_Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a row.

    Attributes:
        starts: places at which another level begins, rising; without 0.
        bound: standardized difference that chance exceeds in ``ALPHA`` of tries, over what is left; 0: nothing was left
            to search.
    """

    starts: tuple[int, ...]
    bound: float


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a row, half-open; ``split``: where its means lie farthest apart."""

    start: int
    stop: int
    split: int
    strength: float
    by_chance: _Values


def find_levels(values: _Values) -> Levels:
    """Find where a row changed its level; see [Note: which change points].

    Args:
        values: in their order, all finite; on logarithms, so that a change is a ratio, where all are above zero.
    """
    if len(values) < LEAST_POINTS:
        return Levels((), 0.0)
    generator = np.random.default_rng(SEED)
    parts = [_search(values, 0, len(values), generator)]
    while True:
        at = max(range(len(parts)), key=lambda place: parts[place].strength)
        by_chance = np.max([part.by_chance for part in parts], axis=0)
        best = parts[at]
        p_value = (1 + np.count_nonzero(by_chance >= best.strength * (1 - 1e-9))) / (TRIES + 1)
        if p_value > ALPHA or not best.strength:
            return Levels(_settle(values, sorted(part.start for part in parts)), _find_bound(by_chance))
        parts[at : at + 1] = [
            _search(values, best.start, best.split, generator),
            _search(values, best.split, best.stop, generator),
        ]


def find_detectable(bound: float, count: int, after: int) -> float:
    """Return the smallest difference of two levels that would be found 8 times of 10, in spreads of a level.

    Args:
        bound: of ``Levels``.
        count: numbers of both levels.
        after: those of the second.

    Returns:
        NaN: so few numbers would show none.
    """
    if bound <= 0 or count < LEAST_POINTS or min(after, count - after) < LEAST_RUNS:
        return math.nan
    # In standard errors, y: what is standardized by the spread of both levels together reaches the bound where
    # y - z = bound * sqrt(1 + y^2 / count), with z for the power.
    weight = 1 - bound**2 / count
    if weight <= 0:
        return math.nan
    root = math.sqrt(_POWER_Z**2 + weight * (bound**2 - _POWER_Z**2))
    return (_POWER_Z + root) / weight / math.sqrt(after * (count - after) / count)


def _find_bound(by_chance: _Values) -> float:
    """Return what a statistic must exceed: as many of the tries lie above as a p-value of ``ALPHA`` allows."""
    allowed = int(ALPHA * (TRIES + 1)) - 1
    return float(np.sort(by_chance)[-1 - allowed])


def _search(values: _Values, start: int, stop: int, generator: np.random.Generator) -> _Part:
    """Find the largest difference of a part, and those of as many shuffled ones; of what is too short none."""
    scores = _standardize(values[start:stop])
    if stop - start < 2 * LEAST_RUNS or not scores.any():
        return _Part(start, stop, start, 0.0, np.zeros(TRIES))
    strengths, splits = _find_strongest(scores[np.newaxis], _list_windows(len(scores)))
    shuffled = generator.permuted(np.broadcast_to(scores, (TRIES, len(scores))), axis=1)
    by_chance, _ = _find_strongest(shuffled, _list_windows(len(scores)))
    return _Part(start, stop, start + int(splits[0]), float(strengths[0]), by_chance)


def _standardize(values: _Values) -> _Values:
    """Return numbers with mean 0 and spread 1, those that lie far drawn in; zeros: they are all equal."""
    if not len(values) or not np.ptp(values):
        return np.zeros(len(values))
    away = values - np.median(values)
    typical = spread(values)
    drawn = np.clip(away, -_FAR * typical, _FAR * typical) if typical else away
    centred = drawn - drawn.mean()
    return np.asarray(centred / centred.std(), dtype=np.float64)


def _list_windows(count: int) -> Iterator[tuple[int, int]]:
    """Yield windows over so many numbers, half-open, the whole first: each layer shorter, with as many more."""
    length, windows = float(count), 1
    layer = 0
    while length >= 2 * LEAST_RUNS:
        shift = (count - length) / (windows - 1) if windows > 1 else 0.0
        for place in range(windows):
            first = math.floor(place * shift)
            yield first, min(count, math.ceil(place * shift + length))
        layer += 1
        length = count * _SHRINK**layer
        windows = 2 * math.ceil(_SHRINK**-layer) - 1


def _find_strongest(rows: _Values, windows: Iterator[tuple[int, int]]) -> tuple[_Values, NDArray[np.int64]]:
    """Return for each row the largest difference over windows, in standard errors, and where the second level begins.

    Args:
        rows: shape ``(num_rows, count)``, each standardized.
        windows: half-open, each twice ``LEAST_RUNS`` long or longer.
    """
    sums = np.zeros((len(rows), rows.shape[1] + 1))
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    strongest, places = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    every = np.arange(len(rows))
    for first, last in windows:
        sizes = np.arange(LEAST_RUNS, last - first - LEAST_RUNS + 1, dtype=np.float64)
        errors = np.sqrt(sizes * (last - first - sizes) / (last - first))
        whole = sums[:, last : last + 1] - sums[:, first : first + 1]
        before = sums[:, first + LEAST_RUNS : last - LEAST_RUNS + 1] - sums[:, first : first + 1]
        apart = np.abs(before - whole * (sizes / (last - first))) / errors
        at = np.argmax(apart, axis=1)
        found = apart[every, at]
        is_more = found > strongest
        strongest[is_more] = found[is_more]
        places[is_more] = first + LEAST_RUNS + at[is_more]
    return strongest, places


def _settle(values: _Values, starts: list[int]) -> tuple[int, ...]:
    """Lay each border where both levels beside it fit best: it was found before the others were known."""
    borders = [*starts, len(values)]
    for _ in range(2):
        for at in range(1, len(borders) - 1):
            borders[at] = borders[at - 1] + _find_border(values[borders[at - 1] : borders[at + 1]])
    return tuple(borders[1:-1])


def _find_border(values: _Values) -> int:
    """Return where the second of two levels begins, by distances from medians, which few far ones do not move."""
    places = range(LEAST_RUNS, len(values) - LEAST_RUNS + 1)
    return min(places, key=lambda place: _sum_distances(values[:place]) + _sum_distances(values[place:]))


def _sum_distances(values: _Values) -> float:
    return float(np.sum(np.abs(values - np.median(values))))

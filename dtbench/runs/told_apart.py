"""Which cells of a run can be told apart by a number of each launch: by a test, corrected for how many cells there are.

Cells that are alike differ by chance: of six that are byte for byte equal, launched twice each, ranges of some two lie
apart in 81 % of runs. So a fastest cell is named only where a test over launches tells it from the others.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from dtbench.runs.cell.shift import LEVEL, shift_of_means

LEAST_LAUNCHES: Final = 4
"""On a side: of three against three no rank test can say anything, and a t-test finds only what is large."""


def tell_apart(samples: Sequence[Sequence[float]]) -> tuple[frozenset[int], ...]:
    """Return for each sample the places of those that it can be told from: Welch's test of all pairs, by Holm.

    Args:
        samples: of each cell a value for each launch, above zero, on whose logarithms is tested; NaN: it has none.
    """
    known = [[value for value in values if math.isfinite(value) and value > 0] for values in samples]
    pairs = list(combinations(range(len(known)), 2))
    p_values = correct([_test(known[one], known[other]) for one, other in pairs])
    told: list[set[int]] = [set() for _ in known]
    for (one, other), p_value in zip(pairs, p_values, strict=True):
        if p_value < LEVEL:
            told[one].add(other)
            told[other].add(one)
    return tuple(frozenset(places) for places in told)


def _test(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the p-value of a pair; NaN with too few launches. What varies on neither side leaves nothing to chance."""
    if min(len(one), len(other)) < LEAST_LAUNCHES:
        return math.nan
    before, after = np.log(one), np.log(other)
    if not np.ptp(before) and not np.ptp(after):
        return 1.0 if before[0] == after[0] else 0.0
    return shift_of_means(before, after).p_value


def correct(p_values: Sequence[float]) -> tuple[float, ...]:
    """Correct for the number of tests (Holm, Scandinavian Journal of Statistics 6, 1979); NaN stays, and is no test."""
    order = sorted((p_value, place) for place, p_value in enumerate(p_values) if not math.isnan(p_value))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for rank, (p_value, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_value))
        corrected[place] = largest
    return tuple(corrected)

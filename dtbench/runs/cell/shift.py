"""Four tests of whether one sample lies higher than another, each with the interval that its own p-value implies.

Written out rather than called, because the p-value and the interval of a test must never contradict each other, also
with ties and few values; ``tests/runs/test_shift.py`` holds the p-values against scipy's. (``scipy.special``
alone also loads five times faster than ``scipy.stats``.) Of each interval: a shift lies outside exactly if the test,
asked about data moved by it, would give a p-value below ``level``, which is less than ``LEVEL`` where several numbers
are tested. All values finite.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

LEVEL: Final = 0.05
"""Of false alarms: a p-value below it counts as a difference, and intervals hold ``1 - LEVEL``."""

POWER: Final = 0.8
"""How often the smallest detectable shift would be found."""

_RANK_COST: Final = math.sqrt(math.pi / 3)
"""Standard errors of rank tests over those of t-tests, for normal data (Lehmann, Nonparametrics, 1975, section 2.4)."""

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Shift:
    """What a test says of ``candidate - baseline``.

    Attributes:
        test: its name, as reports say it.
        p_value: two-sided.
        low, high: interval of the shift, of the level that was asked for; infinite where so few values allow none.
        detectable: smallest shift found 8 times of 10 by as many values with this spread, at that level.
    """

    test: str
    p_value: float
    low: float
    high: float
    detectable: float


def shift_of_means(baseline: _Values, candidate: _Values, level: float = LEVEL) -> Shift:
    """Compare the means of two samples whose spreads may differ (Welch, Biometrika 34, 1947); not both constant."""
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (baseline, candidate)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (baseline, candidate), strict=True)
    )
    return _judge_mean("Welch", float(np.mean(candidate) - np.mean(baseline)), error, freedom, level)


def shift_within_rounds(changes: _Values, level: float = LEVEL) -> Shift:
    """Compare by the mean change within a round (paired t-test); changes that are not all equal."""
    error = float(np.std(changes, ddof=1)) / math.sqrt(len(changes))
    return _judge_mean("paired t", float(np.mean(changes)), error, len(changes) - 1.0, level)


def shift_of_ranks(baseline: _Values, candidate: _Values, level: float = LEVEL) -> Shift:
    """Compare by how many pairs of values rise (Mann-Whitney, exact); equal values count against a difference.

    The interval is Hodges and Lehmann's, of the median difference over all pairs (Annals of Math. Statistics 34, 1963).
    """
    differences = np.sort(np.subtract.outer(candidate, baseline).ravel())
    error = math.hypot(*(spread(values) / math.sqrt(len(values)) for values in (baseline, candidate)))
    freedom = len(baseline) + len(candidate) - 2.0
    detectable = _find_detectable(_RANK_COST * error, freedom, level)
    return _judge_ranks("Mann-Whitney", differences, _rank_sums(len(baseline), len(candidate)), detectable, level)


def shift_of_signed_ranks(changes: _Values, level: float = LEVEL) -> Shift:
    """Compare by the signed ranks of changes within a round (Wilcoxon, exact); from six rounds on it can find any.

    The interval is Hodges and Lehmann's, of the median of averages of two changes.
    """
    first, second = np.triu_indices(len(changes))
    averages = np.sort((changes[first] + changes[second]) / 2)
    error = spread(changes) / math.sqrt(len(changes))
    detectable = _find_detectable(_RANK_COST * error, len(changes) - 1.0, level)
    return _judge_ranks("Wilcoxon", averages, _signed_rank_sums(len(changes)), detectable, level)


def spread(values: _Values) -> float:
    """Return the standard deviation that the middle half of the values suggests: 1.4826 MAD, corrected for few values.

    Source of the correction: Croux and Rousseeuw, Time-efficient algorithms for two highly robust estimators of scale,
    Computational Statistics 1 (1992), table 3. 0 where most values are equal; at least two values.
    """
    count = len(values)
    correction = _FEW.get(count, count / (count - 0.8))
    return 1.4826 * correction * float(np.median(np.abs(values - np.median(values))))


_FEW: Final = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


def mean_half_width(values: _Values) -> float:
    """Return half the 95 % interval of the mean of normal values; at least two."""
    freedom = len(values) - 1
    return float(special.stdtrit(freedom, 1 - LEVEL / 2)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _judge_mean(test: str, shift: float, error: float, freedom: float, level: float) -> Shift:
    p_value = 2 * float(special.stdtr(freedom, -abs(shift) / error))
    reach = float(special.stdtrit(freedom, 1 - level / 2)) * error
    return Shift(test, p_value, shift - reach, shift + reach, _find_detectable(error, freedom, level))


def _judge_ranks(test: str, ordered: _Values, chances: _Values, detectable: float, level: float) -> Shift:
    """Judge by how many of the ordered differences do not rise, or do not fall, whichever are fewer."""
    fewer = int(min(np.count_nonzero(ordered <= 0), np.count_nonzero(ordered >= 0)))
    tail = 2 * np.cumsum(chances)
    p_value = min(1.0, float(tail[fewer]))
    bound = int(np.searchsorted(tail, level)) - 1
    low, high = (-math.inf, math.inf) if bound < 0 else (float(ordered[bound]), float(ordered[-1 - bound]))
    return Shift(test, p_value, low, high, detectable)


def _find_detectable(error: float, freedom: float, level: float) -> float:
    """Return the shift whose t-test has ``POWER``, by the noncentral t-distribution."""
    bound = float(special.stdtrit(freedom, 1 - level / 2))
    return error * float(special.nctdtrinc(freedom, 1 - POWER, bound))


@lru_cache(maxsize=64)
def _rank_sums(first: int, second: int) -> _Values:
    """Return the chance of each count of risen pairs, 0 to ``first * second``, when nothing differs.

    The largest value of all belongs to the one sample or to the other (Mann and Whitney, 1947, equation 1).
    """
    size = first * second + 1
    chances: list[_Values] = [np.eye(1, size)[0] for _ in range(second + 1)]
    for own in range(1, first + 1):
        row: list[_Values] = [chances[0]]
        for other in range(1, second + 1):
            risen = np.concatenate([np.zeros(other), chances[other][:-other]])
            row.append((own * risen + other * row[-1]) / (own + other))
        chances = row
    return chances[-1]


@lru_cache(maxsize=64)
def _signed_rank_sums(count: int) -> _Values:
    """Return the chance of each sum of positive ranks, 0 to ``count * (count + 1) / 2``, when nothing differs."""
    chances = np.ones(1)
    for rank in range(1, count + 1):
        chances = (np.concatenate([chances, np.zeros(rank)]) + np.concatenate([np.zeros(rank), chances])) / 2
    return chances

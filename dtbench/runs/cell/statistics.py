"""Medians with their spread and uncertainty; a statistic of too few values is NaN, never a guess.

[Note: few values] A bootstrap of three values lies between the least and the largest, as often as not the median does
too: of two, three, four and five values such an interval holds the median in 50, 75, 87.5 and 94 % of cases, not in 95.
Below six it is widened to the interval of the mean by the t-distribution, on logarithms where all are above zero.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.runs.summary import Interval

_RESAMPLES: Final = 2000
SEED: Final = 20261
"""Of every bootstrap: the same data give the same interval, always."""
_LEVEL: Final = 0.05
_T_QUANTILES: Final = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
"""Of 97.5 %, by degrees of freedom."""


def summarize(values: Sequence[float]) -> Interval:
    """Return median, quartiles and a 95 % interval of the median, see [Note: few values]; NaN bounds below two values.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile interval).
    """
    data = np.asarray(values, dtype=np.float64)
    if not len(data):
        return Interval(median=math.nan, low=math.nan, high=math.nan, quartile1=math.nan, quartile3=math.nan, count=0)
    low, high = _widen(data, *bounds(resample_medians(data, np.random.default_rng(SEED))))
    quartile1, median, quartile3 = (float(value) for value in np.percentile(data, (25, 50, 75)))
    return Interval(median=median, low=low, high=high, quartile1=quartile1, quartile3=quartile3, count=len(data))


def summarize_launches(launches: Sequence[Sequence[float]]) -> Interval:
    """Return the median over launches of each launch's median; the interval resamples launches, then their steps.

    Steps of one launch resemble each other more than steps of two: pooling them gives intervals that are far too
    narrow; few launches widen it, see [Note: few values]. With one launch it holds within that launch only. Quartiles
    and count are those of all steps.
    Source: Davison and Hinkley, Bootstrap Methods and their Application, section 3.8 (hierarchical data).
    """
    filled = [np.asarray(values, dtype=np.float64) for values in launches if len(values)]
    pooled = summarize([float(value) for values in filled for value in values])
    if len(filled) < 2:
        return pooled
    rng = np.random.default_rng(SEED)
    medians = np.stack([resample_medians(values, rng) for values in filled])
    chosen = rng.integers(len(filled), size=(len(filled), _RESAMPLES))
    of_launches = np.array([np.median(values) for values in filled])
    low, high = _widen(of_launches, *bounds(np.median(np.take_along_axis(medians, chosen, axis=0), axis=0)))
    point = float(np.median(of_launches))
    return pooled.model_copy(update={"median": point, "low": low, "high": high})


def _widen(values: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """Widen a bootstrap's interval of few values to that of the t-distribution, see [Note: few values]."""
    quantile = _T_QUANTILES.get(len(values) - 1)
    if quantile is None:
        return low, high
    is_positive = bool(values.min() > 0)
    laid = np.log(values) if is_positive else values
    reach = quantile * float(np.std(laid, ddof=1)) / math.sqrt(len(laid))
    ends = [float(np.mean(laid)) - reach, float(np.mean(laid)) + reach]
    first, last = (math.exp(min(end, 700.0)) if is_positive else end for end in ends)
    return min(low, first), max(high, last)


def summarize_ratio(values: Sequence[float], baseline: Sequence[float]) -> Interval:
    """Return the ratio of two medians with its 95 % bootstrap interval; quartiles: of ``values / median(baseline)``."""
    over, under = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if not len(over) or not len(under) or under.min() <= 0:
        return Interval(median=math.nan, low=math.nan, high=math.nan, quartile1=math.nan, quartile3=math.nan, count=0)
    rng = np.random.default_rng(SEED)
    low, high = bounds(resample_medians(over, rng) / resample_medians(under, rng))
    quartile1, median, quartile3 = (float(value) for value in np.percentile(over, (25, 50, 75)) / np.median(under))
    return Interval(median=median, low=low, high=high, quartile1=quartile1, quartile3=quartile3, count=len(over))


def resample_medians(data: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return medians of bootstrap resamples; NaN below two values. Equal generators resample equal lengths alike."""
    if len(data) < 2:
        return np.full(_RESAMPLES, math.nan)
    return np.asarray(np.median(rng.choice(data, size=(_RESAMPLES, len(data))), axis=1), dtype=np.float64)


def bounds(medians: NDArray[np.float64], level: float = _LEVEL) -> tuple[float, float]:
    """Return the middle 95 % of resampled statistics, or what ``level`` leaves of them."""
    low, high = np.percentile(medians, (50 * level, 100 - 50 * level))
    return float(low), float(high)

"""Whether a number differs between two sides, by statistics over launches: never over steps.

Steps of one launch resemble each other more than steps of two launches, so a test of pooled steps finds differences
between equal things (43 to 50 % false alarms, see ``tests/benchmarks/false_alarms.py``). Here a *value* is one launch;
only ``kernels.py`` has steps, and says what they show of two traces, and of no other launch.

[Note: which test] Fixed in advance, before any value is seen, except for the choice of the last column:

    =================================  =======================================  =================================
    launches                           test                                     where outliers are in the way
    =================================  =======================================  =================================
    took turns, in the same rounds     paired t-test of changes within a round  Wilcoxon, from six rounds on
    otherwise                          Welch                                    Mann-Whitney
    =================================  =======================================  =================================

All are on logarithms, so that a shift is a ratio. Within rounds a drift of the machine cancels: ten launches under a
drift of 10 % show a change of 2 % in 96 % of tries, to Welch in 1 %; without drift pairing costs some power, at four
launches 65 % for 75 % at a change of 5 %. Outliers are in the way when there are some, but no more than a fifth of a
side: more are a second mode, in which ranks see less than means do. Choosing by them raises false alarms by 0.3 points
at most: in 8,000 tries of ten launches with two modes from 5.0 to 5.2 % (``tests/comparison/test_false_alarms.py``).

[Note: one answer] The test decides. The interval is the bootstrap's of the ratio of medians (percentile; Efron and
Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), widened to the interval that belongs to the test: with
few launches a bootstrap is too narrow. Where the test finds a difference and the bootstrap reaches over 1, the test's
end stands. Where the medians change the other way than the test says, nothing is found: the p-value is 1. So the
interval always holds the ratio, and leaves out 1 exactly if the p-value is below its level: 5 %, or what the correction
leaves of it to a number among several (``share_level``). Its outcome goes by that interval, which stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.comparison.comparison import Outcome
from dtbench.runs.cell.shift import (
    LEVEL,
    Shift,
    shift_of_means,
    shift_of_ranks,
    shift_of_signed_ranks,
    shift_within_rounds,
    spread,
)
from dtbench.runs.cell.statistics import SEED, bounds, resample_medians
from dtbench.runs.told_apart import LEAST_LAUNCHES

_LEAST_TO_NAME_OUTLIERS: Final = 5
_OUTLIER_Z: Final = 3.5
_MOST_OUTLIERS: Final = 0.2  # of a side; see [Note: which test]
_LEAST_SIGNED_RANKS: Final = 6  # below, Wilcoxon's smallest p-value is above 5 %

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class SampleComparison:
    """One number on two sides.

    Attributes:
        baseline_median, candidate_median: over launches that have the number; NaN: none has.
        ratio: of the medians, candidate over baseline; NaN where the baseline's is not above zero.
        low, high: interval of the ratio at the level that was asked for (0.05: 95 %); NaN where it cannot be said,
            equal where neither side varies.
        p_value: of this number alone, two-sided; NaN where nothing was tested.
        test: by which; None where nothing was tested.
        detectable: smallest relative change that as many launches with this spread would show 8 times of 10; or NaN.
        outcome: at that level.
        baseline_outliers, candidate_outliers: positions of launches far from the others of their side; they count.
    """

    baseline_median: float
    candidate_median: float
    ratio: float
    low: float
    high: float
    p_value: float
    test: str | None
    detectable: float
    outcome: Outcome
    baseline_outliers: tuple[int, ...]
    candidate_outliers: tuple[int, ...]


@dataclass(frozen=True)
class _Scale:
    """Where shifts are looked for: on logarithms, or (``unit``) in units of the baseline's median, NaN: in none."""

    unit: float | None

    def lay(self, values: _Values) -> _Values:
        return np.log(values) if self.unit is None else values

    def read_ratio(self, shift: float) -> float:
        return math.exp(min(shift, 700.0)) if self.unit is None else 1 + shift / self.unit


def compare_samples(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    is_interleaved: bool,
    threshold: float,
    level: float = LEVEL,
) -> SampleComparison:
    """Compare a number of each launch of two sides.

    Args:
        baseline: a value for each launch, in the order in which they ran; NaN: that launch has none.
        candidate: the same; if interleaved and of equal length, values at the same position are of the same round.
        is_interleaved: launches of the two sides took turns.
        threshold: relative changes below it do not matter.
        level: of false alarms; less for one number of several.
    """
    before, after = np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    first, second = before[np.isfinite(before)], after[np.isfinite(after)]
    medians = [float(np.median(values)) if len(values) else math.nan for values in (first, second)]
    found = SampleComparison(
        baseline_median=medians[0],
        candidate_median=medians[1],
        ratio=medians[1] / medians[0] if medians[0] > 0 else math.nan,
        low=math.nan,
        high=math.nan,
        p_value=math.nan,
        test=None,
        detectable=math.nan,
        outcome=Outcome.UNKNOWN,
        baseline_outliers=find_outliers(before),
        candidate_outliers=find_outliers(after),
    )
    if not len(first) or not len(second) or medians[0] < 0:  # there is no relative change of what is below nothing
        return found
    if min(len(first), len(second)) < LEAST_LAUNCHES:
        return replace(found, outcome=Outcome.NOT_ENOUGH_LAUNCHES)
    if not np.ptp(first) and not np.ptp(second):
        return replace(found, low=found.ratio, high=found.ratio, outcome=_judge_constants(found, threshold))
    rounds = _find_rounds(before, after) if is_interleaved else None
    tested = _compare_by_test(found, first, second, rounds, level)
    return replace(tested, outcome=_decide(tested, level, threshold))


def _decide(found: SampleComparison, level: float, threshold: float) -> Outcome:
    """Return the outcome of a number that was tested."""
    does_not_matter = max(abs(found.low - 1), abs(found.high - 1)) <= threshold  # never of NaN
    is_small = abs(found.ratio - 1) < threshold  # never of NaN: from nothing to something is no small change
    if found.p_value < level and not is_small:
        return Outcome.HIGHER if found.candidate_median > found.baseline_median else Outcome.LOWER
    if not does_not_matter:
        return Outcome.NOT_ESTABLISHED
    return Outcome.BELOW_THRESHOLD if found.p_value < level else Outcome.NO_DIFFERENCE


def share_level(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the level at which each of several numbers is judged: 5 % over those that were not found before it (Holm).

    A p-value is below its level exactly if ``correct`` makes it less than 5 %.
    """
    order = sorted((p_value, place) for place, p_value in enumerate(p_values) if not math.isnan(p_value))
    levels, found = [LEVEL] * len(p_values), 0
    for rank, (p_value, place) in enumerate(order):
        levels[place] = LEVEL / (len(order) - found)
        found += found == rank and p_value < levels[place]
    return tuple(levels)


def noise_floor(values: Sequence[float]) -> float:
    """Return the largest relative change between halves of one side: early and late launches, even and odd ones.

    What the same thing differs from itself on this machine; NaN with too few launches.
    """
    data = np.asarray(values, dtype=np.float64)
    data = data[np.isfinite(data)]
    if len(data) < LEAST_LAUNCHES or data.min() <= 0:
        return math.nan
    middle = len(data) // 2
    halves = [(data[:middle], data[middle:]), (data[::2], data[1::2])]
    ratios = [float(np.median(one) / np.median(other)) for one, other in halves]
    return max(max(ratio, 1 / ratio) - 1 for ratio in ratios)


def find_outliers(values: Sequence[float] | _Values) -> tuple[int, ...]:
    """Return the positions of values far from the others of their side, from five values on.

    By the modified z-score above 3.5 (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993), of logarithms
    where all values are positive, with the MAD corrected for few values; among normal values about one sample in ten
    has such a value. Where most values are equal, none is far.
    """
    data = np.asarray(values, dtype=np.float64)
    is_known = np.isfinite(data)
    if np.count_nonzero(is_known) < _LEAST_TO_NAME_OUTLIERS:
        return ()
    known = np.log(data[is_known]) if data[is_known].min() > 0 else data[is_known]
    return tuple(int(place) for place in np.flatnonzero(is_known)[_lie_far(known)])


def _lie_far(values: _Values) -> NDArray[np.bool_]:
    typical = spread(values)
    distance = np.abs(values - np.median(values))
    return distance > _OUTLIER_Z * typical if typical else np.zeros(len(values), dtype=bool)


def _judge_constants(found: SampleComparison, threshold: float) -> Outcome:
    """Judge numbers that vary on neither side, as bytes and counts do: nothing is left to chance."""
    if found.candidate_median == found.baseline_median:
        return Outcome.SAME
    if abs(found.ratio - 1) < threshold:
        return Outcome.BELOW_THRESHOLD
    return Outcome.HIGHER if found.candidate_median > found.baseline_median else Outcome.LOWER


def _find_rounds(before: _Values, after: _Values) -> tuple[_Values, _Values] | None:
    """Return both sides' values of the rounds in which both have one; None: too few, or there are no rounds."""
    if len(before) != len(after):
        return None
    is_whole = np.isfinite(before) & np.isfinite(after)
    return (before[is_whole], after[is_whole]) if np.count_nonzero(is_whole) >= LEAST_LAUNCHES else None


def _compare_by_test(
    found: SampleComparison,
    first: _Values,
    second: _Values,
    rounds: tuple[_Values, _Values] | None,
    level: float,
) -> SampleComparison:
    is_positive = min(first.min(), second.min()) > 0
    scale = _Scale(None if is_positive else found.baseline_median if found.baseline_median > 0 else math.nan)
    sides = (first, second) if rounds is None else rounds
    laid = scale.lay(sides[0]), scale.lay(sides[1])
    shift = _test(*laid, level) if rounds is None else _test_rounds(laid[1] - laid[0], level)
    point = float(np.diff(scale.lay(np.array([found.baseline_median, found.candidate_median])))[0])
    p_value, low, high = _agree(shift, _bootstrap(laid, level, is_paired=rounds is not None), point, level)
    ends = [scale.read_ratio(end) if math.isfinite(end) else math.nan for end in (low, high)]
    return replace(
        found,
        low=ends[0],
        high=ends[1],
        p_value=p_value,
        test=shift.test,
        detectable=scale.read_ratio(shift.detectable) - 1,
    )


def _test(before: _Values, after: _Values, level: float) -> Shift:
    """Test by [Note: which test], launches that did not take turns."""
    is_hindered = _has_outliers(before) or _has_outliers(after)
    return shift_of_ranks(before, after, level) if is_hindered else shift_of_means(before, after, level)


def _test_rounds(changes: _Values, level: float) -> Shift:
    """Test by [Note: which test], changes within rounds."""
    if not np.ptp(changes):
        sure = float(changes[0])
        return Shift("paired t", 0.0 if sure else 1.0, sure, sure, 0.0)
    if len(changes) >= _LEAST_SIGNED_RANKS and _has_outliers(changes):
        return shift_of_signed_ranks(changes, level)
    return shift_within_rounds(changes, level)


def _has_outliers(values: _Values) -> bool:
    """Tell whether some values are far from the others, but not so many that they are a second mode."""
    if len(values) < _LEAST_TO_NAME_OUTLIERS:
        return False
    return 0 < int(np.count_nonzero(_lie_far(values))) <= _MOST_OUTLIERS * len(values)


def _bootstrap(sides: tuple[_Values, _Values], level: float, *, is_paired: bool) -> tuple[float, float]:
    """Return the percentile interval of the shift of medians; ``is_paired``: whole rounds are resampled."""
    generator = np.random.default_rng(SEED)
    before = resample_medians(sides[0], generator)
    after = resample_medians(sides[1], np.random.default_rng(SEED) if is_paired else generator)
    return bounds(after - before, level)


def _agree(shift: Shift, resampled: tuple[float, float], point: float, level: float) -> tuple[float, float, float]:
    """Return p-value and interval of a shift by [Note: one answer]; ``point``: the shift of the medians."""
    lows, highs = (resampled[0], shift.low, point), (resampled[1], shift.high, point)
    if shift.p_value < level and shift.low > 0 < point:
        return shift.p_value, min(low for low in lows if low > 0), max(highs)
    if shift.p_value < level and shift.high < 0 > point:
        return shift.p_value, min(lows), max(high for high in highs if high < 0)
    p_value = 1.0 if shift.p_value < level else shift.p_value
    return p_value, min(0.0, *lows), max(0.0, *highs)

"""The four tests of a shift: p-values as scipy's, intervals that say the same as their p-value."""

import math

import numpy as np
import pytest
from scipy import stats

from dtbench.runs.cell.shift import (
    LEVEL,
    Shift,
    mean_half_width,
    shift_of_means,
    shift_of_ranks,
    shift_of_signed_ranks,
    shift_within_rounds,
    spread,
)

SIZES = [(4, 4), (5, 9), (12, 10), (20, 20)]


def draw(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng([count, seed]).normal(0.3 * (seed % 4), 1, count)


def says_the_same(shift: Shift) -> bool:
    return (shift.p_value < LEVEL) == (shift.low > 0 or shift.high < 0)


@pytest.mark.parametrize(("first", "second"), SIZES)
@pytest.mark.parametrize("seed", range(8))
def test_two_samples_get_the_p_values_of_scipy(first: int, second: int, seed: int) -> None:
    baseline, candidate = draw(first, 100), 2 * draw(second, seed)
    welch, theirs = shift_of_means(baseline, candidate), stats.ttest_ind(candidate, baseline, equal_var=False)
    interval = theirs.confidence_interval()
    assert [welch.p_value, welch.low, welch.high] == pytest.approx([theirs.pvalue, interval.low, interval.high])
    ranks = shift_of_ranks(baseline, candidate)
    assert ranks.p_value == pytest.approx(stats.mannwhitneyu(candidate, baseline, method="exact").pvalue)
    assert says_the_same(welch)
    assert says_the_same(ranks)


@pytest.mark.parametrize("rounds", [6, 9, 20])
@pytest.mark.parametrize("seed", range(8))
def test_rounds_get_the_p_values_of_scipy(rounds: int, seed: int) -> None:
    changes = draw(rounds, seed)
    paired, theirs = shift_within_rounds(changes), stats.ttest_1samp(changes, 0)
    interval = theirs.confidence_interval()
    assert [paired.p_value, paired.low, paired.high] == pytest.approx([theirs.pvalue, interval.low, interval.high])
    signed = shift_of_signed_ranks(changes)
    assert signed.p_value == pytest.approx(stats.wilcoxon(changes, method="exact").pvalue)
    assert says_the_same(paired)
    assert says_the_same(signed)


@pytest.mark.parametrize("seed", range(40))
def test_equal_values_count_against_a_difference_in_p_value_and_interval_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    baseline, candidate = rng.integers(0, 4, 8).astype(float), rng.integers(seed % 3, 4 + seed % 3, 8).astype(float)
    ranks, signed = shift_of_ranks(baseline, candidate), shift_of_signed_ranks(candidate - baseline)
    assert says_the_same(ranks)
    assert says_the_same(signed)
    if (baseline.max() < candidate.min()) or (candidate.max() < baseline.min()):
        assert ranks.p_value < LEVEL
    assert shift_of_ranks(baseline, baseline).p_value == 1


def test_the_rank_interval_is_read_from_the_sorted_differences() -> None:
    baseline, candidate = np.array([1.0, 2.0, 3.0, 4.0]), np.array([11.0, 22.0, 33.0, 44.0])
    ranks = shift_of_ranks(baseline, candidate)
    assert ranks.p_value == pytest.approx(2 / 70), "one order of 70 has all of one side first, one has all of the other"
    assert (ranks.low, ranks.high) == (7, 43), "smallest and largest difference: 11 - 4, 44 - 1"


@pytest.mark.parametrize("launches", [4, 10])
def test_a_shift_of_the_detectable_size_is_found_8_times_of_10(launches: int) -> None:
    rng = np.random.default_rng(7)
    size = math.sqrt(np.mean([_detectable(rng, launches) ** 2 for _ in range(400)]))  # spreads of few values are low
    found = 0
    for _ in range(1000):
        found += shift_of_means(rng.normal(0, 1, launches), rng.normal(size, 1, launches)).p_value < LEVEL
    assert 760 < found < 850


def _detectable(rng: np.random.Generator, launches: int) -> float:
    return shift_of_means(rng.normal(0, 1, launches), rng.normal(0, 1, launches)).detectable


@pytest.mark.parametrize("count", [2, 4, 7, 30])
def test_the_robust_spread_of_normal_values_is_their_standard_deviation(count: int) -> None:
    rng = np.random.default_rng(3)
    assert np.mean([spread(rng.normal(5, 2, count)) for _ in range(3000)]) == pytest.approx(2, rel=0.06)


def test_half_the_interval_of_a_mean() -> None:
    values = draw(9, 1)
    interval = stats.ttest_1samp(values, 0).confidence_interval()
    assert mean_half_width(values) == pytest.approx((interval.high - interval.low) / 2)

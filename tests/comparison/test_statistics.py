"""What is said of one number on two sides: which test, which outcome, and one answer throughout."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtbench.comparison.comparison import Outcome
from dtbench.comparison.statistics import (
    SampleComparison,
    compare_samples,
    find_outliers,
    noise_floor,
    share_level,
)
from dtbench.runs.cell.shift import LEVEL
from dtbench.runs.told_apart import correct

NAN = math.nan
TEN = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 101.2, 98.9, 100.1]


def compare(
    baseline: list[float],
    candidate: list[float],
    *,
    in_turns: bool = False,
    threshold: float = 0.01,
    level: float = LEVEL,
) -> SampleComparison:
    return compare_samples(baseline, candidate, is_interleaved=in_turns, threshold=threshold, level=level)


def test_a_slower_candidate_is_higher_with_the_ratio_of_the_medians() -> None:
    found = compare(TEN, [1.05 * value for value in TEN])
    assert (found.outcome, found.test) == (Outcome.HIGHER, "Welch")
    assert found.ratio == pytest.approx(1.05)
    assert found.candidate_median == pytest.approx(1.05 * found.baseline_median)
    assert 1.03 < found.low < 1.05 < found.high < 1.07
    assert found.p_value < 1e-6
    assert 0.005 < found.detectable < 0.02
    assert compare(TEN, [value / 1.05 for value in TEN]).outcome is Outcome.LOWER


def test_a_change_that_is_sure_but_small_is_below_the_threshold() -> None:
    candidate = [1.02 * value for value in TEN]
    assert compare(TEN, candidate, threshold=0.03).outcome is Outcome.BELOW_THRESHOLD
    assert compare(TEN, candidate, threshold=0.01).outcome is Outcome.HIGHER
    faster = [value / 1.02 for value in TEN]
    assert compare(TEN, faster, threshold=0.03).outcome is Outcome.BELOW_THRESHOLD


def test_a_difference_that_launches_can_make_is_none() -> None:
    found = compare(TEN, TEN[::-1])
    assert (found.outcome, found.ratio) == (Outcome.NO_DIFFERENCE, 1)
    assert found.p_value == pytest.approx(1)
    assert found.low < 1 < found.high


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_fewer_than_four_launches_give_medians_and_ratio_and_say_no_more(launches: int) -> None:
    found = compare(TEN, [2 * value for value in TEN[:launches]])
    assert found.outcome is Outcome.NOT_ENOUGH_LAUNCHES
    assert found.ratio == found.candidate_median / found.baseline_median
    assert all(math.isnan(value) for value in (found.low, found.high, found.p_value, found.detectable))
    assert found.test is None
    assert compare(TEN, [*TEN[:launches], *[NAN] * 7]).outcome is Outcome.NOT_ENOUGH_LAUNCHES


@pytest.mark.parametrize("value", [8.0, 9.0])
def test_few_launches_are_too_few_also_for_numbers_that_do_not_vary(value: float) -> None:
    found = compare([8.0], [value, value])
    assert found.outcome is Outcome.NOT_ENOUGH_LAUNCHES
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_numbers_that_do_not_vary_need_no_test() -> None:
    same = compare([8.0] * 4, [8.0] * 5)
    assert (same.outcome, same.ratio, same.low, same.high, same.test) == (Outcome.SAME, 1, 1, 1, None)
    assert math.isnan(same.p_value)
    assert compare([0.0] * 4, [0.0] * 4).outcome is Outcome.SAME
    assert compare([8.0] * 4, [9.0] * 4).outcome is Outcome.HIGHER
    assert compare([8.0] * 4, [9.0] * 4, threshold=0.2).outcome is Outcome.BELOW_THRESHOLD
    assert compare([0.0] * 4, [9.0] * 4).outcome is Outcome.HIGHER


def test_a_side_without_numbers_is_not_known() -> None:
    found = compare([NAN, NAN], TEN)
    assert found.outcome is Outcome.UNKNOWN
    assert math.isnan(found.ratio)
    assert found.candidate_median == pytest.approx(np.median(TEN))
    assert compare(TEN, []).outcome is Outcome.UNKNOWN
    assert compare(TEN, [math.inf]).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("in_turns", [False, True])
def test_zeros_and_negative_values_are_compared_without_logarithms(in_turns: bool) -> None:
    baseline, candidate = [0.0, 4.0, 5.0, 6.0, 5.0, 4.5], [20.0, 24.0, 25.5, 26.0, 24.0, 25.0]
    found = compare(baseline, candidate, in_turns=in_turns)
    assert found.outcome is Outcome.HIGHER
    assert found.ratio == pytest.approx(24.5 / 4.75)
    assert 1 < found.low < found.ratio < found.high
    from_nothing = compare([0.0] * 6, candidate, in_turns=in_turns)
    assert from_nothing.outcome is Outcome.HIGHER
    assert math.isnan(from_nothing.ratio)
    assert math.isnan(from_nothing.low)
    assert from_nothing.p_value < 0.05
    assert compare([-1.0, 2.0, -2.0, 1.0], [2.0, -1.0, 1.0, -2.0], in_turns=in_turns).outcome is Outcome.NOT_ESTABLISHED


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize("candidate", [TEN[:5], [8.0] * 5, [-4.0, -4.1, -3.9, -4.2, -4.0]])
def test_of_a_baseline_below_zero_there_is_no_relative_change_and_no_outcome(
    candidate: list[float], *, in_turns: bool
) -> None:
    for baseline in ([-8.0, -8.1, -7.9, -8.2, -8.0], [-8.0] * 5):
        found = compare(baseline, candidate, in_turns=in_turns)
        assert (found.outcome, found.test) == (Outcome.UNKNOWN, None)
        assert all(math.isnan(value) for value in (found.ratio, found.low, found.high, found.p_value))


def test_changes_within_rounds_are_found_under_a_drift_that_hides_them_otherwise() -> None:
    drift = [100 * 1.01**launch for launch in range(10)]
    wobble = [0.998, 1.001, 1.003, 0.997, 1.0, 1.002, 0.999, 1.001, 1.003, 0.996]
    candidate = [1.02 * value * by for value, by in zip(drift, wobble, strict=True)]
    assert compare(drift, candidate).outcome is Outcome.NOT_ESTABLISHED
    in_turns = compare(drift, candidate, in_turns=True)
    assert (in_turns.outcome, in_turns.test) == (Outcome.HIGHER, "paired t")
    assert in_turns.low > 1


def test_rounds_in_which_a_side_is_missing_are_left_out_of_the_test() -> None:
    baseline, candidate = [NAN, *TEN[1:]], [*[1.05 * value for value in TEN[:-1]], NAN]
    found = compare(baseline, candidate, in_turns=True)
    assert (found.test, found.outcome) == ("paired t", Outcome.HIGHER)
    assert found.candidate_median == pytest.approx(1.05 * np.median(TEN[:-1])), "medians are of all launches"
    few = compare([NAN, NAN, NAN, *TEN[:4]], [*TEN[:4], NAN, NAN, NAN], in_turns=True)
    assert few.test == "Welch", "one round has both sides"
    assert compare(TEN, TEN[:8], in_turns=True).test == "Welch"


def test_outliers_are_named_counted_and_leave_the_choice_to_ranks() -> None:
    candidate = [*TEN[:9], 150.0]
    found = compare(TEN, candidate)
    assert (found.baseline_outliers, found.candidate_outliers) == ((), (9,))
    assert found.test == "Mann-Whitney"
    assert compare(TEN[::-1], candidate, in_turns=True).test == "Wilcoxon"
    assert find_outliers([NAN, *candidate]) == (10,)
    assert find_outliers(candidate[-4:]) == (), "of four values nobody can say"
    assert find_outliers([5.0, 5.0, 5.0, 5.0, 9.0]) == (), "most are equal: no spread to measure by"


def test_many_values_far_off_are_a_second_mode_and_no_outliers_for_the_choice() -> None:
    two_modes = [*TEN[:7], 150.0, 151.0, 149.0]
    assert find_outliers(two_modes) == (7, 8, 9)
    assert compare(TEN, two_modes).test == "Welch"


def test_where_medians_and_test_point_different_ways_nothing_is_found() -> None:
    baseline = [100.0, 100.1, 100.2, 100.3, 100.4, 100.5, 200.0, 200.1, 200.2, 200.3]
    candidate = [101.0, 101.1, 101.2, 101.3, 101.4, 101.5, 101.6, 101.7, 101.8, 101.9]
    found = compare(baseline, candidate)
    assert found.ratio > 1, "the median rises, while the mean falls by a quarter"
    assert (found.test, found.outcome) == ("Welch", Outcome.NOT_ESTABLISHED)
    assert found.low < 1 < found.high


values = st.lists(
    st.one_of(st.floats(50, 150), st.integers(99, 101).map(float), st.sampled_from([NAN, 100.0])),
    min_size=4,
    max_size=12,
)


@given(baseline=values, candidate=values, factor=st.sampled_from([1.0, 1.1, 0.5]), in_turns=st.booleans())
@settings(max_examples=300, derandomize=True)
def test_interval_p_value_ratio_and_outcome_never_contradict_each_other(
    baseline: list[float], candidate: list[float], factor: float, in_turns: bool
) -> None:
    found = compare(baseline, [factor * value for value in candidate], in_turns=in_turns, threshold=0.0)
    if found.test is None:
        return
    assert found.low <= found.ratio * (1 + 1e-12)
    assert found.ratio <= found.high * (1 + 1e-12)
    leaves_out_1 = found.low > 1 or found.high < 1
    assert (found.p_value < 0.05) == leaves_out_1 == (found.outcome in (Outcome.HIGHER, Outcome.LOWER))
    if leaves_out_1:
        assert (found.outcome is Outcome.HIGHER) == (found.low > 1)
    widely = compare(baseline, [factor * value for value in candidate], in_turns=in_turns, threshold=0.03, level=0.002)
    assert not widely.low > found.low
    assert not widely.high < found.high
    is_within = max(abs(widely.low - 1), abs(widely.high - 1)) <= 0.03
    assert is_within == (widely.outcome in (Outcome.NO_DIFFERENCE, Outcome.BELOW_THRESHOLD))
    back = compare([factor * value for value in candidate], baseline, in_turns=in_turns, threshold=0.0)
    assert back.p_value == pytest.approx(found.p_value)
    assert back.detectable == pytest.approx(found.detectable)


def test_the_same_data_give_the_same_answer_in_any_unit() -> None:
    candidate = [1.03 * value for value in TEN[::-1]]
    one, other = compare(TEN, candidate), compare([1e6 * v for v in TEN], [1e6 * v for v in candidate])
    assert (other.ratio, other.low, other.high) == pytest.approx((one.ratio, one.low, one.high))
    assert compare(TEN, candidate) == one


def test_levels_are_what_the_correction_leaves() -> None:
    p_values = [0.001, 0.03, NAN, 0.02, 0.001, 0.9]
    levels = share_level(p_values)
    assert levels == pytest.approx((0.05 / 5, 0.05 / 3, 0.05, 0.05 / 3, 0.05 / 4, 0.05 / 3))
    for p_value, corrected, level in zip(p_values, correct(p_values), levels, strict=True):
        assert (p_value < level) == (corrected < 0.05)


def test_so_few_launches_that_no_rank_test_reaches_its_level_have_no_interval() -> None:
    baseline, candidate = [*TEN[:4], 300.0], [*TEN[:4], 290.0]
    found = compare(baseline, candidate, level=0.001)
    assert found.test == "Mann-Whitney"
    assert math.isnan(found.low)
    assert found.outcome is Outcome.NOT_ESTABLISHED


def test_a_number_among_many_needs_more_to_be_found() -> None:
    candidate = [1.008 * value for value in TEN]
    found = compare(TEN, candidate, threshold=0.0)
    assert found.outcome is Outcome.HIGHER
    (level, *_) = share_level([found.p_value] * 20)
    among_many = compare(TEN, candidate, threshold=0.0, level=level)
    assert among_many.outcome is Outcome.NOT_ESTABLISHED
    assert among_many.low < 1 < found.low < found.high < among_many.high
    assert compare(TEN, candidate, threshold=0.5).outcome is Outcome.BELOW_THRESHOLD
    assert compare(TEN, candidate, threshold=0.5, level=level).outcome is Outcome.NO_DIFFERENCE
    assert compare([8.0] * 4, [8.0] * 4, level=level).outcome is Outcome.SAME


def test_the_noise_floor_is_what_halves_of_one_side_differ_by() -> None:
    assert noise_floor([100.0, 100.0, 110.0, 110.0]) == pytest.approx(0.1), "early against late"
    assert noise_floor([110.0, 100.0, 110.0, 100.0, 110.0, 100.0]) == pytest.approx(0.1), "in turns"
    assert noise_floor([100.0] * 4) == 0
    assert math.isnan(noise_floor([100.0] * 3))
    assert math.isnan(noise_floor([100.0, NAN, 100.0, 100.0]))
    assert math.isnan(noise_floor([0.0] * 8))

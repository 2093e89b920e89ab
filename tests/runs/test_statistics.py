"""Medians, intervals, ratios, peaks."""

import math

import numpy as np
import pytest

from dtbench.runs.cell.peaks import peak_flops
from dtbench.runs.cell.statistics import summarize, summarize_launches, summarize_ratio


def test_median_and_quartiles_are_of_the_data() -> None:
    interval = summarize([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert (interval.quartile1, interval.median, interval.quartile3, interval.count) == (2.5, 4.0, 5.5, 7)
    assert 1.0 <= interval.low <= 4.0 <= interval.high <= 7.0


def test_the_same_data_give_the_same_interval() -> None:
    data = np.random.default_rng(0).normal(size=20).tolist()
    assert summarize(data) == summarize(data)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        interval = summarize(rng.exponential(size=20).tolist())
        hits += interval.low <= math.log(2) <= interval.high
    assert hits >= 175


@pytest.mark.parametrize("values", [[], [7.0]])
def test_too_few_values_give_no_interval(values: list[float]) -> None:
    interval = summarize(values)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert interval.median == 7.0 if values else math.isnan(interval.median)


def test_a_ratio_of_medians() -> None:
    ratio = summarize_ratio([11.0, 12.0, 13.0], [10.0, 10.0, 10.0])
    assert ratio.median == pytest.approx(1.2)
    assert ratio.quartile1 == pytest.approx(1.15)
    assert ratio.quartile3 == pytest.approx(1.25)
    assert 1.1 <= ratio.low <= ratio.high <= 1.3
    assert math.isnan(summarize_ratio([], [1.0]).median)


def test_one_long_step_of_the_baseline_changes_no_part_of_a_ratio() -> None:
    ratio = summarize_ratio([11.0, 12.0, 13.0], [10.0, 10.0, 70.0])
    assert (ratio.quartile1, ratio.median, ratio.quartile3) == pytest.approx((1.15, 1.2, 1.25))


def test_the_step_time_of_launches_is_the_median_of_their_medians() -> None:
    launches = [[100.0, 90.0, 110.0], [120.0], [500.0, 400.0, 600.0]]
    assert summarize_launches(launches).median == 120.0
    assert summarize_launches([[100.0] * 5, [200.0]]).median == 150.0, "a launch counts once, however many its steps"


def test_peaks_are_known_for_named_devices_only() -> None:
    assert peak_flops("8 x NVIDIA H100 80GB HBM3", "bfloat16") == 989e12
    assert peak_flops("NVIDIA H100 PCIe", "bfloat16") == 756e12
    assert peak_flops("NVIDIA A100-SXM4-40GB", "float32") == 19.5e12
    assert peak_flops("NVIDIA GH200 480GB", "bfloat16") == 990e12
    assert peak_flops("NVIDIA GB200", "bfloat16") == 2500e12
    assert math.isnan(peak_flops("Tesla V100-SXM2-32GB", "bfloat16"))
    assert math.isnan(peak_flops("NVIDIA RTX A1000 Laptop GPU", "float32"))  # not an A100
    assert math.isnan(peak_flops("AMD EPYC, 2 cores", "float32"))


def test_an_interval_over_launches_covers_the_spread_between_them() -> None:
    launches = [[200.0, 201.0, 199.0], [100.0, 101.0, 99.0], [150.0, 151.0, 149.0]]
    interval = summarize_launches(launches)
    assert (interval.median, interval.count) == (150.0, 9)
    assert interval.low < 110
    assert interval.high > 190
    assert summarize_launches(launches[:1]) == summarize(launches[0])


def test_intervals_over_launches_cover_the_truth_far_better_than_pooled_steps() -> None:
    rng = np.random.default_rng(1)
    covered = {"pooled": 0, "launches": 0}
    for _ in range(60):
        launches = [list(rng.normal(100 * (1 + rng.normal(0, 0.03)), 2, 20)) for _ in range(6)]
        pooled, over = summarize([step for steps in launches for step in steps]), summarize_launches(launches)
        covered["pooled"] += pooled.low <= 100 <= pooled.high
        covered["launches"] += over.low <= 100 <= over.high
    assert covered["pooled"] < 40
    assert covered["launches"] > 45


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_an_interval_of_few_values_holds_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(2)
    of_steps = of_launches = 0
    for _ in range(200):
        values = (100 * np.exp(rng.normal(0, 0.02, count))).tolist()
        within, over = summarize(values), summarize_launches([[value] * 3 for value in values])
        of_steps += within.low <= 100 <= within.high
        of_launches += over.low <= 100 <= over.high
    assert min(of_steps, of_launches) >= 186  # of 190, less 1.3 standard errors


def test_an_interval_of_few_values_below_zero_is_no_logarithm() -> None:
    found = summarize([-1.0, 0.0, 1.0])
    assert (found.low, found.high) == pytest.approx((-2.484, 2.484), abs=0.001)

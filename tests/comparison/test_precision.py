"""How well launches tell step times: the half width of an interval, or that of ratios within rounds."""

import math

import numpy as np
import pytest

from dtbench.comparison.precision import describe_precision, is_known

ROUNDS = [100.0, 102.0, 98.0, 101.0, 99.0]  # logarithms have a standard deviation of 1.58 %: known to 1.98 %
DRIFT = [100.0, 110.0, 120.0, 130.0, 140.0]
NAN = math.nan


def test_a_cell_is_known_to_half_its_interval() -> None:
    assert is_known({"a": ROUNDS}, 0.02)
    assert not is_known({"a": ROUNDS}, 0.019)
    assert describe_precision({"a": ROUNDS}, 0.02) == "step times are known to 2.0 %"
    assert describe_precision({"a": ROUNDS}, 0.005) == (
        "the step time of cell a is known to 2.0 %, and 0.5 % are asked for"
    )


def test_the_cell_that_is_known_worst_decides() -> None:
    assert not is_known({"a": ROUNDS, "b": DRIFT}, 0.02)
    assert "cell b is known to" in describe_precision({"a": ROUNDS, "b": DRIFT}, 0.02)


def test_ratios_to_the_first_cell_are_enough_where_a_drift_hides_the_times_themselves() -> None:
    slower = [1.1 * time * by for time, by in zip(DRIFT, (1.001, 0.999, 1.0, 1.001, 0.999), strict=True)]
    times = {"a": DRIFT, "b": slower}
    assert is_known(times, 0.02)
    assert describe_precision(times, 0.02) == "ratios of step times to that of cell a are known to 0.1 %"
    assert not is_known({**times, "c": DRIFT[::-1]}, 0.02)


@pytest.mark.parametrize("times", [[], [100.0], [100.0, NAN], [NAN, NAN], [0.0, 0.0]])
def test_what_was_not_measured_is_not_known(times: list[float]) -> None:
    assert not is_known({"a": times}, 0.9)
    assert describe_precision({"a": times}, 0.02) == "the step time of cell a is not known, and 2 % are asked for"


def test_a_time_that_is_said_to_be_known_to_2_percent_is_so_in_about_95_of_100_tries() -> None:
    rng = np.random.default_rng(5)
    right = 0
    for _ in range(400):
        times = list(rng.lognormal(math.log(100), 0.03, 4))
        while not is_known({"a": times}, 0.02):
            times.append(float(rng.lognormal(math.log(100), 0.03)))
        right += abs(math.exp(np.mean(np.log(times))) / 100 - 1) <= 0.02
    assert right / 400 > 0.9, "stopping at the first interval that is narrow enough costs some of the 95 %"

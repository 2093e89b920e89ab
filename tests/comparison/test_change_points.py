"""Where a row changed its level: planted changes are found at their place, and none where there is none."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from dtbench.comparison.history.change_points import (
    ALPHA,
    LEAST_POINTS,
    LEAST_RUNS,
    _find_strongest,
    _list_windows,
    _standardize,
    find_detectable,
    find_levels,
)
from tests.made_history import PLANTED, draw_values

KINDS = ("normal", "heavy tails", "skewed", "two modes", "outliers")


def find(seed: int, count: int, changes: Mapping[int, float] | None = None, noise: str = "normal") -> tuple[int, ...]:
    return find_levels(np.log(draw_values(seed, count, changes, noise))).starts


def are_near(found: tuple[int, ...], changes: Mapping[int, float]) -> bool:
    pairs = zip(found, changes, strict=False)
    return len(found) == len(changes) and all(abs(place - planted) <= 2 for place, planted in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_three_planted_changes_of_200_runs_are_found_at_their_place_and_no_other(seed: int) -> None:
    assert are_near(find(seed, 200, PLANTED), PLANTED)


def test_where_nothing_changed_nothing_is_found() -> None:
    assert sum(bool(find(seed, 60)) for seed in range(20)) <= 1
    assert find(20, 200) == ()


@pytest.mark.thorough
@pytest.mark.parametrize("noise", KINDS)
@pytest.mark.parametrize("count", [12, 40, 200])
def test_of_100_histories_without_a_change_one_has_a_false_alarm(noise: str, count: int) -> None:
    tries = 200
    found = sum(bool(find(1000 + seed, count, None, noise)) for seed in range(tries))
    assert found / tries <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / tries)


@pytest.mark.thorough
@pytest.mark.parametrize("noise", KINDS)
def test_planted_changes_are_found_whatever_the_noise(noise: str) -> None:
    tries, sizes = 40, {place: ratio**2 for place, ratio in PLANTED.items()}
    assert sum(are_near(find(2000 + seed, 200, sizes, noise), sizes) for seed in range(tries)) >= 0.85 * tries


@pytest.mark.thorough
def test_of_100_histories_with_three_changes_hardly_one_has_a_fourth() -> None:
    tries = 200
    found = sum(len(find(3000 + seed, 200, PLANTED)) > len(PLANTED) for seed in range(tries))
    assert found / tries <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / tries)


def test_a_level_that_soon_fell_back_is_found_at_both_ends() -> None:
    changes = {90: 1.05, 98: 1 / 1.05}
    assert are_near(find(1, 200, changes), changes)


def test_a_rise_in_the_last_four_runs_is_found() -> None:
    assert are_near(find(2, 60, {56: 1.08}), {56: 1.08})


def test_fewer_runs_than_a_level_needs_make_none() -> None:
    values = np.log(draw_values(3, 60))
    values[[20, 30, 31, 57, 58, 59]] += math.log(3.0)
    assert find_levels(values).starts == ()


def test_what_never_varied_has_one_level_and_what_changed_once_two() -> None:
    assert find_levels(np.zeros(40)).starts == ()
    assert find_levels(np.repeat([100.0, 101.0], [25, 15])).starts == (25,)


def test_too_few_points_tell_nothing() -> None:
    assert find_levels(np.repeat([0.0, 1.0], [5, LEAST_POINTS - 6])).starts == ()
    assert find_levels(np.repeat([0.0, 1.0], [6, LEAST_POINTS - 6])).starts == (6,)


def test_the_same_row_has_the_same_levels_always() -> None:
    assert find(4, 100, {50: 1.02}) == find(4, 100, {50: 1.02})


def test_the_largest_difference_is_that_of_a_search_by_hand() -> None:
    rows = np.random.default_rng(5).normal(size=(3, 30))
    windows = list(_list_windows(30))
    assert windows[0] == (0, 30)
    assert min(last - first for first, last in windows) >= 2 * LEAST_RUNS
    strongest, places = _find_strongest(rows, iter(windows))
    for row, strength, place in zip(rows, strongest, places, strict=True):
        by_hand = [
            (abs(row[a:at].mean() - row[at:b].mean()) / math.sqrt(1 / (at - a) + 1 / (b - at)), at)
            for a, b in windows
            for at in range(a + LEAST_RUNS, b - LEAST_RUNS + 1)
        ]
        assert (pytest.approx(strength), place) == max(by_hand)


def test_one_run_that_lies_far_counts_as_if_it_lay_near() -> None:
    values = draw_values(6, 40)
    values[7] *= 10
    further = values.copy()
    further[7] *= 10
    assert _standardize(np.log(values)) == pytest.approx(_standardize(np.log(further)))


@pytest.mark.parametrize(("count", "after"), [(40, 20), (100, LEAST_RUNS)])
def test_a_change_as_large_as_is_said_to_show_is_found_about_8_times_of_10(count: int, after: int) -> None:
    bound = find_levels(np.log(draw_values(7, count))).bound
    size = math.exp(0.01 * find_detectable(bound, count, after))
    found = sum(bool(find(100 + seed, count, {count - after: size})) for seed in range(30))
    assert found >= 19, f"{found} of 30"


def test_what_so_few_points_cannot_show_is_not_known() -> None:
    assert math.isnan(find_detectable(3.0, LEAST_POINTS - 1, 5))
    assert math.isnan(find_detectable(4.0, 12, 6))
    assert math.isnan(find_detectable(0.0, 100, 50))
    assert find_detectable(3.5, 100, 4) > find_detectable(3.5, 100, 50) > 0

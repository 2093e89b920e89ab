"""Cells are told apart by launches, not by chance."""

import math

import numpy as np
import pytest

from dtbench.runs.told_apart import correct, tell_apart

NAN = math.nan
NONE: frozenset[int] = frozenset()


def test_cells_that_differ_by_far_more_than_their_launches_are_told_apart() -> None:
    fast, alike, slow = [100.0, 101.0, 99.0, 100.5], [100.2, 100.9, 99.3, 100.1], [120.0, 121.0, 119.0, 120.5]
    assert [set(places) for places in tell_apart([fast, alike, slow])] == [{2}, {2}, {0, 1}]


def test_below_four_launches_nothing_is_told() -> None:
    assert tell_apart([[100.0, 101.0, 99.0], [200.0, 201.0, 199.0]]) == (NONE, NONE)
    assert tell_apart([[100.0, 101.0, 99.0, NAN], [200.0, 201.0, 199.0, 200.0]]) == (NONE, NONE)


def test_what_does_not_vary_is_another_only_where_it_differs() -> None:
    assert [set(places) for places in tell_apart([[5.0] * 4, [5.0] * 4, [6.0] * 4])] == [{2}, {2}, {0, 1}]


@pytest.mark.parametrize("cells", [2, 6])
def test_equal_cells_are_rarely_told_apart(cells: int) -> None:
    rng = np.random.default_rng(3)
    false = sum(any(tell_apart(np.exp(rng.normal(0, 0.02, (cells, 4))).tolist())) for _ in range(200))
    assert false <= 16  # of 10 at a level of 5 %, with 1.9 standard errors


def test_p_values_are_corrected_for_their_number() -> None:
    assert correct([0.01, 0.04, NAN, 0.03]) == pytest.approx((0.03, 0.06, NAN, 0.06), nan_ok=True)
    assert correct([0.9, 0.5]) == (1.0, 1.0)
    assert correct([]) == ()

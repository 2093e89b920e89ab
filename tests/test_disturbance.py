"""Which steps to go by where others use the machine."""

import math

import pytest

from dtbench.disturbance import DISTURBED, find_undisturbed


@pytest.mark.parametrize(
    ("stolen", "kept"),
    [
        ([], []),
        ([0.0, 0.0], [True, True]),
        ([math.nan] * 4, [True] * 4),
        ([0.0, 0.019, DISTURBED, 0.0, 0.0], [True, True, False, True, True]),
        ([0.9, 0.5], [True, True]),
        ([0.9, 0.5, 0.4, 0.3], [False, True, True, True]),
        ([0.9, 0.0, 0.4, 0.3, 0.0], [False, True, False, True, True]),
        ([0.3, 0.3, 0.3, 0.3, 0.4], [True, True, True, True, False]),
    ],
)
def test_disturbed_steps_go_and_the_three_least_disturbed_stay(stolen: list[float], kept: list[bool]) -> None:
    assert find_undisturbed(stolen) == kept

"""Which steps to go by where others use the machine."""

import math

import pytest

from dtbench.machine.disturbance import DISTURBED, add_lost, find_undisturbed, is_enough


@pytest.mark.parametrize(
    ("stolen", "kept"),
    [
        ([], []),
        ([0.0, 0.0], [True, True]),
        ([math.nan] * 4, [True] * 4),
        ([0.0, 0.019, DISTURBED, 0.0, 0.0], [True, True, False, True, True]),
        ([0.9, 0.5], [True, True]),
        ([0.9, 0.5, 0.4, 0.3], [False, True, True, True]),
        ([0.0, 0.9, 0.0], [True, False, True]),
        ([0.0, 0.9], [True, False]),
        ([0.0, 0.9, 0.8], [True, True, True]),
        ([0.9, 0.0, 0.4, 0.3, 0.0], [False, True, False, True, True]),
        ([0.3, 0.3, 0.3, 0.3, 0.4], [True, True, True, True, False]),
    ],
)
def test_disturbed_steps_go_and_where_they_are_most_the_three_least_disturbed_stay(
    stolen: list[float], kept: list[bool]
) -> None:
    assert find_undisturbed(stolen) == kept


@pytest.mark.parametrize(
    ("left_alone", "steps", "enough"),
    [(4, 8, True), (3, 8, False), (1, 3, False), (2, 3, True), (0, 1, False), (0, 0, True)],
)
def test_half_of_the_steps_are_enough_to_judge_by(left_alone: int, steps: int, *, enough: bool) -> None:
    assert is_enough(left_alone, steps) is enough


def test_what_guests_and_processes_had_adds_up_and_stays_unknown_where_both_are() -> None:
    lost = add_lost([0.25, 0.75, math.nan, 0.5, math.nan], [0.5, 0.5, 0.25, math.nan, math.nan])
    assert lost == pytest.approx([0.75, 1.0, 0.25, 0.5, math.nan], nan_ok=True)

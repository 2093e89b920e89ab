"""Steps that others disturbed: left out for all ranks and in all tables."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import Phase
from dtbench.runs.cell.cell_notes import describe_disturbed, find_disturbed
from dtbench.runs.reading.run_data import part_steps
from dtbench.runs.reading.undisturbed import (
    count_left_alone,
    find_disturbance,
    find_left_out,
    leave_out,
    pick_left_out,
)
from dtbench.store.finish import STEPS
from dtbench.store.records.place import Place


def make_steps(stolen: Sequence[Sequence[float]], phase: Phase = Phase.MEASURED, first: int = 0) -> pd.DataFrame:
    """Return steps of 10 ns; ``stolen`` by rank and step."""
    rows = [
        (rank, first + step, phase.value, 0, 10, 5, fraction)
        for rank, of_rank in enumerate(stolen)
        for step, fraction in enumerate(of_rank)
    ]
    return pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes)


def test_a_step_goes_where_the_machine_of_any_rank_was_disturbed() -> None:
    steps = make_steps([[0.0, 0.3, 0.0, 0.0, math.nan], [0.0, 0.0, 0.0, 0.2, 0.0]])
    left_out = find_left_out(steps)
    assert left_out == {Phase.MEASURED: {1, 3}}
    assert leave_out(steps, left_out)["step"].tolist() == [0, 2, 4] * 2
    assert pick_left_out(steps, left_out)["step"].tolist() == [1, 3] * 2


def test_phases_are_judged_apart_and_warm_up_is_not() -> None:
    disturbed = [[0.0, 0.0, 0.0, 0.5]]
    phases = ((Phase.WARMUP, 0), (Phase.MEASURED, 4), (Phase.PROFILED, 8))
    steps = pd.concat([make_steps(disturbed, phase, first) for phase, first in phases], ignore_index=True)
    left_out = find_left_out(steps)
    assert left_out == {Phase.MEASURED: {7}, Phase.PROFILED: {11}}
    assert leave_out(steps, left_out)["step"].tolist() == [*range(7), 8, 9, 10]


def test_what_is_left_of_a_machine_that_never_was_quiet_is_disturbed() -> None:
    """Of five steps the three least disturbed stay; of these the middle one speaks."""
    steps = make_steps([[0.9, 0.5, 0.3, 0.8, 0.4], [0.0, 0.0, math.nan, 0.0, 0.0]])
    assert find_disturbance(part_steps(steps).kept) == 0.4
    assert find_disturbance(part_steps(make_steps([[0.0, 0.9, 0.9, 0.0, 0.0]])).kept) == 0.0
    assert math.isnan(find_disturbance(make_steps([[math.nan] * 3])))
    assert math.isnan(find_disturbance(make_steps([[]])))


def test_rows_of_no_step_stay_and_so_does_a_table_without_steps() -> None:
    left_out = {Phase.PROFILED: frozenset({2})}
    numbers = pd.DataFrame({"step": pd.array([1, 2, None], dtype="Int64")})
    assert leave_out(numbers, left_out)["step"].tolist() == [1, pd.NA]
    other = pd.DataFrame({"gap": [1, 2]})
    assert leave_out(other, left_out) is other
    assert leave_out(numbers, {}) is numbers
    assert pick_left_out(numbers, left_out)["step"].tolist() == [2]
    assert not len(pick_left_out(other, left_out))


@pytest.mark.parametrize(
    ("stolen", "taken", "left_out", "left_alone"),
    [
        ([0.0] * 5, [0.0, 0.3, 0.0, 0.0, math.nan], {1}, 4),
        ([math.nan] * 5, [0.0, 0.3, 0.0, 0.0, math.nan], {1}, 4),
        ([0.015] * 5, [0.0, 0.0, 0.0, 0.015, 0.0], {3}, 4),
        ([0.0, 0.0, 0.0, 0.5, 0.0], [0.5, 0.0, 0.0, 0.0, 0.0], {0, 3}, 3),
        ([0.0] * 5, [0.9, 0.5, 0.3, 0.8, 0.4], {0, 3}, 0),
        ([0.0] * 5, [math.nan] * 5, set(), 5),
    ],
)
def test_what_processes_took_counts_as_what_guests_had(
    stolen: Sequence[float], taken: Sequence[float], left_out: set[int], left_alone: int
) -> None:
    steps = make_steps([stolen, [0.0] * len(stolen)]).assign(
        others_cpu_ns=0.0, taken_fraction=[*taken, *[math.nan] * 5]
    )
    found = find_left_out(steps)
    assert found == ({Phase.MEASURED: left_out} if left_out else {})
    assert count_left_alone(steps, Phase.MEASURED) == left_alone, "steps that are kept to be shown are not left alone"
    assert part_steps(steps).kept["step"].nunique() == 5 - len(left_out)


def test_a_launch_that_others_disturbed_is_called_by_its_own_number() -> None:
    """Though those before it cannot be read, and one after it was left alone."""
    launches = [
        SimpleNamespace(
            place=Place("run", "cell", number),
            record=None,
            ranks=(),
            steps=make_steps([[0.0]]),
            left_out={Phase.MEASURED: {1, 2, 3}} if number == 3 else {},
        )
        for number in (3, 4)
    ]
    data: Any = SimpleNamespace(launches=launches, unreadable={0: "broken", 1: "broken", 2: "broken"})
    (one,) = find_disturbed(data)
    assert (one.launch, one.of_launches, one.left_alone, one.steps) == (3, 5, 1, 4)
    assert describe_disturbed([one]).startswith("launch3: ")

"""A cell's step time against its closed form, from both sides."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.runs.check_prediction import bound_cell, leave_unjudged_prediction
from dtbench.runs.summary import CellSummary

MS = 1_000_000
NAN = float("nan")


@pytest.mark.parametrize(
    ("step_ms", "is_inside", "words"),
    [
        (283.9, False, "OUTSIDE, below 284 ms to"),
        (284.0, True, "inside its closed form's bounds, 284 ms to"),
        (300.0, True, "expected 28"),
        (300.5, True, "inside"),  # 284 + 5 of the host, and 4 % of that
        (300.7, False, "OUTSIDE, above 284 ms to 301 ms"),
    ],
)
def test_a_step_outside_its_bounds_is_told_on_either_side(
    cell: Callable[..., CellSummary], step_ms: float, is_inside: object, words: str
) -> None:
    held = bound_cell(cell(step_ms), cores=2)
    assert held is not None
    assert held.is_inside is is_inside
    assert words in held.sentence
    assert held.low_ns == 284 * MS
    assert held.low_ns < held.expected_ns < held.high_ns


def test_time_of_the_host_is_stretched_where_ranks_share_cores(cell: Callable[..., CellSummary]) -> None:
    alone, shared, unknown = (bound_cell(cell(290, cpu_ms=30), cores=cores) for cores in (2, 1, None))
    assert alone is not None
    assert shared is not None
    assert abs(shared.high_ns - alone.high_ns - 30 * MS * 1.04) <= 1
    assert unknown == alone


def test_above_its_bounds_is_nothing_where_nobody_knows_whether_ranks_shared_cores(
    cell: Callable[..., CellSummary],
) -> None:
    alone, shared, unknown, below = (
        bound_cell(cell(step_ms, cpu_ms=30), cores=cores)
        for step_ms, cores in ((340, 2), (340, 1), (340, None), (283.9, None))
    )
    assert [one and one.is_inside for one in (alone, shared, unknown, below)] == [False, True, None, False]
    assert unknown is not None
    assert unknown.sentence.endswith("how many cores ranks shared is not known")


@pytest.mark.parametrize("sections", [{"network": {"kind": "real"}}, {"model": {"dim": 64}}])
def test_what_has_no_known_cost_is_held_against_nothing(
    cell: Callable[..., CellSummary], sections: dict[str, Any]
) -> None:
    mlp = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 64}
    asked = {"model": mlp} if "model" in sections else sections
    assert bound_cell(cell(290, **asked), cores=2) is None


def test_a_run_without_steps_is_neither_inside_nor_outside(cell: Callable[..., CellSummary]) -> None:
    held = bound_cell(cell(NAN, NAN), cores=2)
    assert held is not None
    assert held.is_inside is None
    assert math.isnan(held.expected_ns)
    assert "no MEASURED step" in held.sentence


def test_what_has_no_closed_form_says_why(cell: Callable[..., CellSummary]) -> None:
    held = bound_cell(cell(290, parallel={"kind": "ddp", "replicas": 2, "find_unused_parameters": True}), cores=2)
    assert held is not None
    assert held.is_inside is None
    assert held.sentence.startswith("no closed form: parallel.find_unused_parameters")


def test_a_step_by_which_nothing_may_be_judged_is_not_inside_its_bounds(cell: Callable[..., CellSummary]) -> None:
    trusted = cell(290.0)
    held = bound_cell(trusted, 2)
    assert held is not None
    assert held.is_inside
    assert leave_unjudged_prediction(trusted, held) is held
    doubt = "launch0: the record of rank 1 is missing, its checks are lost"
    left = leave_unjudged_prediction(trusted.model_copy(update={"rank_doubts": (doubt,)}), held)
    assert left is not None
    assert left.is_inside is None
    assert left.sentence == f"not judged, since {doubt}: {held.sentence}"

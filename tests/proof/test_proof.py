"""What is run to prove forecasts, and how they are held against it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.plan.plan import plan_for_check
from dtbench.proof.claims import LAUNCHES, Claim, choose_claims, write_proof
from dtbench.proof.document import Proof, document
from dtbench.proof.page import proof_page
from dtbench.proof.proven import Proven, read_proof
from dtbench.report.page.page import words_of
from dtbench.runs.settings.forecast import Forecast, SettingAnswer
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.run import RunStatus
from tests.runs.conftest import MS, cell

__all__ = ["cell"]
Make = Callable[..., CellSummary]
CAP = "parallel.bucket_cap_mb=2"


def said(saving_ms: float, half_ms: float | None = 2.0, change: str = CAP, step_ms: float = 300.0) -> SettingAnswer:
    low, high = (None, None) if half_ms is None else ((saving_ms - half_ms) * MS, (saving_ms + half_ms) * MS)
    return SettingAnswer(change, "", (step_ms - saving_ms) * MS, saving_ms * MS, low, high)


def forecast(*answers: SettingAnswer, step_ms: float = 300.0) -> Forecast:
    return Forecast(step_ms * MS, 0.0, 4, answers, ())


def run_of(*cells: CellSummary) -> RunSummary:
    return RunSummary(
        name="made_proof",
        run_id="a",
        question="",
        path="made",
        status=RunStatus.COMPLETE,
        reason=None,
        overrides=(),
        torch="2.13.0",
        host="laptop",
        device="cpu",
        cells=cells,
    )


def launched(make: Make, name: str, *steps_ms: float, **changes: Any) -> CellSummary:
    medians = tuple(step * MS for step in steps_ms)
    return make(steps_ms[0]).model_copy(update={"name": name, "launch_medians_ns": medians, **changes})


def hold(make: Make, answer: SettingAnswer | None, after: tuple[float, ...], **changes: Any) -> Proven:
    base = launched(make, "a", 300.0, 301.0, 299.0, 300.0)
    changed = launched(make, "a.changed_1", *after, **changes)
    (one,) = read_proof(run_of(base, changed), [Claim("a", "a.changed_1", CAP, answer)])
    return one


def test_those_that_are_said_to_save_most_are_run_first() -> None:
    cells = {
        "a": forecast(said(10, change="x"), said(2, change="y")),
        "b": forecast(said(30, change="z", step_ms=1000), step_ms=1000),
    }
    claims = choose_claims(cells, 2)
    assert [(one.cell, one.changed, one.change) for one in claims] == [
        ("a", "a.changed_1", "x"),
        ("b", "b.changed_1", "z"),
    ]
    assert len(choose_claims(cells, 9)) == 3
    asked = choose_claims({"a": cells["a"]}, 9, ["y", "new"], ["a", "c"])
    assert [(one.cell, one.change, one.forecast is None) for one in asked] == [
        ("a", "y", False),
        ("c", "y", True),
        ("a", "new", True),
        ("c", "new", True),
    ]


def test_the_scenario_has_each_cell_as_it_was_and_as_it_is_changed(cell: Make, tmp_path: Path) -> None:
    base = cell(284.0).model_copy(update={"name": "a"})
    claims = choose_claims({"a": forecast(said(10), said(5, change="network.latency_us=0"))}, 2)
    file = write_proof(tmp_path / "run", "made", [base], claims)
    assert file.name == "made_proof"
    written = {one.name: one.scenario for one in file.cells}
    assert [*written] == ["a", "a.changed_1", "a.changed_2"]
    assert {one.repeat for one in written.values()} == {LAUNCHES}
    assert base.scenario is not None
    assert written["a"].parallel == base.scenario.parallel
    assert written["a.changed_1"].parallel.model_dump()["bucket_cap_mb"] == 2
    assert written["a.changed_2"].network.model_dump()["latency_us"] == 0
    assert all(plan_for_check(one).ranks == 2 for one in written.values())
    with pytest.raises(PredictionError, match="a loop of one's own"):
        write_proof(tmp_path / "run", "made", [base.model_copy(update={"scenario": None})], claims)


def test_a_forecast_is_held_against_the_unchanged_cell_of_the_same_run(cell: Make) -> None:
    one = hold(cell, said(20, step_ms=330.0), (280.0, 281.0, 279.0, 280.0))
    assert one.saving_ns == 20 * MS
    assert one.forecast_ns == pytest.approx(300 * MS * 310 / 330)
    assert one.error == pytest.approx(310 / 330 * 300 / 280 - 1)
    assert one.low_ns < 20 * MS < one.high_ns
    assert one.holds is True


@pytest.mark.parametrize(
    ("answer", "after", "changes", "holds"),
    [
        (said(60), (280.0, 281.0, 279.0, 280.0), {}, False),
        (said(20, None), (280.0, 281.0, 279.0, 280.0), {}, None),
        (None, (280.0, 281.0, 279.0, 280.0), {}, None),
        (said(20), (280.0, 281.0), {}, None),  # too few launches
        (said(20), (280.0, 281.0, 279.0, 280.0), {"rank_doubts": ("a record is lost",), "reason": "it failed"}, None),
    ],
)
def test_what_does_not_hold_and_what_is_not_known(
    cell: Make, answer: SettingAnswer | None, after: tuple[float, ...], changes: dict[str, Any], holds: bool | None
) -> None:
    one = hold(cell, answer, after, **changes)
    assert one.holds is holds
    page = proof_page("made", [one])
    (table,) = (block for part in page.parts for block in part.blocks)
    assert words_of(table.rows[0][-1]) == {True: "holds", False: "does NOT hold", None: "not known"}[holds]  # type: ignore[union-attr]
    if changes:
        assert page.answer[0].words == "nothing can be said: a.changed_1: a record is lost"
        assert one.error is None
    else:
        assert f"{'`' + CAP + '`'} saves 20.0 ms (6.7 %)" in page.answer[0].words or math.isnan(one.low_ns)


def test_what_saves_nothing_surely_is_said(cell: Make) -> None:
    one = hold(cell, said(20), (299.0, 304.0, 297.0, 301.0))
    assert proof_page("made", [one]).answer[0].words == "none of 1 change makes a step surely shorter"


def test_the_document_has_what_the_page_says(cell: Make) -> None:
    one = hold(cell, said(20), (280.0, 281.0, 279.0, 280.0))
    (row,) = json.loads(json.dumps(document(Proof("made", [one]))))["proven"]
    assert row["change"] == CAP
    assert row["saving_ns"] == one.saving_ns
    assert row["holds"] is True
    unsaid = hold(cell, None, (280.0, 281.0))
    (row,) = json.loads(json.dumps(document(Proof("made", [unsaid]))))["proven"]
    assert (row["forecast_saving_ns"], row["low_ns"], row["holds"]) == ("NaN", "NaN", None)

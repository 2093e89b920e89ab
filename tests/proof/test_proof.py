"""What is run to prove forecasts, and how they are held against it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.plan.plan import plan_for_check
from dtbench.proof.claims import LAUNCHES, Claim, choose_claims, write_proof
from dtbench.proof.document import Proof, document
from dtbench.proof.page import proof_page
from dtbench.proof.proven import Proven, read_proof
from dtbench.report.page.page import words_of
from dtbench.runs.settings.forecast import Forecast, SettingAnswer
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import change_field
from dtbench.store.records.run import RunStatus
from tests.runs.conftest import MS, cell

__all__ = ["cell"]
Make = Callable[..., CellSummary]
CAP = "parallel.bucket_cap_mb=2"


def said(saving_ms: float, half_ms: float | None = 2.0, change: str = CAP, step_ms: float = 300.0) -> SettingAnswer:
    low, high = (None, None) if half_ms is None else ((saving_ms - half_ms) * MS, (saving_ms + half_ms) * MS)
    return SettingAnswer(change, "", (step_ms - saving_ms) * MS, saving_ms * MS, low, high)


def forecast(*answers: SettingAnswer, step_ms: float = 300.0) -> Forecast:
    return Forecast(step_ms * MS, 4, 0, answers, ())


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
    changed = launched(make, "changed_1", *after, **changes)
    (one,) = read_proof(run_of(base, changed), [Claim("a", "changed_1", CAP, answer)])
    return one


def scenarios_of(make: Make, *names: str) -> dict[str, Scenario]:
    scenario = make(284.0).scenario
    assert scenario is not None
    return dict.fromkeys(names, scenario)


def test_those_that_are_said_to_save_most_are_run_first(cell: Make) -> None:
    x, y, z, longer = (f"parallel.bucket_cap_mb={cap}" for cap in (2, 3, 4, 6))
    cells = {
        "a": forecast(said(10, change=x), said(2, change=y), said(-3, change=longer)),
        "b": forecast(said(30, change=z, step_ms=1000), step_ms=1000),
    }
    scenarios = scenarios_of(cell, "a", "b")
    claims, left_out = choose_claims(cells, 2, scenarios=scenarios)
    assert [(one.cell, one.changed, one.change) for one in claims] == [("a", "changed_1", x), ("b", "changed_2", z)]
    assert not left_out
    assert [one.change for one in choose_claims(cells, 9, scenarios=scenarios)[0]] == [x, z, y]  # none that is longer


def test_what_is_asked_is_run_where_it_applies_and_the_rest_is_counted(cell: Make) -> None:
    scenarios = scenarios_of(cell, "a", "b")
    sharded = change_field(scenarios["a"], "parallel={kind: fsdp2, shards: 2}")
    asked = ["parallel.bucket_cap_mb=2", "parallel.replicas=4"]
    claims, left_out = choose_claims({}, 1, scenarios={**scenarios, "c": sharded}, asked=asked)
    assert [(one.cell, one.change, one.forecast) for one in claims] == [("a", asked[0], None)]
    assert len(left_out) == 5
    assert "b: `parallel.bucket_cap_mb=2` is not run: 1 are" in left_out
    assert any(words.startswith("c: ") and "bucket_cap_mb" in words for words in left_out)
    assert "a: `parallel.replicas=4` has 4 ranks in place of 2: that is another job" in left_out


def test_a_proof_is_proven_with_cells_of_other_names(cell: Make, tmp_path: Path) -> None:
    scenarios = scenarios_of(cell, "a", "changed_1", "1", "on")
    claims, _ = choose_claims({}, 8, scenarios=scenarios, asked=["parallel.bucket_cap_mb=2"])
    names = [one.changed for one in claims]
    assert len({*names, *scenarios}) == 8
    file = write_proof(tmp_path / "run", "made", scenarios, claims, 1)
    assert {one.name for one in file.cells} == {*names, *scenarios}


def test_the_scenario_has_each_cell_as_it_was_and_as_it_is_changed(cell: Make, tmp_path: Path) -> None:
    scenarios = scenarios_of(cell, "a")
    told = {"a": forecast(said(10), said(5, change="network.latency_us=0"))}
    claims, _ = choose_claims(told, 2, scenarios=scenarios)
    file = write_proof(tmp_path / "run", "made", scenarios, claims, 6)
    assert file.name == "made_proof"
    written = {one.name: one.scenario for one in file.cells}
    assert [*written] == ["a", "changed_1", "changed_2"]
    assert {one.repeat for one in written.values()} == {6}
    assert {one.scenario.repeat for one in write_proof(tmp_path, "x", scenarios, claims, 1).cells} == {LAUNCHES}
    assert written["a"].parallel == scenarios["a"].parallel
    assert written["changed_1"].parallel.model_dump()["bucket_cap_mb"] == 2
    assert written["changed_2"].network.model_dump()["latency_us"] == 0
    assert all(plan_for_check(one).ranks == 2 for one in written.values())


def test_a_forecast_is_held_against_the_unchanged_cell_of_the_same_run(cell: Make) -> None:
    one = hold(cell, said(20, step_ms=330.0), (280.0, 281.0, 279.0, 280.0))
    assert one.saving_ns == 20 * MS
    assert one.forecast_ns == pytest.approx(300 * MS * 310 / 330)
    assert one.error == pytest.approx(310 / 330 * 300 / 280 - 1)
    assert one.low_ns < 20 * MS < one.high_ns
    assert one.agrees is True


@pytest.mark.parametrize(
    ("answer", "after", "changes", "agrees"),
    [
        (said(60), (280.0, 281.0, 279.0, 280.0), {}, False),
        (said(20, None), (280.0, 281.0, 279.0, 280.0), {}, None),
        (None, (280.0, 281.0, 279.0, 280.0), {}, None),
        (said(20), (280.0, 281.0), {}, None),  # too few launches
        (said(20), (280.0, 281.0, 279.0, 280.0), {"rank_doubts": ("a record is lost",), "reason": "it failed"}, None),
    ],
)
def test_what_does_not_hold_and_what_is_not_known(
    cell: Make, answer: SettingAnswer | None, after: tuple[float, ...], changes: dict[str, Any], agrees: bool | None
) -> None:
    one = hold(cell, answer, after, **changes)
    assert one.agrees is agrees
    page = proof_page("made", [one])
    (table,) = (block for part in page.parts for block in part.blocks)
    assert words_of(table.rows[0][-1]) == {True: "agrees", False: "does NOT agree", None: "not known"}[agrees]  # type: ignore[union-attr]
    if changes:
        assert page.answer[0].words == "nothing can be said: changed_1: a record is lost"
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
    assert row["agrees"] is True
    unsaid = hold(cell, None, (280.0, 281.0))
    (row,) = json.loads(json.dumps(document(Proof("made", [unsaid]))))["proven"]
    assert (row["forecast_saving_ns"], row["low_ns"], row["agrees"]) == ("NaN", "NaN", None)


def test_of_several_that_which_surely_saves_is_named_and_what_is_not_known_is_counted(cell: Make) -> None:
    base = launched(cell, "a", 300.0, 301.0, 299.0, 300.0)
    unsure = launched(cell, "changed_1", 255.0, 310.0, 250.0, 305.0)
    sure = launched(cell, "changed_2", 290.0, 291.0, 289.0, 290.0)
    few = launched(cell, "changed_3", 200.0, 201.0)
    lost = launched(cell, "changed_4", 100.0, 100.0, 100.0, 101.0, reason="it failed")
    claims = [Claim("a", f"changed_{number}", CAP, said(10)) for number in (1, 2, 3, 4)]
    proven = read_proof(run_of(base, unsure, sure, few, lost), [*claims, Claim("a", "changed_9", CAP, None)])
    assert [one.saves for one in proven] == [False, True, False, False]
    assert proven[0].agrees is None  # so wide that it agrees with anything
    words = proof_page("made", proven).answer[0].words
    assert words.startswith(f"a: `{CAP}` saves 10.0 ms (3.3 %)")
    assert words.endswith("; of 2 of 4 changes nothing is known")
    (alone,) = read_proof(run_of(base, sure), [claims[1]])
    assert alone.high_ns - alone.low_ns < proven[1].high_ns - proven[1].low_ns  # of several, intervals are wider

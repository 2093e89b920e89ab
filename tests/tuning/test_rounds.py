"""Rounds as scenarios, and what is read of their runs."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Machine
from dtbench.runs.summary import CellSummary, Disturbed, RunSummary
from dtbench.store.records.rank import CorrectnessResult, Memory, Receipt, ReceiptOutcome
from dtbench.store.records.run import RunStatus
from dtbench.tuning.grid import Grid, OverAxis, make_grid
from dtbench.tuning.rounds import Origin, ask_forecasts, read_round, write_round
from dtbench.tuning.search import UNCHANGED, Out, Ran, Round, Stage
from tests.runs.test_settings import measured

Make = Callable[..., CellSummary]
MS = 1_000_000
CAPS = OverAxis("parallel.bucket_cap_mb", ("2", "3", "4", "6"))
STATIC = OverAxis("parallel.static_graph", ("true",))


def grid_of(make: Make, *axes: OverAxis) -> Grid:
    scenario = make(284.0).scenario
    assert scenario is not None
    return make_grid("base", scenario, axes or (CAPS,), Machine(cpu_cores=2, cuda_devices=0))


def launched(make: Make, name: str, *steps_ms: float, **changes: Any) -> CellSummary:
    medians = tuple(step * MS for step in steps_ms)
    told = {"name": name, "launch_medians_ns": medians, "launches": tuple(range(len(medians))), **changes}
    return make(steps_ms[0]).model_copy(update=told)


def run_of(*cells: CellSummary) -> RunSummary:
    return RunSummary(
        name="made_tune",
        run_id="a",
        question="",
        path="results/made_tune/a",
        reason=None,
        status=RunStatus.COMPLETE,
        overrides=(),
        torch="2.13.0",
        host="laptop",
        device="cpu",
        cells=cells,
    )


def read(make: Make, *cells: CellSummary, grid: Grid | None = None) -> Ran:
    points = tuple(cell.name for cell in cells if cell.name != "base")
    one = Round(Stage.CONFIRM, points, any(cell.name == "base" for cell in cells), 4, 4)
    return read_round(grid or grid_of(make), one, run_of(*cells), 7)


def test_a_round_is_a_scenario_whose_cells_take_turns(cell: Make) -> None:
    grid = grid_of(cell)
    file = write_round(
        Origin("made", Path("/models")), grid, Round(Stage.CONFIRM, ("point_1", "point_3"), True, 4, 6), 3
    )
    assert file.name == "made_tune"
    assert file.folder == Path("/models")
    assert file.question == "Tuning `base` of `made`, round 3: is a step of 2 points shorter than as it is?"
    cells = {one.name: one.scenario for one in file.cells}
    assert [*cells] == ["base", "point_1", "point_3"]
    assert {one.repeat for one in cells.values()} == {4}
    caps = [one.parallel.model_dump()["bucket_cap_mb"] for one in cells.values()]
    assert caps == [1, 2, 4]
    alone = write_round(Origin("made", None), grid, Round(Stage.SELECT, ("point_2",), False, 1), 1)
    assert [one.name for one in alone.cells] == ["point_2"]
    assert (
        write_round(Origin("made", None), grid, Round(Stage.SELECT, ("point_2",), False, 1), 1).text == alone.text
    )  # as it is found again, where a search goes on


def test_times_are_of_launches_and_those_that_others_disturbed_tell_nothing(cell: Make) -> None:
    taken = Disturbed(launch=1, phase=Phase.MEASURED, steps=8, left_alone=1, stolen_fraction=0.5, takers=())
    profiled = taken.model_copy(update={"launch": 2, "phase": Phase.PROFILED})
    peak = Memory(rss_peak_bytes=7, allocated_peak_bytes=None, reserved_peak_bytes=None)
    base = launched(cell, "base", 300, 301, 302, 303, memory=peak)
    other = launched(cell, "point_1", 280, 281, 282, 283, disturbed=(taken, profiled))
    ran = read(cell, base, other)
    assert ran.times_ns[UNCHANGED] == (300 * MS, 301 * MS, 302 * MS, 303 * MS)
    first, second, *rest = ran.times_ns["point_1"]
    assert (first, *rest) == (280 * MS, 282 * MS, 283 * MS)
    assert math.isnan(second)
    assert not ran.out
    assert ran.doubts == {"others took the cores": 1}
    assert ran.peak_bytes == {UNCHANGED: 7}
    assert (ran.run, ran.duration_ns) == ("results/made_tune/a", 7)


def test_lost_evidence_and_launches_that_cannot_be_read_tell_nothing(cell: Make) -> None:
    lost = launched(cell, "point_1", 280, 281, rank_doubts=("a record is lost",))
    torn = launched(cell, "point_2", 280, 281, launches=(0, 1, 2), unreadable={1: "torn"})
    ran = read(cell, lost, torn)
    assert all(map(math.isnan, ran.times_ns["point_1"]))
    first, torn_ns, last = ran.times_ns["point_2"]
    assert (first, last) == (280 * MS, 281 * MS)
    assert math.isnan(torn_ns)
    assert ran.doubts == {"a record is lost": 2, "they cannot be read": 1}


WRONG = CorrectnessResult(
    passed=False, loss_error=1, loss_tolerance=1e-5, gradient_error=1, gradient_tolerance=1e-5, worst_parameter="w"
)


def receipt(outcome: ReceiptOutcome, note: str = "", knob: str = "parallel.static_graph") -> Receipt:
    return Receipt(knob=knob, asked="true", got="false", outcome=outcome, note=note)


@pytest.mark.parametrize(
    ("changes", "out"),
    [
        ({"correctness": WRONG}, ("results differ", "")),
        (
            {"status": RunStatus.FAILED, "reason": "rank 1 raised"},
            ("failed", "rank 1 raised"),
        ),
        (
            {"receipts": (receipt(ReceiptOutcome.NO_EFFECT, "gloo has none"),)},
            ("not in force", "parallel.static_graph: gloo has none"),
        ),
        (
            {"receipts": (receipt(ReceiptOutcome.DISAGREES, "expected true"),)},
            ("not applied", "parallel.static_graph: asked true, got false; expected true"),
        ),
        ({"receipts": (receipt(ReceiptOutcome.NO_EFFECT, knob="parallel.static_graphs"),)}, None),
        ({"receipts": (receipt(ReceiptOutcome.AGREES),)}, None),
    ],
)
def test_what_speaks_against_a_point_puts_it_out(
    cell: Make, changes: dict[str, Any], out: tuple[str, str] | None
) -> None:
    ran = read(cell, launched(cell, "point_1", 280, 281, **changes), grid=grid_of(cell, STATIC))
    found = ran.out.get("point_1")
    if out is None:
        assert found is None
    else:
        assert isinstance(found, Out)
        assert found.word == out[0]
        assert found.why == (out[1] or found.why)


def test_a_knob_that_the_point_does_not_change_is_not_held_against_it(cell: Make) -> None:
    receipts = (receipt(ReceiptOutcome.NO_EFFECT, "gloo has none"),)
    assert not read(cell, launched(cell, "point_1", 280, 281, receipts=receipts)).out


def test_of_a_whole_strategy_only_a_knob_that_was_not_applied_counts(cell: Make) -> None:
    grid = grid_of(cell, OverAxis("parallel", ("{kind: fsdp2, shards: 2}",)))
    idle = launched(cell, "point_1", 280, 281, receipts=(receipt(ReceiptOutcome.NO_EFFECT, "no buffers"),))
    assert not read(cell, idle, grid=grid).out
    other = launched(cell, "point_1", 280, 281, receipts=(receipt(ReceiptOutcome.DISAGREES),))
    assert read(cell, other, grid=grid).out["point_1"].word == "not applied"


def test_a_cell_that_the_run_lacks_is_out(cell: Make) -> None:
    one = Round(Stage.SELECT, ("point_1", "point_2"), False, 1)
    ran = read_round(grid_of(cell), one, run_of(launched(cell, "point_1", 280)), 0)
    assert [*ran.out] == ["point_2"]


def test_forecasts_are_by_point_and_where_there_is_none_it_is_said_why(cell: Make) -> None:
    grid = grid_of(cell)
    bare, why = ask_forecasts(grid, cell(300.0), grid.runnable)
    assert not bare
    assert "not held against its closed form" in why
    asked = measured(cell, 284.0, 285.0, 284.5, 284.2)
    told, why = ask_forecasts(grid, asked, grid.runnable)
    assert not why
    assert {*told} == {*grid.runnable}
    assert told["point_1"].saving_ns == pytest.approx(12 * MS, rel=0.2)  # see tests/runs/test_settings.py
    assert told["point_1"].low_ns is not None

"""What a search has come to: statuses, sentences, page and document."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtbench.base.units import count_launches
from dtbench.report.page.page import Facts, Table
from dtbench.report.render.html_page import page_document
from dtbench.runs.summary import CellSummary
from dtbench.tuning.answer import Status, Tuned, find_helpless, make_answer
from dtbench.tuning.budget import Budget, run_search
from dtbench.tuning.document import document
from dtbench.tuning.grid import Grid, OverAxis
from dtbench.tuning.page import spell_point, tune_page
from dtbench.tuning.search import LAUNCHES, UNCHANGED, Out, Ran, Round, Search, Stage, Told
from tests.tuning.machine import FakeMachine
from tests.tuning.test_rounds import grid_of

Make = Callable[..., CellSummary]
MS = 1e6
GRID = (
    OverAxis("parallel.bucket_cap_mb", ("-1", "1", "2", "3", "1000", "2000")),
    OverAxis("parallel.static_graph", ("false", "true")),
)
CAP, STATIC = "parallel.bucket_cap_mb", "parallel.static_graph=true"


def search_grid(
    make: Make, steps_ms: Mapping[str, float], *axes: OverAxis, **more: Any
) -> tuple[Tuned, Grid, list[str]]:
    """Search a grid on a machine where points take so long; those that are not named take 300 ms."""
    grid = grid_of(make, *(axes or GRID))
    named = {point.change: point.name for point in grid.points}
    steps = {UNCHANGED: 300 * MS, **dict.fromkeys(grid.runnable, 300 * MS)}
    steps |= {named[change]: step * MS for change, step in steps_ms.items()}
    out = {named.get(change, change): why for change, why in more.pop("out", {}).items()}
    told = {named[change]: one for change, one in more.pop("told", {}).items()}
    budget = Budget(more.pop("budget", 1000))
    machine = FakeMachine(steps, more.pop("spread", 0.002), np.random.default_rng(1), out=out, told=told, **more)
    ended = run_search(Search(grid.runnable, LAUNCHES, begins_unchanged=bool(told)), budget, machine.run)
    tuned = make_answer("made", grid, ended, budget)
    return tuned, grid, [line.words for line in tune_page(tuned).answer]


def facts_of(tuned: Tuned) -> dict[str, str]:
    (part,) = tune_page(tuned).parts
    facts = part.find("search")
    assert isinstance(facts, Facts)
    return {fact.label: fact.words for fact in facts.facts}


def rows_of(tuned: Tuned) -> list[tuple[str, ...]]:
    (part,) = tune_page(tuned).parts
    table = part.find("points")
    assert isinstance(table, Table)
    return table.words


def test_the_best_is_named_with_what_it_saves_and_every_point_with_what_became_of_it(cell: Make) -> None:
    slow, wrong = Out("results differ", "its results are wrong"), f"{CAP}=3 + {STATIC}"
    tuned, grid, (said,) = search_grid(cell, {f"{CAP}=2": 250, f"{CAP}=2 + {STATIC}": 280}, out={wrong: slow})
    assert tuned.best == f"{CAP}=2"
    assert said.startswith(f"base: `{CAP}=2` saves ")
    assert "of a measured step of 300 ms" in said or "of a measured step of 299 ms" in said
    assert "interval" in said
    assert said.endswith("no other point was found that beats it")
    statuses = {point.change: point.status for point in tuned.points}
    assert statuses == {
        f"{CAP}=-1": Status.IMPOSSIBLE,
        f"{CAP}=-1 + {STATIC}": Status.IMPOSSIBLE,
        "": Status.SAME,
        STATIC: Status.DROPPED,
        f"{CAP}=2": Status.BEST,
        f"{CAP}=2 + {STATIC}": Status.FINALIST,
        f"{CAP}=3": Status.DROPPED,
        wrong: Status.OUT,
        f"{CAP}=1000": Status.DROPPED,
        f"{CAP}=1000 + {STATIC}": Status.DROPPED,
        f"{CAP}=2000": Status.SAME,
        f"{CAP}=2000 + {STATIC}": Status.SAME,
    }
    assert [point.status for point in tuned.points[:2]] == [Status.BEST, Status.FINALIST]
    best = tuned.best_point
    assert best is not None
    assert best.low_ns < 50 * MS < best.high_ns
    assert tuned.points[1].why == "surely longer than the best"
    assert len(rows_of(tuned)) == len(grid.points) == 12
    facts = facts_of(tuned)
    assert facts["points"].startswith("12: 2 not possible, 3 same as, 1 out, ")
    assert "bucket_cap_mb=-1" in facts["not possible"]
    assert "bucket_cap_mb=2000: bucket_cap_mb=1000" in facts["same as"]
    assert facts["out"] == "bucket_cap_mb=3 + static_graph=true: results differ, its results are wrong"
    assert facts["launches"].startswith(f"{tuned.launches} of 48 that a full sweep takes")
    assert facts["runs"] == "run_1 (to choose), run_2 (to judge)"


def test_where_nothing_differs_it_is_left_and_what_would_have_shown_is_said(cell: Make) -> None:
    tuned, _, (said,) = search_grid(cell, {})
    assert tuned.best is None
    assert said.startswith("base: no difference detectable: keep it as it is. `parallel.")
    assert f"such launches show a difference of {100 * tuned.detectable:.1f} % 8 times of 10" in said
    assert 0 < tuned.detectable < 0.03
    assert not tuned.problem


def test_where_all_are_longer_it_is_left(cell: Make) -> None:
    steps_ms = {f"{CAP}=2": 400, f"{CAP}=3": 410}
    tuned, _, (said,) = search_grid(cell, steps_ms, OverAxis(CAP, ("2", "3")))
    assert said == "base: keep it as it is: the 2 points that came first take surely longer"
    assert facts_of(tuned)["no shorter by itself"].startswith(f"`{CAP}=3` +11")


def test_two_that_cannot_be_told_apart_are_both_named(cell: Make) -> None:
    _, _, (said,) = search_grid(cell, {f"{CAP}=2": 250, f"{CAP}=3": 250}, OverAxis(CAP, ("2", "3")))
    assert said.endswith("cannot be told apart from it")


def test_forecasts_stand_beside_and_what_cannot_reach_is_left_out(cell: Make) -> None:
    told = {
        f"{CAP}=2": Told(250 * MS, 50 * MS, 40 * MS, 60 * MS),
        f"{CAP}=3": Told(290 * MS, 10 * MS, 0.0, 20 * MS),
        f"{CAP}=4": Told(330 * MS, -30 * MS, -40 * MS, -20 * MS),
    }
    tuned, _, _ = search_grid(cell, {f"{CAP}=2": 250}, OverAxis(CAP, ("2", "3", "4")), told=told)
    rows = {row[0]: row for row in rows_of(tuned)}
    assert rows["bucket_cap_mb=2"][1:3] == ("best", "250 ms")
    assert rows["bucket_cap_mb=3"][1:] == ("forecast too long", "290 ms", "", "", "saves 20.0 ms (6.7 %) at most")
    assert rows["bucket_cap_mb=4"][-1] == "saves nothing at most"
    notes = [note.words for note in tune_page(tuned).notes]
    assert any("from 4 launches of the unchanged cell" in note for note in notes)
    assert tuned.forecast_launches == 4


def test_where_no_forecast_is_better_none_is_run_and_that_is_an_answer(cell: Make) -> None:
    told = {f"{CAP}={cap}": Told(330 * MS, -30 * MS, -40 * MS, -20 * MS) for cap in (2, 3, 4)}
    tuned, _, (said,) = search_grid(cell, {}, OverAxis(CAP, ("2", "3", "4")), told=told)
    assert said == "base: keep it as it is: by forecast no point saves anything; none was run"
    assert not tuned.problem


def test_a_grid_of_nothing_else_is_said_to_be_one(cell: Make) -> None:
    tuned, _, (said,) = search_grid(cell, {}, OverAxis(CAP, ("1", "-1")))
    assert said == "base: keep it as it is: there is no other point that can run"
    assert (tuned.launches, tuned.problem) == (0, "")
    page_document(tune_page(tuned))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"lost": 1.0}, "no launch tells a step that nothing speaks against"),
        ({"out": {UNCHANGED: Out("failed", "rank 1 raised")}}, "of the unchanged cell: failed: rank 1 raised"),
        (
            {"out": {f"{CAP}={cap}": Out("failed", "rank 1 raised") for cap in (2, 3, 4)}},
            "every point that may be better is out, see why below",
        ),
        ({"budget": 4}, "the budget ended before a point could be held to the unchanged cell"),
    ],
)
def test_what_cannot_be_judged_is_said(cell: Make, more: dict[str, Any], said: str) -> None:
    tuned, _, (answer,) = search_grid(cell, {}, OverAxis(CAP, ("2", "3", "4")), **more)
    assert tuned.problem == said
    assert answer == f"nothing can be said: {said}"
    assert tuned.best is None


def test_launches_that_decide_nothing_are_counted_by_why(cell: Make) -> None:
    tuned, _, _ = search_grid(cell, {}, OverAxis(CAP, ("2", "3", "4")), lost=1.0)
    assert all(point.why == "no launch of it tells a step" for point in tuned.of(Status.DROPPED))
    doubted = replace(tuned, doubts={"others took the cores": 3, "torn": 1}, is_checked=False, not_told="a loop")
    notes = [note.words for note in tune_page(doubted).notes]
    assert "3 launches decide nothing: others took the cores" in notes
    assert "1 launch decides nothing: torn" in notes
    assert "nothing was forecast: a loop" in notes
    assert facts_of(replace(tuned, budget_ns=900e9))["launches"].endswith("; 900 s was allowed")
    assert any("not checked against a single process" in note for note in notes)


def test_points_that_did_not_fit_are_counted_beside_the_answer(cell: Make) -> None:
    tuned, _, (_, said) = search_grid(cell, {}, OverAxis(CAP, tuple(map(str, range(2, 12)))), budget=14)
    left = len(tuned.of(Status.NOT_RUN))
    assert left == 5
    assert said == f"{left} points did not fit into the budget: --budget allows more"


def test_memory_is_said_where_the_best_point_needs_more(cell: Make) -> None:
    grid = grid_of(cell, OverAxis(CAP, ("2",)))
    one = Round(Stage.CONFIRM, ("point_1",), True, 4, 4)
    base, other = [300 * MS, 301 * MS, 299 * MS, 300 * MS], [200 * MS, 201 * MS, 200 * MS, 202 * MS]
    for after, said in ((2 << 20, "2.00 MiB at its peak on a rank, 1.00 MiB as it is"), (1 << 20, None)):
        peaks = {UNCHANGED: 1 << 20, "point_1": after}
        ran = Ran(one, {UNCHANGED: base, "point_1": other}, peak_bytes=peaks)
        tuned = make_answer("made", grid, Search(("point_1",), 4, ran=(ran,)), Budget(8))
        assert facts_of(tuned).get("memory") == said
        assert tuned.peak_bytes == (1 << 20, after)


def test_the_document_has_what_the_page_says(cell: Make) -> None:
    tuned, _, _ = search_grid(cell, {f"{CAP}=2": 250})
    made = json.loads(json.dumps(document(tuned), allow_nan=False))
    assert made["best"] == f"{CAP}=2"
    assert [point["status"] for point in made["points"]].count("same as") == 3
    assert made["points"][0]["saving_ns"] == tuned.points[0].saving_ns
    assert made["points"][-1]["measured_step_ns"] == "NaN"
    assert [one["stage"] for one in made["rounds"]] == ["select", "confirm"]


def test_settings_that_lengthen_a_step_by_themselves_are_named_worst_first(cell: Make) -> None:
    tuned, _, _ = search_grid(cell, {STATIC: 330, f"{CAP}=3": 360, f"{CAP}=2": 250})
    found = find_helpless(tuned.points, tuned.unchanged_ns)
    assert [change for change, _ in found][:2] == [f"{CAP}=3", STATIC]
    assert math.isclose(found[0][1], 60 * MS, rel_tol=0.1)


def test_points_are_spelled_without_the_section_that_all_are_of() -> None:
    assert spell_point(f"{CAP}=2 + network.latency_us=0") == "bucket_cap_mb=2 + network.latency_us=0"
    assert spell_point("") == "as it is"
    assert (count_launches(1), count_launches(2)) == ("1 launch", "2 launches")


def test_a_screen_of_a_large_grid_has_few_rows_and_says_what_has_all(cell: Make) -> None:
    tuned, _, _ = search_grid(cell, {}, OverAxis(CAP, tuple(map(str, range(2, 30)))))
    (part,) = tune_page(tuned).parts
    table = part.find("points")
    assert isinstance(table, Table)
    assert len(table.first_rows) == 8
    assert "--html and --json have all" in table.more

"""A step time outside its closed form's bounds is said everywhere, and ends a run with the error of a failed check."""

from collections.abc import Callable

import pytest
from rich.console import Console

from dtbench.base.errors import CheckError
from dtbench.cli.run import _check
from dtbench.report.page.cell_page import cell_part
from dtbench.report.words.sentences import check_word, is_trusted
from dtbench.runs.summary import CellSummary, PredictionSummary, RunSummary
from tests.report.shown import facts_of, markdown_block, terminal_cell

MS = 1_000_000
INSIDE = PredictionSummary(
    expected_ns=150 * MS, low_ns=140 * MS, high_ns=160 * MS, is_inside=True, sentence="inside, 140 to 160 ms"
)
OUTSIDE = INSIDE.model_copy(update={"is_inside": False, "sentence": "OUTSIDE, below 150 ms to 160 ms"})
UNKNOWN = INSIDE.model_copy(update={"is_inside": None, "sentence": "no closed form: a reason"})

MakeCell = Callable[..., CellSummary]


@pytest.mark.parametrize(
    ("held", "word"), [(None, "passed"), (INSIDE, "passed"), (UNKNOWN, "passed"), (OUTSIDE, "time differs")]
)
def test_only_a_step_time_outside_its_bounds_speaks_against_a_cell(
    make_ddp: MakeCell, held: PredictionSummary | None, word: str
) -> None:
    cell = make_ddp(update={"prediction": held})
    assert check_word(cell) == word
    assert is_trusted(cell) is (word == "passed")


def test_a_run_outside_its_bounds_fails_its_check(make_ddp: MakeCell, make_run: Callable[..., RunSummary]) -> None:
    _check(make_run(make_ddp(update={"prediction": INSIDE})))
    with pytest.raises(CheckError, match="cell ddp: time differs, see above") as raised:
        _check(make_run(make_ddp(update={"prediction": OUTSIDE})))
    assert raised.value.exit_code == 8


@pytest.mark.parametrize("held", [INSIDE, OUTSIDE, UNKNOWN])
def test_every_report_says_what_came_of_it(make_ddp: MakeCell, held: PredictionSummary) -> None:
    cell = make_ddp(update={"prediction": held})
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(terminal_cell(cell))
    assert f"prediction     {held.sentence}" in capture.get()
    assert f"- prediction: {held.sentence}" in markdown_block(cell, "checks")
    assert held.sentence in [fact.words for fact in facts_of(cell_part(cell), "checks")]


def test_a_model_of_unknown_cost_has_no_such_line(make_ddp: MakeCell) -> None:
    assert "prediction" not in markdown_block(make_ddp(), "checks")

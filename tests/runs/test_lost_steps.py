"""Steps that no rank has a row of: counted at the headline, and nothing is judged by the others."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dtbench.base.vocabulary import Phase
from dtbench.comparison.run import compare_all
from dtbench.report.words.sentences import answer_sentence, check_word, step_time_words
from dtbench.runs.reading.lost_steps import say_lost
from dtbench.runs.reading.many_runs import NOTES, load_run_steps
from dtbench.runs.run import summarize_run
from dtbench.store.finish import STEPS
from dtbench.store.layout import RunFolder
from dtbench.store.write import write_table
from tests.known import known

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], RunFolder]:
    return lambda name: RunFolder(shutil.copytree(RESULTS / name, tmp_path / "run"))


def lose(path: Path, *steps: int) -> None:
    rows = pd.read_parquet(path)
    kept = rows[~rows["step"].isin(steps)]
    kept.attrs = dict(rows.attrs)
    write_table(path, kept)


def make_steps(*numbers: int, phase: str = "WARMUP") -> pd.DataFrame:
    rows = [(rank, step, phase, step, 10, 5, 0.0) for rank in range(2) for step in numbers]
    return pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes)


def test_a_phase_says_how_many_of_its_steps_are_there_and_else_which_numbers_are_skipped() -> None:
    measured = make_steps(0, 1, 4, phase="MEASURED")
    assert say_lost(measured, {Phase.MEASURED: 5}) == [
        "3 of 5 MEASURED steps are there: the table of steps lost the others"
    ]
    assert say_lost(measured, {}) == ["steps 2-3 are of no rank: the table of steps lost them"]
    assert say_lost(make_steps(1, 2), {}) == ["step 0 is of no rank: the table of steps lost it"]
    assert say_lost(make_steps(0, 1, 2), {Phase.MEASURED: 0}) == []
    assert say_lost(make_steps(), {}) == []


def test_measured_steps_that_all_ranks_lost_alike_are_at_the_headline(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    lose(run.launch("ddp", 0).steps, 10, 11, 12)
    cell = summarize_run(run.path).cells[0]
    said = "launch0: 5 of 8 MEASURED steps are there: the table of steps lost the others"
    assert cell.rank_doubts == (said,)
    assert known(answer_sentence(cell)).endswith(f"; not judged: {said}")
    assert step_time_words(cell).startswith("of 5 of 8 MEASURED steps: ")
    assert "within this launch" in step_time_words(cell)
    assert check_word(cell) == "not judged"
    assert [note for note in load_run_steps(run.path).attrs[NOTES] if said.removeprefix("launch0: ") in note]


@pytest.mark.parametrize("lost", [(2, 3), (0,)])
def test_numbers_that_are_skipped_in_warmup_are_a_doubt_too(
    lost: tuple[int, ...], copy: Callable[[str], RunFolder]
) -> None:
    run = copy("example")
    lose(run.launch("ddp", 0).steps, *lost)
    cell = summarize_run(run.path).cells[0]
    assert "the table of steps lost" in cell.rank_doubts[0]
    assert cell.timed_part is None


def test_accounts_that_all_ranks_lost_alike_are_at_the_headline(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example")
    for table in ("overlap", "purposes", "groups", "collectives", "gaps", "comm_waits", "lanes"):
        lose(run.launch("ddp", 0).derived_table(table), 17)
    cell = summarize_run(run.path).cells[0]
    said = "launch0: where the time went is told of 2 of 3 PROFILED steps: the table of accounts lost the others"
    assert cell.rank_doubts == (said,)
    assert known(answer_sentence(cell)).endswith(f"; not judged: {said}")


def test_a_launch_that_lost_steps_is_not_compared(copy: Callable[[str], RunFolder]) -> None:
    run = copy("example_sweep")
    last = pd.read_parquet(run.launch("micro_batches-1", 2).steps).query("phase == 'MEASURED'")["step"].max()
    lose(run.launch("micro_batches-1", 2).steps, last)
    (found,) = compare_all([f"{run.path}:micro_batches-1", f"{run.path}:micro_batches-2"], results=run.path.parent)
    assert (found.baseline.launches, found.candidate.launches) == (3, 4)
    assert any("MEASURED steps are there" in note for note in found.notes)


def test_where_all_steps_are_there_nothing_is_said() -> None:
    for name in ("example", "example_sweep"):
        run = RunFolder(RESULTS / name)
        assert not [doubt for cell in summarize_run(run.path).cells for doubt in cell.rank_doubts]
        assert not [note for note in load_run_steps(run.path).attrs[NOTES] if "lost" in note]

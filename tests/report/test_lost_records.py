"""Where records of ranks are lost, nothing is advised and no phase is said to have ended."""

import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from dtbench.report.page.page import Tone
from dtbench.report.words.doubts import NOT_WHOLE
from dtbench.report.words.sentences import (
    advice_sentences,
    agreeing_words,
    answer_sentence,
    correctness_words,
    has_findings,
)
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import LaunchFolder, RunFolder
from tests.report.shown import board_cell, facts_of, markdown_block, table_of, terminal_cell

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def lose_one(launch: LaunchFolder) -> None:
    launch.rank_record(1).unlink()


def lose_all(launch: LaunchFolder) -> None:
    for rank in (0, 1):
        launch.rank_record(rank).unlink()


@pytest.fixture(params=[lose_one, lose_all])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunSummary:
    folder = tmp_path / "run"
    shutil.copytree(EXAMPLE, folder)
    request.param(RunFolder(folder).launch("ddp", 0))
    return summarize_run(folder)


def show(run: RunSummary) -> str:
    console = Console(width=400)
    with console.capture() as shown:
        console.print(terminal_cell(run.cells[0]))
    return shown.get()


def test_no_advice_follows_from_records_that_are_not_whole(run: RunSummary) -> None:
    ddp, other = run.cells
    assert ddp.owners
    assert not has_findings(ddp)
    assert advice_sentences(ddp) == [NOT_WHOLE]
    assert len(advice_sentences(other)) > 1
    assert NOT_WHOLE in show(run)
    assert "bucket_cap_mb`" not in show(run)
    assert NOT_WHOLE in markdown_block(ddp, "owners")
    assert NOT_WHOLE in table_of(board_cell(run), "owners").notes


def test_the_answer_names_no_cause(run: RunSummary) -> None:
    answer = answer_sentence(run.cells[0])
    assert answer is not None
    assert re.fullmatch(r"83\.1 ms of a profiled step \(17\.0 %\); not judged: launch0: the record of .* lost", answer)


@pytest.mark.parametrize("run", [lose_all], indirect=True)
def test_what_only_records_tell_is_not_known_without_them(run: RunSummary) -> None:
    assert correctness_words(run.cells[0]) == "n/a: the records that would tell are not there"
    assert agreeing_words(run.cells[0]) == "n/a: the records that would tell are not there"
    assert correctness_words(run.cells[1]).startswith("passed against a single process")
    assert agreeing_words(run.cells[1]).endswith("knobs agree")


@pytest.mark.parametrize("run", [lose_all], indirect=True)
def test_a_warm_up_that_no_record_tells_of_is_not_known(run: RunSummary) -> None:
    assert "n/a: no record says that it ended" in show(run)
    facts = (*facts_of(board_cell(run), "checks"), *facts_of(board_cell(run), "step"))
    (fact,) = (fact for fact in facts if fact.label == "warm-up")
    assert fact.words == "n/a: no record says that it ended"


@pytest.mark.parametrize("run", [lose_one], indirect=True)
def test_what_the_records_that_are_left_tell_is_said_to_be_of_them(run: RunSummary) -> None:
    of_one = "of rank 0 alone, of 2: "
    assert correctness_words(run.cells[0]).startswith(f"passed against a single process: {of_one}")
    assert agreeing_words(run.cells[0]).startswith(of_one)
    facts = {fact.label: fact for fact in facts_of(board_cell(run), "checks")}
    assert facts["canary"].words.startswith(of_one)
    assert {facts[name].tone for name in ("canary", "correctness")} == {Tone.WARNING}

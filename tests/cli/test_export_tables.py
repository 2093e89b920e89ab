"""``dtbench export --table``: any table of a run or of traces as CSV or Markdown."""

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

import dtbench
from dtbench.cli.main import main
from dtbench.report.notebook.table_file import list_tables

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "results" / "example")
SWEEP = str(ROOT / "results" / "example_sweep")
TRACE = str(ROOT / "tests" / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz")
PIPELINE = str(ROOT / "tests" / "traces" / "recorded" / "pipelines" / "1f1b")


def run(*words: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(["export", *words])
    return caught.value.code


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_csv_has_full_numbers_with_their_unit_and_nothing_where_nothing_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(EXAMPLE, "--table", "purposes") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    purposes = dtbench.load_run(EXAMPLE).purposes
    assert [row["exposed_ns"] for row in rows] == [str(value) for value in purposes["exposed_ns"]]
    assert [row["unsized"] == "" for row in rows] == purposes["unsized"].isna().tolist()
    assert list(rows[0]) == list(purposes.columns)


def test_a_table_that_only_the_report_has_tells_ns_and_fractions_and_the_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(EXAMPLE, "--table", "breakdown") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    cells = dtbench.load_run(EXAMPLE).summary.cells
    ranks = [(cell.name, rank) for cell in cells for rank in cell.ranks]
    assert [(row["cell"], row["rank"]) for row in rows] == [(cell, str(rank.rank)) for cell, rank in ranks]
    assert [row["exposed_comm_ns"] for row in rows] == [str(rank.exposed_comm_ns) for _, rank in ranks]
    assert 0 < float(rows[0]["hidden_share_of_comm_fraction"]) < 1


def test_what_is_not_known_is_empty_and_never_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(EXAMPLE, "--table", "cells") == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["cell"], first["unshard_wait_ns"]) == ("ddp", "")  # "none": DDP gathers no parameters
    assert float(second["unshard_wait_ns"]) > 0


def test_of_traces_the_steps_of_a_window_are_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    everything = dtbench.read_trace(TRACE).overlap
    assert run(TRACE, "--table", "overlap", "--steps", str(everything["step"].iloc[0])) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["step"] for row in rows] == [str(everything["step"].iloc[0])]
    assert len(everything) > 1
    assert run(EXAMPLE, "--table", "overlap", "--steps", "1") == 2
    assert "--steps is for traces" in said(capsys)
    assert run(TRACE, "--perfetto", str(tmp_path / "a.tar"), "--steps", "1") == 2
    assert "--steps is for --table" in said(capsys)


def test_a_cell_is_chosen(tmp_path: Path) -> None:
    out = tmp_path / "owners.csv"
    assert run(EXAMPLE, "--table", "owners", "--cell", "ddp", "-o", str(out)) == 0
    assert set(pd.read_csv(out)["cell"]) == {"ddp"}


def test_markdown_reads_as_the_report_and_of_others_has_every_row(tmp_path: Path) -> None:
    out = tmp_path / "owners.md"
    assert run(EXAMPLE, "--table", "owners", "-o", str(out)) == 0
    text = out.read_text()
    assert "## ddp" in text
    assert "| bucket 3 | all-reduce | grad\\_reduce | nothing left to hide behind | 56.21 | 67.6 % |" in text
    assert run(TRACE, "--table", "overlap", "-o", str(tmp_path / "overlap.md")) == 0
    rows = len(dtbench.read_trace(TRACE).overlap)
    assert (tmp_path / "overlap.md").read_text().count("\n") == rows + 2


def test_traces_have_tables_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(TRACE, "--table", "collectives") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(dtbench.read_trace(TRACE).collectives)


def test_what_the_report_says_below_a_table_is_said_beside(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(EXAMPLE, "--table", "breakdown", "-o", str(tmp_path / "b.csv")) == 0
    assert "step = compute + exposed comm + exposed copy" in said(capsys)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((EXAMPLE,), "--perfetto OUT.tar, or --table owners -o owners.csv"),
        ((EXAMPLE, "--table", "owners", "--perfetto", "x.tar"), "say what to write"),
        ((EXAMPLE, "--table", "ownrs"), "did you mean `owners`? There are breakdown, cells, checks"),
        ((TRACE, "--table", "cells"), "there is no table `cells`"),
        ((EXAMPLE, "--table", "owners", "-o", "x.xlsx"), "a table ends in .csv or .md"),
        ((EXAMPLE, "--table", "owners", "-o", "no/such/x.csv"), "there is no folder no/such"),
        ((EXAMPLE, "--table", "owners", "--cell", "dpp"), "did you mean `ddp`?"),
        ((TRACE, "--table", "owners", "--cell", "ddp"), "traces were given"),
        ((EXAMPLE, "--table", "owners", "--json"), "--json and --launch are for --perfetto"),
        ((EXAMPLE, "--table", "owners", "--launch", "0"), "a table has a column `launch`"),
        ((TRACE, "--perfetto", "x.tar", "-o", "x.csv"), "-o is for --table"),
        ((EXAMPLE, EXAMPLE, "--table", "owners"), "give one run, or only traces"),
    ],
)
def test_what_cannot_be_written_is_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert sentence in said(capsys)


def test_a_file_that_is_there_is_only_replaced_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "owners.csv"
    out.write_text("mine")
    assert run(EXAMPLE, "--table", "owners", "-o", str(out)) == 2
    assert out.read_text() == "mine"
    assert run(EXAMPLE, "--table", "owners", "-o", str(out), "--force") == 0
    assert out.read_text().startswith("run,cell,")


@pytest.mark.parametrize("named", [EXAMPLE, SWEEP, PIPELINE])
def test_every_number_of_every_table_has_a_unit_where_words_have_one(named: str) -> None:
    report = dtbench.read_trace(named) if named == PIPELINE else dtbench.load_run(named)
    for name, table in list_tables(report).items():
        for shown in table.shown.values():
            for place, column in enumerate(shown.columns):
                words = [row[place] for row in shown.words]
                has_unit = any(word.endswith((" ns", " us", " ms", " s", "iB", " %", " B/s")) for word in words)
                assert not has_unit or not column.is_number or column.unit is not None, (name, column.title)


def test_control_characters_of_names_act_on_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = ROOT / "tests" / "traces" / "cases" / "escapes.json"
    assert run(str(trace), "--table", "collectives") == 0
    assert "\x1b" not in capsys.readouterr().out

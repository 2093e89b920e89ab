"""What the commands print, on a terminal and into a pipe."""

import pytest

from dtbench.cli.console import print_answer, print_table
from dtbench.report.page.page import (
    BarPart,
    Chart,
    Column,
    Fact,
    Facts,
    Line,
    Page,
    Part,
    Prose,
    Table,
    Tile,
    Tiles,
    Tone,
)

COLUMNS = (Column("cell"), Column("why"), Column("step", is_number=True))
ROWS = (("fsdp2_tp_with_sequence_parallel", "word " * 40, "1504.5"),)


def test_into_a_pipe_names_stay_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(COLUMNS, ROWS)
    head, _, first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("fsdp2_tp_with_sequence_parallel  word word")
    assert first.rstrip().endswith("1504.5")
    assert len(head) == 160


def test_a_width_that_is_asked_for_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_table(COLUMNS, ROWS)
    assert {len(line) for line in capsys.readouterr().out.splitlines()} == {60}


def test_all_that_a_page_says_in_words_is_printed_once_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    chart = Chart("Shares", (BarPart("a", "A"),), (), Table("Shares as a table", COLUMNS, ROWS))
    blocks = (
        Table("", COLUMNS, (("ddp", "why", "7"),), ("below the table",)),
        Prose((Line("a sentence"),)),
        Facts((Fact("Check", "at most 3"), Fact("", "and more")), title="Claims"),
        chart,
        Tiles((Tile("large", "8"),)),
    )
    page = Page(
        title="ddp",
        question="Why?",
        facts=(Fact("left out", "WARNING: left out: launch 2", Tone.WARNING),),
        answer=(Line("because", Tone.STRONG),),
        parts=(Part("all", "", blocks),),
        notes=(Line("a note"), Line("WARNING: noise", Tone.WARNING)),
    )
    print_answer(page)
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    told = [line for line in printed if line and not line.startswith(("cell", "ddp", "fsdp2", "word", "─"))]
    assert told == [
        *("Why?", "WARNING: left out: launch 2", "because", "below the table", "a sentence"),
        *("Claims", "Check: at most 3", "and more", "Shares as a table", "Note: a note", "WARNING: noise"),
    ]
    assert sum(line.startswith("ddp") for line in printed) == 1

"""A number that is known of some ranks, launches or steps says so wherever it stands."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console, RenderableType

from dtbench.base.vocabulary import Purpose
from dtbench.report.page import sweep
from dtbench.report.page.page import Chart, Tiles
from dtbench.report.page.run_tables import tabulate_run_owners
from dtbench.report.tb_plugin.overview import make_overview
from dtbench.report.words.sentences import (
    advice_sentences,
    answer_sentence,
    cpu_time_words,
    lead_waits,
    profiler_words,
    step_time_words,
    throughput_words,
    wait_word,
)
from dtbench.runs.cell.summarize_cell import summarize_cell
from dtbench.runs.judge_checks import judge_checklist
from dtbench.runs.reading.cell_data import CellData, LaunchData
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.checks.checklist import Checklist
from dtbench.store.records.checks import CheckOutcome
from dtbench.traces.known_part import KnownPart
from tests.report.shown import board_cell, markdown_block, markdown_sweep, table_of, terminal_cell, terminal_run

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
LAUNCHES = 4
Tables = dict[str, pd.DataFrame]


def forget(table: str, column: str, *, rank: int | None = None, step: int | None = None) -> Callable[[Tables], Tables]:
    """Make a column of a table unknown, of one rank or step or of all."""

    def apply(tables: Tables) -> Tables:
        frame = tables[table]
        lost = (frame["rank"] == rank) | (rank is None) & ((frame["step"] == step) | (step is None))
        return {**tables, table: frame.assign(**{column: frame[column].astype("Int64").mask(lost)})}

    return apply


def lose(tables: Tables) -> Tables:
    return {name: table[:0] for name, table in tables.items()}


def summarize(change: Callable[[Tables], Tables], of: range = range(1, LAUNCHES)) -> CellSummary:
    """Summarize four launches of two ranks and three PROFILED steps each, some of them changed."""
    data = read_run_data(EXAMPLE).cells[0]

    def launch(index: int) -> LaunchData:
        one = data.launches[0]
        tables = change(dict(one.tables.tables)) if index in of else one.tables.tables
        return replace(one, place=replace(one.place, launch=index), tables=replace(one.tables, tables=tables))

    cell = data.cell.model_copy(update={"launches": tuple(range(LAUNCHES))})
    return summarize_cell(CellData(cell, run_is_incomplete=False, launches=tuple(map(launch, range(LAUNCHES)))), "cpu")


def test_what_all_ranks_tell_in_all_launches_has_no_part() -> None:
    cell = summarize(lambda tables: tables)
    parts = [cell.part, *(one.part for one in cell.purposes), *(one.part for one in cell.owners)]
    assert {*parts, *(one.part for one in cell.ranks)} == {None}
    assert (answer_sentence(cell) or "").startswith("83.1 ms")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (forget("overlap", "exposed_comm_ns"), "launch0 alone, of 4"),
        (forget("overlap", "exposed_comm_ns", rank=1), "15 of 24 rank steps"),
        (lose, "launch0 alone, of 4"),
        (forget("overlap", "exposed_comm_ns", step=17), "18 of 24 rank steps"),
    ],
)
def test_an_account_that_some_launches_lack_says_so(change: Callable[[Tables], Tables], words: str) -> None:
    cell = summarize(change)
    assert str(cell.part) == words
    assert (answer_sentence(cell) or "").startswith(f"of {words}: ")


def test_a_rank_that_is_known_in_some_launches_is_marked_among_the_ranks() -> None:
    cell = summarize(forget("overlap", "exposed_comm_ns", rank=1))
    assert [str(row.part or "") for row in cell.ranks] == ["", "launch0 alone, of 4"]


def test_a_wait_that_some_launches_lack_says_so() -> None:
    (row,) = summarize(forget("purposes", "wait_ns")).purposes
    assert (row.part, str(row.wait_part)) == (None, "launch0 alone, of 4")


def lose_accounts(tables: Tables) -> Tables:
    return {**tables, "overlap": tables["overlap"][:0]}


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lose_accounts, "(15.3 % of a profiled step)"),
        (forget("purposes", "wait_ns"), "(n/a of a profiled step)"),
        (forget("overlap", "exposed_comm_ns"), "(n/a of a profiled step)"),
    ],
)
def test_a_wait_is_a_share_of_the_steps_that_it_is_of_or_of_none(
    change: Callable[[Tables], Tables], share: str
) -> None:
    cell = summarize(change)
    words = dict(lead_waits(cell))["gradient wait"]
    (row,) = cell.purposes
    assert words.endswith(share), words
    assert words.startswith("of launch0 alone, of 4: ") is (row.wait_part is not None)


def test_whose_it_is_says_of_what_it_is_a_mean() -> None:
    cell = summarize(forget("collectives", "exposed_ns", rank=1))
    assert {str(row.part) for row in cell.owners} == {"15 of 24 rank steps"}
    assert "whose it is, is known of 15 of 24 rank steps" in (answer_sentence(cell) or "")


def test_a_launch_that_was_not_timed_is_not_counted_among_those_that_the_interval_holds_over() -> None:
    data = read_run_data(EXAMPLE).cells[0]
    cell = data.cell.model_copy(update={"launches": (0, 1)})
    first = data.launches[0]
    second = replace(first, place=replace(first.place, launch=1), steps=first.steps[:0])
    found = summarize_cell(CellData(cell, run_is_incomplete=False, launches=(first, second)), "cpu")
    assert str(found.timed_part) == "launch0 alone, of 2"
    words = step_time_words(found)
    assert words.startswith("of launch0 alone, of 2: ")
    assert "within this launch" in words


@pytest.fixture
def run() -> RunSummary:
    """A run whose one cell knows gradient waits, accounts and owners of one launch."""

    def change(tables: Tables) -> Tables:
        for table, column in (("overlap", "exposed_comm_ns"), ("purposes", "wait_ns"), ("purposes", "exposed_ns")):
            tables = forget(table, column)(tables)
        return tables

    whole = summarize_run(EXAMPLE)
    return whole.model_copy(update={"cells": (summarize(change), whole.cells[1])})


def print_wide(what: RenderableType) -> str:
    console = Console(width=200, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


MARK = "* of launch0 alone, of 4: not known of the others"


def test_every_table_marks_the_number_and_says_what_the_mark_is(run: RunSummary) -> None:
    cell = run.cells[0]
    words = print_wide(terminal_cell(cell))
    assert words.count(MARK) == 3  # ranks, owners, purposes
    assert re.search(r"grad_reduce +4 .* [\d.]+\* +[\d.]+\* +83\.\d+\* +74\.\d+\* +[\d.]+ %\* ", words), words
    assert re.search(r"1 more +0\.21\* ", words)
    assert all(line.startswith("of launch0 alone, of 4: ") for line in advice_sentences(cell))
    assert "of launch0 alone, of 4: by cause" in words
    assert MARK in print_wide(terminal_run(run))
    columns = {one.header: one.words[0] for one in sweep.sweep_quantities(run)}
    assert columns["gradient wait"].endswith("*")
    assert columns["exposed comm"].endswith("*")
    assert columns["hidden share"].endswith("*")
    assert not columns["step time"].endswith("*")
    assert sweep.mark_cells(run).lines == (MARK,)
    assert MARK in sweep.cells_table(run).said
    assert r"\*" in markdown_block(cell, "owners")
    assert "74.9\\*" in markdown_sweep(run)


def test_the_browser_the_file_and_the_notebook_have_it_too(run: RunSummary) -> None:
    document = make_overview(run, None)
    cells, card = document.page.find("cells"), board_cell(run)
    assert cells is not None
    tables = (table_of(cells, "cells"), *(table_of(card, key) for key in ("owners", "purposes", "breakdown")))
    assert all(MARK in table.said for table in tables)
    chart, tiles = card.find("breakdown"), card.find("tiles")
    assert isinstance(chart, Chart)
    assert MARK in chart.note
    assert isinstance(tiles, Tiles)
    assert {tile.detail.split(":")[0] for tile in tiles.tiles if tile.label in ("exposed share", "hidden share")} == {
        "of launch0 alone, of 4"
    }
    told = json.loads(run.model_dump_json())["cells"][0]
    assert told["part"]["launches"] == told["purposes"][0]["wait_part"]["launches"] == [0]
    owners = tabulate_run_owners(run)
    assert set(owners.loc[owners["cell"] == "ddp", "known_of"]) == {"launch0 alone, of 4"}
    assert owners.loc[owners["cell"] != "ddp", "known_of"].isna().all()


def test_an_answer_says_of_what_its_numbers_are(run: RunSummary) -> None:
    cells = [run.cells[0].model_copy(update={"rank_doubts": ()}), run.cells[1]]
    claimed = Checklist(
        checks=({"kind": "losses", "tolerance": 0.5, "cells": ("ddp", "fsdp2_tp")},),  # type: ignore[arg-type]
        answer="It waits {purposes.grad_reduce.wait_ns of ddp}, least in {lowest purposes.grad_reduce.wait_ns}.",
    )
    judged = judge_checklist(claimed, cells, ())
    assert judged is not None
    assert judged.outcome is CheckOutcome.PASSED
    assert re.fullmatch(r"It waits at least 7\d\.\d ms \(of launch0 alone, of 4\), least in n/a\.", judged.answer or "")


def test_the_waits_that_lead_say_it(run: RunSummary) -> None:
    assert dict(lead_waits(run.cells[0]))["gradient wait"].startswith("of launch0 alone, of 4: 74.9 ms per step")
    assert KnownPart() != run.cells[0].part


def test_numbers_of_measured_steps_say_of_which_launches_they_are(make_ddp: Callable[..., CellSummary]) -> None:
    part = KnownPart(launches=(0, 1, 2), of_launches=4, has_every_rank=False)
    whole = make_ddp(update={"tokens_per_second": 4450.0, "cpu_ns_per_step": 3e6})
    some = whole.model_copy(update={"timed_part": part})
    for say in (throughput_words, profiler_words, cpu_time_words):
        assert say(some) == f"of launches 0-2 alone, of 4: {say(whole)}"
        assert "alone" not in say(whole)


def test_what_ranks_planned_and_nobody_saw_is_not_none(make_ddp: Callable[..., CellSummary]) -> None:
    cell = make_ddp()
    assert wait_word(cell, Purpose.UNSHARD) == "none"
    row = cell.purposes[0].model_copy(
        update={"purpose": Purpose.UNSHARD, "count": 0, "planned_count": 9, "wait_ns": None, "matches_plan": False}
    )
    lost = cell.model_copy(update={"purposes": (*cell.purposes, row)})
    assert wait_word(lost, Purpose.UNSHARD) == "n/a"
    assert dict(lead_waits(lost))["unshard wait"] == "n/a: the plan expects 9 collectives per step, none was seen"

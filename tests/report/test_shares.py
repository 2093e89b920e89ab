"""An owner's share of what is exposed is its part of the whole, wherever a person reads it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import dtbench
from dtbench.report.notebook.loaded import RunReport
from tests.report.shown import board_cell, markdown_block, table_of, terminal_run

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
ROW = re.compile(r"grad_reduce|unshard|tensor|other")


@pytest.fixture(scope="module")
def run() -> RunReport:
    return dtbench.load_run(EXAMPLE)


LITTLE = ("<0.1", "&lt;0.1", "\\<0.1")
"""Below a twentieth of a percent, as each medium spells it."""


def terminal(run: RunReport) -> Iterator[tuple[str, str]]:
    console = Console(width=400, highlight=False)
    with console.capture() as capture:
        console.print(terminal_run(run.summary))
    operations = "all-reduce|all-gather|reduce-scatter|broadcast|several"
    pattern = re.compile(rf"\b(?:{operations}) +(?:{ROW.pattern}) .* ([\d.]+) +([\d.]+) %\s*$")
    for line in capture.get().splitlines():
        if found := pattern.search(line):
            yield found[1], found[2]


def markdown(run: RunReport) -> Iterator[tuple[str, str]]:
    for line in "\n".join(markdown_block(cell, "owners") for cell in run.summary.cells).splitlines():
        cells = [one.strip() for one in line.strip("| ").split("|")]
        if len(cells) == 6 and ROW.fullmatch(cells[2].replace("\\", "")):
            yield cells[4], cells[5].removesuffix(" %")


def tab(run: RunReport) -> Iterator[tuple[str, str]]:
    for cell in run.summary.cells:
        for row in table_of(board_cell(run.summary, cell.name), "owners").words:
            yield row[4], row[5].removesuffix(" %")


def test_an_owners_share_is_its_part_of_all_that_is_exposed(run: RunReport) -> None:
    truth = []
    for name in (cell.name for cell in run.summary.cells):
        owners = run.owners[run.owners["cell"] == name] if "cell" in run.owners else run.owners
        total_ns = float(owners["exposed_ns"].sum())
        truth += [(one / 1e6, 100 * one / total_ns) for one in sorted(owners["exposed_ns"].astype(float), reverse=True)]
    for place in (terminal, markdown, tab):
        shown = [(float(time), 0.0 if share in LITTLE else float(share)) for time, share in place(run)]
        assert len(shown) >= 10, place.__name__
        for time, share in shown:
            assert any(abs(time - ms) < 0.0051 * max(1, ms) and abs(share - part) < 0.051 for ms, part in truth), (
                place.__name__,
                time,
                share,
            )

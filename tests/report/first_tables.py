"""How much of the exposed time the first table of each answer holds: of every cell of runs, and of sets of traces.

    python -m tests.report.first_tables results/example traces/ a100x8_ddp_rank.json.gz

prints a line for each table that a screen has (and for every cell alone, whether or not its causes are findings): its
rows, the part of the exposed time that they hold, and the row that stands for the rest. It ends with 1 where a table
has more than ``MOST_ROWS`` rows or holds less than ``LEAST_HELD``.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtbench.base.units import format_fraction
from dtbench.report.page.brief.run import run_brief
from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.cell_page import find_cell_losses
from dtbench.report.page.losses import LEAST_HELD, MOST_ROWS, losses_table
from dtbench.report.page.page import Cell, Page, Table, words_of
from dtbench.runs.run import summarize_run
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.time.overlap import divide

_WORDS = 2  # columns of a table before its times, each of which has a share beside it


@dataclass(frozen=True)
class FirstTable:
    """What a table holds.

    Attributes:
        of: a run's screen or cell, or a set of traces.
        rows: but for that of the rest.
        held: part of all exposed time that they hold.
        rest: the words of the row of the rest; empty: there is none.
        by: what its rows are by.
    """

    of: str
    rows: int
    held: float
    rest: str
    by: str

    @property
    def is_short_and_holds_most(self) -> bool:
        """Whether it has few rows that hold most."""
        return self.rows <= MOST_ROWS and self.held >= LEAST_HELD

    @property
    def words(self) -> str:
        """One line."""
        mark = "" if self.is_short_and_holds_most else "  FAILS"
        rest = f"{self.rest}: {format_fraction(1 - self.held)}" if self.rest else "nothing left"
        return f"{self.rows} rows by {self.by} hold {format_fraction(self.held):>7}, {rest:<18} {self.of}{mark}"


def measure_table(of: str, table: Table) -> FirstTable:
    """Return what the rows of a table hold, over all of its sides."""
    is_rest = [words_of(row[0]).endswith(" more") for row in table.rows]
    times_ns = [
        sum(cell.value or 0 for cell in row[_WORDS::2] if isinstance(cell, Cell) and cell.value is not None)
        for row in table.rows
    ]
    held_ns = sum(time_ns for time_ns, rest in zip(times_ns, is_rest, strict=True) if not rest)
    rest = next((words_of(row[0]) for row, one in zip(table.rows, is_rest, strict=True) if one), "")
    by = "cause" if words_of(table.rows[0][0]) == "any" else "purpose and cause"
    return FirstTable(of, len(table.rows) - sum(is_rest), divide(held_ns, sum(times_ns)), rest, by)


def measure_run(folder: Path) -> Iterator[FirstTable]:
    """Yield the table of a run's screen, where it has one, then that of each cell that left something exposed."""
    summary = summarize_run(folder)
    yield from _measure_page(f"{summary.name}: screen", run_brief(summary))
    for cell in summary.cells:
        if cell.owners and (losses := find_cell_losses(cell, "")).total_ns:
            yield measure_table(f"{summary.name}: {cell.name}", losses_table([losses], "ms"))


def measure_traces(path: Path) -> Iterator[FirstTable]:
    """Yield the table of a set of traces, where its screen has one."""
    yield from _measure_page(f"{path.parent.name}/{path.name}", traces_brief(analyze_traces([path])))


def _measure_page(of: str, page: Page) -> Iterator[FirstTable]:
    for block in page.parts[0].blocks:
        if isinstance(block, Table) and block.key == "losses":
            yield measure_table(of, block)


def find_first_tables(path: Path) -> Iterator[FirstTable]:
    """Yield the tables of all runs at or below a path; where there is no run, of the traces that it is."""
    runs = sorted(found.parent for found in path.rglob("run.json")) if path.is_dir() else []
    if not runs:
        yield from measure_traces(path)
    for run in runs:
        yield from measure_run(run)


def main(paths: Sequence[str]) -> int:
    """Print the tables of all paths; return 1 where one is too long or holds too little."""
    fails = 0
    for path in map(Path, paths):
        found = False
        for table in find_first_tables(path):
            sys.stdout.write(f"{table.words}\n")
            fails += not table.is_short_and_holds_most
            found = True
        if not found:
            sys.stdout.write(f"no table: {path}\n")
    return int(fails > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

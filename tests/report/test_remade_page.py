"""Tables that were made again say no more than the report of their run."""

import math
from dataclasses import replace
from pathlib import Path

from dtbench.report.page.page import Cell, Table
from dtbench.report.page.remade_page import remade_page
from dtbench.report.plots.names import plot_overlap
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.traces.rows.launch_tables import LaunchTables, read_tables

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def row_of(tables: LaunchTables) -> list[Cell]:
    page = remade_page(EXAMPLE, {("ddp", 0): tables}, summarize_run(EXAMPLE))
    (table,) = (block for part in page.parts for block in part.blocks if isinstance(block, Table))
    return [cell for cell in table.rows[0] if isinstance(cell, Cell)]


def test_where_a_collective_was_not_seen_to_run_shares_are_bounds() -> None:
    tables = read_tables(RunFolder(EXAMPLE).launch("ddp", 0))
    hidden, exposed = row_of(tables)
    assert (hidden.words, exposed.words) == ("60.1 %", "17.0 %")
    hidden, exposed = row_of(replace(tables, unseen_collectives=1))
    assert (hidden.words, exposed.words) == ("n/a", "at least 17.0 %")
    assert hidden.value is not None
    assert math.isnan(hidden.value)


def test_a_table_that_does_not_say_in_which_step_it_was_marks_all(tmp_path: Path) -> None:
    import shutil

    import pyarrow.parquet as pq

    from dtbench.store.write import write_table

    shutil.copytree(EXAMPLE, tmp_path / "run")
    folder = RunFolder(tmp_path / "run").launch("ddp", 0)
    assert not read_tables(folder).overlap["is_least"].any()
    frame = pq.read_table(folder.overlap).to_pandas()
    frame.attrs["unseen_collectives"] = 1
    write_table(folder.overlap, frame)
    overlap = read_tables(folder).overlap
    assert overlap["is_least"].all()
    title = plot_overlap(overlap).axes[0].get_title(loc="left")
    assert "at least" in title

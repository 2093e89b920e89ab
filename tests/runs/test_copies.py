"""A launch that lies somewhere twice is measured once."""

import json
import shutil
from pathlib import Path

import pytest

from dtbench.comparison.comparison import Outcome
from dtbench.comparison.run import compare_all
from dtbench.report.page.run_page import note_words
from dtbench.runs.reading.copies import find_copies, mark
from dtbench.runs.reading.many_runs import NOTES, load_run_steps
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_run

SWEEP = Path(__file__).parents[2] / "results" / "example_sweep"
TABLES = ("steps.parquet", "overlap.parquet", "collectives.parquet", "purposes.parquet")
CELL = "micro_batches-4"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A sweep of which a cell has three launches that are copies of its first: whole, with its number, and tables."""
    run = Path(shutil.copytree(SWEEP, tmp_path / "sweep"))
    first, *others = (run / "cells" / CELL / f"launch{index}" for index in range(4))
    for index, launch in enumerate(others[:2], start=1):
        shutil.rmtree(launch)
        shutil.copytree(first, launch)
        record = json.loads((launch / "launch.json").read_text(encoding="utf-8"))
        (launch / "launch.json").write_text(json.dumps({**record, "index": index}), encoding="utf-8")
    for name in TABLES:
        shutil.copy(first / name, others[2] / name)
    return run


def test_copies_are_found_by_when_their_first_step_started() -> None:
    assert find_copies(map(mark, [5, 6, None, 5, None, 5, 6])) == {3: 0, 5: 0, 6: 1}
    assert find_copies(map(mark, [None, None])) == {}


def test_without_a_step_copies_are_found_by_when_a_launch_of_that_name_started() -> None:
    launches = [mark(None, "a", 5), mark(None, "b", 5), mark(7, "a", 5), mark(7), mark(None, "a"), mark(None, None, 5)]
    assert find_copies(launches) == {2: 0, 3: 0}


def test_a_copy_within_a_cell_is_left_out_counted_and_named(copied: Path) -> None:
    summary = summarize_run(copied)
    cell = next(one for one in summary.cells if one.name == CELL)
    assert set(cell.unreadable) == {1, 2, 3}
    first = copied / "cells" / CELL / "launch0"
    assert all(words.endswith(f": a copy of {first}, no second measurement") for words in cell.unreadable.values())
    assert summary.reason == f"{CELL} launch1 and 2 more are left out: {cell.unreadable[1]}"
    assert [one.unreadable for one in summary.cells if one.name != CELL] == [{}, {}]


def test_launches_that_a_run_does_not_list_are_named(tmp_path: Path) -> None:
    run = Path(shutil.copytree(SWEEP, tmp_path / "sweep"))
    (run / "cells" / CELL / "reference").mkdir(exist_ok=True)
    assert summarize_run(run).unlisted == ()
    shutil.copytree(run / "cells" / CELL / "launch0", run / "cells" / CELL / "launch4")
    said = (
        f"{run}: nothing is told of cells/{CELL}/launch4: it is in its folder and not in its run.json; was it copied"
        " there?"
    )
    summary = summarize_run(run)
    assert summary.unlisted == (said,)
    assert said in note_words(summary)
    assert load_run_steps(run).attrs[NOTES] == [said]
    assert [len(read_run_data(run, cell=cell).unlisted) for cell in (CELL, "micro_batches-1")] == [1, 0]
    (found,) = compare_all([f"{run}:micro_batches-1", f"{run}:{CELL}"], results=run.parent)
    assert [note for note in found.notes if said in note]
    for name in ("launch0 (1)", "launch-copy", "Launch7", ".ipynb_checkpoints"):
        (run / "cells" / CELL / name).mkdir()
    (run / "cells" / CELL / "notes.txt").touch()
    (said,) = summarize_run(run).unlisted
    cell = f"cells/{CELL}"
    assert f" of {cell}/Launch7, {cell}/launch-copy, {cell}/launch0 (1) and {cell}/launch4: they are in" in said
    for name in ("launch0 (1)", "launch-copy", "Launch7"):
        (run / "cells" / CELL / name).rmdir()
    shutil.copytree(run / "cells" / CELL, run / "cells" / "another")
    (said,) = summarize_run(run).unlisted
    assert said.endswith(
        "nothing is told of cells/another/launch0, cells/another/launch1, cells/another/launch2, cells/another/launch3"
        " and 3 more: they are in its folder and not in its run.json; were they copied there?"
    )


def test_copies_within_a_cell_are_no_launches_to_compare(copied: Path) -> None:
    (found,) = compare_all([f"{copied}:micro_batches-1", f"{copied}:{CELL}"], results=copied.parent)
    assert (found.candidate.launches, found.metrics[0].outcome) == (1, Outcome.NOT_ENOUGH_LAUNCHES)
    assert sum("no second measurement" in note for note in found.notes) == 3


def test_copies_within_a_cell_give_no_rows(copied: Path) -> None:
    steps = load_run_steps(copied)
    assert set(steps.loc[steps["cell"] == CELL, "launch"]) == {0}
    assert sum("no second measurement" in note for note in steps.attrs[NOTES]) == 3


def test_a_copy_in_another_cell_is_left_out_too(tmp_path: Path) -> None:
    run = Path(shutil.copytree(SWEEP, tmp_path / "sweep"))
    cells = run / "cells"
    shutil.copy(cells / "micro_batches-1/launch2/steps.parquet", cells / "micro_batches-2/launch0/steps.parquet")
    assert [list(one.unreadable) for one in summarize_run(run).cells] == [[], [0], []]
    only = read_run_data(run, cell="micro_batches-2").cells[0]
    assert only.unreadable[0].endswith(f"a copy of {cells / 'micro_batches-1/launch2'}, no second measurement")
    (found,) = compare_all([f"{run}:micro_batches-1", f"{run}:micro_batches-2"], results=tmp_path)
    assert (found.baseline.launches, found.candidate.launches) == (4, 3)
    assert any(only.unreadable[0] in note for note in found.notes)

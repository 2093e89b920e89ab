"""Numbers that are kept of a cell are those that its tables give, or they are made again."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from dtbench.base.errors import StoreError
from dtbench.comparison.reading import cells, kept
from dtbench.comparison.reading.cells import read_cells
from dtbench.comparison.reading.sides import read_sides
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.baseline import MeasuredCell
from dtbench.store.write import write_table
from tests.comparison.conftest import FakeCell
from tests.runs.test_one_reading import BOTH_PHASES, LAST_RANK, MEASURED_ONLY, Disturbed, disturb

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "quickstart" / "example"
    shutil.copytree(RESULTS / "example", folder, ignore=shutil.ignore_patterns("measurements.json"))
    return folder


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on whoever reads the tables of a run fails."""

    def refuse(_path: Path, **_asked: object) -> None:
        pytest.fail("tables are read")

    return lambda: monkeypatch.setattr(cells, "read_run_data", refuse)


def tell(found: Mapping[str, MeasuredCell]) -> dict[str, str]:
    """Return every number as it is written."""
    return {name: one.model_dump_json() for name, one in found.items()}


def make_anew(run: Path) -> dict[str, str]:
    """Return what the tables of a run give."""
    for cell in run.glob("cells/*"):
        (cell / "measurements.json").unlink(missing_ok=True)
    return tell(read_cells(run))


def test_kept_numbers_are_those_of_tables_and_report_to_the_last_digit(
    example: Path, no_tables: Callable[[], None]
) -> None:
    made = make_anew(example)
    assert make_anew(example) == made
    reported = {cell.name: (cell.step_time.median, cell.exposed_step_fraction) for cell in summarize_run(example).cells}
    no_tables()
    assert tell(read_cells(example)) == made
    assert tell(read_cells(example, "ddp")) == {"ddp": made["ddp"]}
    assert {name: (one.step_ns, one.exposed_fraction) for name, one in read_cells(example).items()} == reported


@pytest.mark.parametrize(
    "steps",
    [
        MEASURED_ONLY,
        pytest.param(BOTH_PHASES, marks=pytest.mark.thorough),
        pytest.param(LAST_RANK, marks=pytest.mark.thorough),
    ],
    ids=["measured", "both phases", "last rank"],
)
def test_steps_that_were_marked_afterwards_are_out_of_every_number(example: Path, steps: Disturbed) -> None:
    before = make_anew(example)
    disturb(example, steps)
    after = tell(read_cells(example))
    assert after == make_anew(example)
    assert all(after[cell] != before[cell] for cell in steps)


def _edit_steps(launch: Path) -> None:
    path = launch / "steps.parquet"
    steps = pd.read_parquet(path)
    write_table(path, steps.assign(duration_ns=steps["duration_ns"] + 1))


def _edit_table_in_its_time(launch: Path) -> None:
    path = launch / "overlap.parquet"
    table, before = pd.read_parquet(path), path.stat()
    write_table(path, table.assign(idle_ns=table["idle_ns"] + 1, step_ns=table["step_ns"] + 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _edit_json(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


CHANGES: dict[str, Callable[[Path], object]] = {
    "steps": _edit_steps,
    "a table, size and time as before": _edit_table_in_its_time,
    "a table is gone": lambda launch: (launch / "collectives.parquet").unlink(),
    "a rank's record": lambda launch: _edit_json(
        launch / "ranks" / "rank0.json", '"rss_peak_bytes": ', '"rss_peak_bytes": 1'
    ),
    "the launch's record": lambda launch: _edit_json(launch / "launch.json", "complete", "failed"),
    "its environment": lambda launch: _edit_json(launch / "ranks" / "env.json", '"python": "3', '"python": "4'),
    "the run's environment": lambda launch: _edit_json(launch.parents[2] / "env.json", '"python": "3', '"python": "4'),
    "the run's record": lambda launch: _edit_json(
        launch.parents[2] / "run.json", '"started_unix_ns": ', '"started_unix_ns": 1'
    ),
    "a copy of the launch": lambda launch: shutil.copytree(launch, launch.with_name("copy")),
}


def describe(run: Path) -> str | None:
    return kept.describe_cells(run, read_run(run)).get("plain")


def test_whatever_changes_of_a_launch_its_numbers_are_made_again(run_of: Callable[..., Path]) -> None:
    run = run_of({"plain": FakeCell([100.0])})
    seen = [describe(run)]
    for what, change in CHANGES.items():
        change(run / "cells" / "plain" / "launch0")
        seen.append(describe(run))
        assert seen[-1] not in seen[:-1], what
    assert seen[-1] is None, "a copy beside it is told of in every answer"


def test_a_launch_that_came_to_be_a_copy_of_an_earlier_cells_is_left_out(run_of: Callable[..., Path]) -> None:
    run = run_of({"one": FakeCell([100.0]), "two": FakeCell([90.0])})
    assert [len(side.launches) for side in read_sides(str(run), run).values()] == [1, 1]
    first, second = (RunFolder(run).launch(cell, 0).steps for cell in ("one", "two"))
    steps = pd.read_parquet(first)
    write_table(first, steps.assign(start_ns=pd.read_parquet(second)["start_ns"]))
    found = {name: len(side.launches) for name, side in read_sides(str(run), run).items()}
    assert found == {"one": 1, "two": 0}


def test_numbers_of_other_code_and_broken_ones_are_made_again(
    run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, no_tables: Callable[[], None]
) -> None:
    run = run_of({"plain": FakeCell([100.0])})
    made = make_anew(run)
    RunFolder(run).measurements("plain").write_text("{", encoding="utf-8")
    assert tell(read_cells(run)) == made
    monkeypatch.setattr(kept, "_describe_code", lambda: b"of another version")
    assert tell(read_cells(run))["plain"] != made["plain"], "another word"
    monkeypatch.undo()
    no_tables()
    with pytest.raises(pytest.fail.Exception):
        read_cells(run)


def test_a_trace_that_is_newer_than_the_tables_is_read(
    run_of: Callable[..., Path], no_tables: Callable[[], None]
) -> None:
    run = run_of({"plain": FakeCell([100.0])})
    read_cells(run)
    trace = RunFolder(run).launch("plain", 0).trace(0, 1)
    trace.parent.mkdir()
    trace.write_bytes(b"")
    no_tables()
    assert read_cells(run), "an empty one gives nothing"
    trace.write_bytes(b"{}")
    with pytest.raises(pytest.fail.Exception):
        read_cells(run)


def test_what_is_kept_holds_where_a_run_was_moved_and_is_called_as_it_lies(
    run_of: Callable[..., Path], tmp_path: Path, no_tables: Callable[[], None]
) -> None:
    run = run_of({"plain": FakeCell([100.0])})
    read_cells(run)
    moved = tmp_path / "elsewhere"
    shutil.copytree(run, moved, copy_function=shutil.copyfile)  # every file has another time
    no_tables()
    side = read_cells(moved)["plain"].side
    assert side.labels[-1] == str(moved)
    assert side.paths == (str(moved.resolve() / "cells" / "plain"),)


def test_a_folder_that_cannot_be_written_is_compared_all_the_same(
    run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of({"plain": FakeCell([100.0])})

    def refuse(_path: Path, _record: MeasuredCell) -> None:
        raise StoreError("read-only")

    monkeypatch.setattr(kept, "write_record", refuse)
    assert [*read_cells(run)] == ["plain"]
    assert not RunFolder(run).measurements("plain").exists()


def test_nothing_is_kept_of_a_cell_of_which_something_is_said_by_its_path(run_of: Callable[..., Path]) -> None:
    run = run_of({"plain": FakeCell([100.0, 101.0])})
    (RunFolder(run).launch("plain", 1).path / "purposes.parquet").write_bytes(b"PAR1")
    assert len(read_cells(run)["plain"].side.launches) == 1
    assert not RunFolder(run).measurements("plain").exists()

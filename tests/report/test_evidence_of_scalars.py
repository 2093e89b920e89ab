"""Take evidence out of a run, one kind at a time: each number in event files is the whole run's, or is not there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dtbench.base.errors import StoreError
from dtbench.report.event_files.dashboards import write_cell
from dtbench.runs.reading.cell_data import STEPS_NAME, stack, stack_all
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.write import write_table

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
Loss = Callable[[LaunchFolder], None]


def lose_rows(table: str, choose: Callable[[pd.DataFrame], Any]) -> Loss:
    """Take rows out of a table."""

    def apply(launch: LaunchFolder) -> None:
        path = launch.steps if table == "steps" else launch.derived_table(table)
        frame = pd.read_parquet(path)
        attrs = dict(frame.attrs)
        frame = frame[~choose(frame)]
        frame.attrs = attrs
        write_table(path, frame)

    return apply


def lose_of_record(**change: Any) -> Loss:
    """Put this into the record of rank 1."""

    def apply(launch: LaunchFolder) -> None:
        path = launch.rank_record(1)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    return apply


def is_rank_1(rows: pd.DataFrame) -> Any:
    return rows["rank"] == 1


def is_one_row(rows: pd.DataFrame) -> Any:
    return is_rank_1(rows) & (rows["step"] == rows["step"].dropna().iloc[-1])


TABLES = ("steps", "overlap", "purposes", "collectives", "lanes", "gaps")
LOSSES: dict[str, Loss] = {
    **{f"rank 1 of {name}": lose_rows(name, is_rank_1) for name in TABLES},
    **{f"a step of rank 1 of {name}": lose_rows(name, is_one_row) for name in TABLES},
    "a step of all ranks": lose_rows("steps", lambda rows: rows["step"] == 10),
    "the first step of all ranks": lose_rows("steps", lambda rows: rows["step"] == 0),
    "the record of rank 1": lambda launch: launch.rank_record(1).unlink(),
    "the record of rank 0": lambda launch: launch.rank_record(0).unlink(),
    "the losses of rank 1": lose_of_record(losses=[]),
    "the check of rank 1": lose_of_record(correctness=None),
    "the traffic of rank 1": lose_of_record(traffic=[]),
    "the table of purposes": lambda launch: launch.derived_table("purposes").unlink(),
    "the table of collectives": lambda launch: launch.derived_table("collectives").unlink(),
    "the table of accounts": lambda launch: launch.overlap.unlink(),
}


def read_scalars(run: Path, folder: Path) -> dict[tuple[str, int], float]:
    """Write the event files of the first cell and read them back."""
    data = read_run_data(run)
    cell = summarize_data(data).cells[0]
    steps, purposes = stack_all(data.launches, STEPS_NAME), stack(data.launches, "purposes")
    write_cell(cell, folder, steps=steps, purposes=purposes, settings={})
    reader = EventAccumulator(str(folder / cell.name), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    return {(tag, row.step): row.value for tag in reader.Tags()["scalars"] for row in reader.Scalars(tag)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], float]:
    return read_scalars(EXAMPLE, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_number_in_event_files_is_that_of_the_whole_run_or_not_there(
    loss: str, whole: dict[tuple[str, int], float], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    LOSSES[loss](RunFolder(run).launch("ddp", 0))
    try:
        left = read_scalars(run, tmp_path / "tb")
    except StoreError:
        return  # refused with a sentence
    assert len(whole) > 50
    wrong = {key: (whole.get(key), value) for key, value in left.items() if value != pytest.approx(whole.get(key))}
    assert not wrong

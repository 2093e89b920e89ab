"""Tables of a launch with a value that cannot be: the launch is left out, and a sentence says which value."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dtbench.runs.reading.many_runs import NOTES, load_run_steps
from dtbench.runs.run import summarize_run
from dtbench.store.finish import STEPS
from dtbench.store.layout import RunFolder
from dtbench.store.use_file import USES
from dtbench.store.write import write_table
from dtbench.traces.rows.table_bounds import find_bounds, find_impossible
from dtbench.traces.rows.tables import TABLES
from tests.known import known

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def put(run: RunFolder, name: str, column: str, value: float | None) -> None:
    """Write a value into the last row of a table of the example's first cell; None: one more than it has."""
    folder = run.launch("ddp", 0)
    path = folder.steps if name == "steps" else folder.derived_table(name)
    rows = pd.read_parquet(path)
    attrs = dict(rows.attrs)
    last = rows.index[-1]
    rows.loc[last, column] = rows.loc[last, column] + 1 if value is None else value
    rows.attrs = attrs
    write_table(path, rows)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))


@pytest.mark.parametrize(
    ("name", "column", "value", "said"),
    [
        ("overlap", "hidden_comm_ns", 10**12, "hidden_comm_ns + exposed_comm_ns is another, which cannot be"),
        ("overlap", "comm_ns", None, "hidden_comm_ns + exposed_comm_ns is another, which cannot be"),
        ("overlap", "step_ns", 0, "step_ns of step 18 of rank 1 is 0, which cannot be"),
        ("overlap", "idle_ns", -5, "idle_ns of step 18 of rank 1 is -5, which cannot be"),
        ("overlap", "compute_ns", None, "compute_ns + exposed_comm_ns + exposed_copy_ns + idle_ns is another"),
        ("purposes", "hidden_ns", None, "hidden_ns + exposed_ns is another"),
        ("collectives", "skew_wait_ns", -(10**9), "is -1000000000, which cannot be"),
        (
            "collectives",
            "skew_wait_ns",
            10**12,
            "more than from its start_ns to its end_ns, which cannot be",
        ),
        (
            "collectives",
            "transfer_ns",
            10**12,
            "more than from its start_ns to its end_ns, which cannot be",
        ),
        (
            "collectives",
            "transfer_ns",
            0,
            "and skew_wait_ns + transfer_ns is not from its start_ns to its end_ns",
        ),
        ("collectives", "last_rank", 9, "holds rank 9, and the launch has 2 ranks"),
        ("collectives", "last_rank", -1, "holds rank -1, and the launch has 2 ranks"),
        ("steps", "stolen_fraction", 1.5, "stolen_fraction of step 18 of rank 1 is 1.5, which cannot be"),
        ("steps", "stolen_fraction", -0.5, "stolen_fraction of step 18 of rank 1 is -0.5, which cannot be"),
        ("steps", "cpu_ns", -1, "cpu_ns of step 18 of rank 1 is -1, which cannot be"),
    ],
)
def test_a_launch_with_a_value_that_cannot_be_is_left_out(
    name: str, column: str, value: float | None, said: str, run: RunFolder
) -> None:
    put(run, name, column, value)
    cell = summarize_run(run.path).cells[0]
    assert cell.launches == ()
    assert f"{name}.parquet: " in cell.unreadable[0]
    assert said in cell.unreadable[0]


@pytest.mark.parametrize(("column", "value"), [("duration_ns", 0), ("cpu_ns", -5), ("stolen_fraction", 1.5)])
def test_many_runs_have_no_step_that_cannot_be(column: str, value: float, run: RunFolder) -> None:
    put(run, "steps", column, value)
    steps = load_run_steps(run.path)
    assert set(steps["cell"]) == {"fsdp2_tp"}
    (note,) = (note for note in steps.attrs[NOTES] if "which cannot be" in note)
    assert f"{column} of step 18 of rank 1 is {value}" in note


def test_what_is_not_known_can_be() -> None:
    steps = pd.DataFrame([(0, 1, "MEASURED", -7, 10, 5, float("nan"))], columns=list(STEPS.dtypes)).astype(STEPS.dtypes)
    assert find_impossible("steps", steps) is None
    overlap = pd.DataFrame(
        {
            "rank": 0,
            "step": 1,
            "step_ns": pd.array([10, 10], dtype="Int64"),
            "compute_ns": pd.array([None, 6], dtype="Int64"),
            "comm_ns": pd.array([5, 5], dtype="Int64"),
            "hidden_comm_ns": pd.array([None, 3], dtype="Int64"),
            "exposed_comm_ns": pd.array([None, 2], dtype="Int64"),
            "exposed_copy_ns": pd.array([None, 0], dtype="Int64"),
            "idle_ns": pd.array([None, 2], dtype="Int64"),
        }
    )
    assert find_impossible("overlap", overlap) is None
    collectives = pd.DataFrame({"rank": [0], "exposed_skew_ns": [4], "skew_wait_ns": [3]})
    assert find_impossible("collectives", collectives) == (
        "exposed_skew_ns of rank 0 is 4, more than its skew_wait_ns, which cannot be"
    )


def test_every_column_of_numbers_has_its_bounds_decided() -> None:
    tables = {
        "steps": {**STEPS.dtypes, **{one.name: one.dtype for one in USES}},
        **{table.name: table.dtypes for table in TABLES},
    }
    undecided = [
        f"{name}.{column}"
        for name, dtypes in tables.items()
        for column, dtype in dtypes.items()
        if dtype not in ("string", "boolean") and find_bounds(name, column) is None
    ]
    assert undecided == []


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("purposes", {"count": 1, "unsized": 2}, "unsized of rank 0 is 2, more than its count"),
        ("purposes", {"wait_ns": -1}, "wait_ns of rank 0 is -1"),
        ("collectives", {"group_size": 0}, "group_size of rank 0 is 0"),
        ("collectives", {"start_ns": 5, "end_ns": 4}, "start_ns of rank 0 is 5, more than its end_ns"),
        ("collectives", {"algbw": -1.0}, "algbw of rank 0 is -1.0"),
        ("comm_waits", {"start_ns": 5, "end_ns": 4}, "start_ns of rank 0 is 5, more than its end_ns"),
        ("probes", {"total_ns": 3, "exposed_ns": 4}, "exposed_ns of rank 0 is 4, more than its total_ns"),
        ("lanes", {"busy_ns": 3, "comm_ns": 4}, "comm_ns of rank 0 is 4, more than its busy_ns"),
        ("gaps", {"host_wait_ns": 3, "host_sync_ns": 4}, "host_sync_ns of rank 0 is 4, more than its host_wait_ns"),
        (
            "gaps",
            {"gap_ns": 9, "comm_wait_ns": 1, "host_wait_ns": 2, "launch_gap_ns": 3, "other_ns": 4},
            "gap_ns of rank 0 is 9, and comm_wait_ns + host_wait_ns + launch_gap_ns + other_ns is another",
        ),
        ("overlap_tax", {"alone_count": 0}, "alone_count of rank 0 is 0"),
        ("steps", {"taken_fraction": 1.5}, "taken_fraction of rank 0 is 1.5"),
    ],
)
def test_a_value_out_of_its_bounds_is_told(name: str, row: dict[str, float], said: str) -> None:
    assert known(find_impossible(name, pd.DataFrame([{"rank": 0, **row}]))) == f"{said}, which cannot be"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"memory": {"rss_peak_bytes": 0, "allocated_peak_bytes": None, "reserved_peak_bytes": None}}, "memory"),
        ({"memory": {"rss_peak_bytes": -5, "allocated_peak_bytes": None, "reserved_peak_bytes": None}}, "memory"),
        ({"region_ns": {"forward": -1}}, "region_ns.forward"),
    ],
)
def test_a_record_with_a_quantity_that_cannot_be_is_refused(
    change: dict[str, object], where: str, run: RunFolder
) -> None:
    path = run.launch("ddp", 0).rank_record(1)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    cell = summarize_run(run.path).cells[0]
    assert cell.launches == ()
    assert cell.unreadable[0].startswith(f"{path}: does not hold what it should, {where}")


def test_a_first_step_after_no_time_is_not_known(run: RunFolder) -> None:
    path = run.launch("ddp", 0).rank_record(1)
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "time_to_first_step_ns": -1}), encoding="utf-8")
    assert math.isnan(summarize_run(run.path).cells[0].time_to_first_step_ns)


def test_no_table_of_the_examples_says_what_cannot_be() -> None:
    for launch in (path.parent for path in EXAMPLE.parent.glob("*/cells/*/launch*/launch.json")):
        for path in launch.glob("*.parquet"):
            assert find_impossible(path.stem, pd.read_parquet(path)) is None

"""What stands beside the numbers of a side: each thing once, and only what is so."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dtbench.base.errors import ComparisonError
from dtbench.comparison.run import compare_all
from dtbench.plan.plan import LINKED_NOTE
from dtbench.runs.run import summarize_run
from dtbench.store.layout import RunFolder
from dtbench.store.write import write_table
from dtbench.traces.rows.tables import TABLES

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(EXAMPLE, tmp_path / "run")))


def test_why_a_launch_is_left_out_is_said_once(run: RunFolder) -> None:
    launch = run.launch("ddp", 0)
    for table in TABLES:
        path = launch.derived_table(table.name)
        if path.exists():
            read = pd.read_parquet(path)
            write_table(path, read[read["rank"] != 1])
    with pytest.raises(ComparisonError) as raised:
        compare_all([str(run.path)], results=run.path.parent)
    assert str(raised.value).count("rank 1 is in no derived table") == 1
    assert "launch0: rank 1" not in str(raised.value)


def test_where_tables_are_gone_steps_are_not_said_to_have_no_trace(run: RunFolder) -> None:
    for table in run.path.rglob("overlap.parquet"):
        table.unlink()
    said = "PROFILED steps ran, and neither a trace nor a table of where their time went is there"
    for cell in summarize_run(run.path).cells:
        assert f"{said}: overlap is not known" in cell.notes
    (found,) = compare_all([str(run.path)], results=run.path.parent)
    assert f"both: {said}: overlap is not known" in found.notes
    assert not [note for note in found.notes if "no PROFILED step" in note]


def test_a_comparison_carries_the_notes_of_the_plans_what_is_of_both_once() -> None:
    (found,) = compare_all([str(EXAMPLE)], results=EXAMPLE.parent)
    of_plans = [note for note in found.notes if LINKED_NOTE in note or "share 2 cores" in note]
    assert of_plans == [
        "fsdp2_tp: 4 ranks share 2 cores: ranks wait for each other's turns, and that shows as host time",
        f"both: {LINKED_NOTE}",
    ]


def test_a_run_that_was_resumed_is_said_not_to_have_taken_turns_there(run: RunFolder) -> None:
    record = json.loads(run.run.read_text())
    run.run.write_text(json.dumps({**record, "resumed_unix_ns": [1]}))
    (found,) = compare_all([str(run.path)], results=run.path.parent)
    note = "both: its run was stopped and resumed once: launches of before and after did not take turns"
    assert note in found.notes

"""What a notebook gets: the tables of traces and runs, with the columns that are written down."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

import dtbench
from dtbench.base.errors import StoreError, TraceError
from dtbench.store.finish import STEPS
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES, WHOLE

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def dtypes_of(table: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in table.dtypes.items()}


def test_a_trace_gives_tables_with_documented_columns_and_types() -> None:
    traces = dtbench.read_trace(RECORDED / "fsdp2_tp_2x2_rank0.json.gz")
    assert dtypes_of(traces.overlap) == OVERLAP.dtypes
    assert dtypes_of(traces.whole) == WHOLE.dtypes
    assert dtypes_of(traces.purposes) == PURPOSES.dtypes
    assert dtypes_of(traces.collectives) == COLLECTIVES.dtypes
    assert len(traces.overlap) == 3
    by_step = traces.purposes.groupby("step")["exposed_ns"].sum()
    assert by_step.tolist() == traces.overlap["exposed_comm_ns"].tolist()


def test_the_answer_is_what_a_person_reads_when_printing_it() -> None:
    traces = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")
    first, *others = str(traces).splitlines()
    assert first.startswith("step 112 ms, 30.2 ms exposed (26.9 %); 15.4 ms of it bucket 2's all-reduce, ")
    assert any(line.startswith("gradient wait ") for line in others)


def test_a_notebook_that_ends_a_cell_with_a_report_gets_words_not_values() -> None:
    traces = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")
    assert repr(traces) == str(traces)
    run = dtbench.load_run(EXAMPLE)
    assert repr(run) == f"quickstart {run.summary.run_id}, complete; cells: ddp, fsdp2_tp"


def test_several_paths_are_one_job(tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(RECORDED / "ddp_2ranks_rank0.json.gz", tmp_path / f"{rank}.json.gz")
    traces = dtbench.read_trace([str(tmp_path / "0.json.gz"), tmp_path / "1.json.gz"])
    assert len(traces.whole) == 1
    assert any("rank 0 comes twice" in note for note in traces.notes)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        dtbench.read_trace(tmp_path / "none.json")
    with pytest.raises(TraceError, match="there are none"):
        dtbench.read_trace([])


def test_a_run_gives_the_tables_of_all_its_cells_and_launches() -> None:
    run = dtbench.load_run(EXAMPLE)
    placed = ["run", "cell", "launch"]
    for table, columns in (
        (run.steps, STEPS.dtypes),
        (run.overlap, OVERLAP.dtypes),
        (run.purposes, PURPOSES.dtypes),
        (run.collectives, COLLECTIVES.dtypes),
    ):
        assert list(table.columns) == [*placed, *columns]
        assert set(table["run"]) == {run.summary.run_id}
        assert set(table["cell"]) == {cell.name for cell in run.summary.cells}
        assert not table[placed].isna().any(axis=None)
    (ddp, *_) = run.summary.cells
    mine = run.overlap[run.overlap["cell"] == ddp.name]
    assert mine["exposed_comm_ns"].sum() / mine["step_ns"].sum() == pytest.approx(ddp.exposed_step_fraction)


def test_what_is_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a clone in which something has run has runs
    with pytest.raises(StoreError, match="holds neither a run"):
        dtbench.load_run(tmp_path)
    with pytest.raises(StoreError, match="No file or folder is called"):
        dtbench.load_run(tmp_path / "absent")


def test_a_folder_of_runs_stands_for_its_latest_and_a_scenarios_name_for_that_in_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("20260101T000000-aaaa", "20260102T000000-bbbb"):
        shutil.copytree(EXAMPLE, tmp_path / "results" / "quickstart" / name)
    monkeypatch.chdir(tmp_path)
    for path in ("results/quickstart", "quickstart"):
        assert Path(dtbench.load_run(path).summary.path).name == "20260102T000000-bbbb"

"""What is written into a run's folder while it goes on."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from dtbench.base.errors import StoreError
from dtbench.cli.run import publish_cell_of
from dtbench.plan.plan import Machine, make_plan
from dtbench.report.event_files.publish import publish_cell
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.finish import STEPS
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import CellRecord, RunRecord, RunStatus
from dtbench.store.write import write_record, write_table
from dtbench.traces.rows.tables import TABLES


@pytest.fixture
def run(tmp_path: Path, scenario: Callable[..., Scenario]) -> RunFolder:
    """A run of two cells with two launches each that goes on: one launch of the first has ended."""
    folder = RunFolder(tmp_path / "run")
    plan = make_plan(scenario(), Machine(cpu_cores=2, cuda_devices=0)).model_copy(update={"measured_steps": 2})
    cells = tuple(
        CellRecord(
            name=f"cap-{cap}",
            scenario=scenario(),
            plan=plan,
            launches=(0, 1),
            coordinates={"parallel.bucket_cap_mb": cap},
        )
        for cap in ("1", "4")
    )
    record = RunRecord(
        dtbench_version="0",
        name="small",
        run_id="20260101T000000-aaaa",
        question="Why?",
        overrides=(),
        status=RunStatus.RUNNING,
        reason=None,
        started_unix_ns=0,
        ended_unix_ns=None,
        cells=cells,
    )
    write_record(folder.run, record)
    rows = [(rank, step, "MEASURED", 0, (10 + rank) * 1_000_000, 1, 0.0) for rank in (0, 1) for step in (0, 1)]
    write_table(folder.launch("cap-1", 0).steps, pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes))
    return folder


def read_back(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return reader


def test_a_cell_with_one_of_its_launches_done_is_shown_and_the_others_are_not(run: RunFolder) -> None:
    publish_cell(run.path, "cap-1")
    assert [row.value for row in read_back(run.tensorboard / "cap-1").Scalars("summary/step_ms")] == [11]
    steps = read_back(run.tensorboard / "cap-1" / "launch0").Scalars("step_ms/MEASURED")
    assert [(row.step, row.value) for row in steps] == [(0, 11), (1, 11)]
    folders = {file.parent for file in run.tensorboard.rglob("*tfevents*")}
    assert folders == {run.tensorboard, run.tensorboard / "cap-1", run.tensorboard / "cap-1" / "launch0"}


def test_the_settings_of_all_cells_are_known_from_the_first_on(run: RunFolder) -> None:
    publish_cell(run.path, "cap-1")
    content = read_back(run.tensorboard).SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
    (info,) = metadata.parse_experiment_plugin_data(content).hparam_infos
    assert info.name == "parallel.bucket_cap_mb"
    assert [value.number_value for value in info.domain_discrete.values] == [1, 4]


def test_a_cell_without_steps_gets_no_files(run: RunFolder) -> None:
    publish_cell(run.path, "cap-4")
    assert not run.tensorboard.exists()


def test_an_unknown_cell_is_refused(run: RunFolder) -> None:
    with pytest.raises(StoreError, match="no cell `cap-9`"):
        publish_cell(run.path, "cap-9")


def test_what_is_wrong_with_a_table_does_not_end_the_run(run: RunFolder) -> None:
    run.launch("cap-1", 0).steps.write_bytes(b"PAR1 and then nothing")
    publish_cell(run.path, "cap-1")
    assert not run.tensorboard.exists()


def test_a_folder_that_cannot_be_written_does_not_end_the_run(run: RunFolder) -> None:
    run.tensorboard.touch()
    with pytest.raises(StoreError):
        publish_cell(run.path, "cap-1")
    publish_cell_of(run.path, "cap-1")


def test_a_time_that_a_table_of_another_version_lacks_is_left_out(run: RunFolder) -> None:
    folder = run.launch("cap-1", 0)
    for table in TABLES:
        write_table(folder.derived_table(table.name), table.tabulate(()))
    row = {"step": 1, "purpose": "unshard", "count": 1, "size_bytes": 1, "comm_ns": 5, "hidden_ns": 5}
    write_table(folder.derived_table("purposes"), pd.DataFrame([{"rank": rank, **row} for rank in range(2)]))
    publish_cell(run.path, "cap-1")
    tags = read_back(run.tensorboard / "cap-1" / "launch0").Tags()["scalars"]
    assert "hidden_ms/unshard" in tags
    assert "exposed_ms/unshard" not in tags

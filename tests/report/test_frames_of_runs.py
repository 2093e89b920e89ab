"""DataFrames over cells, launches and many runs: what varies is a column, and what does not count is in none."""

import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import dtbench
from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import CAUSE_PHRASES, Cause
from dtbench.report.notebook.many import RUN_COLLECTIVES, RUN_OWNERS
from dtbench.report.page.cell_tables import CELLS, LAUNCHES
from dtbench.runs.reading.knobs import KnobCell, find_knobs
from dtbench.store.write import write_table
from tests.copied_runs import give_own

RESULTS = Path(__file__).parents[2] / "results"


def types_of(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    """Two runs of one scenario that differ in the bucket size of the cell ddp, as with ``--set``."""
    for number, size in enumerate((4.0, 25.0)):
        folder = tmp_path / "results" / "quickstart" / f"20270101T00000{number}-000{number}"
        shutil.copytree(RESULTS / "example", folder)
        give_own(folder, size)
    return tmp_path / "results"


@pytest.fixture(autouse=True)
def _notes_are_no_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="left out")
        yield


def test_a_knob_that_runs_of_a_scenario_differ_in_is_a_column(two_runs: Path) -> None:
    for load in (dtbench.load_runs, dtbench.load_collectives, dtbench.load_owners):
        found = load(two_runs)
        by_run = found[found["cell"] == "ddp"].groupby("run", observed=True)["parallel.bucket_cap_mb"].unique()
        assert [list(values) for values in by_run] == [["4"], ["25"]]
        assert found.loc[found["cell"] == "fsdp2_tp", "parallel.bucket_cap_mb"].isna().all()


def test_frames_over_runs_have_the_columns_that_are_written_down() -> None:
    collectives, owners = dtbench.load_collectives(RESULTS), dtbench.load_owners(RESULTS)
    knobs = ["accumulation.micro_batches"]
    for found, table in ((collectives, RUN_COLLECTIVES), (owners, RUN_OWNERS)):
        assert types_of(found.drop(columns=knobs)) == table.dtypes
        assert knobs == [name for name in found.columns if name not in table.dtypes]
    assert len(collectives) == sum(
        len(dtbench.load_run(RESULTS / name).collectives) for name in ("example", "example_sweep")
    )
    assert len(owners) == sum(len(dtbench.load_run(RESULTS / name).owners) for name in ("example", "example_sweep"))


def test_causes_are_also_in_the_words_of_the_report() -> None:
    found = dtbench.load_collectives(RESULTS)
    assert set(found["why"].dropna()) <= set(CAUSE_PHRASES.values())
    assert (found["why"].isna() == (found["cause"] == "")).all()
    assert set(found.loc[found["cause"] == "tail", "why"]) == {CAUSE_PHRASES[Cause.TAIL]}
    owners = dtbench.load_run(RESULTS / "example").owners
    skew = owners[owners["cause"] == "skew"].iloc[0]
    assert skew["why"] == f"waited for rank {skew['waited_for']}"


def test_what_does_not_count_is_left_out_and_said(two_runs: Path) -> None:
    first = next((two_runs / "quickstart").glob("*-0000"))
    launch = first / "cells" / "ddp" / "launch0" / "launch.json"
    record = json.loads(launch.read_text())
    launch.write_text(json.dumps({**record, "status": "failed", "reason": "rank 1 was killed"}))
    shutil.copytree(first.parent / "20270101T000001-0001", first.parent / "20270102T000000-copy")
    for load in (dtbench.load_collectives, dtbench.load_owners):
        with pytest.warns(UserWarning, match="left out"):
            found = load(two_runs)
        assert not ((found["run"] == first.name) & (found["cell"] == "ddp")).any()
        assert any("rank 1 was killed" in note for note in found.attrs["notes"])
        assert len(found.attrs["notes"]) > 1  # the copy


def test_no_run_is_refused(tmp_path: Path) -> None:
    for load in (dtbench.load_collectives, dtbench.load_owners):
        with pytest.raises(StoreError, match="no runs here"):
            load(tmp_path)


def test_cells_are_rows_with_a_column_for_each_knob_and_times_in_the_unit_that_is_asked_for() -> None:
    run = dtbench.load_run(RESULTS / "example_sweep")
    cells = run.metrics()
    assert types_of(cells.drop(columns="accumulation.micro_batches")) == CELLS.dtypes
    assert cells["accumulation.micro_batches"].tolist() == ["1", "2", "4"]
    assert cells["step_time_ns"].tolist() == [cell.step_time.median for cell in run.summary.cells]
    assert cells["unshard_wait_ns"].isna().all()  # DDP gathers nothing: no zero
    in_ms = run.metrics(unit="ms")
    assert in_ms["exposed_comm_ms"].tolist() == pytest.approx((cells["exposed_comm_ns"] / 1e6).tolist())
    assert not [name for name in in_ms.columns if name.endswith("_ns")]
    assert in_ms["hidden_fraction"].tolist() == cells["hidden_fraction"].tolist()
    with pytest.raises(ValueError, match="`min` is no unit of time; say one of ns, us, ms, s"):
        run.metrics(unit="min")


def test_launches_are_the_values_that_statistics_see() -> None:
    run = dtbench.load_run(RESULTS / "example_sweep")
    launches = run.launches
    assert types_of(launches.drop(columns="accumulation.micro_batches")) == LAUNCHES.dtypes
    for cell in run.summary.cells:
        mine = launches[launches["cell"] == cell.name]
        assert mine["launch"].tolist() == list(cell.launches)
        assert mine["step_time_ns"].tolist() == list(cell.launch_medians_ns)
    first = run.overlap[(run.overlap["cell"] == "micro_batches-1") & (run.overlap["launch"] == 0)]
    assert launches["exposed_comm_ns"].iloc[0] == pytest.approx(first["exposed_comm_ns"].mean())


def test_knobs_of_a_run_of_several_strategies_are_fields_that_all_have() -> None:
    columns = dtbench.load_run(RESULTS / "example").metrics().columns
    assert {"parallel.kind", "parallel.tensor"} <= set(columns)
    assert "parallel.bucket_cap_mb" not in columns


def test_a_knob_that_is_called_as_a_column_is_told_apart_and_a_secret_is_not_told() -> None:
    cells = [
        KnobCell("a", "c", {"rank": "1"}, {"env.API_KEY": "one", "x": "1"}),
        KnobCell("a", "c", {}, {"env.API_KEY": "two", "x": "1"}),
        KnobCell("b", "c", {}, {"env.API_KEY": "three", "x": "2"}),
        KnobCell("b", "own", {}),
    ]
    knobs = find_knobs(cells, {"rank"})
    assert list(knobs) == ["axis rank", "env.API_KEY"]  # x differs between scenarios alone
    assert knobs["axis rank"] == ["1", None, None, None]
    assert not {"one", "two", "three"} & set(map(str, knobs["env.API_KEY"]))
    assert knobs["env.API_KEY"][2:] == [None, None]


def test_owners_of_a_cell_of_which_the_report_finds_nothing_are_doubted(two_runs: Path) -> None:
    first = sorted((two_runs / "quickstart").iterdir())[0]
    (first / "cells" / "ddp" / "launch0" / "ranks" / "rank1.json").unlink()
    owners = dtbench.load_owners(two_runs)
    doubted = owners.groupby(["run", "cell"])["is_doubted"].unique().map(list).to_dict()
    lost = {key for key, told in doubted.items() if told == [True]}
    assert lost == {(first.name, "ddp")}
    assert {tuple(told) for key, told in doubted.items() if key not in lost} == {(False,)}


def forget_of_rank(run: Path, table: str, columns: list[str]) -> None:
    path = run / "cells" / "ddp" / "launch0" / f"{table}.parquet"
    frame = pd.read_parquet(path)
    attrs = dict(frame.attrs)
    frame[columns] = frame[columns].mask(frame["rank"] == 1)
    frame.attrs = attrs
    write_table(path, frame)


def test_numbers_of_some_ranks_say_so_in_every_table_of_cells_and_launches(two_runs: Path) -> None:
    path = sorted((two_runs / "quickstart").iterdir())[0]
    whole = dtbench.load_run(path).metrics().set_index("cell")
    parts = [name for name in whole.columns if name.endswith("known_of")]
    assert whole[parts].isna().all(axis=None)
    forget_of_rank(path, "overlap", ["compute_ns", "hidden_comm_ns", "exposed_comm_ns", "idle_ns"])
    forget_of_rank(path, "purposes", ["wait_ns"])
    run = dtbench.load_run(path)
    cells = run.metrics().set_index("cell")
    (known,) = run.owners.loc[run.owners["cell"] == "ddp", "known_of"].unique()
    assert known == "rank 0 alone, of 2"
    told = cells.loc["ddp", parts].dropna().to_dict()
    assert told == {"known_of": known, "gradient_wait_known_of": known}
    assert cells.drop(index="ddp")[parts].isna().all(axis=None)
    launches = run.launches.set_index("cell")["known_of"]
    assert launches["ddp"] == known
    assert launches.drop(index="ddp").isna().all()


def test_cells_are_doubted_by_the_rule_of_owners(two_runs: Path) -> None:
    first = sorted((two_runs / "quickstart").iterdir())[0]
    (first / "cells" / "ddp" / "launch0" / "ranks" / "rank1.json").unlink()
    cells = dtbench.load_run(first).metrics().set_index("cell")["is_doubted"]
    assert cells[cells].index.tolist() == ["ddp"]

"""Many runs as one table: what is in it, and what is left out with a sentence."""

import json
import math
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pandas as pd
import pytest

import dtbench
from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import Purpose
from dtbench.report.words.sentences import check_word, is_trusted, wait_sentence
from dtbench.runs.cell_numbers import find_number
from dtbench.runs.reading.many_runs import RUN_STEPS, load_run_steps
from dtbench.scenario.checks.values import read_value
from dtbench.store.finish import STEPS
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, LaunchRecord, RunStatus
from dtbench.store.write import write_record, write_table

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
MakeRun = Callable[..., RunFolder]
_STARTS_NS = count(10, 1000)


def steps_of(ranks: int, first_ns: int) -> pd.DataFrame:
    """Return two steps of each rank, one to warm up and one measured; they start at a time of their own."""
    start_ns = next(_STARTS_NS)
    rows = [
        (rank, step, phase, start_ns + step, first_ns + step, 5, 0.0)
        for rank in range(ranks)
        for step, phase in enumerate(("WARMUP", "MEASURED"))
    ]
    return pd.DataFrame(rows, columns=list(STEPS.dtypes)).astype(STEPS.dtypes)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run of one cell: launches by their status, and its coordinates."""

    def make(
        scenario: str,
        run_id: str,
        statuses: tuple[RunStatus | None, ...] = (RunStatus.COMPLETE,),
        coordinates: dict[str, str] | None = None,
        status: RunStatus = RunStatus.COMPLETE,
    ) -> RunFolder:
        example = read_run(EXAMPLE)
        folder = RunFolder(tmp_path / "results" / scenario / run_id)
        cell = example.cells[0]
        assert isinstance(cell, CellRecord)
        plan = cell.plan.model_copy(update={"measured_steps": 1, "profiled_steps": 0})  # as ``steps_of`` has them
        changes = {"launches": tuple(range(len(statuses))), "coordinates": coordinates or {}, "plan": plan}
        cells = (cell.model_copy(update=changes),)
        named = {"name": scenario, "run_id": run_id, "cells": cells, "status": status}
        write_record(folder.run, example.model_copy(update=named))
        for index, how in enumerate(statuses):
            launch = folder.launch(cell.name, index)
            write_table(launch.steps, steps_of(2, 100 * (index + 1)))
            shutil.copytree(RunFolder(EXAMPLE).launch("ddp", 0).path / "ranks", launch.path / "ranks")
            if how is not None:
                record = LaunchRecord(
                    cell=cell.name,
                    index=index,
                    status=how,
                    started_unix_ns=0,
                    duration_ns=1,
                    reason=None if how is RunStatus.COMPLETE else "rank 1 was killed",
                    failures=(),
                )
                write_record(launch.launch, record)
        return folder

    return make


def test_the_columns_and_types_are_those_written_down(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ddp", "20260101T000000-aaaa")
    steps = load_run_steps(tmp_path / "results")
    assert {name: str(dtype) for name, dtype in steps.dtypes.items()} == RUN_STEPS.dtypes
    assert list(steps.columns) == list(RUN_STEPS.dtypes)
    assert steps["phase"].cat.categories.tolist() == ["WARMUP", "MEASURED", "PROFILED"]


def test_every_launch_of_every_run_is_there_with_its_own_times(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE, RunStatus.COMPLETE))
    make_run("fsdp", "20260101T000001-bbbb")
    steps = load_run_steps(tmp_path / "results")
    measured = steps[steps["phase"] == "MEASURED"]
    found = measured.groupby(["scenario", "run", "launch"], observed=True)["duration_ns"].agg(["count", "max"])
    assert found.reset_index().to_numpy().tolist() == [
        ["ddp", "20260101T000000-aaaa", 0, 2, 101],
        ["ddp", "20260101T000000-aaaa", 1, 2, 201],
        ["fsdp", "20260101T000001-bbbb", 0, 2, 101],
    ]
    assert steps.attrs["notes"] == []


def test_each_axis_of_any_sweep_is_a_column(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", "20260101T000000-aaaa", coordinates={"parallel.bucket_cap_mb": "4", "rank": "odd"})
    make_run("b", "20260101T000001-bbbb")
    steps = load_run_steps(tmp_path / "results")
    swept = steps[steps["scenario"] == "a"]
    assert set(swept["parallel.bucket_cap_mb"]) == {"4"}
    assert set(swept["axis rank"]) == {"odd"}
    assert set(swept["rank"]) == {0, 1}
    assert steps[steps["scenario"] == "b"]["parallel.bucket_cap_mb"].isna().all()


def test_launches_that_did_not_end_well_are_left_out_and_named(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE, RunStatus.FAILED, None))
    steps = load_run_steps(tmp_path / "results")
    assert set(steps["launch"]) == {0}
    failed, unfinished = steps.attrs["notes"]
    assert failed == f"{run.launch('ddp', 1).path}: the launch is failed: rank 1 was killed"
    assert unfinished == f"{run.launch('ddp', 2).path}: not finished, there is no launch.json"


def test_a_run_that_still_goes_on_gives_its_finished_launches(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE, None), status=RunStatus.RUNNING)
    steps = load_run_steps(tmp_path / "results")
    assert set(steps["status"]) == {"running"}
    assert set(steps["launch"]) == {0}


@pytest.mark.parametrize("broken", ["run.json", "launch.json", "steps.parquet"])
@pytest.mark.parametrize("content", [b"", b"{", b"PAR1 and no more", b'{"format_version": 2}'])
def test_a_broken_file_costs_its_launch_and_is_named(
    make_run: MakeRun, tmp_path: Path, broken: str, content: bytes
) -> None:
    make_run("ddp", "20260101T000000-aaaa")
    other = make_run("ddp", "20260101T000001-bbbb")
    (path,) = other.path.rglob(broken)
    path.write_bytes(content)
    steps = load_run_steps(tmp_path / "results")
    assert set(steps["run"]) == {"20260101T000000-aaaa"}
    (note,) = steps.attrs["notes"]
    assert str(path) in note


def test_a_table_without_a_column_is_left_out_and_one_with_more_is_read(make_run: MakeRun, tmp_path: Path) -> None:
    first, second = make_run("ddp", "20260101T000000-aaaa"), make_run("ddp", "20260101T000001-bbbb")
    write_table(first.launch("ddp", 0).steps, steps_of(2, 1).drop(columns="cpu_ns"))
    write_table(second.launch("ddp", 0).steps, steps_of(2, 1).assign(more=1).iloc[:, ::-1])
    steps = load_run_steps(tmp_path / "results")
    assert set(steps["run"]) == {"20260101T000001-bbbb"}
    assert list(steps.columns) == list(RUN_STEPS.dtypes)
    assert "cpu_ns" in steps.attrs["notes"][0]


def test_a_table_from_before_others_were_looked_at_is_read_and_says_nothing_of_them(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("ddp", "20260101T000000-aaaa")
    write_table(run.launch("ddp", 0).steps, steps_of(2, 1).drop(columns="stolen_fraction"))
    steps = load_run_steps(tmp_path / "results")
    assert len(steps) == 4
    assert steps["stolen_fraction"].isna().all()


def test_a_run_killed_before_its_first_record_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("ddp", "20260101T000000-aaaa")
    run.scenario.write_text("# why?")
    run.run.unlink()
    steps = load_run_steps(tmp_path / "results")
    assert steps.empty
    assert steps.attrs["notes"] == [f"{run.path}: not finished, there is no run.json"]
    assert set(RUN_STEPS.dtypes) <= set(steps.columns)


def test_one_runs_and_one_scenarios_folder_are_taken_too(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("ddp", "20260101T000000-aaaa")
    make_run("ddp", "20260101T000001-bbbb")
    assert load_run_steps(run.path)["run"].nunique() == 1
    assert load_run_steps(run.path.parent)["run"].nunique() == 2


@pytest.mark.parametrize("all_steps", [False, True])
def test_a_copy_of_a_run_gives_no_rows_of_its_own_and_is_named(
    make_run: MakeRun, tmp_path: Path, *, all_steps: bool
) -> None:
    run = make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE,) * 2)
    alone = load_run_steps(run.path, all_steps=all_steps)
    shutil.copytree(run.path, run.path.with_name("20260101T000000-aaaa-copy"))
    steps = load_run_steps(tmp_path / "results", all_steps=all_steps)
    pd.testing.assert_frame_equal(steps, alone)
    said = steps.attrs["notes"]
    assert [note.partition(": ")[0].rpartition("/")[2] for note in said] == ["launch0", "launch1"]
    assert all("-copy/cells" in note and f"a copy of {run.path}/cells" in note for note in said)


def test_launches_that_a_copy_of_a_run_went_on_with_are_launches_of_their_own(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE,) * 2)
    copied = RunFolder(run.path.with_name("20260101T000000-aaaa-copy"))
    shutil.copytree(run.path, copied.path)
    (steps_file,) = copied.path.glob("cells/*/launch1/steps.parquet")
    write_table(steps_file, steps_of(2, 200))
    steps = load_run_steps(tmp_path / "results")
    assert steps.groupby("launch").size().to_dict() == {0: 4, 1: 8}
    assert len(steps.attrs["notes"]) == 1


def test_no_run_at_all_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError, match="no runs here"):
            load_run_steps(folder)


def test_a_person_is_warned_of_what_is_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ddp", "20260101T000000-aaaa", (RunStatus.COMPLETE, None, None))
    with pytest.warns(UserWarning, match=r"left out: .*launch1: not finished.* and 1 more, see .attrs\['notes'\]"):
        assert len(dtbench.load_runs(tmp_path / "results")) == 4


def test_names_with_markup_stay_as_they_are(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("ddp", "20260101T000000-aaaa")
    record = json.loads(run.run.read_text())
    record["name"] = "<b>$x$"
    run.run.write_text(json.dumps(record))
    steps = load_run_steps(tmp_path / "results")
    assert set(steps["scenario"]) == {"<b>$x$"}
    assert "<b>" not in steps.head(1).to_html()


@pytest.mark.parametrize(("stolen", "taken"), [(0.0, 0.4), (float("nan"), 0.4), (0.015, 0.015)])
def test_steps_that_processes_took_are_left_out_as_load_run_does(tmp_path: Path, stolen: float, taken: float) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    path = RunFolder(run).launch("ddp", 0).steps
    steps = pd.read_parquet(path).assign(others_cpu_ns=0.0, taken_fraction=0.0)
    hit = steps["step"].isin(steps["step"][steps["phase"] == "MEASURED"].unique()[:3])
    steps.loc[hit, ["stolen_fraction", "taken_fraction"]] = (stolen, taken)
    steps.to_parquet(path)
    with pytest.warns(UserWarning, match="3 MEASURED steps are left out: others had"):
        found = dtbench.load_runs(run)
    report = dtbench.load_run(run)
    assert len(found) == len(report.steps)
    assert any("3 MEASURED steps are left out: others had" in note for note in report.notes)
    assert dtbench.load_runs(run, all_steps=True)["is_left_out"].sum() == hit.sum()


def test_steps_of_which_it_is_lost_what_processes_took_are_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    path = RunFolder(run).launch("ddp", 0).steps
    steps = pd.read_parquet(path).assign(taken_fraction=0.0)
    steps.loc[steps["step"] == steps["step"].max(), "taken_fraction"] = float("nan")
    steps.to_parquet(path)
    with pytest.warns(UserWarning, match="launch0: what other processes had of the cores is lost in 1 of 11 steps"):
        assert len(dtbench.load_runs(run))


def test_a_cell_that_lacks_a_ranks_record_is_not_told_as_passed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    (run / "cells" / "ddp" / "launch0" / "ranks" / "rank1.json").unlink()
    with pytest.warns(UserWarning, match="rank 1 left no record: whether the results are right is not known"):
        assert len(dtbench.load_runs(run))
    cell = dtbench.load_run(run).summary.cells[0]
    assert check_word(cell) == "not judged"
    assert not is_trusted(cell)


@pytest.mark.parametrize(
    ("key", "ranks", "said"),
    [
        ("correctness", (0, 1), "no result of the check against a single process, which its scenario asks for"),
        ("canary", (1,), "rank 1 says nothing of the canary"),
    ],
)
def test_a_check_that_was_asked_for_and_that_records_lost_is_noted_as_in_the_report(
    tmp_path: Path, key: str, ranks: tuple[int, ...], said: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    for rank in ranks:
        path = RunFolder(run).launch("ddp", 0).rank_record(rank)
        path.write_text(json.dumps({**json.loads(path.read_text()), key: None}))
    with pytest.warns(UserWarning, match=said):
        assert len(dtbench.load_runs(run))
    assert any(said in note for note in dtbench.load_run(run).notes)


@pytest.mark.parametrize("name", ["steps", "overlap", "purposes", "collectives"])
def test_a_table_of_ranks_that_the_launch_has_not_is_refused(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    shutil.copy(run / f"cells/fsdp2_tp/launch0/{name}.parquet", run / f"cells/ddp/launch0/{name}.parquet")
    cell = dtbench.load_run(run).summary.cells[0]
    assert cell.status is RunStatus.FAILED
    assert "ranks 2-3" in (cell.reason or "")


def test_purposes_that_are_lost_are_no_zeros(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    (run / "cells/ddp/launch0/purposes.parquet").unlink()
    summary = dtbench.load_run(run).summary
    cell = summary.cells[0]
    assert not cell.purposes
    assert wait_sentence(cell, Purpose.GRAD_REDUCE).startswith("n/a: what communication was for")
    assert math.isnan(find_number(cell, read_value("purposes.unshard.count")))
    assert any("6 of 6 rank steps" in note for note in cell.notes)


def test_a_phase_of_which_others_disturbed_most_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    path = RunFolder(run).launch("ddp", 0).steps
    steps = pd.read_parquet(path)
    profiled = steps["phase"] == "PROFILED"
    count = steps["step"][profiled].nunique()
    steps.loc[profiled, "stolen_fraction"] = 0.78
    steps.to_parquet(path)
    (note,) = load_run_steps(run).attrs["notes"]
    assert note.endswith(f"nothing is judged by its PROFILED steps: other virtual machines left 0 of {count} alone")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("correctness", "its results differ from those of a single process"),
        ("canary", "it reads a collective's result before it is done"),
    ],
)
def test_a_launch_whose_results_are_wrong_is_left_out_and_named(tmp_path: Path, what: str, words: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(EXAMPLE, run)
    path = RunFolder(run).launch("ddp", 0).rank_record(1)
    record = json.loads(path.read_text())
    record[what] = {**(record[what] or {}), "passed": False}
    path.write_text(json.dumps(record))
    table = load_run_steps(run)
    assert "ddp" not in set(table["cell"])
    assert [note.endswith(words) for note in table.attrs["notes"]] == [True]


RAISED = {"stage": "gather", "part": "model", "duration_ns": [], "raised": "ValueError: no rank (torch 2.13.0)"}
WRONG = {"key": "w", "words": "another value"}


@pytest.mark.parametrize(
    ("stage", "says", "until", "words"),
    [
        (RAISED, None, None, "torch raised in a stage of its training state"),
        (RAISED, "no rank", None, None),
        (RAISED, "no rank", "1.0", "torch raised in a stage of its training state"),
        (
            {**RAISED, "raised": None, "duration_ns": [9], "mismatched": 1, "mismatches": [WRONG]},
            None,
            None,
            "should be",
        ),
        ({**RAISED, "raised": None, "duration_ns": [9], "mismatched": 0}, None, None, None),
    ],
)
def test_a_launch_whose_training_state_is_wrong_is_left_out_unless_torch_is_known_to_break_it(
    make_run: MakeRun, stage: dict[str, object], says: str | None, until: str | None, words: str | None
) -> None:
    run = make_run("ddp", "20260101T000000-aaaa")
    launch = run.launch("ddp", 0)
    shutil.copy(RunFolder(EXAMPLE).launch("ddp", 0).environment, launch.environment)
    record, rank = json.loads(run.run.read_text()), json.loads(launch.rank_record(1).read_text())
    known = {"part": "model", "stage": "gather", "says": says, "until": until}
    asked = {"stages": ["gather"], "broken": [known] if says else []}
    record["cells"][0]["scenario"]["state_dict"] = asked
    del record["checklist"]  # it is about the example's other cell, too
    run.run.write_text(json.dumps(record))
    launch.rank_record(1).write_text(json.dumps({**rank, "stages": [stage]}))
    table = load_run_steps(run.path)
    assert [words is not None and note.endswith(words) for note in table.attrs["notes"]] == [True] * (words is not None)
    assert len(table) == (0 if words else 4)

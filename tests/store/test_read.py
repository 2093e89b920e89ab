"""Reading runs back, and every refusal."""

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import Phase
from dtbench.store.find_run import find_run
from dtbench.store.finish import gather_steps
from dtbench.store.journal import JournalWriter, StepTiming
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import (
    is_incomplete,
    latest_run,
    read_environment,
    read_launch,
    read_rank_records,
    read_run,
    read_steps,
    read_table,
)
from dtbench.store.records.outline import read_outline, refuse_incomplete
from dtbench.store.records.run import RunRecord, RunStatus
from dtbench.store.walk import find_runs
from dtbench.store.write import write_record, write_table
from tests.made_steps import write_journals

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "20260101T000000-aaaa", status: RunStatus = RunStatus.COMPLETE) -> Path:
        path = tmp_path / "results" / "small" / name
        record = RunRecord(
            dtbench_version="0",
            name="small",
            run_id=name,
            question="Why?",
            overrides=(),
            status=status,
            reason=None,
            started_unix_ns=0,
            ended_unix_ns=None,
            cells=(),
        )
        write_record(RunFolder(path).run, record)
        return path

    return make


@pytest.mark.parametrize("read", [read_run, read_outline])
def test_a_run_of_more_ranks_than_there_are_is_refused_at_once(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """Whoever looks at each of them would never end."""
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    record = json.loads((run / "run.json").read_text())
    for cell in record["cells"]:
        cell["plan"]["ranks"] = 10**11
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(StoreError, match=r"ranks.*100000|100000.*ranks"):
        read(run)


def test_a_run_is_read_back(make_run: Callable[..., Path]) -> None:
    run = read_run(make_run())
    assert (run.name, is_incomplete(run)) == ("small", False)
    assert is_incomplete(read_run(make_run(status=RunStatus.RUNNING)))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing; is this the folder of a run"):
        read_run(tmp_path)


def test_a_run_without_its_record_is_incomplete(tmp_path: Path) -> None:
    RunFolder(tmp_path).scenario.write_text("# Why?\n")
    with pytest.raises(StoreError, match="incomplete"):
        read_run(tmp_path)


def test_another_version_is_refused(make_run: Callable[..., Path]) -> None:
    path = make_run()
    content = json.loads(RunFolder(path).run.read_text())
    RunFolder(path).run.write_text(json.dumps({**content, "format_version": 9}))
    with pytest.raises(StoreError, match="format 9, this dtbench reads 1"):
        read_run(path)


@pytest.mark.parametrize("content", ["", "{", '{"format_version": "x"}', "[]"])
def test_a_broken_record_is_refused(make_run: Callable[..., Path], content: str) -> None:
    path = make_run()
    RunFolder(path).run.write_text(content)
    with pytest.raises(StoreError, match=r"run\.json: broken"):
        read_run(path)


def test_a_record_with_a_wrong_field_names_the_field(make_run: Callable[..., Path]) -> None:
    path = make_run()
    content = json.loads(RunFolder(path).run.read_text())
    RunFolder(path).run.write_text(json.dumps({**content, "status": "happy"}))
    with pytest.raises(StoreError, match="does not hold what it should, status"):
        read_run(path)


def test_a_launch_that_was_copied_from_another_cell_is_refused(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(EXAMPLE, tmp_path / "run"))
    launch = run.launch("fsdp2_tp", 0)
    shutil.copytree(run.launch("ddp", 0).path, launch.path, dirs_exist_ok=True)
    for read in (read_launch, refuse_incomplete):
        with pytest.raises(StoreError, match="is of cell ddp, launch 0, and lies in cell fsdp2_tp, launch 0"):
            read(launch)
    later = LaunchFolder(launch.path.rename(launch.path.with_name("launch1")))
    with pytest.raises(StoreError, match=r"lies in cell fsdp2_tp, launch 1; was it copied here\?"):
        read_launch(later)
    elsewhere = LaunchFolder(shutil.copytree(later.path, tmp_path / "launch0"))
    assert read_launch(elsewhere).cell == "ddp", "a folder in no run says of no cell"


def test_what_a_launch_lacks_is_said(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path / "launch0")
    with pytest.raises(StoreError, match="missing"):
        read_launch(folder)
    folder.path.mkdir()
    with pytest.raises(StoreError, match="the launch is incomplete"):
        read_launch(folder)
    with pytest.raises(StoreError, match="no rank finished a step"):
        read_steps(folder)
    with pytest.raises(StoreError, match="missing"):
        read_environment(tmp_path)
    assert read_rank_records(folder) == ()


def test_a_table_that_is_missing_or_broken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "overlap.parquet"
    with pytest.raises(StoreError, match="missing"):
        read_table(path)
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="not a readable table"):
        read_table(path)


def write_odd(path: Path, notes: bytes) -> None:
    """Write a table whose columns are whole and whose notes, which pandas reads, are not."""
    table = pa.table({"step": [1, 2]}).replace_schema_metadata({b"pandas": notes})
    pq.write_table(table, path)


@pytest.mark.parametrize(
    "notes", [b"{x", b"{}", b"\xff", b'{"index_columns": [], "columns": [1], "column_indexes": 1}']
)
def test_a_table_whose_notes_are_broken_is_refused(tmp_path: Path, notes: bytes) -> None:
    write_odd(tmp_path / "overlap.parquet", notes)
    with pytest.raises(StoreError, match=r"overlap\.parquet: not a readable table .*; delete it, `dtbench analyze`"):
        read_table(tmp_path / "overlap.parquet")


def test_a_broken_table_of_steps_is_read_from_the_journals_of_its_ranks(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path)
    folder.journal(0).parent.mkdir(parents=True)
    for rank in (0, 1):
        with JournalWriter(folder.journal(rank), rank=rank, pid=1, capacity=2) as journal:
            journal.begin(0)
            journal.finish_step(StepTiming(phase=Phase.MEASURED, step=0, start_ns=5, duration_ns=7, cpu_ns=3))
    write_table(folder.steps, gather_steps(folder, ranks=range(2)))
    whole = read_steps(folder)
    assert whole["duration_ns"].tolist() == [7, 7]
    folder.steps.write_bytes(b"PAR1 not really")
    pd.testing.assert_frame_equal(read_steps(folder), whole)
    shutil.rmtree(folder.journal(0).parent)
    with pytest.raises(
        StoreError, match=r"steps\.parquet: not a readable table .*; the journals of its ranks are gone"
    ):
        read_steps(folder)


def test_runs_are_found_in_order_of_time(make_run: Callable[..., Path], tmp_path: Path) -> None:
    results = tmp_path / "results"
    with pytest.raises(StoreError, match="no runs here"):
        latest_run(results)
    late, early = make_run("20260102T000000-aaaa"), make_run("20260101T000000-bbbb")
    assert find_runs(results) == [early, late]
    assert latest_run(results) == late


def test_of_many_runs_only_the_latest_is_looked_into(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(9):
        make_run(f"20260101T0{hour}0000-aaaa")
    looked: list[str] = []
    real = Path.exists

    def exists(path: Path) -> bool:
        looked.append(path.parent.name)
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)
    results = tmp_path / "results"
    found = [latest_run(results), find_run(None, results), find_run(str(results), tmp_path)]
    assert {path.name for path in found} == {"20260101T080000-aaaa"}
    assert {name for name in looked if name.startswith("2026")} == {"20260101T080000-aaaa"}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([("../../x", [0])], "`../../x` is no name of a cell's folder"),
        ([("..", [0])], "no name of a cell's folder"),
        ([("", [0])], "no name of a cell's folder"),
        ([("x" * 300, [0])], "no name of a cell's folder"),
        ([("a\0b", [0])], "no name of a cell's folder"),
        ([("a", [0]), ("a", [1])], "two cells have one name"),
        ([("a", [0, 0])], "the launches of `a` are not told apart"),
        ([("a", [-1])], "the launches of `a` are not told apart"),
        ([("a", [])], "the launches of `a` are not told apart"),
    ],
)
def test_a_run_whose_cells_dtbench_cannot_have_written_is_refused_by_both_readers(
    tmp_path: Path, cells: list[tuple[str, list[int]]], said: str
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run", ignore=shutil.ignore_patterns("cells"))
    file = RunFolder(tmp_path / "run").run
    document = json.loads(file.read_text(encoding="utf-8"))
    document["cells"] = [{**document["cells"][0], "name": name, "launches": launches} for name, launches in cells]
    file.write_text(json.dumps(document), encoding="utf-8")
    for read in (read_run, read_outline):
        with pytest.raises(StoreError, match=re.escape(said)):
            read(tmp_path / "run")


def test_a_run_whose_checks_are_about_a_cell_that_it_does_not_have_is_refused(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run", ignore=shutil.ignore_patterns("cells"))
    file = RunFolder(tmp_path / "run").run
    assert set(read_run(tmp_path / "run").checklist.named_cells) == {"ddp", "fsdp2_tp"}
    file.write_text(file.read_text(encoding="utf-8").replace('"name": "ddp"', '"name": "dpd"'), encoding="utf-8")
    with pytest.raises(StoreError, match="its checks are about a cell `ddp` that it does not have; was it edited"):
        read_run(tmp_path / "run")


def test_a_trace_of_a_rank_without_a_number_is_no_trace_of_a_launch(tmp_path: Path) -> None:
    folder = LaunchFolder(tmp_path)
    folder.traces.mkdir()
    for name in ("rankX.1.pt.trace.json", "rank2.1.pt.trace.json"):
        (folder.traces / name).write_text("{}", encoding="utf-8")
    assert folder.find_traces() == {2: folder.traces / "rank2.1.pt.trace.json"}


def test_a_folder_of_somebody_else_does_not_hide_the_runs_beside_it(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = make_run(), make_run("20260102T000000-bbbb")
    real = Path.exists

    def exists(path: Path) -> bool:
        if path.is_relative_to(other):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)
    assert find_runs(run.parents[1]) == [run]


def test_a_table_of_steps_without_ranks_that_have_a_journal_is_read_from_the_journals(tmp_path: Path) -> None:
    """Rank 0 writes the table: where nodes share no file system, of the ranks of its own node."""
    launch = LaunchFolder(tmp_path)
    write_journals(launch, ranks=4)
    whole = gather_steps(launch, ranks=range(4))
    write_table(launch.steps, whole[whole["rank"] < 2])
    pd.testing.assert_frame_equal(read_steps(launch), whole)
    write_table(launch.steps, whole[whole["rank"] != 3])
    launch.journal(3).unlink()
    assert set(read_steps(launch)["rank"]) == {0, 1, 2}

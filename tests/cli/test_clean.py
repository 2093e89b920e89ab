"""``dtbench clean``: what goes is said before, tables and what was found stay, and nothing else is ever touched."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError, TraceError
from dtbench.cli.main import main
from dtbench.report.page.run_page import run_page
from dtbench.runs.run import analyze_run, summarize_run
from dtbench.store.layout import LaunchFolder, RunFolder, baseline_file
from dtbench.store.lock import hold_run
from dtbench.store.read import read_run
from dtbench.store.records.run import RunStatus
from dtbench.store.write import write_record, write_table
from dtbench.traces.rows.launch_tables import read_launch_traces
from dtbench.traces.rows.tables import TABLES
from tests.comparison.conftest import FakeCell, make_run

NS = 1_000_000_000
LONG_AGO_S = 90 * 86_400


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "results"


@pytest.fixture
def add(results: Path) -> Callable[..., Path]:
    """Add a run of one launch that has a trace, older than its tables; it began and was written 90 days ago."""

    def make(run_id: str, *, name: str = "small", age_s: float = LONG_AGO_S, **changed: Any) -> Path:
        run = RunFolder(make_run(results, name, run_id, {"plain": FakeCell([100.0])}))
        began = int(time.time() - age_s) * NS
        write_record(run.run, read_run(run.path).model_copy(update={"started_unix_ns": began, **changed}))
        launch = run.launch("plain", 0)
        for table in TABLES:
            if not launch.derived_table(table.name).exists():
                write_table(launch.derived_table(table.name), table.tabulate(()))
        launch.traces.mkdir()
        for rank in range(2):
            launch.trace(rank, 7).write_bytes(b"x" * 1000)
        for path in (run.path, *run.path.rglob("*")):
            os.utime(path, ns=(began, began))
        return run.path

    return make


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["clean", *map(str, arguments)])
    assert caught.value.code == code
    said = capsys.readouterr()
    return said.out if code != 2 else said.err


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def launch_of(run: Path) -> LaunchFolder:
    return RunFolder(run).launch("plain", 0)


def test_traces_go_when_it_is_asked_for_twice_and_what_was_found_stays(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = add("20260101T000000-aaaa")
    add("20260301T000000-bbbb", age_s=3600)
    before, found = list_files(results), summarize_run(old)
    asked = ("--results", results, "--keep-tables", "--older", "30d")
    said = call(capsys, *asked)
    assert list_files(results) == before, "without --yes nothing is touched"
    assert "Would remove traces of 1 launch in 1 run, 1.95 KiB; nothing is removed without --yes." in said
    assert "aaaa" in said
    assert "bbbb" not in said
    assert "Removed traces of 1 launch in 1 run, 1.95 KiB." in call(capsys, *asked, "--yes")
    assert set(before) - set(list_files(results)) == {
        str(launch_of(old).trace(rank, 7).relative_to(results)) for rank in range(2)
    }
    assert "There is nothing to remove." in call(capsys, *asked)
    cells = [
        one.cells[0].model_copy(update={"trace_paths": ()}).model_dump_json() for one in (found, summarize_run(old))
    ]
    assert cells[0] == cells[1]


def test_a_cleaned_run_says_so_wherever_its_traces_are_asked_for(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = add("20260101T000000-aaaa")
    assert summarize_run(run).cleaned == ()
    call(capsys, "--results", results, "--keep-tables", "--scenario", "small", "--yes")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    said = f"`dtbench clean` removed those of 1 launch on {today}; what was read of them is kept"
    assert summarize_run(run).cleaned == (said,)
    assert f"traces: {said}" in [fact.sentence for fact in run_page(summarize_run(run)).facts]
    removed = f"`dtbench clean` removed them on {today}"
    with pytest.raises(StoreError, match=removed):
        read_launch_traces(launch_of(run))
    with pytest.raises(TraceError, match=f"the tables stay as they are; {said}"):
        analyze_run(run)
    with pytest.raises(SystemExit):
        main(["export", str(run), "--perfetto", str(results / "x.tar")])
    assert removed in capsys.readouterr().err
    launch_of(run).trace(0, 8).write_bytes(b"")
    assert summarize_run(run).cleaned == (), "it has traces again"


def test_whole_runs_go_but_baselines_pinned_running_and_odd_ones(
    add: Callable[..., Path], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = add("20260101T000000-aaaa")
    kept = {word: add(f"20260102T000000-{word}") for word in ("pinned", "held", "linked", "broken")}
    kept["lately"] = add("20260103T000000-late", status=RunStatus.RUNNING)
    (kept["lately"] / "run.json").touch()
    killed = add("20260104T000000-kill", status=RunStatus.RUNNING)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(add("20260105T000000-away"), elsewhere)
    (results / "small" / "20260105T000000-away").symlink_to(elsewhere)
    (kept["linked"] / "cells" / "outside").symlink_to(tmp_path)
    (kept["broken"] / "run.json").write_text("{", encoding="utf-8")
    baseline_file(results, "main").parent.mkdir()
    baseline_file(results, "main").write_text("{}", encoding="utf-8")
    call(capsys, "--results", results, "--pin", kept["pinned"])
    untouched = {**list_files(elsewhere), **list_files(kept["linked"])}
    with hold_run(RunFolder(kept["held"])):
        said = call(capsys, "--results", results, "--older", "30d", "--yes")
    assert "Removed 2 runs" in said
    for words in (
        "1 run stays: pinned",
        "2 runs stay: running",
        "2 runs stay: reached by a link, or with one in it",
        "1 run stays: its run.json cannot be read",
    ):
        assert words in said
    assert not gone.exists()
    assert not killed.exists()
    assert all(run.exists() for run in kept.values())
    assert {**list_files(elsewhere), **list_files(kept["linked"])} == untouched
    assert baseline_file(results, "main").exists()
    call(capsys, "--results", results, "--unpin", kept["pinned"])
    assert "Would remove 2 runs" in call(capsys, "--results", results, "--older", "30d"), "the held one is free, too"


def test_traces_that_nobody_has_read_stay(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = add("20260101T000000-aaaa")
    launch_of(run).trace(0, 8).write_bytes(b"newer than its tables")
    said = call(capsys, "--results", results, "--keep-tables", "--older", "30d", "--yes")
    assert "1 run keeps traces: no tables of its traces yet (`dtbench analyze RUN` makes them)" in said
    assert "Nothing was removed." in said
    assert len(launch_of(run).list_trace_files()) == 3


def test_what_cannot_be_removed_is_said_and_the_others_go(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, gone = add("20260101T000000-aaaa"), add("20260102T000000-bbbb")
    real = shutil.rmtree

    def refuse(path: Path) -> None:
        if stuck in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        real(path)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    said = call(capsys, "--results", results, "--older", "30d", "--yes", code=6)
    assert f"{stuck}: could not be removed ([Errno 13] Permission denied" in said
    assert not gone.exists()
    assert (stuck / "run.json").exists(), "it is still a run, so that it can be cleaned again"
    document = json.loads(call(capsys, "--results", results, "--older", "30d", "--json"))
    assert [one["run"] for one in document["removals"]] == [str(stuck)]
    assert document["is_done"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--yes"], "say of which runs: --older 30d, --scenario NAME, or both"),
        (["--older", "soon"], "`soon` is no age; write 30d, 2w, 12h or 15m"),
    ],
)
def test_nothing_goes_without_saying_which(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], results: Path
) -> None:
    assert said in call(capsys, "--results", results, *arguments, code=2)

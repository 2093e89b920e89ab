"""``dtbench runs``: newest first, each cell a row, and what is not shown is said."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.comparison import run_list
from dtbench.comparison.reading import cells
from dtbench.runs.run import summarize_run
from dtbench.store.head import RunHead, read_head
from dtbench.store.layout import RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_environment, read_run
from dtbench.store.records.run import Commit, RunStatus
from dtbench.store.write import write_record
from tests.comparison.conftest import FakeCell, make_run

NS = 1_000_000_000
DAY_S = 86_400


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "results"


@pytest.fixture
def add(results: Path) -> Callable[..., Path]:
    """Add a run that began on a day of January 2026."""

    def make(day: int, cells: Mapping[str, FakeCell] | None = None, *, name: str = "small", **changed: Any) -> Path:
        given = cells or {"plain": FakeCell([100.0 + day])}
        run = make_run(results, name, f"202601{day:02}T120000-{day:04x}", given)
        began = (1_767_225_600 + (day - 1) * DAY_S + DAY_S // 2) * NS
        write_record(RunFolder(run).run, read_run(run).model_copy(update={"started_unix_ns": began, **changed}))
        return run

    return make


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["runs", *map(str, arguments)])
    assert caught.value.code == code
    said = capsys.readouterr()
    return said.out if code == 0 else said.err


def ask(capsys: pytest.CaptureFixture[str], results: Path, *arguments: object) -> Any:
    return json.loads(call(capsys, "--results", results, "--json", *arguments))


def days(document: Any) -> list[int]:
    return [int(row["run_id"][6:8]) for row in document["cells"]]


def test_each_cell_is_a_row_newest_first_with_the_numbers_of_its_report(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = {"plain": FakeCell([100.0, 101.0]), "slow": FakeCell([150.0], {"root": 9.0})}
    runs = [add(2, two), add(1)]
    rows = ask(capsys, results)["cells"]
    assert [(row["run"], row["cell"]) for row in rows] == [
        (str(runs[0]), "plain"),
        (str(runs[0]), "slow"),
        (str(runs[1]), "plain"),
    ]
    reported = [cell for run in runs for cell in summarize_run(run).cells]
    assert [row["step_ns"] for row in rows] == [cell.step_time.median for cell in reported]
    assert [row["exposed_fraction"] for row in rows] == [cell.exposed_step_fraction for cell in reported]
    table = call(capsys, "--results", results).splitlines()
    assert [line.split()[3] for line in table[2:]] == ["plain", "slow", "plain"]
    assert "2026-01-02 12:00:00" in table[2]
    assert "150 ms" in table[3]


def test_a_screen_is_shown_and_the_next_one_is_named(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(1, 6):
        add(day)
    seen: list[int] = []
    more: tuple[object, ...] = ()
    while len(seen) < 9:
        document = ask(capsys, results, "--limit", 2, *more)
        seen += days(document)
        said = call(capsys, "--results", results, "--limit", 2, *more)
        if document["next_run"] is None:
            assert "not shown" not in said
            break
        more = ("--until", said.partition("`--until ")[2].partition("`")[0])
    assert seen == [5, 4, 3, 2, 1]
    assert days(ask(capsys, results, "--limit", 0)) == [5, 4, 3, 2, 1]


def test_what_is_asked_for_is_shown_and_nothing_else(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(1, {"other": FakeCell([1.0])}, name="large")
    add(2, status=RunStatus.FAILED, reason="rank 1 died")
    moved = RunFolder(add(3))
    environment = read_environment(moved.path)
    commit = Commit(revision="abcdef" + "0" * 34, is_dirty=True)
    write_record(moved.environment, environment.model_copy(update={"host": "cluster", "commit": commit}))
    add(4, status=RunStatus.RUNNING)
    held = RunFolder(add(5, status=RunStatus.RUNNING))
    add(6, status=RunStatus.RUNNING, prepared=True)

    def find(*arguments: object) -> list[int]:
        return days(ask(capsys, results, *arguments))

    with hold_run(held):
        statuses = {"complete": [6, 3, 1], "failed": [2], "running": [5], "incomplete": [4]}
        assert {status: find("--status", status) for status in statuses} == statuses
    assert find("large") == find("--cell", "other") == [1]
    assert find("--since", "2026-01-03", "--until", "2026-01-04T23:00") == [4, 3]
    assert find("--until", "1m") == [6, 5, 4, 3, 2, 1]
    assert find("--commit", "ABCDEF") == find("--host", "cluster") == [3]
    assert find("--commit", "bcdef") == []
    assert "abcdef00+" in call(capsys, "--results", results, "--host", "cluster")
    assert "no run is what was asked for" in call(capsys, "--results", results, "--host", "nowhere")
    assert "no runs here" in call(capsys, "--results", results / "none")


def test_what_speaks_against_a_number_stands_beside_it(
    add: Callable[..., Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(1, {"plain": FakeCell([100.0, 101.0], failed=[1])})
    broken = add(2)
    (broken / "run.json").write_text("{", encoding="utf-8")
    rows = ask(capsys, results)["cells"]
    assert rows[0]["status"] == "unreadable"
    assert "run.json" in rows[0]["against"][0]
    assert "1 of 2 launches left out: rank 1 died" in rows[1]["against"]
    assert ask(capsys, results, "--status", "failed")["unreadable"] == 1
    said = call(capsys, "--results", results, "--status", "complete")
    assert "1 run cannot be read, so whether it is asked for is not known" in said


def test_only_of_runs_that_are_shown_more_than_the_top_of_a_record_is_read(
    add: Callable[..., Path], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 8):
        add(day)
    looked: list[str] = []

    def look(path: Path) -> RunHead:
        looked.append(path.name[6:8])
        return read_head(path)

    monkeypatch.setattr(run_list, "read_head", look)
    for _ in range(2):
        looked.clear()
        found = run_list.list_runs(results, run_list.Wanted(), limit=2)
        assert looked == ["07", "06", "05"]
        monkeypatch.setattr(cells, "read_run_data", pytest.fail)  # what was made once is kept
    assert found.next_run is not None
    assert replace(found.rows[0], run=Path()).step_ns == 107e6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "`yesterday` is no moment; write a date"),
        (["--until", "30x"], "`30x` is no moment"),
        (["--status", "done"], "`done` is none of complete, failed, running, incomplete"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert said in call(capsys, *arguments, code=2)


def test_a_moment_without_a_zone_is_utc_wherever_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from dtbench.cli.moments import read_moment
    from dtbench.report.page.runs_page import spell_moment

    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert spell_moment(read_moment("2026-01-31T12:00")) == "2026-01-31T12:00:00"
        assert spell_moment(read_moment("2026-01-31T12:00+02:00")) == "2026-01-31T10:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()

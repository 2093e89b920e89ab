"""``dtbench history``: a number over runs in folders, what is left out, and the exit codes of bounds."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.comparison.history import readings
from dtbench.comparison.reading import cells
from dtbench.comparison.reading.cells import read_cells
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.baseline import MeasuredCell
from dtbench.store.records.run import Commit
from dtbench.store.write import write_record
from tests.comparison.conftest import ENVIRONMENT, FakeCell, make_run

NS = 1_000_000_000
DAY_S = 86_400


def add(
    results: Path, day: int, cells_of: Mapping[str, FakeCell], *, name: str = "small", commit: str = "", **changed: Any
) -> Path:
    run = make_run(results, name, f"202601{day:02}T120000-{day:04x}", cells_of)
    describe(run, day, commit, **changed)
    return run


def describe(run: Path, day: int, commit: str = "", **changed: Any) -> None:
    """Let a run have begun on a day of January 2026, at a commit."""
    began = (1_767_225_600 + (day - 1) * DAY_S + DAY_S // 2) * NS
    write_record(RunFolder(run).run, read_run(run).model_copy(update={"started_unix_ns": began, **changed}))
    if commit:
        told = Commit(revision=commit * 40, is_dirty=False)
        write_record(RunFolder(run).environment, ENVIRONMENT.model_copy(update={"commit": told}))


@dataclass
class Nightly:
    """Runs whose numbers nobody measured: folders with the records of one, and what its cell would be read as."""

    results: Path
    run: Path
    cell: MeasuredCell
    measured: dict[str, MeasuredCell] = field(default_factory=dict)

    def add(self, day: int, time_ms: float, commit: str = "", **side: Any) -> Path:
        """Add a run whose step takes about so long, each day some other."""
        run = self.results / "small" / f"202601{day:02}T120000-{day:04x}"
        shutil.copytree(self.run, run, ignore=shutil.ignore_patterns("cells"))
        describe(run, day, commit, run_id=run.name)
        factor = time_ms / 100 * (1 + 0.002 * ((7 * day) % 5 - 2))
        launch = self.cell.side.launches[0]
        values = tuple(one.model_copy(update={"value": one.value * factor}) for one in launch.measurements)
        launches = (launch.model_copy(update={"measurements": values, "first_start_ns": day}),)
        changed = self.cell.side.model_copy(update={"launches": launches, **side})
        self.measured[run.name] = self.cell.model_copy(update={"side": changed})
        return run

    def read(self, path: Path, cell: str) -> dict[str, MeasuredCell]:
        """Stand for ``read_cells``."""
        return {cell: self.measured[path.name]}


@pytest.fixture(scope="module")
def nightly(tmp_path_factory: pytest.TempPathFactory) -> Nightly:
    """Make 16 nightly runs of which the last 6 take a tenth longer, and some that are not like them."""
    folder = tmp_path_factory.mktemp("history")
    run = add(folder, 1, {"plain": FakeCell([100.0])})
    made = Nightly(folder / "results", run, read_cells(run, "plain")["plain"])
    for day in range(1, 17):
        made.add(day, 100.0 if day <= 10 else 110.0, "a" if day <= 10 else "b")
    side = made.cell.side
    made.add(17, 10.0, environment=ENVIRONMENT.model_copy(update={"cores": 64}))
    made.add(18, 10.0, settings={**(side.settings or {}), "model.layers": "4"})
    made.add(19, 10.0, launches=(), left_out=("launch0",))
    (made.add(20, 10.0) / "run.json").write_text("cut", encoding="utf-8")
    newest = made.add(21, 110.0, "b")
    record = read_run(newest)
    both = (*record.cells, record.cells[0].model_copy(update={"name": "slow"}))
    write_record(RunFolder(newest).run, record.model_copy(update={"cells": both}))
    return made


@pytest.fixture
def results(nightly: Nightly, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(readings, "read_cells", nightly.read)
    return nightly.results


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "220")


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["history", *map(str, arguments)])
    said = capsys.readouterr()
    assert caught.value.code == code, said.err
    return said.out, said.err


def ask(capsys: pytest.CaptureFixture[str], results: Path, *arguments: object) -> Any:
    return json.loads(call(capsys, "--results", results, "--cell", "plain", "--json", *arguments)[0])


def test_the_change_is_told_between_two_runs_and_what_is_not_like_the_others_is_counted_first(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ask(capsys, results)
    (change,) = document["changes"]
    assert (change["last"][6:8], change["first"][6:8]) == ("10", "11")
    assert change["change"]["ratio"] == pytest.approx(1.1, abs=0.005)
    assert change["change"]["low"] < change["change"]["ratio"] < change["change"]["high"]
    assert {change["what"] for change in change["environment"]} == {"commit of the code"}
    assert len(document["points"]) == 17
    left_out = {one["why"]: [run[6:8] for run in one["runs"]] for one in document["left_out"]}
    assert left_out == {
        "another machine: cores 64, now 2": ["17"],
        "another scenario: model.layers 4, now 2": ["18"],
        "no launch of theirs is to be trusted": ["19"],
        "they cannot be read": ["20"],
    }
    lines = call(capsys, "small", "--results", results, "--cell", "plain")[0].splitlines()
    assert all(line.startswith("1 run left out, ") for line in lines[:4])
    assert lines[4].startswith("1 change of step time over 17 runs; the last that matters, +10.0 %")
    assert "commit of the code aaaaaaaaaaaa -> bbbbbbbbbbbb" in "\n".join(lines)


def test_runs_are_chosen_by_time_and_pooled_by_commit(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, results, "--since", "2026-01-03", "--until", "2026-01-08T23:00")
    assert [point["name"][6:8] for point in document["points"]] == ["03", "04", "05", "06", "07", "08"]
    assert document["sentence"].startswith("6 runs are too few")
    points = ask(capsys, results, "--by", "commit")["points"]
    assert [(point["name"], len(point["runs"])) for point in points] == [("a" * 12, 10), ("b" * 12, 7)]


@pytest.mark.parametrize(
    ("bounds", "code", "said"),
    [
        (["step_time > 3%"], 10, "EXCEEDED, step time 110 ms against 100 ms (+10"),
        (["step_time > 30%"], 0, ""),
        (["step_time < -3%"], 0, ""),
        (["step_time > 30%", "step_time > 10.05%"], 11, "not established"),
        (["host_memory > 3%"], 10, "EXCEEDED, host memory"),
    ],
)
def test_a_worsening_beyond_a_bound_fails(
    bounds: list[str], code: int, said: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for bound in bounds for word in ("--fail-if", bound)]
    out, err = call(capsys, "--results", results, "--cell", "plain", *options, code=code)
    assert said in err
    assert "Bounds of --fail-if" in out
    if code == 11:
        call(capsys, "--results", results, "--cell", "plain", *options, "--pass-unestablished")


def test_a_page_a_picture_and_markdown_show_the_same(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "history.html", tmp_path / "history.svg"
    written = call(capsys, "--results", results, "--cell", "plain", "--html", page, "--plot", picture, "--markdown")
    sentence = ask(capsys, results)["sentence"]
    assert sentence in written[0]
    html = page.read_text(encoding="utf-8")
    assert sentence in unescape(re.sub("<[^>]*>", "", html))
    assert html.count("<svg") > 1
    assert f"Wrote {picture}" in written[1]
    assert "<svg" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 9, "say of which cell, with --cell; the newest run has `plain` and `slow`"),
        (["smal"], 6, "there is no run of `smal`; did you mean `small`?"),
        (["--cell", "plain", "--since", "2027-01-01"], 6, "no run that can be read is what was asked for"),
        (["--cell", "plan"], 9, "the newest run has no cell `plan`; did you mean `plain`?"),
        (["--metric", "step"], 2, "did you mean `step_time`?"),
        (["--by", "week"], 2, "`week` is none of run, commit, torch, date"),
        (["--metric", "step_time", "--fail-if", "idle > 3%"], 2, "is not on the number of this history, step_time"),
        (["--fail-if", "mechanism changed"], 2, "is not on the number of this history"),
        (["--plot", "history.txt"], 2, "a picture ends in .png, .svg or .pdf"),
        (["--json", "--markdown"], 2, "give --json or --markdown, not both"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    arguments: list[str], code: int, said: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in call(capsys, "--results", results, *arguments, code=code)[1]


def test_of_several_scenarios_one_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no runs here" in call(capsys, "--results", tmp_path, code=6)[1]
    for name in ("large", "small"):
        add(tmp_path, 1, {"plain": FakeCell([100.0])}, name=name)
    said = call(capsys, "--results", tmp_path, code=9)[1]
    assert "say of which scenario, there are runs of `large` and `small`" in said


def test_what_of_a_run_is_doubted_is_in_no_history_of_it_and_a_copy_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = add(tmp_path, 1, {"plain": FakeCell([100.0, 101.0], failed=[1])})
    shutil.copytree(run, run.with_name("20260102T120000-copy"))
    document = ask(capsys, tmp_path, "--metric", "exposed[unshard]")
    assert [point["value"] for point in document["points"]] == [pytest.approx(10e6)]
    assert document["notes"] == ["1 launch of 1 run is left out"]
    assert document["left_out"][0]["why"] == "they are copies of others"
    monkeypatch.setattr(cells, "read_run_data", pytest.fail)  # what was made once is kept
    assert ask(capsys, tmp_path, "--metric", "exposed[layers.1]")["points"][0]["value"] == pytest.approx(5e6)
    nothing = ask(capsys, tmp_path, "--metric", "exposed[layers.9]")
    assert nothing["points"] == []
    assert nothing["left_out"][0]["why"] == "they do not tell this number"

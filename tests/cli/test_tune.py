"""``dtbench tune``: what it runs, prints and writes, on a machine whose step times are known; and what it refuses."""

import json
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dtbench.base.errors import LaunchError
from dtbench.base.vocabulary import DeviceKind
from dtbench.cli.main import main
from dtbench.cli.run import RunRequest
from dtbench.cli.tune import _Rounds, _Wanted
from dtbench.launch.time_left import Earlier
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.load import load_scenario_file
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_environment, read_run
from dtbench.store.records.run import OwnLoop, OwnLoopCell, RunStatus
from dtbench.store.write import write_record
from dtbench.tuning.rounds import Origin, write_round
from dtbench.tuning.search import Round, Stage
from tests.conftest import make_scenario
from tests.runs.conftest import cell
from tests.tuning.test_rounds import grid_of, launched, run_of

__all__ = ["cell"]
MS = 1e6
TEXT = """# Which cap is best?
schema_version: 1
device: cpu
model: {kind: timed, layers: 4, dim: 256, forward_ms: 20.0, backward_ms: 25.0}
data: {global_batch: 2, sequence_length: 8}
parallel: {kind: ddp, replicas: 2}
network: {kind: real}
"""
OVER = ("--over", "parallel.bucket_cap_mb=0.1,0.6,1.1", "--over", "parallel.static_graph=false,true")


@pytest.fixture
def scenario() -> Callable[..., object]:
    return make_scenario


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    Path("caps.yaml").write_text(TEXT, encoding="utf-8")


class Machine:
    """Stands for what launches ranks: runs lie nowhere, and steps take what is said here."""

    def __init__(self, make: Callable[..., CellSummary], monkeypatch: pytest.MonkeyPatch) -> None:
        self.make, self.requests = make, list[RunRequest]()
        self.best_cap, self.fails, self.stops_at = 0.6, "", 0
        self.numbers = np.random.default_rng(0)
        monkeypatch.setattr("dtbench.cli.run.train", self.train)
        monkeypatch.setattr("dtbench.cli.tune._summarize", self.summarize)
        monkeypatch.setattr("dtbench.cli.tune._sum_launches_ns", lambda _folder: 1_000_000_000)

    def train(self, request: RunRequest) -> Path:
        self.requests.append(request)
        if len(self.requests) == self.stops_at:
            raise KeyboardInterrupt
        folder = Path(f"results/{request.file.name}/{len(self.requests)}")
        if self.fails in [one.name for one in request.file.cells]:
            raise LaunchError("a rank died", folder=folder)
        return folder

    def summarize(self, _folder: Path) -> RunSummary:
        cells = []
        for one in self.requests[-1].file.cells:
            cap = one.scenario.parallel.model_dump()["bucket_cap_mb"]
            count = one.scenario.repeat
            assert isinstance(count, int)
            step_ms = 250.0 if cap == self.best_cap else 300.0
            steps_ms = step_ms * np.exp(self.numbers.normal(0, 0.002, count))
            how = {"status": RunStatus.FAILED, "reason": "rank 1 died"} if one.name == self.fails else {}
            cells.append(launched(self.make, one.name, *map(float, steps_ms), **how))
        return run_of(*cells)


@pytest.fixture
def machine(cell: Callable[..., CellSummary], monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(cell, monkeypatch)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), re.sub(r"[\s│]+", " ", printed.out + printed.err)


def test_the_best_point_is_found_and_its_scenario_left_where_it_is_wanted(
    capsys: pytest.CaptureFixture[str], machine: Machine
) -> None:
    code, said = call(capsys, "caps.yaml", *OVER, "--write", "best.yaml", "--html", "page.html")
    assert not code
    assert "6 points: 0 not possible, 0 the same as another, 6 to look at beside ddp as it is" in said
    assert re.search(r"ddp: `parallel.bucket_cap_mb=0.6( \+ parallel.static_graph=true)?` saves ", said)
    assert "that a full sweep takes" in said
    (best,) = load_scenario_file(Path("best.yaml")).cells
    assert best.scenario.parallel.model_dump()["bucket_cap_mb"] == 0.6
    assert "`dtbench run best.yaml`" in said
    assert "saves" in Path("page.html").read_text(encoding="utf-8")
    assert {request.file.name for request in machine.requests} == {"caps_tune"}
    assert [len(request.file.cells) for request in machine.requests][:2] == [7, 2]


def test_json_is_the_whole_answer(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "caps.yaml", *OVER, "--json", "--launches", "4"])
    made = json.loads(capsys.readouterr().out)
    assert made["best"].startswith("parallel.bucket_cap_mb=0.6")
    assert made["sweep_launches"] == 28
    assert made["launches"] <= made["budget_launches"]


def test_where_nothing_differs_nothing_is_written(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    machine.best_cap = -1.0
    code, said = call(capsys, "caps.yaml", *OVER, "--write", "best.yaml")
    assert not code
    assert "ddp: no difference detectable: keep it as it is." in said
    assert "best.yaml is not written: no point is recommended" in said
    assert not Path("best.yaml").exists()


def test_a_point_whose_launch_fails_is_out_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], machine: Machine
) -> None:
    machine.fails = "point_3"
    code, said = call(capsys, "caps.yaml", *OVER)
    assert not code
    assert "`parallel.bucket_cap_mb=0.6 + parallel.static_graph=true` saves" in said
    assert "out: bucket_cap_mb=0.6: failed, rank 1 died" in said


def test_without_the_unchanged_cell_nothing_is_judged(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    machine.fails = "ddp"
    code, said = call(capsys, "caps.yaml", *OVER)
    assert code == 8
    assert "nothing can be judged: of the unchanged cell: failed: rank 1 died; run it again, with --resume " in said
    assert len(machine.requests) == 1


def test_stopped_it_says_how_to_go_on_and_then_runs_what_is_left(
    capsys: pytest.CaptureFixture[str], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.stops_at = 2
    code, _ = call(capsys, "caps.yaml", *OVER, "--launches", "4", "--budget", "20")
    assert code == 130
    first, second = machine.requests
    assert first.command == (
        "dtbench tune caps.yaml --over parallel.bucket_cap_mb=0.1,0.6,1.1 --over parallel.static_graph=false,true "
        "--launches 4 --budget 20 --resume"
    )
    found = {first.file.text: Path("results/caps_tune/1")}
    monkeypatch.setattr("dtbench.cli.tune._Rounds._find", lambda _self, file: found.get(file.text))
    monkeypatch.setattr("dtbench.store.read.read_run", lambda _path: COMPLETE)
    machine.requests[:], machine.stops_at = [first], 0
    machine.numbers = np.random.default_rng(0)
    code, said = call(capsys, "caps.yaml", *OVER, "--launches", "4", "--budget", "20", "--resume")
    assert not code
    assert "it is there: results/caps_tune/1" in said
    assert [request.file.text for request in machine.requests] == [first.file.text, second.file.text]


class COMPLETE:
    status = RunStatus.COMPLETE


def test_a_round_that_is_there_is_found_and_the_next_is_of_the_same_search(
    cell: Callable[..., CellSummary], tmp_path: Path
) -> None:
    """Of the first round the newest run goes on; of further ones that which came after it."""
    grid = grid_of(cell)
    first = write_round(Origin("made", None), grid, Round(Stage.SELECT, ("point_1",), True, 1), 1)
    second = write_round(Origin("made", None), grid, Round(Stage.CONFIRM, ("point_1",), True, 4, 4), 2)
    example = read_run(Path(__file__).parents[2] / "results" / "example")
    for name, file in (("1", first), ("2", second), ("3", first), ("4", second), ("5", second)):
        folder = RunFolder(tmp_path / "made_tune" / name)
        folder.path.mkdir(parents=True)
        folder.scenario.write_text(file.text, encoding="utf-8")
        write_record(folder.run, example.model_copy(update={"name": file.name, "overrides": (), "only": ()}))
    rounds = _Rounds(Origin("made", None), grid, _Wanted(None, None, tmp_path, True, ""), may_forecast=False)
    found = rounds._find(first)
    assert found is not None
    assert found.name == "3"
    rounds._last = found.name
    assert rounds._find(second) == tmp_path / "made_tune" / "4"
    rounds._last = "5"
    assert rounds._find(second) is None
    ran_on = read_environment(Path(__file__).parents[2] / "results" / "example")
    other = ran_on.model_copy(update={"host": f"not-{platform.node()}"})
    write_record(RunFolder(tmp_path / "made_tune" / "4").environment, other)
    rounds._last = "3"
    assert rounds._find(second) == tmp_path / "made_tune" / "5"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("caps.yaml", "--over", "parallel.bucket_cap_mb"), 2, "--over parallel.bucket_cap_mb=1,4,16"),
        (("caps.yaml", *OVER[:2], "--over", "parallel.bucket_cap_mb=7"), 2, "is given twice"),
        (("caps.yaml", "--over", "model.layers=2,3"), 1, "is the work itself"),
        (("caps.yaml", *OVER, "--budget", "3"), 3, "3 launches judge nothing; the least that can is 11"),
        (("caps.yaml", *OVER, "--budget", "much"), 2, "write a time"),
        (("caps.yaml", *OVER, "--launches", "3"), 2, "not in the range"),
        (("caps.yaml", *OVER, "--cell", "ddpp"), 2, "no cell `ddpp`"),
        (("caps.yaml", *OVER, "--write", "caps.yaml"), 2, "is there already"),
        (("caps.yaml", *OVER, "--html", "page.txt"), 2, "HTML file"),
        (("nothing_like_it", *OVER), 2, "No scenario is called"),
        (("caps.yaml",), 2, "--over"),
    ],
)
def test_what_cannot_be_searched_is_a_sentence_before_anything_is_run(
    capsys: pytest.CaptureFixture[str], machine: Machine, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, printed = call(capsys, *arguments)
    assert ended == code
    assert said in printed
    assert not machine.requests


def test_a_time_in_which_nothing_can_be_judged_is_refused_where_launches_are_known(
    capsys: pytest.CaptureFixture[str], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = Earlier("a", {"ddp": (60 * 10**9, 58 * 10**9, 62 * 10**9)}, 0)
    monkeypatch.setattr("dtbench.launch.time_left.find_earlier", lambda *_: earlier)
    code, said = call(capsys, "caps.yaml", *OVER, "--budget", "5m")
    assert code == 3
    assert "--budget 5m: a launch took 60 s before, and the fewest that judge anything are 14: about 840 s" in said
    assert not machine.requests
    code, said = call(capsys, "caps.yaml", *OVER, "--budget", "2h")
    assert not code
    assert [len(request.file.cells) for request in machine.requests][:2] == [1, 6]  # how long it takes, then the search
    assert "7200 s was allowed" in said


def test_of_several_cells_one_is_chosen(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    Path("two.yaml").write_text(TEXT + "cells: {one: {}, two: {precision: {dtype: bfloat16}}}\n", encoding="utf-8")
    code, said = call(capsys, "two.yaml", *OVER)
    assert code == 2
    assert "`two` has 2 cells, and one is tuned: choose it by --cell; they are `one` and `two`" in said
    code, said = call(capsys, "two.yaml", *OVER, "--cell", "two")
    assert not code
    assert "beside two as it is" in said


def test_a_run_is_no_scenario_and_one_of_an_own_loop_cannot_be_started(
    capsys: pytest.CaptureFixture[str], machine: Machine, tmp_path: Path
) -> None:
    shutil.copytree(Path(__file__).parents[2] / "results" / "example", tmp_path / "example")
    code, said = call(capsys, "example", *OVER)
    assert code == 2
    assert "example is a run; name its scenario, or the file example/scenario.yaml" in said
    run = read_run(tmp_path / "example")
    loop = OwnLoop(
        script="train.py", device=DeviceKind.CPU, backend="gloo", mesh=(), ranks=2, min_warmup_steps=8,
        max_warmup_steps=60, measured_steps=3, profiled_steps=1, tokens_per_step=1000, notes=(),
    )  # fmt: skip
    cells = (OwnLoopCell(name="ddp", plan=loop, launches=(0,)),)
    write_record(RunFolder(tmp_path / "example").run, run.model_copy(update={"cells": cells, "checklist": Checklist()}))
    code, said = call(capsys, "example", *OVER)
    assert code == 2
    assert "a loop of one's own, which only you can start with other settings" in said


def test_one_value_is_held_against_the_cell_as_it_is(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    code, said = call(capsys, "caps.yaml", "--over", "parallel.bucket_cap_mb=0.6")
    assert not code
    assert "ddp: `parallel.bucket_cap_mb=0.6` saves" in said
    assert [len(request.file.cells) for request in machine.requests] == [2]

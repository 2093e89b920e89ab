"""``repeat: auto``: rounds of all cells are added until they are enough, and the run says why there were no more."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dtbench.base.errors import LaunchError, PlanError, StoreError
from dtbench.launch import run
from dtbench.launch.cells import plan_cells
from dtbench.launch.machine import read_torch_version
from dtbench.launch.prepare import write_orders
from dtbench.launch.repeat import Judgement, keep_launches
from dtbench.launch.run import Observer, resume_scenario, run_scenario
from dtbench.plan.plan import Machine
from dtbench.scenario.load import ScenarioFile, load_scenario
from dtbench.scenario.schema.repeat import AutoRepeat
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, Environment, LaunchRecord, RunRecord, RunStatus, WorkerOrder
from dtbench.store.write import write_record
from tests.made_steps import write_journals

pytest.importorskip("torch", reason="the launcher is torch's; install the extra `run`")

AUTO = """\
# How often must it run?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 1}
correctness: {enabled: false}
repeat: {precision: 0.05, at_least: 3, at_most: 6, time_budget_s: 100}
matrix: {seed: [1, 2]}
"""
LAUNCH_S = 4
ENVIRONMENT = Environment(
    host="here",
    system="test",
    processor="test",
    cores=1,
    memory_bytes=1,
    python="3",
    torch=read_torch_version(),
    cuda=None,
    nccl=None,
    packages={},
    devices=(),
    variables={},
    notes=(),
)


@dataclass
class Bench:
    """Runs a scenario without ranks; a launch takes ``LAUNCH_S``.

    Attributes:
        enough_at: launches of a cell that the judge is content with.
        fails: cells whose launches fail.
        stops_at: the launch at which someone presses Ctrl-C, counted from 1.
        started: cell and index of each launch.
        judged: launches of each cell, whenever the judge was asked.
    """

    results: Path
    enough_at: int = 1000
    fails: frozenset[str] = frozenset()
    stops_at: int | None = None
    started: list[tuple[str, int]] = field(default_factory=list)
    judged: list[dict[str, int]] = field(default_factory=list)

    def launch(self, order: WorkerOrder, folder: LaunchFolder, *, on_look: object, worker: Sequence[str]) -> None:
        self.started.append((order.cell, order.index))
        write_record(folder.order, order)
        if len(self.started) == self.stops_at:
            raise KeyboardInterrupt
        write_record(folder.environment, ENVIRONMENT)
        fails = order.cell in self.fails
        record = LaunchRecord(
            cell=order.cell,
            index=order.index,
            status=RunStatus.FAILED if fails else RunStatus.COMPLETE,
            started_unix_ns=1,
            duration_ns=LAUNCH_S * 10**9,
            reason=None,
            failures=(),
        )
        plan = order.plan
        write_journals(folder, ranks=plan.ranks, measured=plan.measured_steps, profiled=plan.profiled_steps)
        finish_launch(folder, record, ranks=order.plan.ranks)
        if fails:
            raise LaunchError("planted")

    def judge(self, folder: RunFolder, cells: tuple[CellRecord, ...], precision: float) -> Judgement:
        assert precision == 0.05
        assert all(folder.launch(cell.name, index).launch.exists() for cell in cells for index in cell.launches)
        self.judged.append({cell.name: len(cell.launches) for cell in cells})
        is_enough = len(cells[0].launches) >= self.enough_at
        return Judgement(is_enough=is_enough, words="step times are known" if is_enough else "step times are not known")

    def run(self, *overrides: str, text: str = AUTO) -> RunRecord:
        folder = run_scenario(*read(text, *overrides), self.results, observer=Observer(), judge=self.judge)
        return read_run(folder.path)

    def resume(self, *overrides: str, text: str = AUTO) -> RunRecord:
        return read_run(
            resume_scenario(*read(text, *overrides), self.folder, observer=Observer(), judge=self.judge).path
        )

    @property
    def folder(self) -> Path:
        (folder,) = self.results.glob("*/*")
        return folder


def read(text: str = AUTO, *overrides: str) -> tuple[ScenarioFile, tuple[CellRecord, ...]]:
    file = load_scenario(text, "auto.yaml", overrides)
    return file, plan_cells(file, Machine(cpu_cores=1, cuda_devices=0))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path / "results")
    monkeypatch.setattr(run, "launch_ranks", made.launch)
    return made


def test_rounds_are_added_until_they_are_enough_and_stay_interleaved(bench: Bench) -> None:
    bench.enough_at = 5
    record = bench.run()
    assert record.status is RunStatus.COMPLETE
    assert [cell.launches for cell in record.cells] == [(0, 1, 2, 3, 4)] * 2
    assert record.repeat_end == "repeat: auto took 5 launches of each cell: step times are known"
    assert bench.judged == [{"seed-1": count, "seed-2": count} for count in (3, 4, 5)]
    forwards = [("seed-1", 0), ("seed-2", 0), ("seed-2", 1), ("seed-1", 1), ("seed-1", 2), ("seed-2", 2)]
    assert bench.started == [*forwards, ("seed-2", 3), ("seed-1", 3), ("seed-1", 4), ("seed-2", 4)]


def test_no_more_rounds_are_added_than_allowed(bench: Bench) -> None:
    record = bench.run()
    assert len(record.cells[0].launches) == 6
    assert record.repeat_end is not None
    assert record.repeat_end.endswith("step times are not known; `repeat.at_most` allows no more")


@pytest.mark.parametrize(("budget_s", "launches"), [(39, 4), (40, 5), (1, 3)])
def test_no_round_begins_that_would_end_after_the_time_budget(bench: Bench, budget_s: int, launches: int) -> None:
    record = bench.run(f"repeat.time_budget_s={budget_s}")
    assert len(record.cells[0].launches) == launches, "a round of two launches takes 8 s; three rounds are asked for"
    assert record.repeat_end is not None
    assert f"`repeat.time_budget_s` ({8 * launches} s of {budget_s} s are used)" in record.repeat_end


def test_the_word_alone_takes_four_launches_at_least(bench: Bench) -> None:
    file, cells = read(AUTO, "repeat=auto")
    assert [cell.launches for cell in cells] == [(0, 1, 2, 3)] * 2
    assert file.cells[0].scenario.model_dump()["repeat"] == "auto", "the run keeps the words"
    assert file.cells[0].scenario.repeat == AutoRepeat(), "and nobody has to ask what they stand for"


def test_a_number_of_launches_asks_no_judge(bench: Bench) -> None:
    record = bench.run("repeat=2")
    assert (bench.judged, record.repeat_end) == ([], None)
    assert [cell.launches for cell in record.cells] == [(0, 1)] * 2


def test_a_cell_that_fails_is_neither_launched_again_nor_judged(bench: Bench) -> None:
    bench.fails, bench.enough_at = frozenset({"seed-1"}), 4
    with pytest.raises(LaunchError, match="cell seed-1: planted"):
        bench.run()
    assert bench.judged == [{"seed-2": 3}, {"seed-2": 4}]
    assert bench.started.count(("seed-1", 0)) == 1
    assert len(bench.started) == 5
    bench.fails, bench.started = frozenset(), []
    record = bench.resume()
    assert bench.started == [("seed-1", index) for index in range(4)], "it catches up with the other cell"
    assert (record.status, [len(cell.launches) for cell in record.cells]) == (RunStatus.COMPLETE, [4, 4])


def test_a_run_whose_cells_all_fail_ends(bench: Bench) -> None:
    bench.fails = frozenset({"seed-1", "seed-2"})
    with pytest.raises(LaunchError, match="cell seed-2: planted"):
        bench.run()
    assert bench.judged == []


@pytest.mark.parametrize("stops_at", [2, 6, 8, 9])
def test_a_stopped_run_goes_on_with_the_rounds_that_it_had_added(bench: Bench, stops_at: int) -> None:
    bench.enough_at, bench.stops_at = 5, stops_at
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.stops_at = None
    before = bench.started[:-1]
    record = bench.resume()
    assert record.status is RunStatus.COMPLETE
    assert [cell.launches for cell in record.cells] == [(0, 1, 2, 3, 4)] * 2
    again = bench.started[len(before) + 1 :]
    assert sorted([*before, *again]) == [(cell, index) for cell in ("seed-1", "seed-2") for index in range(5)]
    assert record.repeat_end == "repeat: auto took 5 launches of each cell: step times are known"


def test_another_rule_is_another_experiment(bench: Bench) -> None:
    bench.stops_at = 8
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    with pytest.raises(StoreError, match="this run cannot go on: it ran with no --set"):
        bench.resume("repeat.precision=0.1")


def test_launches_of_a_fixed_number_are_not_taken_from_an_earlier_start(bench: Bench) -> None:
    before = bench.run("repeat=3")
    _, cells = read(AUTO, "repeat=2")
    assert keep_launches(before, cells) == cells


def test_cells_that_repeat_differently_are_refused() -> None:
    with pytest.raises(PlanError, match=r"cells seed-1 and seed-2 differ in `repeat`; `auto` launches all"):
        read(AUTO, "cells.seed-2.repeat=4")
    with pytest.raises(PlanError, match=r"differ in `repeat`"):
        read(AUTO, "cells.seed-2.repeat=auto")
    _, cells = read(AUTO, "repeat=2", "cells.seed-2.repeat=4")
    assert [len(cell.launches) for cell in cells] == [2, 4]


def test_orders_cannot_be_written_for_launches_that_depend_on_launches(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="give a number with --set repeat=10"):
        write_orders(*read(), tmp_path, observer=Observer())
    assert not list(tmp_path.iterdir())


@pytest.mark.ranks
@pytest.mark.thorough
def test_real_launches_repeat_until_their_step_times_are_known(tmp_path: Path) -> None:
    text = AUTO.replace("matrix: {seed: [1, 2]}\n", "measure: {measured_steps: 4, profiled_steps: 1}\n")
    (tmp_path / "auto.yaml").write_text(text, encoding="utf-8")
    sets = ["--set", "repeat={precision: 0.99, at_least: 2, at_most: 3}"]
    command = [sys.executable, "-m", "dtbench", "run", "./auto.yaml", "--json", *sets]
    ran = subprocess.run(
        command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "ddp: launch 1 (at most 3), 1 rank over gloo" in ran.stderr
    summary = json.loads(ran.stdout)
    count = len(summary["cells"][0]["launch_medians_ns"])
    assert 2 <= count <= 3
    assert summary["repeat_end"].startswith(f"repeat: auto took {count} launches of each cell: ")

"""A run that did not end is gone on with: nothing runs twice, and nothing of another experiment gets in."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import LaunchError, MissingError, StoreError
from dtbench.base.vocabulary import Phase
from dtbench.launch import resume, run
from dtbench.launch.cells import plan_cells
from dtbench.launch.machine import read_torch_version
from dtbench.launch.prepare import write_orders
from dtbench.launch.resume import find_unfinished, is_same_experiment
from dtbench.launch.run import Observer, ThisMachine, resume_scenario, run_scenario
from dtbench.plan.plan import Machine
from dtbench.scenario.load import ScenarioFile, choose_cells, load_scenario
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.lock import hold_run, is_held
from dtbench.store.read import read_environment, read_rank_records, read_run, read_steps
from dtbench.store.records.run import CellRecord, Environment, LaunchRecord, RunStatus, WorkerOrder
from dtbench.store.write import write_record, write_table
from tests.made_steps import write_journals

pytest.importorskip("torch", reason="the launcher is torch's; install the extra `run`")

SWEEP = """\
# Does a sweep survive its launcher?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 1}
matrix:
  seed: [0, 1]
  parallel.bucket_cap_mb: [null, 1, 2, 3, 4, 5]
"""
EXAMPLE = RunFolder(Path(__file__).parents[2] / "results" / "example")
MACHINE = Machine(cpu_cores=1, cuda_devices=0)
QUIET = Observer()


def sweep(text: str = SWEEP, *overrides: str) -> tuple[ScenarioFile, tuple[CellRecord, ...]]:
    file = load_scenario(text, "sweep.yaml", overrides)
    return file, plan_cells(file, MACHINE)


def launch_nothing(order: WorkerOrder, folder: LaunchFolder, *, on_look: object, worker: Sequence[str]) -> None:
    """Stand in for ``launch_ranks``: no rank starts, but everything that a launch leaves is there.

    Args:
        order: what to run.
        folder: of the launch.
        on_look: not called.
        worker: a log that gets one line for each start, then wishes: ``fail:<cell>``, or ``kill:<count>`` and
            ``stop:<count>``, what happens to the launcher at that start.
    """
    log, *wishes = worker
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(json.dumps([order.cell, order.index, order.is_reference]) + "\n")
    write_record(folder.order, order)
    started = len(Path(log).read_text(encoding="utf-8").splitlines())
    if f"kill:{started}" in wishes:
        os.kill(os.getpid(), signal.SIGKILL)
    if f"stop:{started}" in wishes:
        raise KeyboardInterrupt
    if order.is_reference:
        folder.reference_data.write_text("losses", encoding="utf-8")
        return
    assert order.reference is not None
    assert Path(order.reference).exists()
    fails = f"fail:{order.cell}" in wishes
    record = LaunchRecord(
        cell=order.cell,
        index=order.index,
        status=RunStatus.FAILED if fails else RunStatus.COMPLETE,
        started_unix_ns=1,
        duration_ns=1,
        reason="planted" if fails else None,
        failures=(),
    )
    write_record(folder.environment, ENVIRONMENT.model_copy(update={"torch": read_torch_version()}))
    plan = order.plan
    write_journals(folder, ranks=plan.ranks, measured=plan.measured_steps, profiled=plan.profiled_steps)
    finish_launch(folder, record, ranks=order.plan.ranks)
    if fails:
        raise LaunchError("planted")


ENVIRONMENT = Environment(
    host="here",
    system="test",
    processor="test",
    cores=1,
    memory_bytes=1,
    python="3",
    torch="",
    cuda=None,
    nccl=None,
    packages={},
    devices=(),
    variables={},
    notes=(),
)


class Fake:
    """Runs scenarios without ranks, and reads what would have been started."""

    def __init__(self, folder: Path) -> None:
        self.results, self.log = folder / "results", folder / "log"

    def worker(self, *wishes: str) -> tuple[str, ...]:
        return (str(self.log), *wishes)

    def engine(self, *wishes: str) -> ThisMachine:
        return ThisMachine(self.worker(*wishes))

    @property
    def starts(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    @property
    def launches(self) -> list[tuple[str, int]]:
        """Cell and index of each start, references left out."""
        return [(cell, index) for cell, index, is_reference in self.starts if not is_reference]

    @property
    def references(self) -> list[str]:
        return [cell for cell, _, is_reference in self.starts if is_reference]

    def run(self, *wishes: str, text: str = SWEEP, overrides: tuple[str, ...] = ()) -> RunFolder:
        return run_scenario(*sweep(text, *overrides), self.results, observer=QUIET, engine=self.engine(*wishes))

    def run_apart(self, *wishes: str, overrides: tuple[str, ...] = ()) -> int:
        """Run in a process of its own, which may be killed; gives how it ended."""
        process = multiprocessing.get_context("spawn").Process(target=run_there, args=(self, wishes, overrides))
        process.start()
        process.join(120)
        assert process.exitcode is not None
        return process.exitcode

    def resume(self, *wishes: str, text: str = SWEEP, overrides: tuple[str, ...] = ()) -> RunFolder:
        found = find_unfinished(self.results, "sweep")
        assert found is not None
        return resume_scenario(*sweep(text, *overrides), found, observer=QUIET, engine=self.engine(*wishes))


def run_there(fake: Fake, wishes: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    run.launch_ranks = launch_nothing  # type: ignore[attr-defined, assignment]
    fake.run(*wishes, overrides=overrides)


@pytest.fixture(autouse=True)
def _no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "launch_ranks", launch_nothing)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # where a spawned process finds this module


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.mark.parametrize("overrides", [(), ("repeat=2",)])
def test_a_sweep_whose_launcher_was_killed_ends_complete_and_runs_nothing_twice(
    fake: Fake, overrides: tuple[str, ...]
) -> None:
    assert fake.run_apart("kill:6", overrides=overrides) == -9
    before = fake.starts
    assert len(before) == 6
    interrupted = find_unfinished(fake.results, "sweep")
    assert interrupted is not None
    assert read_run(interrupted).status is RunStatus.RUNNING
    kept = {path: path.stat().st_mtime_ns for path in interrupted.glob("cells/*/launch*/launch.json")}
    assert len(kept) == 4, "six starts: a reference, four launches, and the one that took the launcher with it"
    folder = fake.resume(overrides=overrides)
    record = read_run(folder.path)
    assert (folder.path, record.status, len(record.cells)) == (interrupted, RunStatus.COMPLETE, 12)
    assert len(record.resumed_unix_ns) == 1
    assert record.started_unix_ns < record.resumed_unix_ns[0]
    launched = fake.launches
    unfinished = launched[4]
    assert sorted(launched) == sorted(
        [*((cell.name, index) for cell in record.cells for index in cell.launches), unfinished]
    )
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "finished launches are untouched"
    assert fake.references == ["seed-0.bucket_cap_mb-unset", "seed-1.bucket_cap_mb-unset"], (
        "finished references are used again"
    )
    in_order = [
        (cell.name, index) for index in range(len(record.cells[0].launches)) for cell in record.cells[:: 1 - 2 * index]
    ]
    assert list(dict.fromkeys(launched)) == in_order, "the order stays interleaved"
    assert read_environment(folder.path).host == "here"
    assert not list(folder.path.rglob("reference.pt"))


def test_a_failed_cell_is_run_again(fake: Fake) -> None:
    with pytest.raises(LaunchError, match=r"cell seed-0.bucket_cap_mb-3: planted"):
        fake.run("fail:seed-0.bucket_cap_mb-3")
    assert len(fake.launches) == 12
    folder = fake.resume()
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert fake.launches[12:] == [("seed-0.bucket_cap_mb-3", 0)]


def test_a_run_of_which_nothing_runs_anew_is_closed_and_was_not_resumed(fake: Fake) -> None:
    folder = fake.run()
    write_record(folder.run, read_run(folder.path).model_copy(update={"status": RunStatus.RUNNING}))
    before = len(fake.starts)
    record = read_run(fake.resume().path)
    assert (record.status, record.resumed_unix_ns, len(fake.starts)) == (RunStatus.COMPLETE, (), before)


def test_a_run_that_fails_again_stays_unfinished(fake: Fake) -> None:
    for start in (fake.run, fake.resume):
        with pytest.raises(LaunchError, match=r"cell seed-1.bucket_cap_mb-5"):
            start("fail:seed-1.bucket_cap_mb-5")
    assert len(fake.launches) == 13


def test_what_a_launch_left_that_did_not_end_is_removed(fake: Fake) -> None:
    assert fake.run_apart("kill:2") == -9
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    left = RunFolder(found).launch("seed-0.bucket_cap_mb-unset", 0).traces / "rank0.1.pt.trace.json.gz"
    left.parent.mkdir()
    left.touch()
    fake.resume()
    assert not left.exists()


@pytest.mark.parametrize("name", ["launch.json", "steps.parquet"])
def test_a_finished_launch_that_cannot_be_read_is_never_removed(fake: Fake, name: str) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-1.bucket_cap_mb-5")
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    launch = RunFolder(found).launch("seed-0.bucket_cap_mb-1", 0)
    (launch.path / name).write_text("{", encoding="utf-8")
    shutil.rmtree(launch.journal(0).parent)
    (launch.path / "mine.txt").touch()
    with pytest.raises(StoreError, match=rf"{re.escape(name)}: .* without the folder .*launch0, --resume runs"):
        fake.resume()
    assert (launch.path / "mine.txt").exists()
    shutil.rmtree(launch.path)
    assert read_run(fake.resume().path).status is RunStatus.COMPLETE


def test_a_launch_of_a_complete_run_that_broke_later_is_run_again_once_its_folder_is_gone(fake: Fake) -> None:
    folder = fake.run()
    broken = folder.launch("seed-1.bucket_cap_mb-3", 0)
    (broken.path / "steps.parquet").write_text("{", encoding="utf-8")
    shutil.rmtree(broken.journal(0).parent)
    with pytest.raises(StoreError, match=r"steps\.parquet: .* without the folder .*launch0, --resume runs this launch"):
        resume_scenario(*sweep(), folder.path, observer=QUIET, engine=fake.engine())
    shutil.rmtree(broken.path)
    assert find_unfinished(fake.results, "sweep") == folder.path
    fake.log.unlink()
    fake.resume()
    assert fake.launches == [("seed-1.bucket_cap_mb-3", 0)]
    assert fake.references == ["seed-1.bucket_cap_mb-3"]
    assert read_run(folder.path).status is RunStatus.COMPLETE
    for cell in ("seed-0.bucket_cap_mb-unset", "seed-1.bucket_cap_mb-unset", "seed-1.bucket_cap_mb-3"):
        assert folder.reference(cell).order.exists(), "what earlier launches were checked against stays"
    assert find_unfinished(fake.results, "sweep") is None


def test_a_finished_run_is_not_read_to_see_that_it_is_finished(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake.run()
    monkeypatch.setattr(resume, "read_run", lambda path: pytest.fail(f"{path} is read"))
    assert find_unfinished(fake.results, "sweep") is None
    folder.launch("seed-1.bucket_cap_mb-3", 0).launch.unlink()
    with pytest.raises(pytest.fail.Exception):
        find_unfinished(fake.results, "sweep")


@pytest.mark.parametrize(
    ("text", "overrides", "told"),
    [
        (SWEEP.replace("layers: 1", "layers: 2"), (), r"the words of the scenario changed \(first in line 4\)"),
        (SWEEP + "# more\n", (), r"the words of the scenario changed \(first in line 10\)"),
        (SWEEP, ("repeat=3",), "it ran with no --set, and now there is --set repeat=3"),
    ],
)
def test_another_experiment_is_refused_and_nothing_is_changed(
    fake: Fake, text: str, overrides: tuple[str, ...], told: str
) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-0.bucket_cap_mb-3")
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    files = sorted(found.rglob("*"))
    with pytest.raises(StoreError, match=f"this run cannot go on: {told}; start a new one without --resume"):
        fake.resume(text=text, overrides=overrides)
    assert sorted(found.rglob("*")) == files
    assert is_same_experiment(found, sweep()[0])
    assert not is_same_experiment(found, sweep(text, *overrides)[0])


def test_who_forgets_what_a_run_was_started_with_is_told_to_give_it_again(fake: Fake) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-0.bucket_cap_mb-3", overrides=("repeat=2",))
    again = "it ran with --set repeat=2, which has to be given again to go on, and now there is no --set"
    with pytest.raises(StoreError, match=again):
        fake.resume()


def test_a_run_of_one_cell_goes_on_with_that_cell_alone(fake: Fake) -> None:
    file, cells = sweep()
    chosen = choose_cells(file, ["seed-0.bucket_cap_mb-3"])
    mine = tuple(cell for cell in cells if cell.name in chosen.only)
    with pytest.raises(LaunchError):
        run_scenario(chosen, mine, fake.results, observer=QUIET, engine=fake.engine("fail:seed-0.bucket_cap_mb-3"))
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    assert read_run(found).only == chosen.only
    assert (is_same_experiment(found, chosen), is_same_experiment(found, file)) == (True, False)
    with pytest.raises(StoreError, match=r"it ran --cell seed-0\.bucket_cap_mb-3, and now every cell is asked for"):
        fake.resume()
    folder = resume_scenario(chosen, mine, found, observer=QUIET, engine=fake.engine())
    assert [cell.name for cell in read_run(folder.path).cells] == ["seed-0.bucket_cap_mb-3"]


def test_another_machine_is_refused(fake: Fake) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-0.bucket_cap_mb-3")
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    file, _ = sweep()
    cells = plan_cells(file, Machine(cpu_cores=8, cuda_devices=0))
    with pytest.raises(StoreError, match=r"another plan for cell .*: threads_per_rank was 1 and is 8"):
        resume_scenario(file, cells, found, observer=QUIET, engine=fake.engine())


def test_other_versions_are_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-0.bucket_cap_mb-3")
    monkeypatch.setattr("dtbench.launch.run.read_torch_version", lambda: "2.0.0")
    with pytest.raises(
        StoreError, match=rf"it ran with torch {re.escape(read_torch_version())}, and now there is 2\.0\.0"
    ):
        fake.resume()
    monkeypatch.setattr("dtbench.launch.resume.__version__", "99.0")
    with pytest.raises(StoreError, match=r"began it, and this is 99\.0; it ran with torch"):
        fake.resume()


def leave_records(folder: RunFolder) -> None:
    """Leave the record of the one rank of every launch."""
    (record,) = (one for one in read_rank_records(EXAMPLE.launch("ddp", 0)) if one.rank == 0)
    for cell in read_run(folder.path).cells:
        write_record(folder.launch(cell.name, 0).rank_record(0), record.model_copy(update={"place": None, "pid": 1}))


def lose_steps(launch: LaunchFolder) -> None:
    steps = read_steps(launch)
    write_table(launch.steps, steps[steps["phase"] != Phase.MEASURED])


def test_a_complete_run_and_one_that_others_run_are_not_gone_on_with(fake: Fake) -> None:
    folder = fake.run()
    leave_records(folder)
    assert find_unfinished(fake.results, "sweep") is None
    with pytest.raises(StoreError, match="this run is complete, nothing is left to do"):
        resume_scenario(*sweep(), folder.path, observer=QUIET, engine=fake.engine())
    chosen = choose_cells(sweep()[0], ("seed-0.bucket_cap_mb-3",))
    with pytest.raises(StoreError, match=r"it ran every cell, and now --cell seed-0\.bucket_cap_mb-3 is asked for"):
        resume_scenario(chosen, sweep()[1][:1], folder.path, observer=QUIET, engine=fake.engine())


def test_a_prepared_run_goes_on_here_where_this_machine_is_what_it_was_planned_for(fake: Fake) -> None:
    prepared, _ = write_orders(*sweep(), fake.results, observer=QUIET)
    assert find_unfinished(fake.results, "sweep") is None
    file, cells = sweep()
    others = plan_cells(file, Machine(cpu_cores=4, cuda_devices=0))
    with pytest.raises(StoreError, match=r"threads_per_rank was 1 and is 4; start a new one .*, or `dtbench execute "):
        resume_scenario(file, others, prepared.path, observer=QUIET, engine=fake.engine())
    with_torch = plan_cells(file, MACHINE.model_copy(update={"torch": read_torch_version()}))
    resume_scenario(file, with_torch, prepared.path, observer=QUIET, engine=fake.engine())
    assert len(fake.launches) == len(cells)
    run = read_run(prepared.path)
    assert (run.status, run.prepared, run.resumed_unix_ns) == (RunStatus.COMPLETE, False, ())


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lambda launch: launch.rank_record(0).unlink(), "the record of rank 0 is lost"),
        (lose_steps, "20 of 20 MEASURED steps are lost"),
    ],
    ids=["a record", "its steps"],
)
def test_of_a_complete_run_that_lost_what_ranks_told_it_is_said_what_is_lost_and_how_it_runs_again(
    fake: Fake, lose: Callable[[LaunchFolder], object], said: str
) -> None:
    folder = fake.run()
    leave_records(folder)
    launch = folder.launch(read_run(folder.path).cells[2].name, 0)
    lose(launch)
    with pytest.raises(StoreError, match=rf"{said}; without the folder .*, --resume runs this launch again"):
        resume_scenario(*sweep(), folder.path, observer=QUIET, engine=fake.engine())
    before = len(fake.launches)
    shutil.rmtree(launch.path)
    resume_scenario(*sweep(), folder.path, observer=QUIET, engine=fake.engine())
    assert len(fake.launches) == before + 1


def test_a_run_of_another_scenario_is_refused(fake: Fake) -> None:
    folder = fake.run()
    other = load_scenario(SWEEP, "other.yaml")
    with pytest.raises(StoreError, match="is a run of `sweep`, not of `other`"):
        resume_scenario(other, plan_cells(other, MACHINE), folder.path, observer=QUIET, engine=fake.engine())


def test_the_newest_unfinished_run_is_meant(fake: Fake) -> None:
    for _ in range(2):
        with pytest.raises(LaunchError):
            fake.run("fail:seed-0.bucket_cap_mb-3")
        time.sleep(1.1)  # folders are named by the second
    runs = sorted(path for path in (fake.results / "sweep").iterdir())
    assert find_unfinished(fake.results, "sweep") == runs[1]
    (fake.results / "sweep" / "99990101T000000-broken").mkdir()
    (fake.results / "sweep" / "99990101T000000-broken" / "run.json").write_text("{", encoding="utf-8")
    assert find_unfinished(fake.results, "sweep") == runs[1]
    assert find_unfinished(fake.results, "other") is None


def hold(path: str, held: Any) -> None:
    with hold_run(RunFolder(Path(path))):
        held.set()
        time.sleep(600)


@pytest.fixture
def hold_elsewhere() -> Iterator[Callable[[Path], BaseProcess]]:
    context = multiprocessing.get_context("spawn")
    processes = []

    def start(path: Path) -> BaseProcess:
        held = context.Event()
        process = context.Process(target=hold, args=(str(path), held))
        process.start()
        processes.append(process)
        assert held.wait(60)
        return process

    yield start
    for process in processes:
        process.kill()
        process.join(60)


def test_a_run_that_a_living_process_writes_is_refused_until_that_dies(
    fake: Fake, hold_elsewhere: Callable[[Path], BaseProcess]
) -> None:
    with pytest.raises(LaunchError):
        fake.run("fail:seed-0.bucket_cap_mb-3")
    found = find_unfinished(fake.results, "sweep")
    assert found is not None
    assert not is_held(RunFolder(found))
    writer = hold_elsewhere(found)
    assert is_held(RunFolder(found))
    with pytest.raises(StoreError, match=rf"another process \(pid {writer.pid}\) is still writing this run"):
        fake.resume()
    assert len(fake.launches) == 12
    writer.kill()
    writer.join(60)
    assert fake.resume().path == found


def test_an_interpreter_that_is_missing_is_told_before_anything_is_made(fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(
        MissingError, match=r"cell seed-0.bucket_cap_mb-unset and 11 more: python: /no/python cannot be"
    ):
        fake.run(overrides=("python=/no/python",))
    assert not fake.results.exists()


def test_cells_that_differ_in_variables_have_references_of_their_own(fake: Fake) -> None:
    text = SWEEP.replace("  seed: [0, 1]\n", "").replace(
        "parallel.bucket_cap_mb: [null, 1, 2, 3, 4, 5]", "env.OMP_DYNAMIC: [null, 'true']"
    )
    fake.run(text=text)
    assert fake.references == ["omp_dynamic-unset", "omp_dynamic-true"]


def test_ctrl_c_says_how_to_go_on_and_an_unfinished_run_is_mentioned_later(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dtbench.cli.main import main

    (tmp_path / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dtbench.launch.machine.read_machine", lambda: MACHINE)
    monkeypatch.setattr("dtbench.cli.run.report_run", lambda *_, **__: None)

    def type_in(*arguments: str, wish: tuple[str, ...] = ()) -> tuple[int | str | None, str]:
        monkeypatch.setattr("dtbench.launch.local.WORKER", fake.worker(*wish))
        with pytest.raises(SystemExit) as caught:
            main(["run", "./sweep.yaml", "--set", "repeat=1", *arguments])
        return caught.value.code, capsys.readouterr().err

    command = "`dtbench run ./sweep.yaml --set repeat=1 --resume` goes on"
    code, said = type_in("--resume")
    assert code == StoreError.exit_code
    assert "no unfinished run of `sweep` is here; without --resume a new one starts" in said
    code, said = type_in("extra")
    assert code == 2
    assert "a run is named only with --resume" in " ".join(said.replace("│", " ").split())
    code, said = type_in(wish=("stop:4",))
    assert code == 130
    assert command in said
    code, said = type_in(wish=("fail:seed-0.bucket_cap_mb-3",))
    assert "an unfinished run is in results/sweep/" in said
    assert f"{command} with it" in said
    first = min((tmp_path / "results" / "sweep").iterdir())
    code, said = type_in("--resume", first.name)
    assert (code, read_run(first).status) == (0, RunStatus.COMPLETE)
    assert os.getpid() == int((first / ".lock").read_text(encoding="utf-8"))

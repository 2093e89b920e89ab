"""dtbench in jobs of Slurm itself: two node daemons and a controller of Debian's packages, real ranks over gloo."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch, read_rank_records, read_run
from dtbench.store.records.nodes import NodesRecord
from dtbench.store.records.run import RunStatus
from dtbench.store.walk import find_runs
from tests.launch.slurm import NODES, Slurm, await_that, find_lack, start_slurm
from tests.launch.two_ranks import LONGEST_S, SCENARIO

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    lack = find_lack()
    if lack is not None:
        pytest.skip(lack)
    with start_slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def find_run(results: Path) -> RunFolder:
    (path,) = find_runs(results)
    return RunFolder(path)


def test_run_in_a_job_of_two_nodes_starts_a_rank_on_each(tmp_path: Path, slurm: Slurm, scenario: Path) -> None:
    results = tmp_path / "results"
    dtbench = (sys.executable, "-m", "dtbench", "run", str(scenario), "--results", str(results))
    ended = slurm.ask("salloc", "--nodes=2", *dtbench, timeout_s=LONGEST_S)
    assert ended.returncode == 0, ended.stderr
    folder = find_run(results)
    run = read_run(folder.path)
    assert run.status is RunStatus.COMPLETE
    launch = folder.launch(run.cells[0].name, 0)
    assert [one.rank for one in read_rank_records(launch)] == [0, 1]
    assert len(NodesRecord.model_validate_json(folder.nodes.read_bytes()).nodes) == len(NODES)
    assert "2 nodes: " in ended.stderr


def test_a_job_that_is_requeued_runs_the_rest(tmp_path: Path, slurm: Slurm, scenario: Path) -> None:
    results = tmp_path / "results"
    dtbench = (sys.executable, "-m", "dtbench", "submit", str(scenario), "--results", str(results), "--nodes=2")
    submitted = slurm.ask(*dtbench, "--set", "repeat=2", "--", "--cpus-per-task=2", "--time=10")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.split(":")[1].partition(";")[0].strip()
    folder = find_run(results)
    (cell,) = (one.name for one in read_run(folder.path).cells)
    log = folder.path / f"slurm-{job}.log"

    def tell() -> str:
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        return f"job {job} is {slurm.find_state(job)}: {said}"

    def is_in_second_launch() -> bool:
        assert slurm.find_state(job) not in {"FAILED", "COMPLETED", "CANCELLED", "TIMEOUT"}, tell()
        return folder.launch(cell, 0).launch.exists() and folder.launch(cell, 1).journal(1).exists()

    await_that(is_in_second_launch, "the second launch", LONGEST_S)
    kept = read_launch(folder.launch(cell, 0))
    assert kept.status is RunStatus.COMPLETE
    slurm.ask("scancel", "--batch", "--signal=USR1", job)  # as Slurm does some time before the end
    await_that(lambda: slurm.find_state(job) in {"PENDING", "COMPLETED"}, "requeued", LONGEST_S)
    assert slurm.find_state(job) == "PENDING", tell()
    assert read_run(folder.path).status is not RunStatus.COMPLETE
    slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")  # a requeued job waits for two minutes
    await_that(lambda: slurm.find_state(job) not in {"PENDING", "RUNNING", "COMPLETING"}, "ended", LONGEST_S)
    assert slurm.find_state(job) == "COMPLETED", tell()
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert "\x1b" not in tell(), "a job's log has no colours"
    assert read_launch(folder.launch(cell, 0)).started_unix_ns == kept.started_unix_ns, "what had ended well stays"
    assert [one.rank for one in read_rank_records(folder.launch(cell, 1))] == [0, 1]

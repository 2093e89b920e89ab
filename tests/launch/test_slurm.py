"""``dtbench run`` in a Slurm job: what is asked of ``srun``, and a run whose ranks a stand-in for it starts."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dtbench.base.errors import MissingError
from dtbench.launch.cluster.spawn import spawn_by_srun, spell_srun
from dtbench.launch.nodes import Nodes
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_rank_records, read_run
from dtbench.store.records.nodes import NodesRecord
from dtbench.store.records.run import CellRecord, RunStatus
from dtbench.store.walk import find_runs
from tests.cli.test_execute import SCENARIO

SRUN = """\
#!/bin/sh
# starts a command on each node of a job as srun does, all on this machine
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=localhost,localhost SLURM_STEP_TASKS_PER_NODE='1(x2)'
SLURM_NODEID=0 "$@" & first=$!
SLURM_NODEID=1 "$@" & second=$!
wait $first && wait $second
"""
NODES = Nodes(2, 0, "localhost", 29473, "Slurm", "9473", ("localhost", "localhost"))


def test_one_task_starts_on_each_node_with_all_of_its_cores() -> None:
    words = spell_srun(2)
    assert words[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpu-bind=none", "--overlap"} <= set(words)


def test_a_job_without_srun_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="a Slurm job of 2 nodes, and there is no `srun` here"):
        spawn_by_srun(NODES, "localhost:29473")


@pytest.mark.ranks
@pytest.mark.thorough
def test_run_starts_its_ranks_on_every_node_of_its_job(tmp_path: Path) -> None:
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN, encoding="utf-8")
    srun.chmod(srun.stat().st_mode | stat.S_IXUSR)
    scenario = tmp_path / "two.yaml"
    measure = "measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1}\n"
    scenario.write_text(SCENARIO + measure, encoding="utf-8")
    job = {
        "PATH": f"{srun.parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "9473",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "localhost,localhost",
        "SLURMD_NODENAME": "localhost",
    }
    command = (sys.executable, "-m", "dtbench", "run", str(scenario), "--results", str(tmp_path / "results"))
    ended = subprocess.run(command, env={**os.environ, **job}, capture_output=True, text=True, timeout=150, check=False)
    (path,) = find_runs(tmp_path / "results")
    run, folder = read_run(path), RunFolder(path)
    assert run.status is RunStatus.COMPLETE, ended.stderr
    assert isinstance(run.cells[0], CellRecord)
    assert run.cells[0].plan.nodes == 2
    assert [one.rank for one in read_rank_records(folder.launch(run.cells[0].name, 0))] == [0, 1]
    assert len(NodesRecord.model_validate_json(folder.nodes.read_bytes()).nodes) == 2
    assert "2 nodes: " in ended.stderr

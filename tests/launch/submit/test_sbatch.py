"""The script for sbatch, run by bash where srun and scontrol are stand-ins: what is requeued, and what is not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dtbench.base.commands import spell_command
from dtbench.launch.cluster.spawn import spell_srun
from dtbench.launch.submit.flags import read_flags
from dtbench.launch.submit.sbatch import SlurmJob, follow_commands, read_job_number, render_script

BASH = shutil.which("bash")


def make_job(run: Path, *flags: str) -> SlurmJob:
    return SlurmJob(run=run, scenario="ddp", nodes=2, flags=read_flags(flags), python="/opt/my torch/bin/python")


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_one_job_runs_one_task_a_node_and_may_be_requeued() -> None:
    script = render_script(make_job(Path("/shared/results/ddp/1"), "--partition=gpu"))
    assert directives(script) == [
        "--job-name=dtbench-ddp",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--requeue",
        "--signal=B:USR1@120",
        "--open-mode=append",
        "--output=/shared/results/ddp/1/slurm-%j.log",
        "--partition=gpu",
    ]
    assert f"\n{spell_command(*spell_srun(2))} " in script
    assert "'/opt/my torch/bin/python' -P -m dtbench execute \"$run\"" in script


def test_a_persons_own_flags_are_the_ones_that_count() -> None:
    job = make_job(Path("/r"), "--signal=B:USR1@600", "--no-requeue", "-J", "mine", "--output=/logs/%j")
    assert directives(render_script(job)) == [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--open-mode=append",
        "--signal=B:USR1@600",
        "--no-requeue",
        "-J mine",
        "--output=/logs/%j",
    ]
    assert "tail -F /logs/17" in follow_commands(job, "17")


def test_the_number_of_a_job_is_what_sbatch_prints_last() -> None:
    assert [read_job_number(text) for text in ("17\n", "17;cluster\n", "warning\n17\n", "")] == ["17", "17", "17", ""]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with stand-ins of Slurm's commands; each writes what it was told into ``log``."""
    commands = {
        "scontrol": 'echo "scontrol $*" >> "$LOG"',
        "scancel": 'echo "scancel $*" >> "$LOG"; kill -TERM "$(cat "$LOG.srun")"',
        # launches that end, if any, end before the time is up; TERM ends the tasks as dtbench does: exit code 143
        "srun": """echo $$ > "$LOG.srun"
        trap 'echo stopped >> "$LOG"; exit 143' TERM
        for launch in $ENDS; do
            mkdir -p "$RUN/cells/ddp/$launch"; echo ' "status": "complete"' > "$RUN/cells/ddp/$launch/launch.json"
        done
        mkdir -p "$RUN/cells/ddp/launch9"; echo ' "status": "failed"' > "$RUN/cells/ddp/launch9/launch.json"
        [ -z "$SIGNAL" ] && exit "$CODE"
        kill -USR1 "$PPID"
        while :; do sleep 0.02; done""",
    }
    for name, body in commands.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(BASH is None, reason="no bash")
@pytest.mark.parametrize(
    ("told", "code", "requeued"),
    [
        ({"CODE": "0"}, 0, False),
        ({"CODE": "4"}, 4, False),
        ({"SIGNAL": "1", "ENDS": "launch1"}, 0, True),
        ({"SIGNAL": "1", "ENDS": ""}, 143, False),
        ({"SIGNAL": "1", "ENDS": "launch0"}, 143, False),
    ],
    ids=["ended", "failed", "time up", "time up for nothing", "time up and nothing new"],
)
def test_a_job_whose_time_is_up_is_requeued_if_a_launch_has_ended_well(
    cluster: Path, told: dict[str, str], code: int, requeued: bool
) -> None:
    run = cluster / "a run"
    before = run / "cells" / "ddp" / "launch0" / "launch.json"  # of an earlier allocation
    before.parent.mkdir(parents=True)
    before.write_text('{\n "status": "complete"}', encoding="utf-8")
    log = cluster / "log"
    environment = {
        "SIGNAL": "",
        "ENDS": "",
        "CODE": "0",
        **told,
        "PATH": f"{cluster / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(log),
        "RUN": str(run),
        "SLURM_JOB_ID": "17",
    }
    assert BASH is not None
    script = render_script(make_job(run))
    ended = subprocess.run(
        [BASH, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    said = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    assert ended.returncode == code, ended.stderr
    assert ("scontrol requeue 17" in said) is requeued
    assert ("stopped" in said) is ("scancel --signal=TERM 17" in said) is bool(told.get("SIGNAL"))
    assert ("give it a longer --time" in ended.stderr) is (code == 143)

"""``dtbench selftest`` as a person types it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

COMMAND = (sys.executable, "-m", "dtbench", "selftest")
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def selftest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_row_that_is_not_there_is_refused(tmp_path: Path) -> None:
    ran = selftest(tmp_path, "--only", "tial")
    assert ran.returncode == 2
    assert ran.stderr == "no row of the selftest is called `tial`; did you mean `tail`?\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.ranks
@pytest.mark.timed
def test_a_row_is_run_judged_kept_and_shown_as_any_run(tmp_path: Path) -> None:
    ran = selftest(tmp_path, "--seed", "3", "--only", "tail", "--max-wait", "30", "--json")
    assert ran.returncode in (0, 12), ran.stdout + ran.stderr  # ranks are timed: a busy machine fails a row
    record = json.loads(ran.stdout)
    assert (record["format_version"], record["seed"], record["passed"]) == (1, 3, ran.returncode == 0)
    (row,) = record["rows"]
    (cell,) = row["cells"]
    assert (row["row"], cell["answer"]["cause"]) == ("tail", "tail")
    assert [one["estimate"] for one in cell["estimates"]][:3] == ["trace", "ablation", "wait"]
    assert all(isinstance(one["mean_ns"], int) for one in cell["estimates"])
    assert cell["foretold"]["step_ns"]["low_ns"] <= cell["step_ns"]
    assert f"row tail: {'PASS' if record['passed'] else 'FAIL'}" in ran.stderr
    run = Path(record["run"])
    assert json.loads((run / "selftest.json").read_text()) == record
    assert list((run / "tb").rglob("events.out.tfevents.*"))
    shown = subprocess.run(
        [*COMMAND[:-1], "report", "selftest"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert "Does dtbench name what was injected, with the numbers of seed 3?" in shown.stdout


@pytest.mark.ranks
@pytest.mark.timed
def test_ctrl_c_leaves_no_rank_behind_and_keeps_the_rows_that_were_judged(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [*COMMAND, "--only", "hidden", "--only", "tail", "--max-wait", "30"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    said = []
    for line in started.stderr:
        said.append(line)
        if "row hidden: " in line:
            break
    deadline = time.monotonic() + 60
    while len(ranks := psutil.Process(started.pid).children(recursive=True)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    started.send_signal(signal.SIGINT)
    said += started.stderr.readlines()
    started.stderr.close()
    assert started.wait(60) == 130, "".join(said)
    assert not [rank for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
    (run,) = (tmp_path / "results" / "selftest").iterdir()
    record = json.loads((run / "selftest.json").read_text())
    assert [row["row"] for row in record["rows"]] == ["hidden"]
    assert (record["is_complete"], record["passed"]) == (False, False)
    assert f"rows that were judged before are in {run / 'selftest.json'}" in "".join(said).replace("\n", " ")
    assert not list(run.rglob("link"))

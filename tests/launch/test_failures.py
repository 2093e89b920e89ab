"""A rank that raises, dies or hangs ends the launch as failed: its last step and words are named, results kept."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import LaunchError
from dtbench.store.journal import RankState, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import LaunchRecord, RunRecord, RunStatus

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(
    ("fault", "what", "word"),
    [
        ("raise", "raised", "planted: the data loader lost its file"),
        ("segfault", "killed by SIGSEGV", "Segmentation fault"),
        ("kill", "killed by SIGKILL", ""),
        ("hang", "hung", "faulty_worker.py"),
        ("exit", "left without an error before its work was done", ""),
    ],
)
def test_a_broken_rank_is_named_with_its_step_and_last_words(
    launch_fresh: Callable[..., Any], scenario: Callable[..., Any], tmp_path: Path, fault: str, what: str, word: str
) -> None:
    measure = {
        "warmup": {"min_steps": 8, "max_steps": 8},
        "measured_steps": 8,
        "profiled_steps": 1,
        "stall_timeout_s": 4 if fault == "hang" else 60,  # a busy machine is no hang
    }
    with pytest.raises(LaunchError, match=f"rank 1 {what}, last seen in step 10 \\(MEASURED, backward\\)"):
        launch_fresh(scenario(correctness={"enabled": False}, measure=measure), fault)
    folder = LaunchFolder(tmp_path / "launch0")
    record = LaunchRecord.model_validate_json(folder.launch.read_bytes())
    assert record.status is RunStatus.FAILED
    first = record.failures[0]
    assert (first.rank, first.what, first.last_step, first.last_phase, first.last_region) == (
        1,
        what,
        10,
        "MEASURED",
        "backward",
    )
    assert word in "\n".join(first.last_lines)
    steps = pd.read_parquet(folder.steps)
    assert steps[steps["rank"] == 1]["step"].tolist() == list(range(10)), "everything measured before is kept"


def test_ctrl_c_ends_all_ranks_and_leaves_a_readable_failed_run(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "dtbench",
        "run",
        "quickstart",
        "--results",
        str(tmp_path),
        "--set",
        "measure.measured_steps=500",
        "--set",
        "correctness.enabled=false",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    journals: list[Path] = []
    deadline = time.monotonic() + 120
    while not (len(journals) == 2 and all(map(_is_stepping, journals))) and time.monotonic() < deadline:
        time.sleep(0.2)
        journals = list(tmp_path.glob("quickstart/*/cells/ddp/launch0/events/*.journal"))
    pids = _worker_pids(tmp_path)
    assert pids
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    run = RunRecord.model_validate_json(next(tmp_path.glob("quickstart/*/run.json")).read_bytes())
    assert run.status is RunStatus.FAILED
    assert "Ctrl-C" in (run.reason or "")
    assert not _worker_pids(tmp_path), "no process is left behind"


def _is_stepping(journal: Path) -> bool:
    view = read_journal(journal)
    return view is not None and view.state is RankState.STEPPING


def test_ranks_die_with_a_killed_launcher(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can bind a process to its parent's life")
    command = [
        sys.executable,
        "-m",
        "dtbench",
        "run",
        "quickstart",
        "--results",
        str(tmp_path),
        "--set",
        "measure.measured_steps=500",
        "--set",
        "correctness.enabled=false",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("quickstart/*/cells/ddp/launch0/events/*.journal")) and time.monotonic() < deadline:
        time.sleep(0.5)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 90  # a rank that is still importing torch asks who its parent is when it has
    while _worker_pids(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _worker_pids(tmp_path)


def _worker_pids(results: Path) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if "dtbench.worker" in line and str(results) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found

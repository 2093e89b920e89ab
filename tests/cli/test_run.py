"""``dtbench run`` from a file to its numbers, as a person types it."""

import json
import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from dtbench.store.layout import RunFolder
from dtbench.store.read import read_steps

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

TINY = """\
# Does a tiny model train on both strategies?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 2, dim: 64, heads: 4, kv_heads: 2, ffn_dim: 96, vocab_size: 250}
data: {global_batch: 4, sequence_length: 32}
gradient_clip_norm: 1.0
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 2}
cells:
  ddp: {parallel: {kind: ddp, replicas: 2}}
  async: {parallel: {kind: fsdp2, shards: 2, unshard_async_op: true, forward_prefetch: 1}}
"""


def dtbench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "dtbench", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


def test_a_run_ends_with_numbers_that_agree_everywhere(folder: Path) -> None:
    ran = dtbench(folder, "run", "./tiny.yaml", "--json", "--set", "repeat=2", "--set", "cells.ddp.seed=7")
    assert ran.returncode == 0, ran.stderr
    summary: dict[str, Any] = json.loads(ran.stdout)
    assert summary["status"] == "complete"
    assert summary["overrides"] == ["repeat=2", "cells.ddp.seed=7"]
    run = Path(summary["path"])
    assert (run / "step_breakdown.png").stat().st_size > 10_000
    assert list((run / "tb").rglob("events.out.tfevents.*"))
    assert not list(run.rglob("reference.pt")), "the reference is as large as the model and of no more use"
    ddp, gathered = summary["cells"]
    assert ddp["scenario"]["seed"] == 7
    assert gathered["scenario"]["seed"] == 0
    for cell in (ddp, gathered):
        assert cell["correctness"]["passed"]
        assert len(cell["launch_medians_ns"]) == 2
        assert all(row["matches_plan"] is not False for row in cell["purposes"])
        tables = [pd.read_parquet(run / "cells" / cell["name"] / f"launch{k}" / "overlap.parquet") for k in (0, 1)]
        overlap = pd.concat(tables)
        parts = overlap["compute_ns"] + overlap["exposed_comm_ns"] + overlap["exposed_copy_ns"] + overlap["idle_ns"]
        assert (parts == overlap["step_ns"]).all()
        assert cell["exposed_step_fraction"] == overlap["exposed_comm_ns"].sum() / overlap["step_ns"].sum()
    unshard = next(row for row in gathered["purposes"] if row["purpose"] == "unshard")
    assert unshard["overlap_possible"] is True
    shown = dtbench(folder, "report", str(run), "--full")
    for words in ("gradient wait", "unshard wait", "= plan", "no: gloo issues FSDP2's reduce-scatters synchronously"):
        assert words in shown.stdout
    assert "trust step times more than what seems hidden" in shown.stdout


@pytest.mark.thorough
def test_results_that_differ_end_with_exit_code_8(folder: Path) -> None:
    ran = dtbench(folder, "run", "./tiny.yaml", "--set", "correctness.gradient_tolerance=1.0e-12")
    assert ran.returncode == 8
    assert "do not trust its numbers" in ran.stderr
    assert "cell ddp: results differ" in ran.stderr


@pytest.mark.thorough
def test_the_same_worker_runs_under_plain_torchrun(folder: Path) -> None:
    prepared = dtbench(folder, "run", "./tiny.yaml", "--prepare")
    assert prepared.returncode == 0, prepared.stderr
    comment, *commands = prepared.stdout.strip().splitlines()
    assert len(commands) == 3, "one reference for both cells, and a launch for each"
    for command in commands:
        safe, program, *arguments = shlex.split(command)
        assert (safe, program) == ("PYTHONSAFEPATH=1", "torchrun")
        launcher = [sys.executable, "-m", "torch.distributed.run", *arguments]
        subprocess.run(launcher, check=True, capture_output=True, timeout=120, cwd=folder)
    run = comment.split("dtbench analyze ")[1]
    analyzed = dtbench(folder, "analyze", run)
    assert analyzed.returncode == 0, analyzed.stderr
    assert (Path(run) / "step_breakdown.png").exists()
    report = dtbench(folder, "report", run, "--json")
    assert report.returncode == 0, report.stderr
    summary = json.loads(report.stdout)
    assert summary["status"] == "complete", "every launch is, though no launcher of ours said so"
    cells = summary["cells"]
    assert [cell["correctness"]["passed"] for cell in cells] == [True, True]
    timed = [read_steps(RunFolder(Path(run)).launch(cell["name"], 0)) for cell in cells]
    assert [steps[steps["phase"] == "MEASURED"]["step"].nunique() for steps in timed] == [4, 4]


def test_too_few_gpus_are_refused_with_exit_code_3(folder: Path) -> None:
    import torch

    if torch.cuda.device_count() >= 2:
        pytest.skip("this machine has the GPUs")
    ran = dtbench(folder, "run", "./tiny.yaml", "--set", "device=cuda")
    assert ran.returncode == 3
    assert "needs 2 CUDA devices" in ran.stderr
    assert "--set device=cpu" in ran.stderr
    assert not (folder / "results").exists()


def test_a_path_with_a_line_break_and_a_temporary_folder_with_a_colon_lose_nothing_and_nobody_else_can_connect(
    folder: Path,
) -> None:
    results, scratch = folder / "two\nlines", folder / "a:b"
    scratch.mkdir()
    (folder / "tiny.yaml").write_text(TINY.partition("  async:")[0], encoding="utf-8")
    command = [sys.executable, "-m", "dtbench", "run", "./tiny.yaml", "--results", str(results)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    heard: set[str] = set()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as launcher:
        while launcher.poll() is None:
            with suppress(psutil.Error):
                sockets = psutil.Process(launcher.pid).net_connections("tcp")
                heard |= {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
            time.sleep(0.02)
    assert launcher.returncode == 0
    assert heard == {"127.0.0.1"}, "the store of the ranks is for this machine alone"
    (launch,) = results.glob("tiny/*/cells/ddp/launch0")
    assert len(list((launch / "traces").iterdir())) == 2
    assert not list(scratch.glob("*dtbench*"))  # torch keeps a cache of its own there


@pytest.mark.thorough
def test_a_sweep_whose_launcher_is_killed_goes_on_where_it_was(folder: Path) -> None:
    text = TINY.partition("cells:")[0] + (
        "parallel: {kind: ddp, replicas: 2}\nmatrix: {parallel.bucket_cap_mb: [null, 1, 2]}\n"
    )
    (folder / "tiny.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "dtbench", "run", "./tiny.yaml"]
    launcher = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(folder.glob("results/tiny/*/cells/*/launch0/launch.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # into the next launch
    launcher.kill()
    launcher.wait()
    (run,) = (folder / "results" / "tiny").iterdir()
    kept = {path: path.stat().st_mtime_ns for path in run.glob("cells/*/launch0/launch.json")}
    assert 0 < len(kept) < 3
    resumed = dtbench(folder, "run", "./tiny.yaml", "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    summary = json.loads(resumed.stdout)
    assert (summary["path"], summary["status"]) == (str(run), "complete")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [cell["correctness"]["passed"] for cell in summary["cells"]] == [True] * 3

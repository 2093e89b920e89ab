"""The plugin of pytest in somebody's session: what its fixture runs and compares, and that it costs others nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtbench.integrations.pytest_plugin import spell_value
from tests.comparison.conftest import FakeCell, make_run

PLUGIN = "dtbench.integrations.pytest_plugin"
TINY = """\
# Does a tiny model train?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 2, dim: 64, heads: 4, kv_heads: 2, ffn_dim: 96, vocab_size: 250}
data: {global_batch: 4, sequence_length: 32}
optimizer: {kind: sgd}
correctness: {enabled: false}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1}
parallel: {kind: ddp, replicas: 2}
"""


def call_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with this plugin and no other that is installed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", "-W", "error", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env={**own, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def write_test(folder: Path, body: str) -> Path:
    path = folder / "perf" / "test_step.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"def test_step(dtbench):\n    {body}\n", encoding="utf-8")
    return path


def test_a_slowdown_fails_a_test_with_its_sentence(tmp_path: Path) -> None:
    cells = {"base": FakeCell((100.0, 101.0, 99.0, 100.0)), "candidate": FakeCell((120.0, 121.0, 119.0, 120.0))}
    run = make_run(tmp_path / "perf" / "kept", "small", "20260101T120000Z-aaaa", cells)
    sides = f"{str(run / 'cells' / 'base')!r}, 'kept/small/20260101T120000Z-aaaa/cells/candidate'"
    write_test(tmp_path, f"dtbench.compare({sides}).assert_no_slowdown(max_percent=30)")
    passed = call_pytest(tmp_path)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    write_test(tmp_path, f"dtbench.compare({sides}).assert_no_slowdown(max_percent=5)")
    failed = call_pytest(tmp_path)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "AssertionError: `step_time > 5%`, candidate against base: EXCEEDED" in failed.stdout


def test_a_scenario_that_cannot_run_fails_a_test_with_the_words_of_the_command(tmp_path: Path) -> None:
    write_test(tmp_path, "dtbench.run('no_such_scenario')")
    failed = call_pytest(tmp_path)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "`dtbench run no_such_scenario --results" in failed.stdout
    assert "ended with code 2:" in failed.stdout


@pytest.mark.ranks
@pytest.mark.thorough
def test_a_scenario_beside_the_test_runs_and_its_run_stays_where_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="ranks train with torch; install the extra `run`")
    sets = {"optimizer.lr": 3e-05, "measure.measured_steps": 5}
    path = write_test(tmp_path, f"run = dtbench.run('tiny.yaml', set={sets!r})")
    (path.parent / "tiny.yaml").write_text(TINY, encoding="utf-8")
    with path.open("a", encoding="utf-8") as test:
        test.write("    assert (run.load().steps['duration_ns'] > 0).all()\n")
    passed = call_pytest(tmp_path, "--dtbench-results", "kept")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    (record,) = (tmp_path / "kept").glob("tiny/*/run.json")
    assert json.loads(record.read_text(encoding="utf-8"))["overrides"] == [
        "optimizer.lr=3.0e-05",
        "measure.measured_steps=5",
    ]


@pytest.mark.parametrize(
    ("value", "spelled"),
    [(4, "4"), (True, "true"), (None, "null"), (0.5, "0.5"), (1e-05, "1.0e-05"), ("auto", "auto"), ([1, 2], "[1, 2]")],
)
def test_values_are_spelled_as_yaml_reads_them(value: object, spelled: str) -> None:
    assert spell_value(value) == spelled


def test_other_sessions_pay_for_two_small_modules() -> None:
    script = (
        "import json, sys, pytest, _pytest.cacheprovider\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = json.loads(finished.stdout)
    assert loaded == ["dtbench", "dtbench.integrations", PLUGIN, "dtbench.training_model"]

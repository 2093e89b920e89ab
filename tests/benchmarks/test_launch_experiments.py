"""What the recorded experiment must keep, and how its counts are made; the experiment itself takes an hour."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recorded" / "launch_experiments.json"

COUNT = """
import json, sys
from tests.benchmarks.launch_experiments import count, show_table
counts = count(json.load(sys.stdin))
print(json.dumps([counts, show_table(counts, {"step_ms": 50.0, "sleep_ms": 2.5}, 10)]))
"""


def said(p_value: float, outcome: str, pooled: float) -> dict[str, Any]:
    return {"p_value": p_value, "outcome": outcome, "pooled_p_value": pooled}


def test_every_p_value_below_5_percent_of_equal_cells_is_a_false_alarm() -> None:
    tries = [
        {"again": said(0.04, "differs by less than the threshold", 0.5), "slower": said(0.001, "higher", 0.0)},
        {"again": said(0.5, "no difference detectable", 0.01), "slower": said(0.2, "no difference detectable", 0.0)},
        {"again": said(0.01, "lower", 0.01), "slower": said(0.01, "lower", 0.2)},
    ]
    command = [sys.executable, "-c", COUNT]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(tries), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts, table = json.loads(done.stdout)
    assert (counts["tries"], counts["false_alarms"], counts["found"]) == (3, 2, 1), "lower is not found"
    assert (counts["false_alarms_with_steps_pooled"], counts["found_with_steps_pooled"]) == (2, 2)
    assert "| equal cells called different | 2 | 2 |" in table


def test_the_recorded_experiment_keeps_what_is_asked() -> None:
    if not RECORDED.exists():
        pytest.skip("no experiment is recorded yet: tests/benchmarks/launch_experiments.py makes the record")
    record = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert (record["tries"], record["launches"]) == (20, 10)
    assert record["false_alarms"] <= 1
    assert record["found"] >= 18
    assert all(one[cell]["is_interleaved"] for one in record["each"] for cell in ("again", "slower"))

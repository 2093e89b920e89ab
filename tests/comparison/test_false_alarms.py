"""By simulation: equal sides are called different in one of twenty tries at most, and a real change is found.

The fixed seed makes this one sample of what the benchmark draws at length; bounds leave three standard errors.
"""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRIES = 200


@pytest.fixture(scope="module")
def simulated() -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.false_alarms", "--json"]
    command += ["--tries", str(TRIES), "--launches", "4", "10", "--changes", "0.05"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def share_found(simulated: dict[str, Any], change: float) -> dict[tuple[str, int], float]:
    return {(row["noise"], row["launches"]): row["found"] for row in simulated["rows"] if row["change"] == change}


def highest_share(chance: float, tries: int) -> float:
    return chance + 3 * math.sqrt(chance * (1 - chance) / tries)


def test_equal_sides_are_called_different_in_at_most_5_of_100_tries(simulated: dict[str, Any]) -> None:
    found = share_found(simulated, 0)
    assert len(found) == 20
    assert {place: share for place, share in found.items() if share > highest_share(0.05, TRIES)} == {}
    assert sum(found.values()) / len(found) <= highest_share(0.05, TRIES * len(found))


def test_ten_launches_find_5_percent_whatever_the_noise(simulated: dict[str, Any]) -> None:
    found = {noise: share for (noise, launches), share in share_found(simulated, 0.05).items() if launches == 10}
    assert found.pop("two modes") > 0.6
    assert min(found.values()) > 0.85
    assert found["normal"] > 0.97


def test_what_others_do_raises_false_alarms(simulated: dict[str, Any]) -> None:
    assert min(simulated["pooled"]) > 0.35, "steps pooled over launches"
    assert min(simulated["in_sequence"]) > 0.9, "a drifting machine, one side after the other"

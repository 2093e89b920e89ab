"""What a user waits for beside ten thousand runs: ``python -m tests.benchmarks.many_runs [--runs 10000] [--rounds 5]``.

The runs are the recorded example under other names and with steps of other times, so that none is a copy of another;
two more have a cell of 100 launches each. Each command is a process of its own. Prints the CPU time of each, median of
the rounds in turns, beside its bound, and ends with 1 where one misses it. The first look at a run makes its numbers,
which stay beside it: it is a round of its own that is not counted.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from tests.benchmarks.child_cost import run_child

EXAMPLE: Final = Path(__file__).parents[2] / "results" / "example"
LAUNCHES: Final = 100
_TAB: Final = """\
import sys, json
from types import SimpleNamespace
from tensorboard.backend.application import TensorBoardWSGI
from werkzeug.test import Client
from dtbench.report.tb_plugin.plugin import BoardPlugin
client = Client(TensorBoardWSGI([BoardPlugin(SimpleNamespace(logdir=sys.argv[1]))], ""))
answer = client.get("/data/plugin/dtbench/runs")
assert answer.status_code == 200, answer.text
print(len(answer.data))
"""


@dataclass(frozen=True)
class Look:
    """One command; ``most_s``: of CPU time."""

    name: str
    command: tuple[str, ...]
    most_s: float


def make_run(example: Path, folder: Path, launches: int, number: int) -> None:
    """Write the example under another name, of its first cell so many launches; what is the same is linked."""
    shutil.copytree(example, folder, copy_function=os.link)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["run_id"], record["name"] = folder.name, folder.parent.name
    record["cells"][0]["launches"] = list(range(launches))
    _write_anew(folder / "run.json", json.dumps(record))
    for cell in record["cells"]:
        first = folder / "cells" / cell["name"] / "launch0"
        steps = pd.read_parquet(first / "steps.parquet")
        launch = json.loads((first / "launch.json").read_text(encoding="utf-8"))
        for index in cell["launches"]:
            own = first.with_name(f"launch{index}")
            if index:
                shutil.copytree(first, own, copy_function=os.link)
            launch["index"] = index
            _write_anew(own / "launch.json", json.dumps(launch))
            (own / "steps.parquet").unlink()
            moved_ns = 1 + number * LAUNCHES + index
            longer = 1 + 0.001 * ((number * 7 + index * 13) % 17)
            steps.assign(
                start_ns=steps["start_ns"] + moved_ns,
                duration_ns=(steps["duration_ns"] * longer).round().astype("int64"),
            ).to_parquet(own / "steps.parquet")


def _write_anew(path: Path, text: str) -> None:
    path.unlink()  # it is linked
    path.write_text(text, encoding="utf-8")


def list_looks(results: Path) -> list[Look]:
    """Return what is timed."""
    dtbench = (sys.executable, "-m", "dtbench")
    first, second = (str(results / "many" / f"run{number}") for number in (0, 1))
    large = [str(results / "large" / f"run{number}") for number in (0, 1)]
    where = ("--results", str(results))
    return [
        Look("dtbench report many", (*dtbench, "report", "many", *where), 1.5),
        Look("dtbench runs", (*dtbench, "runs", *where), 1.5),
        Look("dtbench compare A B", (*dtbench, "compare", first, second, *where), 1.5),
        Look(f"dtbench compare, 2 x {LAUNCHES} launches", (*dtbench, "compare", *large, *where), 2.0),
        Look("the first page of TensorBoard's tab", (sys.executable, "-c", _TAB, str(results)), 1.0),
    ]


def main() -> int:
    """Make the runs, time, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results, example = Path(folder, "results"), Path(folder, "example")
        shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("*.png", "tb", "measurements.json"))
        for number in range(arguments.runs):
            make_run(example, results / "many" / f"run{number}", 1, number)
        for number in range(2):
            make_run(example, results / "large" / f"run{number}", LAUNCHES, number)
        looks = list_looks(results)
        for look in looks:
            run_child(look.command)
        rounds = [[run_child(look.command).cpu_s for look in looks] for _ in range(arguments.rounds)]
    held = True
    for look, times_s in zip(looks, zip(*rounds, strict=True), strict=True):
        cpu_s = statistics.median(times_s)
        held &= cpu_s <= look.most_s
        told = "holds" if cpu_s <= look.most_s else "MISSED"
        print(f"{look.name}: {cpu_s:.2f} s of CPU time (bound {look.most_s:g} s: {told})")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

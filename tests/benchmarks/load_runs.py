"""How long ``load_runs`` takes for 1,000 runs of 8 ranks and 200 steps: ``python -m tests.benchmarks.load_runs``.

The runs are made in a temporary folder by the store's own writers, a tenth of them sweeps. Prints the median of five
rounds in wall and in CPU time, and ends with 1 where the wall time misses the bound.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

import dtbench
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_run
from dtbench.store.records.run import CellRecord, LaunchRecord, RunRecord, RunStatus
from dtbench.store.write import write_record, write_table

EXAMPLE: Final = Path(__file__).parents[2] / "results" / "example"
BOUND_S = 2.0
RUNS, RANKS, STEPS = 1000, 8, 200
_ROUNDS = 5
_PHASES = ("WARMUP",) * 20 + ("MEASURED",) * (STEPS - 25) + ("PROFILED",) * 5


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        make_runs(results, RUNS)
        dtbench.load_runs(results / "scenario0")  # what is imported late is imported now
        rounds = [_time(results) for _ in range(_ROUNDS)]
    wall_s, cpu_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    held = "holds" if wall_s < BOUND_S else "MISSED"
    print(
        f"{RUNS} runs x {RANKS} ranks x {STEPS} steps: {wall_s:.2f} s of wall time, {cpu_s:.2f} s of CPU time "
        f"(median of {_ROUNDS}); bound {BOUND_S:g} s of wall time: {held}"
    )
    return 0 if wall_s < BOUND_S else 1


def _time(results: Path) -> tuple[float, float]:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    steps = dtbench.load_runs(results)
    taken = time.perf_counter() - wall_s, time.process_time() - cpu_s
    assert len(steps) == RUNS * RANKS * STEPS
    assert not steps.attrs["notes"]
    return taken


def make_runs(results: Path, count: int) -> None:
    """Write so many runs of one launch each, as the launcher leaves them: records, and a table of steps."""
    example = read_run(EXAMPLE)
    (cell, *_) = example.cells
    assert isinstance(cell, CellRecord)
    random = np.random.default_rng(0)
    for number in range(count):
        folder = RunFolder(results / f"scenario{number % 10}" / f"20260101T{number:06d}-ab12")
        launch = folder.launch(cell.name, 0)
        write_table(launch.steps, make_steps(random))
        write_record(
            launch.launch,
            LaunchRecord(
                cell=cell.name,
                index=0,
                status=RunStatus.COMPLETE,
                started_unix_ns=0,
                duration_ns=1,
                reason=None,
                failures=(),
            ),
        )
        coordinates = {"parallel.bucket_cap_mb": str(number % 7)} if number % 10 == 0 else {}
        write_record(folder.run, _rename(example, folder.path, cell.model_copy(update={"coordinates": coordinates})))


def _rename(example: RunRecord, path: Path, cell: CellRecord) -> RunRecord:
    changes = {"name": path.parent.name, "run_id": path.name, "cells": (cell.model_copy(update={"launches": (0,)}),)}
    return example.model_copy(update=changes)


def make_steps(random: np.random.Generator) -> pd.DataFrame:
    """Return the steps of one launch, columns as in the table ``steps``."""
    rows = RANKS * STEPS
    return pd.DataFrame(
        {
            "rank": np.repeat(np.arange(RANKS), STEPS),
            "step": np.tile(np.arange(STEPS), RANKS),
            "phase": pd.array(_PHASES * RANKS, dtype="string"),
            "start_ns": random.integers(0, 10**17)
            + np.arange(rows) * 100_000_000
            + random.integers(0, 1_000_000, rows),
            "duration_ns": random.integers(90_000_000, 110_000_000, rows),
            "cpu_ns": random.integers(90_000_000, 110_000_000, rows),
            "stolen_fraction": np.zeros(rows),
        }
    )


if __name__ == "__main__":
    sys.exit(main())

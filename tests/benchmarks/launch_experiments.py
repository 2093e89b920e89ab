"""Real launches compared by ``dtbench compare``'s own code: is nothing found where nothing is, and 5 % where it is?

``python -m tests.benchmarks.launch_experiments --folder DIR`` runs 20 tries. Each is one run of
``slowed.yaml``: ten launches of each of three cells, interleaved. ``again`` equals ``first``; ``slower`` sleeps in its
forward for 5 % of the step time that ``first`` has on this machine, as measured before the tries. Wanted: ``again`` is
called different in at most 1 try of 20, ``slower`` is found in at least 18 (exit code 1 otherwise). For contrast, the
same launches with all their steps pooled.

A script that was stopped goes on with the same command: finished tries stay, an unfinished run is resumed. What it
finds is in ``DIR/launch_experiments.json``; copied to ``tests/benchmarks/recorded/`` it is held to what is wanted. A
benchmark, not a test: 600 launches take a little more than an hour on a quiet machine with two cores.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCENARIO = Path(__file__).parent / "slowed.yaml"
SLOWDOWN = 0.05
LEVEL = 0.05
MOST_FALSE, LEAST_FOUND, TRIES = 1, 18, 20
FIRST, AGAIN, SLOWER = "first", "again", "slower"


def launch_all(results: Path, *overrides: str) -> Path:
    """Do what ``dtbench run slowed.yaml`` does, or ``--resume`` where that is begun, without its report; give the run.

    Raises:
        LaunchError: a launch failed.
    """
    from dtbench.launch.cells import plan_cells
    from dtbench.launch.machine import read_machine
    from dtbench.launch.resume import find_unfinished
    from dtbench.launch.run import Observer, resume_scenario, run_scenario
    from dtbench.scenario.load import load_scenario_file
    from dtbench.store.walk import find_runs

    file = load_scenario_file(SCENARIO, overrides)
    unfinished = find_unfinished(results, file.name)
    finished = find_runs(results)
    if finished and unfinished is None:
        return finished[0]
    cells = plan_cells(file, read_machine())
    observer = Observer(on_launch=lambda _cell, _index, _plan: print(".", end="", flush=True))
    if unfinished is not None:
        return resume_scenario(file, cells, unfinished, observer=observer).path
    return run_scenario(file, cells, results, observer=observer).path


def read_steps(run: Path, cell: str) -> list[list[float]]:
    """Return the slowest rank's MEASURED step times of each launch of a cell, ns."""
    from dtbench.base.vocabulary import Phase
    from dtbench.runs.reading.undisturbed import job_step_times
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run
    from dtbench.store.read import read_steps as read_table

    (record,) = (one for one in read_run(run).cells if one.name == cell)
    folders = [RunFolder(run).launch(cell, index) for index in record.launches]
    return [job_step_times(read_table(folder), Phase.MEASURED, record.plan.ranks) for folder in folders]


def calibrate(folder: Path) -> dict[str, float]:
    """Return the step time of the first cell in ms, and the sleep that is 5 % of it; once for all tries."""
    kept = folder / "calibration.json"
    if not kept.exists():
        run = launch_all(folder / "calibration", "repeat=1")
        step_ms = statistics.fmean(statistics.median(read_steps(run, cell)[0]) for cell in (FIRST, AGAIN)) / 1e6
        kept.write_text(json.dumps({"step_ms": step_ms, "sleep_ms": SLOWDOWN * step_ms}), encoding="utf-8")
    calibration: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
    return calibration


def compare(run: Path) -> dict[str, dict[str, Any]]:
    """Return what is said of the step time of ``again`` and ``slower``, each against ``first``."""
    from dtbench.comparison.run import compare_all

    found = {}
    for cell, comparison in zip((AGAIN, SLOWER), compare_all([str(run)], results=run.parent), strict=True):
        change = comparison.metrics[0]
        assert change.metric == "step_time"
        found[cell] = {
            "outcome": change.outcome.value,
            "ratio": change.ratio,
            "interval": [change.low, change.high],
            "p_value": change.p_value,
            "test": change.test,
            "detectable": change.detectable,
            "is_interleaved": comparison.candidate.is_interleaved,
            "first_ms": [value / 1e6 for value in change.baseline.values],
            "other_ms": [value / 1e6 for value in change.candidate.values],
            "pooled_p_value": pool(run, cell),
        }
    return found


def pool(run: Path, cell: str) -> float:
    """Return the p-value of all steps of all launches, tested as if they were independent."""
    import numpy as np

    from dtbench.runs.cell.shift import shift_of_means

    first, other = (np.log([time_ns for launch in read_steps(run, one) for time_ns in launch]) for one in (FIRST, cell))
    return shift_of_means(first, other).p_value


def run_try(folder: Path, number: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Run and compare one try, unless that has been done; give its record."""
    kept = folder / f"try{number:02}.json"
    if not kept.exists():
        start_s = time.monotonic()
        run = launch_all(folder / f"try{number:02}", *overrides)
        made = {"try": number, "wall_s": time.monotonic() - start_s, **compare(run)}
        kept.write_text(json.dumps(made), encoding="utf-8")
    record: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    again, slower = record[AGAIN], record[SLOWER]
    print(
        f"\rtry {number:2}  again {again['ratio']:.3f} (p {again['p_value']:.3f}) {again['outcome']:<26} "
        f"slower {slower['ratio']:.3f} (p {slower['p_value']:.4f}) {slower['outcome']:<26} {record['wall_s']:.0f} s",
        flush=True,
    )
    return record


def count(tries: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return how often what was found; a false alarm is a p-value below 5 %, whatever the threshold says."""
    return {
        "tries": len(tries),
        "false_alarms": sum(one[AGAIN]["p_value"] < LEVEL for one in tries),
        "found": sum(one[SLOWER]["outcome"] == "higher" for one in tries),
        "false_alarms_with_steps_pooled": sum(one[AGAIN]["pooled_p_value"] < LEVEL for one in tries),
        "found_with_steps_pooled": sum(one[SLOWER]["pooled_p_value"] < LEVEL for one in tries),
    }


def show_table(counts: dict[str, int], calibration: dict[str, float], launches: int) -> str:
    """Return the counts as a Markdown table."""
    tries = counts["tries"]
    return "\n".join(
        [
            f"first: {calibration['step_ms']:.1f} ms a step; slower: sleeps {calibration['sleep_ms']:.2f} ms more",
            "",
            f"| of {tries} tries, {launches} launches of each cell | launch medians | steps pooled |",
            "|---|---|---|",
            f"| equal cells called different | {counts['false_alarms']} | {counts['false_alarms_with_steps_pooled']} |",
            f"| 5 % found | {counts['found']} | {counts['found_with_steps_pooled']} |",
        ]
    )


def main() -> None:
    """Run, compare, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="of runs and findings; the same again goes on")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--launches", type=int, default=10)
    wish = parser.parse_args()
    folder = wish.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    calibration = calibrate(folder)
    print(f"\rcalibrated: {calibration['step_ms']:.1f} ms a step, sleep {calibration['sleep_ms']:.2f} ms", flush=True)
    sleep = f"cells.{SLOWER}.model.arguments.sleep_ms={calibration['sleep_ms']:.3f}"
    tries = [run_try(folder, number, (f"repeat={wish.launches}", sleep)) for number in range(wish.tries)]
    counts = count(tries)
    environment = json.loads(next(folder.glob("try00/slowed/*/env.json")).read_text(encoding="utf-8"))
    machine = {key: environment[key] for key in ("system", "processor", "cores", "memory_bytes", "python", "torch")}
    record = {
        "machine": machine,
        "load": os.getloadavg(),
        "calibration": calibration,
        "launches": wish.launches,
        **counts,
        "each": tries,
    }
    (folder / "launch_experiments.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(show_table(counts, calibration, wish.launches))
    is_kept = counts["false_alarms"] <= MOST_FALSE * wish.tries / TRIES
    sys.exit(not (is_kept and counts["found"] >= LEAST_FOUND * wish.tries / TRIES))


if __name__ == "__main__":
    main()

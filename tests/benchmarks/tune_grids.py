"""How well ``dtbench tune`` finds the best point of a grid: two grids run in full, searched, and held to each other.

``python -m tests.benchmarks.tune_grids RESULTS [--launches 6] [--grid ddp] [--record FILE]`` runs, of each grid,

1. every point that can run and is no other, beside the unchanged cell, ``--launches`` each, in turns: the full sweep;
2. ``dtbench tune`` over the same grid;
3. what each recommends, and the unchanged cell, in turns once more: launches that chose neither.

It prints how many launches each took, what each recommends, and by how much the searched point's step is longer than
the swept one's, with the interval of ``compare``. What is there already is not run again: a search goes on, too.
Timed models over an emulated link, so that forecasts may be had; units of several blocks have none.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from dtbench.cli.sweeps import read_sweeps
from dtbench.comparison.statistics import compare_samples
from dtbench.launch.machine import read_machine
from dtbench.runs.run import summarize_run
from dtbench.scenario.load import load_scenario_file
from dtbench.scenario.written import Words, sections_of, spell_scenario
from dtbench.store.read import read_run
from dtbench.store.records.run import RunStatus
from dtbench.store.walk import find_runs
from dtbench.tuning.grid import Grid, make_grid, read_axes
from dtbench.tuning.rounds import read_round
from dtbench.tuning.search import UNCHANGED, Round, Stage, count_sweep

_SHARED: Final[Mapping[str, Words]] = {
    "model": {"kind": "timed", "layers": 4, "dim": 256, "forward_ms": 20.0, "backward_ms": 25.0},
    "data": {"global_batch": 2, "sequence_length": 8},
    "optimizer": {"kind": "sgd"},
    "network": {"kind": "emulated", "latency_us": 4000.0, "bandwidth_gb_per_s": 0.1},
    "measure": {
        "warmup": {"min_steps": 8, "max_steps": 8},
        "measured_steps": 8,
        "profiled_steps": 1,
        "exposure": ("trace",),
    },
}


@dataclass(frozen=True)
class Task:
    """A cell, and the fields that are tried."""

    parallel: Words
    over: tuple[str, ...]


TASKS: Final[Mapping[str, Task]] = {
    "ddp": Task(
        {"kind": "ddp", "replicas": 2},
        (
            "parallel.bucket_cap_mb_list=[0.1],[0.1,1],[0.1,25],[1],[1,2],[8]",
            "parallel.gradient_as_bucket_view=false,true",
            "parallel.static_graph=false,true",
        ),
    ),
    "fsdp2": Task(
        {"kind": "fsdp2", "shards": 2},
        (
            "parallel.unshard_async_op=false,true",
            "parallel.forward_prefetch=0,1,2",
            "parallel.reshard_after_forward=null,false",
            "parallel.blocks_per_unit=1,2",
        ),
    ),
}


class Score(msgspec.Struct):
    """What came of one grid; steps in ns.

    Attributes:
        task: which.
        points: of the grid; ``distinct`` of them can run and are no other.
        sweep_launches, tune_launches: that each took.
        swept, tuned: what each recommends; empty: the cell as it is.
        ratio, low, high: step of the searched point over that of the swept one, 95 %, by launches that chose neither.
        saves: of the searched point, share of the unchanged step, by the same launches.
        doubt: what speaks against it.
    """

    task: str
    points: int
    distinct: int
    sweep_launches: int
    tune_launches: int
    swept: str
    tuned: str
    ratio: float
    low: float
    high: float
    saves: float
    doubt: str = ""


def write_task(results: Path, name: str) -> Path:
    """Write the scenario of a task."""
    path = results / f"tune_grids_{name}.yaml"
    path.write_text(spell_scenario("Which settings?", {"device": "cpu", **_SHARED, "parallel": TASKS[name].parallel}))
    return path


def make_task(path: Path, task: Task) -> Grid:
    """Return the grid of a task."""
    (cell,) = load_scenario_file(path).cells
    return make_grid(cell.name, cell.scenario, read_axes(read_sweeps(task.over, "--over")), read_machine())


def find_or_run(results: Path, name: str, grid: Grid, points: Sequence[str], launches: int) -> Path:
    """Return the run of some points beside the unchanged cell, which is made, or completed, where it is not there."""
    scenarios = {grid.cell: grid.scenario, **{point: grid.find(point).scenario for point in points}}
    cells: dict[str, Words] = {
        cell: {**sections_of(scenario), "repeat": launches}
        for cell, scenario in scenarios.items()
        if scenario is not None
    }
    file = results / f"{name}.yaml"
    text = spell_scenario("Which point takes the shortest step?", {}, cells)
    found = [
        run for run in find_runs(results) if run.parent.name == name and (run / "scenario.yaml").read_text() == text
    ]
    if found and read_run(found[-1]).status is RunStatus.COMPLETE:
        return found[-1]
    file.write_text(text)
    _call("run", str(file), "--results", str(results), *(["--resume"] if found else []))
    return [run for run in find_runs(results) if run.parent.name == name][-1]


def _call(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "dtbench", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    return ended.stdout


def read_times(run: Path, grid: Grid, points: Sequence[str]) -> dict[str, Sequence[float]]:
    """Return the known steps of each point and of ``UNCHANGED``, as a search reads them; of those that are out none."""
    one = Round(Stage.CONFIRM, tuple(points), has_unchanged=True, launches=1)
    ran = read_round(grid, one, summarize_run(run), 0)
    return {point: times for point, times in ran.times_ns.items() if point not in ran.out}


def find_shortest(times_ns: Mapping[str, Sequence[float]]) -> str:
    """Return the point whose launches take the shortest step, median."""
    known = {point: [time for time in times if not isnan(time)] for point, times in times_ns.items()}
    medians = {point: median(times) for point, times in known.items() if times}
    return min(medians, key=lambda point: medians[point])


def score_task(results: Path, name: str, launches: int) -> Score:
    """Run a task in full and by search, and hold what they recommend to each other."""
    path = write_task(results, name)
    grid = make_task(path, TASKS[name])
    sweep = find_or_run(results, f"tune_grids_{name}_sweep", grid, grid.runnable, launches)
    swept = find_shortest(read_times(sweep, grid, grid.runnable))
    over = [word for one in TASKS[name].over for word in ("--over", one)]
    told = _call(
        *("tune", str(path), *over, "--launches", str(launches), "--results", str(results), "--json", "--resume")
    )
    if not told:
        raise SystemExit(f"{name}: the search gave no answer; what it said stands above")
    answer: dict[str, Any] = json.loads(told)
    by_change = {grid.find(point).change: point for point in grid.runnable}
    tuned = UNCHANGED if answer["best"] is None else by_change[answer["best"]]
    score = Score(
        task=name,
        points=len(grid.points),
        distinct=len(grid.runnable),
        sweep_launches=count_sweep(len(grid.runnable), launches),
        tune_launches=answer["launches"],
        swept=grid.find(swept).change if swept else "",
        tuned=answer["best"] or "",
        ratio=1.0,
        low=1.0,
        high=1.0,
        saves=0.0,
        doubt=answer["problem"],
    )
    both = [point for point in dict.fromkeys((swept, tuned)) if point != UNCHANGED]
    if not both:
        return score
    run = find_or_run(results, f"tune_grids_{name}_held", grid, both, launches)
    times_ns = read_times(run, grid, both)
    score.saves = 1 - _ratio(times_ns, UNCHANGED, tuned)[0]
    score.ratio, score.low, score.high = _ratio(times_ns, swept, tuned)
    return score


def _ratio(times_ns: Mapping[str, Sequence[float]], before: str, after: str) -> tuple[float, float, float]:
    if before == after:
        return 1.0, 1.0, 1.0
    if before not in times_ns or after not in times_ns:
        return float("nan"), float("nan"), float("nan")
    found = compare_samples(times_ns[before], times_ns[after], is_interleaved=True, threshold=0.0)
    return found.ratio, found.low, found.high


def describe(score: Score) -> Iterator[str]:
    """Say what came of a grid."""
    share = score.tune_launches / score.sweep_launches
    yield f"{score.task}: {score.points} points, {score.distinct} that can run and are no other"
    yield f"  sweep: {score.sweep_launches} launches, best `{score.swept or 'as it is'}`"
    yield f"  tune:  {score.tune_launches} launches ({share:.0%}), best `{score.tuned or 'as it is'}`"
    yield f"  tune's over the sweep's: {score.ratio:.4f} ({score.low:.4f} to {score.high:.4f})"
    yield f"  tune's saves {score.saves:.2%} of the unchanged step{f'; {score.doubt}' if score.doubt else ''}"


def main() -> None:
    """Run, score, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--grid", choices=[*TASKS], action="append")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    scores = []
    for name in arguments.grid or TASKS:
        scores.append(score_task(arguments.results, name, arguments.launches))
        print(*describe(scores[-1]), sep="\n", flush=True)
    if arguments.record is not None:
        kept = json.loads(arguments.record.read_bytes()) if arguments.record.exists() else []
        recorded = {one["task"]: one for one in (*kept, *map(replace_nan, scores))}  # of each grid the newest
        arguments.record.write_bytes(msgspec.json.format(msgspec.json.encode([*recorded.values()]), indent=1))


def replace_nan(score: Score) -> dict[str, object]:
    """Return a score whose numbers JSON has; null: not known."""
    return {
        name: None if isinstance(value, float) and isnan(value) else value
        for name, value in msgspec.structs.asdict(score).items()
    }


if __name__ == "__main__":
    main()

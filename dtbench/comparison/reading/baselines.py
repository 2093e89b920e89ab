"""Saved baselines: what a comparison needs of one side, under a name, in the folder of all runs."""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from dtbench.base.errors import ComparisonError, StoreError
from dtbench.base.units import format_ns
from dtbench.comparison.metrics import STEP_TIME
from dtbench.comparison.reading.parts import say_part_of_time
from dtbench.comparison.reading.sides import read_sides
from dtbench.scenario.mistakes import find_nearest
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.layout import baseline_file, can_name_runs
from dtbench.store.read import find_baselines, read_baseline
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.walk import find_runs
from dtbench.store.write import write_record

_UNKNOWN: Final = "not told"


@dataclass(frozen=True)
class BaselineRow:
    """One saved baseline in words.

    Attributes:
        of: what it was made from; why it cannot be read.
        launches: how many count, of how many.
        step_time: median over launches, and of what part of them, of their ranks and steps.
        doubts: why these steps may not stand for others, clauses.
    """

    name: str
    of: str
    launches: str
    step_time: str
    torch: str
    host: str
    doubts: tuple[str, ...] = ()


def save_baseline(name: str, named: str, *, results: Path, to: Path | None = None) -> MeasuredSide:
    """Save what a person names as a baseline; gives what was saved, under the names that it had.

    Args:
        name: by which it is told.
        named: what is saved, as ``sides.py`` says.
        results: folder of all runs and baselines.
        to: the file that it becomes, which people commit or cache; None: one among the baselines of ``results``.

    Raises:
        ComparisonError: the name cannot be one, there is nothing to trust in it, or it has several cells.
        StoreError: there is no such thing, or it cannot be written.
        TraceError: they are traces, and none can be read.
    """
    if not can_name_runs(name):
        raise ComparisonError(
            f"`{name}` cannot name a baseline: letters, digits, `_`, `-` and `.` can, a letter or digit first"
        )
    if to is None and any(name in (run.name, run.parent.name) for run in find_runs(results)):
        raise ComparisonError(
            f"`{name}` is the name of a scenario or run in {results}; choose another for the baseline"
        )
    sides = read_sides(named, results)
    if len(sides) > 1:
        cells = list(sides)
        raise ComparisonError(f"`{named}` has several cells, {name_some(cells)}; say which: `{named}:{cells[0]}`")
    side = next(iter(sides.values()), None)
    if side is None:
        raise ComparisonError(f"`{named}` has no cells, so there is nothing to save")
    if not side.launches:
        why = f": {'; '.join(side.notes)}" if side.notes else ""
        raise ComparisonError(f"`{named}` has no launch that is complete and can be trusted{why}")
    kept = side.model_copy(update={"labels": (name, f"{name} ({side.labels[-2] if len(side.labels) > 1 else named})")})
    write_record(to or baseline_file(results, name), kept)
    return side


def describe_baselines(results: Path) -> tuple[BaselineRow, ...]:
    """Describe all saved baselines, by name; of one that is broken or of another version, why it cannot be read."""
    return tuple(_read_row(name, results) for name in find_baselines(results))


def remove_baseline(name: str, results: Path) -> None:
    """Remove a saved baseline.

    Raises:
        StoreError: there is none of this name.
    """
    saved = find_baselines(results)
    if name not in saved:
        near = find_nearest(name, saved)
        meant = f"did you mean `{near}`?" if near else f"there are {name_some(saved)}" if saved else "there is none"
        raise StoreError(f"{results}: no baseline is called `{name}`; {meant}")
    baseline_file(results, name).unlink()


def _read_row(name: str, results: Path) -> BaselineRow:
    try:
        return _describe(name, read_baseline(results, name))
    except StoreError as error:
        return BaselineRow(name=name, of=str(error), launches="n/a", step_time="n/a", torch=_UNKNOWN, host=_UNKNOWN)


def _describe(name: str, side: MeasuredSide) -> BaselineRow:
    times_ns = [
        one.value
        for launch in side.launches
        for one in launch.measurements
        if one.metric == STEP_TIME and not math.isnan(one.value)
    ]
    count, left_out = len(side.launches), len(side.left_out)
    told = [] if len(times_ns) == count else [f"{len(times_ns)} of {count} launches"]
    part = "; ".join((*told, *say_part_of_time(side)))
    return BaselineRow(
        name=name,
        of=side.labels[-1].removeprefix(f"{name} (").removesuffix(")"),
        launches=f"{count} of {count + left_out}" if left_out else str(count),
        step_time=f"{format_ns(median(times_ns))}{f' ({part})' * bool(part)}" if times_ns else "n/a",
        torch=side.environment.torch if side.environment else _UNKNOWN,
        host=side.environment.host if side.environment else _UNKNOWN,
        doubts=side.doubts if times_ns and side.ranks is not None else (),
    )

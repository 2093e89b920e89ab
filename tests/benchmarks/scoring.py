"""What scores of forecasts share: runs that are made once, the steps that they measured, and what is said of these."""

import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dtbench.runs.settings.base import why_not_measured
from dtbench.runs.summary import CellSummary
from dtbench.store.find_run import is_run


def find_or_run(results: Path, name: str, spell: Callable[[], str]) -> Path:
    """Return the last run of a scenario, which is run where there is none.

    Args:
        results: folder of runs.
        name: of the scenario.
        spell: returns its file's text.
    """
    if not _find_runs(results, name):
        file = results / f"{name}.yaml"
        file.write_text(spell())
        subprocess.run(
            [sys.executable, "-m", "dtbench", "run", str(file), "--results", str(results)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    return _find_runs(results, name)[-1]


def _find_runs(results: Path, name: str) -> list[Path]:
    return [path for path in sorted((results / name).glob("*")) if is_run(path)]


def find_mean(cell: CellSummary) -> float:
    """Return the step that a cell measured, ns, mean over its launches; NaN: none did."""
    known = [time_ns for time_ns in cell.launch_medians_ns if not math.isnan(time_ns)]
    return statistics.fmean(known) if known else math.nan


def find_doubts(cell: CellSummary) -> list[str]:
    """Return what the harness says against a cell's steps."""
    why = why_not_measured(cell) or ("no MEASURED step" if math.isnan(find_mean(cell)) else None)
    return [] if why is None else [f"{cell.name}: {why}"]


def find_late(errors: Sequence[float]) -> float:
    """Return the 95th percentile by the nearest rank: of fewer than twenty the largest."""
    return sorted(errors)[math.ceil(0.95 * len(errors)) - 1]


def read_seeds(text: str) -> range:
    """Read ``100-107``, or one."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)

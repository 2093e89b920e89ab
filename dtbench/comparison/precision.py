"""How well the launches of a run tell the step times of its cells: what ``repeat: auto`` goes by.

The step time of a launch is the median over its MEASURED steps of the slowest rank's. *Known to 2 %* means: the 95 %
interval of the mean of their logarithms (Student's t) reaches 2 % to either side. With several cells it is as good to
know every cell's ratio to the first, round by round: a drift of the machine widens the one and not the other.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import Phase
from dtbench.runs.cell.shift import mean_half_width
from dtbench.runs.cell.statistics import summarize
from dtbench.runs.reading.run_data import read_timed_steps
from dtbench.runs.reading.undisturbed import job_step_times
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.records.run import CellRecord

StepTimes = Mapping[str, Sequence[float]]
"""Each cell's launch medians in ns, first to last launch; NaN: no step was measured."""


def read_step_times(folder: RunFolder, cells: Sequence[CellRecord]) -> dict[str, list[float]]:
    """Return the launch medians of cells whose launches are all complete."""
    return {
        cell.name: [_read_median(folder.launch(cell.name, index), cell.plan.ranks) for index in cell.launches]
        for cell in cells
    }


def _read_median(folder: LaunchFolder, ranks: int) -> float:
    return summarize(job_step_times(read_timed_steps(folder, ranks).kept, Phase.MEASURED, ranks)).median


def is_known(step_times: StepTimes, precision: float) -> bool:
    """Tell whether every cell's step time, or every cell's ratio to the first, is known to a precision."""
    return _worst(_own_widths(step_times))[1] <= precision or _worst(_ratio_widths(step_times))[1] <= precision


def describe_precision(step_times: StepTimes, precision: float) -> str:
    """Say how well step times are known, as the end of a sentence."""
    cell, width = _worst(_own_widths(step_times))
    ratio_width = _worst(_ratio_widths(step_times))[1]
    if width <= precision:
        return f"step times are known to {_percent(width)}"
    if ratio_width <= precision:
        return f"ratios of step times to that of cell {next(iter(step_times))} are known to {_percent(ratio_width)}"
    known = "not known" if math.isinf(width) else f"known to {_percent(width)}"
    return f"the step time of cell {cell} is {known}, and {100 * precision:g} % are asked for"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _own_widths(step_times: StepTimes) -> dict[str, float]:
    return {cell: _half_width(_log(times)) for cell, times in step_times.items()}


def _ratio_widths(step_times: StepTimes) -> dict[str, float]:
    """Return how well ratios to the first cell are known; nothing for a single cell."""
    (_, first), *others = step_times.items()
    return {cell: _half_width(_log(times) - _log(first)) for cell, times in others}


def _log(times: Sequence[float]) -> NDArray[np.float64]:
    data = np.asarray(times, dtype=np.float64)
    return np.log(np.where(data > 0, data, math.nan))


def _half_width(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return math.expm1(mean_half_width(known)) if len(known) > 1 else math.inf


def _worst(widths: Mapping[str, float]) -> tuple[str, float]:
    return max(widths.items(), key=lambda item: item[1], default=("", math.inf))

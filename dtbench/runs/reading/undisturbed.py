"""The steps of a launch without those that others disturbed, as guests or as processes of its machine.

See ``dtbench.machine.disturbance``.

A step is left out for all ranks, in all tables, when it was disturbed on the machine of any.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from dtbench.base.units import format_fraction
from dtbench.base.vocabulary import Phase
from dtbench.machine.disturbance import DISTURBED, find_undisturbed

IS_LEFT_OUT: Final = "is_left_out"
"""A column that tables of all steps have: no number of an answer has anything of that step."""

JUDGED: Final = (Phase.MEASURED, Phase.PROFILED)

LeftOut = Mapping[Phase, frozenset[int]]
"""Numbers of the steps of each phase that are left out; a phase from which none is has no entry."""


def find_left_out(steps: pd.DataFrame) -> dict[Phase, frozenset[int]]:
    """Return the steps to leave out.

    Args:
        steps: columns as in the table ``steps``, of one launch.
    """
    found = {}
    for phase in JUDGED:
        lost = find_lost(steps[steps["phase"] == phase])
        kept = find_undisturbed(lost.tolist())
        left_out = frozenset(int(step) for step, is_kept in zip(lost.index, kept, strict=True) if not is_kept)
        if left_out:
            found[phase] = left_out
    return found


def find_lost(steps: pd.DataFrame) -> "pd.Series[float]":
    """Return what others had of the cores in each step, on the machine where it was most, by number; NaN: not known.

    Where only one kind of others was seen, or the machine of one rank, it is at least this.
    """
    told = [name for name in ("stolen_fraction", "taken_fraction") if name in steps]
    shares = steps[told].to_numpy(dtype=np.float64)
    lost = np.minimum(np.nansum(shares, axis=1), 1.0)
    lost[np.isnan(shares).all(axis=1)] = math.nan
    return pd.Series(lost, index=steps.index).groupby(steps["step"]).max()


def find_disturbance(steps: pd.DataFrame) -> float:
    """Return what others had of the machine's cores in MEASURED and PROFILED steps, median of those that tell; or NaN.

    Args:
        steps: columns as in the table ``steps``, of one launch, those to leave out left out.
    """
    judged = steps[steps["phase"].isin([phase.value for phase in JUDGED])]
    return float(find_lost(judged).median())


def count_left_alone(steps: pd.DataFrame, phase: Phase) -> int:
    """Return the number of steps of a phase that others are not known to have disturbed.

    Args:
        steps: columns as in the table ``steps``, of one launch.
        phase: whose.
    """
    return int((~(find_lost(steps[steps["phase"] == phase]) >= DISTURBED)).sum())


def leave_out(table: pd.DataFrame, left_out: LeftOut) -> pd.DataFrame:
    """Return a table without the rows of these steps; one without a column ``step`` as it is."""
    return table[~_is_of(table, left_out)] if left_out and "step" in table else table


def pick_left_out(table: pd.DataFrame, left_out: LeftOut) -> pd.DataFrame:
    """Return the rows that ``leave_out`` takes away."""
    return table[_is_of(table, left_out)] if left_out and "step" in table else table[:0]


def _is_of(table: pd.DataFrame, left_out: LeftOut) -> "pd.Series[bool]":
    return table["step"].isin(frozenset().union(*left_out.values()))


def keep_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps to go by of a table of all: without those that its column ``is_left_out`` names, if any."""
    return steps[~steps[IS_LEFT_OUT]] if IS_LEFT_OUT in steps else steps


def keep_finished(steps: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """Return the steps of a launch that every one of its ranks finished: a step takes as long as its slowest rank."""
    return steps[steps.groupby("step")["rank"].transform("nunique") >= ranks] if len(steps) else steps


def job_step_times(steps: pd.DataFrame, phase: Phase, ranks: int) -> list[float]:
    """Return the slowest rank's time of each step of a phase, ns; a step that some rank did not finish is left out."""
    chosen = keep_finished(steps[steps["phase"] == phase], ranks)
    return [float(time_ns) for time_ns in chosen.groupby("step")["duration_ns"].max()]


def describe_left_out(left_out: LeftOut, *, others: str = "other virtual machines", of: str = "the cores") -> str:
    """Say how many steps of each phase are left out, and why: others had the cores, or a GPU."""
    counts = " and ".join(f"{len(steps)} {phase}" for phase, steps in left_out.items())
    one = sum(map(len, left_out.values())) == 1
    had = f"{others} had {format_fraction(DISTURBED)} of {of} or more in {'it' if one else 'them'}"
    return f"{counts} {'step is' if one else 'steps are'} left out: {had}"

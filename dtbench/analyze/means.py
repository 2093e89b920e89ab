"""The answer of several traces in few numbers: the mean step, its spread, what was exposed by purpose.

Everything here is per *window*: a step of one rank, or, where no trace has steps, the whole trace of one rank. Means,
so that parts add up to the step, and purposes to what is exposed. Steps in which nothing ran are left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.overlap import Overlap
from dtbench.analyze.purpose_times import PurposeTime
from dtbench.analyze.trace_analysis import TraceAnalysis
from dtbench.vocabulary import Purpose


@dataclass(frozen=True)
class Spread:
    """Median and middle half of a time over windows, ns."""

    median_ns: int
    quartile1_ns: int
    quartile3_ns: int


@dataclass(frozen=True)
class MeanTime:
    """Where the time of some windows went.

    Attributes:
        rank: None: over several ranks.
        windows: how many were averaged.
        are_steps: they are steps; False: whole traces.
        overlap: mean; what rounding loses is put to ``idle_ns``, so the parts add up.
        step: spread of the windows' length.
        exposed: spread of exposed communication.
    """

    rank: int | None
    windows: int
    are_steps: bool
    overlap: Overlap
    step: Spread
    exposed: Spread


def average(analyses: Sequence[TraceAnalysis]) -> MeanTime:
    """Average the steps of all ranks, else their whole traces.

    Args:
        analyses: at least one.
    """
    are_steps = any(_steps(one) for one in analyses)
    windows = [overlap for one in analyses for overlap in (_steps(one) if are_steps else [one.whole])]
    return MeanTime(
        rank=analyses[0].rank if len(analyses) == 1 else None,
        windows=len(windows),
        are_steps=are_steps,
        overlap=_mean_overlap(windows),
        step=_spread([window.step_ns for window in windows]),
        exposed=_spread([window.exposed_comm_ns for window in windows]),
    )


def average_purposes(analyses: Sequence[TraceAnalysis]) -> tuple[PurposeTime, ...]:
    """Average over the windows of ``average``; one in which a purpose did not occur counts as zero."""
    are_steps = any(_steps(one) for one in analyses)
    windows = average(analyses).windows
    rows = [
        row
        for one in analyses
        for rows in ([step.purposes for step in one.steps] if are_steps else [one.whole_purposes])
        for row in rows
    ]
    found = []
    for purpose in Purpose:
        mine = [row for row in rows if row.purpose is purpose]
        if mine:
            names = ("count", "size_bytes", "hidden_ns", "exposed_ns", "wait_ns")
            mean = {name: round(sum(getattr(row, name) for row in mine) / windows) for name in names}
            found.append(PurposeTime(purpose=purpose, comm_ns=mean["hidden_ns"] + mean["exposed_ns"], **mean))
    return tuple(found)


def _steps(one: TraceAnalysis) -> list[Overlap]:
    return [step.overlap for step in one.steps if step.overlap.step_ns]


def _mean_overlap(windows: Sequence[Overlap]) -> Overlap:
    def mean(times_ns: Iterable[int]) -> int:
        return sum(times_ns) // len(windows)

    step_ns, compute_ns = mean(one.step_ns for one in windows), mean(one.compute_ns for one in windows)
    hidden_ns, exposed_ns = mean(one.hidden_comm_ns for one in windows), mean(one.exposed_comm_ns for one in windows)
    copy_ns = mean(one.exposed_copy_ns for one in windows)
    return Overlap(
        step_ns=step_ns,
        compute_ns=compute_ns,
        comm_ns=hidden_ns + exposed_ns,
        hidden_comm_ns=hidden_ns,
        exposed_comm_ns=exposed_ns,
        exposed_copy_ns=copy_ns,
        idle_ns=step_ns - compute_ns - exposed_ns - copy_ns,
    )


def _spread(times_ns: Sequence[int]) -> Spread:
    low, middle, high = np.percentile(times_ns, [25, 50, 75]).tolist()
    return Spread(median_ns=round(middle), quartile1_ns=round(low), quartile3_ns=round(high))

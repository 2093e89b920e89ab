"""The numbers that are compared: what each is called, in which unit, which direction is better, and where it is read.

A metric that is a column of a table has that column's unit and direction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dtbench.base.columns import Better, Column, Unit
from dtbench.base.vocabulary import Estimate
from dtbench.runs.cell.summarize_overlap import fraction
from dtbench.runs.summary import CellSummary
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class OfLaunch:
    """Read off the summary of a launch: of its MEASURED steps, or of all of it; None and NaN: not known."""

    read: Callable[[CellSummary], float | None]


@dataclass(frozen=True)
class OfEstimate:
    """Exposed communication as it is estimated without a profiler, the mean over ranks."""

    estimate: Estimate


@dataclass(frozen=True)
class OfSteps:
    """Read off the table ``overlap`` of PROFILED steps whose account is known, at least one."""

    read: "Callable[[pd.DataFrame], float]"


@dataclass(frozen=True)
class OfPurpose:
    """The mean over these steps of a column of the table ``purposes``, for each purpose."""

    column: str


@dataclass(frozen=True)
class OfOwner:
    """What the collectives of each owner left exposed in these steps, the mean."""


Value = OfLaunch | OfEstimate | OfSteps | OfPurpose | OfOwner


@dataclass(frozen=True)
class Metric:
    """One number of a launch, or one for each of several subjects.

    Attributes:
        name: a word that ``--fail-if`` takes.
        words: for people.
        value: where it is read.
        is_positive: zero and less are no reading of it.
    """

    name: str
    words: str
    unit: Unit
    better: Better
    value: Value
    is_positive: bool = False

    @property
    def of(self) -> str | None:
        """What its subjects are; None: the whole step only."""
        match self.value:
            case OfPurpose():
                return "a purpose"
            case OfOwner():
                return "an owner"
            case _:
                return None

    @property
    def is_profiled(self) -> bool:
        """Whether it is of PROFILED steps, so that it tells nothing where these may not stand for others."""
        return not isinstance(self.value, OfLaunch | OfEstimate)


def _read_column(overlap: "pd.DataFrame", name: str) -> float:
    """Return the mean of a column; NaN where it is not known of every step."""
    return math.nan if overlap[name].hasnans else float(overlap[name].sum()) / len(overlap)


def _of_column(name: str, words: str, column: Column[Any], value: Value | None = None) -> Metric:
    """Return the metric of a column, by default its mean over steps."""
    if column.unit is None:
        raise AssertionError(f"{column.name} has no unit")
    return Metric(name, words, column.unit, column.better, value or OfSteps(partial(_read_column, name=column.name)))


STEP_TIME: Final = "step_time"
EXPOSED: Final = "exposed_comm"
HIDDEN: Final = "hidden_comm"
HIDDEN_SHARE: Final = "hidden_fraction"
TOKENS: Final = "tokens_per_second"
EXPOSED_BY_PURPOSE: Final = "exposed"
WAIT: Final = "wait"
EXPOSED_BY_OWNER: Final = "owner_exposed"

METRICS: Final = (
    Metric(STEP_TIME, "step time", Unit.NS, Better.LOWER, OfLaunch(lambda of: of.step_time.median), is_positive=True),
    Metric(
        TOKENS,
        "tokens per s",
        Unit.PER_SECOND,
        Better.HIGHER,
        OfLaunch(lambda of: of.tokens_per_second),
        is_positive=True,
    ),
    _of_column(EXPOSED, "exposed comm", OVERLAP["exposed_comm_ns"]),
    Metric("exposed_ablation", "exposed comm by ablation", Unit.NS, Better.LOWER, OfEstimate(Estimate.ABLATION)),
    Metric("exposed_waits", "exposed comm by waits", Unit.NS, Better.LOWER, OfEstimate(Estimate.WAIT)),
    _of_column(HIDDEN, "hidden comm", OVERLAP["hidden_comm_ns"]),
    Metric(
        HIDDEN_SHARE,
        "hidden share",
        Unit.FRACTION,
        Better.HIGHER,
        OfSteps(lambda overlap: fraction(overlap, "hidden_comm_ns", "comm_ns")),
    ),
    _of_column("idle", "idle", OVERLAP["idle_ns"]),
    _of_column("compute", "compute", OVERLAP["compute_ns"]),
    Metric(
        "between_steps",
        "between steps",
        Unit.NS,
        Better.LOWER,
        OfLaunch(lambda of: None if of.between_steps is None else of.between_steps.between_ns),
    ),
    Metric("cpu_time", "CPU time", Unit.NS, Better.LOWER, OfLaunch(lambda of: of.cpu_ns_per_step), is_positive=True),
    Metric(
        "time_to_first_step",
        "first step",
        Unit.NS,
        Better.LOWER,
        OfLaunch(lambda of: of.time_to_first_step_ns if of.first_step_part is None else None),
        is_positive=True,
    ),
    Metric(
        "host_memory",
        "host memory",
        Unit.BYTES,
        Better.LOWER,
        OfLaunch(lambda of: None if of.memory is None else of.memory.rss_peak_bytes),
        is_positive=True,
    ),
    Metric(
        "allocated_memory",
        "allocated memory",
        Unit.BYTES,
        Better.LOWER,
        OfLaunch(lambda of: None if of.memory is None else of.memory.allocated_peak_bytes),
    ),
    Metric(
        "reserved_memory",
        "reserved memory",
        Unit.BYTES,
        Better.LOWER,
        OfLaunch(lambda of: None if of.memory is None else of.memory.reserved_peak_bytes),
    ),
    _of_column(EXPOSED_BY_PURPOSE, "exposed", PURPOSES["exposed_ns"], OfPurpose("exposed_ns")),
    _of_column(WAIT, "wait", PURPOSES["wait_ns"], OfPurpose("wait_ns")),
    _of_column(EXPOSED_BY_OWNER, "exposed", COLLECTIVES["exposed_ns"], OfOwner()),
)
"""In the order in which reports show them.

Exposed and hidden time, idle and compute are of PROFILED steps; by ablation and by waits, of steps of their own.
"""

BY_NAME: Final = {metric.name: metric for metric in METRICS}


def spell_metric(name: str, subject: str) -> str:
    """Name a metric for people.

    >>> spell_metric("exposed", "unshard"), spell_metric("step_time", "")
    ('unshard exposed', 'step time')
    """
    words = BY_NAME[name].words if name in BY_NAME else name
    return f"{subject} {words}" if subject else words

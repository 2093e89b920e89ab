"""The numbers that are compared: what each is called, in which unit, and which direction is better."""

from dataclasses import dataclass
from typing import Final

from dtbench.comparison.comparison import Better, Unit


@dataclass(frozen=True)
class Metric:
    """One number of a launch, or one for each of several subjects.

    Attributes:
        name: a word that ``--fail-if`` takes.
        words: for people.
        of: what its subjects are; None: the whole step only.
        is_profiled: it is of PROFILED steps, and tells nothing where these may not stand for others.
        is_positive: zero and less are no reading of it.
    """

    name: str
    words: str
    unit: Unit
    better: Better
    of: str | None = None
    is_profiled: bool = False
    is_positive: bool = False


STEP_TIME: Final = "step_time"
EXPOSED: Final = "exposed_comm"
HIDDEN: Final = "hidden_comm"
TOKENS: Final = "tokens_per_second"
ABLATION: Final = "exposed_ablation"
WAITS: Final = "exposed_waits"
EXPOSED_BY_PURPOSE: Final = "exposed"
WAIT: Final = "wait"
EXPOSED_BY_OWNER: Final = "owner_exposed"

METRICS: Final = (
    Metric(STEP_TIME, "step time", Unit.NS, Better.LOWER, is_positive=True),
    Metric(TOKENS, "tokens per s", Unit.PER_SECOND, Better.HIGHER, is_positive=True),
    Metric(EXPOSED, "exposed comm", Unit.NS, Better.LOWER, is_profiled=True),
    Metric(ABLATION, "exposed comm by ablation", Unit.NS, Better.LOWER),
    Metric(WAITS, "exposed comm by waits", Unit.NS, Better.LOWER),
    Metric(HIDDEN, "hidden comm", Unit.NS, Better.NEITHER, is_profiled=True),
    Metric("hidden_fraction", "hidden share", Unit.FRACTION, Better.HIGHER, is_profiled=True),
    Metric("idle", "idle", Unit.NS, Better.LOWER, is_profiled=True),
    Metric("compute", "compute", Unit.NS, Better.LOWER, is_profiled=True),
    Metric("between_steps", "between steps", Unit.NS, Better.LOWER),
    Metric("cpu_time", "CPU time", Unit.NS, Better.LOWER, is_positive=True),
    Metric("time_to_first_step", "first step", Unit.NS, Better.LOWER, is_positive=True),
    Metric("host_memory", "host memory", Unit.BYTES, Better.LOWER, is_positive=True),
    Metric("allocated_memory", "allocated memory", Unit.BYTES, Better.LOWER),
    Metric("reserved_memory", "reserved memory", Unit.BYTES, Better.LOWER),
    Metric(EXPOSED_BY_PURPOSE, "exposed", Unit.NS, Better.LOWER, of="a purpose", is_profiled=True),
    Metric(WAIT, "wait", Unit.NS, Better.LOWER, of="a purpose", is_profiled=True),
    Metric(EXPOSED_BY_OWNER, "exposed", Unit.NS, Better.LOWER, of="an owner", is_profiled=True),
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

"""Where the time of a window went: the account of MEASUREMENT.md, section 1, exact in integer nanoseconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dtbench.analyze.coverage import Window, cover
from dtbench.analyze.intervals import Intervals
from dtbench.vocabulary import Kind


@dataclass(frozen=True)
class Overlap:
    """One window's account; ``compute + exposed_comm + exposed_copy + idle = step`` to the nanosecond.

    Attributes:
        step_ns: length of the window.
        compute_ns: compute runs.
        comm_ns: communication runs.
        hidden_comm_ns: communication runs beside compute.
        exposed_comm_ns: communication runs and compute does not.
        exposed_copy_ns: a copy runs and neither compute nor communication does.
        idle_ns: nothing runs; on CPU this is host time, Python and dispatch.
    """

    step_ns: int
    compute_ns: int
    comm_ns: int
    hidden_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int

    @property
    def hidden_fraction(self) -> float:
        """Hidden over all communication; NaN when there is none."""
        return self.hidden_comm_ns / self.comm_ns if self.comm_ns else math.nan

    @property
    def exposed_step_fraction(self) -> float:
        """Exposed communication over the window; NaN for an empty window."""
        return self.exposed_comm_ns / self.step_ns if self.step_ns else math.nan


def measure_overlap(window: Window, kinds: Mapping[Kind, Intervals]) -> Overlap:
    """Account for every nanosecond of a window.

    Args:
        window: what to account for; spans are clipped to it.
        kinds: union of the spans of each of the three kinds.
    """
    coverage = cover(window, kinds)
    compute, comm, copy = (coverage.running[kind] for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY))
    return Overlap(
        step_ns=window.length_ns,
        compute_ns=coverage.time_ns(compute),
        comm_ns=coverage.time_ns(comm),
        hidden_comm_ns=coverage.time_ns(comm & compute),
        exposed_comm_ns=coverage.time_ns(comm & ~compute),
        exposed_copy_ns=coverage.time_ns(copy & ~compute & ~comm),
        idle_ns=coverage.time_ns(~(compute | comm | copy)),
    )

"""Where the time of a window went: an account that is exact in integer nanoseconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.coverage import Window, cover, window_borders
from dtbench.analyze.intervals import Intervals, Ints
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


def measure_overlaps(windows: Sequence[Window], kinds: Mapping[Kind, Intervals]) -> list[Overlap]:
    """Account for every nanosecond of many windows, each for itself.

    Args:
        windows: what to account for, in any order; spans are clipped to them.
        kinds: union of the spans of each of the three kinds.
    """
    if not windows:
        return []
    borders = window_borders(windows)
    coverage = cover(Window(int(borders.min()), int(borders.max())), kinds, borders.ravel())
    places = np.searchsorted(np.append(0, np.cumsum(coverage.length_ns)) + borders.min(), borders)
    compute, comm, copy = (coverage.running[kind] for kind in (Kind.COMPUTE, Kind.COMM, Kind.COPY))
    masks = (
        np.ones_like(compute),
        compute,
        comm,
        comm & compute,
        comm & ~compute,
        copy & ~compute & ~comm,
        ~(compute | comm | copy),
    )
    columns = [_time_between(np.where(mask, coverage.length_ns, 0), places) for mask in masks]
    return [Overlap(*row) for row in np.array(columns).T.tolist()]


def _time_between(length_ns: Ints, places: Ints) -> Ints:
    before = np.append(0, np.cumsum(length_ns))
    return np.asarray(before[places[:, 1]] - before[places[:, 0]], dtype=np.int64)

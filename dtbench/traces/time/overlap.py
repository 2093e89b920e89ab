"""Where the time of a window went: an account that is exact in integer nanoseconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.time.coverage import Window, cover, window_borders
from dtbench.traces.time.intervals import Intervals, Ints


@dataclass(frozen=True)
class Overlap:
    """One window's account; ``compute + exposed_comm + exposed_copy + idle = step`` to the nanosecond.

    None is what was not seen: everything of a window in which nothing ran; all but ``step_ns`` and ``comm_ns`` of one
    in which the threads that compute were not recorded; zeros of communication, and what is left idle beside them, of
    one that issued collectives which were not seen to run; copies, and what is left idle, of one of which copies are
    lost; what may be no zero of one that may begin earlier.

    Attributes:
        step_ns: length of the window, above zero.
        compute_ns: compute runs.
        comm_ns: communication runs.
        hidden_comm_ns: communication runs overlapped with compute.
        exposed_comm_ns: communication runs and compute does not.
        exposed_copy_ns: a copy runs and neither compute nor communication does.
        idle_ns: nothing runs; on CPU this is host time, Python and dispatch.
        is_least: collectives or kernels were launched and not seen to run, so that communication, hidden and exposed,
            is at least this, and copies and idle time at most.
    """

    step_ns: int | None
    compute_ns: int | None
    comm_ns: int | None
    hidden_comm_ns: int | None
    exposed_comm_ns: int | None
    exposed_copy_ns: int | None
    idle_ns: int | None
    is_least: bool = field(default=False, kw_only=True)

    @property
    def is_decided(self) -> bool:
        """Whether it is known of all communication whether it was hidden."""
        return self.hidden_comm_ns is not None and self.exposed_comm_ns is not None

    @property
    def hidden_fraction(self) -> float:
        """Hidden over all communication; NaN when there is none, and where it is not known what hid it."""
        return math.nan if self.exposed_comm_ns is None else divide(self.hidden_comm_ns, self.comm_ns)

    @property
    def exposed_step_fraction(self) -> float:
        """Exposed communication over the window; NaN where it is not known."""
        return divide(self.exposed_comm_ns, self.step_ns)


NOT_SEEN: Final = Overlap(*[None] * 7)
"""The account of a window in which nothing ran: a step that launched nothing onto the device."""


def divide(part_ns: float | None, whole_ns: float | None) -> float:
    """Return a share of time; NaN where one of the two is not known or there is nothing to share."""
    return math.nan if part_ns is None or not whole_ns else part_ns / whole_ns


def measure_overlaps(
    windows: Sequence[Window], kinds: Mapping[Kind, Intervals], recorded: Intervals | None = None
) -> list[Overlap]:
    """Account for every nanosecond of many windows, each for itself.

    Args:
        windows: what to account for, in any order; spans are clipped to them.
        kinds: union of the spans of each of the three kinds.
        recorded: when what computes was recorded; None: always.
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
    found = [Overlap(*row) if row[0] else NOT_SEEN for row in np.array(columns).T.tolist()]
    if recorded is None:
        return found
    known_ns = recorded.covered_inside(borders)
    pairs = zip(found, known_ns, strict=True)
    return [one if one.step_ns == time_ns else _without_compute(one) for one, time_ns in pairs]


def _without_compute(one: Overlap) -> Overlap:
    """Leave what is known where the threads that compute were not recorded: how long, and how much communication."""
    return replace(NOT_SEEN, step_ns=one.step_ns, comm_ns=one.comm_ns)


def _time_between(length_ns: Ints, places: Ints) -> Ints:
    before = np.append(0, np.cumsum(length_ns))
    return np.asarray(before[places[:, 1]] - before[places[:, 0]], dtype=np.int64)

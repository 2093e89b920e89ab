"""Operators that most steps of a trace have as often, and some lack: these were not all recorded.

::

    step      2                3                4
    thread    mm mm add add    mm mm            mm mm add add     in 3 those of backward are lost: the thread did
                                   ░░░░░                          something there, and nothing tells what

A step may well do less than others, as one of an epoch's end. It is not all recorded where it lacks more than a few of
the operators that more than half of the steps have as often, and nothing of it is there for a time at once that is
longer by far than any in the steps that lack none; or ids that count the host's calls go on by far more at once than in
any of these. Of less than three steps, nothing is told.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dtbench.traces.host.steps import Step
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints, clip
from dtbench.traces.trace import Trace

_LEAST_STEPS: Final = 3
_LEAST_SHARE: Final = 0.1
LONGER: Final = 2.0
"""Times as long, or as much, as in any step that lacks nothing: by far."""


def count_operators(trace: Trace, operators: Ints, steps: Sequence[Step]) -> Ints:
    """Count operators by name and step, shape ``(names, steps)``."""
    counts = np.zeros((len(trace.names), len(steps)), dtype=np.int64)
    for place, step in enumerate(steps):
        starts_ns = trace.start_ns[operators]
        inside = operators[(starts_ns >= step.host.start_ns) & (starts_ns < step.host.end_ns)]
        counts[:, place] = np.bincount(trace.name[inside], minlength=len(trace.names))
    return counts


def find_lacking_operators(
    counts: Ints, active: Intervals, steps: Sequence[Step], skipped: Ints | None = None
) -> dict[int, int]:
    """Count the operators that steps lack and that most have, by place of the step; of those not all recorded.

    Args:
        counts: as from ``count_operators``.
        active: when something of the steps is there.
        steps: of the trace.
        skipped: by how much the ids of calls go on at once, at most, in each step; None: calls have none.
    """
    if len(steps) < _LEAST_STEPS:
        return {}
    usual = np.median(counts, axis=1).astype(np.int64)[:, np.newaxis]
    due = np.where(2 * (counts == usual).sum(axis=1, keepdims=True) > len(steps), usual, 0)
    lacks = np.maximum(0, due - counts).sum(axis=0)
    are_part = (lacks > 0) & (lacks >= _LEAST_SHARE * due.sum())
    idle_ns = np.array([_find_longest_idle(active, step.host) for step in steps], dtype=np.int64)
    if are_part.all():
        return {}
    is_broken = idle_ns > LONGER * idle_ns[~are_part].max()
    if skipped is not None:
        is_broken |= skipped > LONGER * np.maximum(1, skipped[~are_part].max())
    found = np.flatnonzero(are_part & is_broken)
    return {place: int(lacks[place]) for place in found.tolist()}


def _find_longest_idle(active: Intervals, host: Window) -> int:
    """Return the longest time at once of a step in which nothing of it is there."""
    inside = clip(active, host.start_ns, host.end_ns)
    starts_ns = np.append(inside.starts_ns, host.end_ns)
    ends_ns = np.append(host.start_ns, inside.ends_ns)
    return int((starts_ns - ends_ns).max())

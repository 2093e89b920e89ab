"""Operators that each other step of a trace of CPUs has, and one lacks: some of it was not recorded.

::

    step      2                3                4
    thread    mm mm add add    mm mm            mm mm add add     in 3 those of backward are lost: the thread computed
    gloo        ███ ███          ███ ███          ███ ███         there, and nothing tells when

A step may well do less than others, as one of an epoch's end. It is not all recorded where it lacks more than a few of
the operators that all others have as often, and its threads seem to compute nothing for a time at once that is longer
by far than any in the others. Of less than three steps, or where several lack some, nothing is told.
"""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import OPERATOR
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints, clip
from dtbench.traces.trace import Trace

_LEAST_STEPS: Final = 3
_LEAST_SHARE: Final = 0.1
_LONGER: Final = 2.0


def find_absent(
    trace: Trace, lanes: Collection[int], computing: Collection[int], compute: Intervals, steps: Sequence[Step]
) -> dict[int, int]:
    """Count the operators that steps lack and that all others have, by place of the step; of those not all recorded.

    Of steps in which these threads began no operator of any kind, nothing is recorded: they are not among them.

    Args:
        trace: of CPUs.
        lanes: threads that run the model.
        computing: of names, those of what computes.
        compute: when any of these threads computed.
        steps: of the trace.
    """
    is_operator = np.isin(trace.lane, [*lanes]) & trace.is_one_of((OPERATOR,))
    every = _count(trace, np.flatnonzero(is_operator), steps)
    counts = np.where(np.isin(np.arange(len(every)), [*computing])[:, np.newaxis], every, 0)
    idle_ns = np.array([_find_longest_idle(compute, step.host) for step in steps], dtype=np.int64)
    places = np.flatnonzero(every.any(axis=0)).tolist() if len(steps) >= _LEAST_STEPS else []
    return {place: lacks for place in places if (lacks := _count_lacks(counts, idle_ns, place))}


def _count(trace: Trace, operators: Ints, steps: Sequence[Step]) -> Ints:
    """Count operators, shape ``(names, steps)``."""
    counts = np.zeros((len(trace.names), len(steps)), dtype=np.int64)
    for place, step in enumerate(steps):
        starts_ns = trace.start_ns[operators]
        inside = operators[(starts_ns >= step.host.start_ns) & (starts_ns < step.host.end_ns)]
        counts[:, place] = np.bincount(trace.name[inside], minlength=len(trace.names))
    return counts


def _count_lacks(counts: Ints, idle_ns: Ints, place: int) -> int:
    """Count what one step lacks; 0: it may have done no more."""
    others = np.delete(counts, place, axis=1)
    due = np.where((others == others[:, :1]).all(axis=1), others[:, 0], 0)
    lacks = int(np.maximum(0, due - counts[:, place]).sum())
    is_part = lacks >= _LEAST_SHARE * due.sum()
    is_idle = idle_ns[place] > _LONGER * np.delete(idle_ns, place).max()
    return lacks if is_part and is_idle else 0


def _find_longest_idle(compute: Intervals, host: Window) -> int:
    """Return the longest time at once of a step in which nothing computed."""
    inside = clip(compute, host.start_ns, host.end_ns)
    starts_ns = np.append(inside.starts_ns, host.end_ns)
    ends_ns = np.append(host.start_ns, inside.ends_ns)
    return int((starts_ns - ends_ns).max())

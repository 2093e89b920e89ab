"""Rows that a CPU trace has twice: one thread runs one collective of gloo at a time, so that a copy is none.

::

    thread of gloo   ├ all_reduce ┤        twice with the same begin and end: a tool wrote, or joined, rows twice
                     ├ all_reduce ┤

Without a look at them each copy is a collective that nobody issued. Where collectives are there twice, so may be all
rows; elsewhere equal rows are not looked for: that costs time, and short operators may well have equal times.
"""

import numpy as np

from dtbench.traces.kinds.categories import DEVICE_CATEGORIES
from dtbench.traces.kinds.operators import Role, cpu_role
from dtbench.traces.notes.files import CopiedRows
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace


def leave_copies(trace: Trace) -> tuple[Trace, CopiedRows | None]:
    """Return a trace without the copies of rows, and a note that counts them, of no rank yet; None: there are none.

    A trace of a device stays as it is.
    """
    if any(category in DEVICE_CATEGORIES for category in trace.categories):
        return trace, None
    is_collective = trace.is_named(lambda name: cpu_role(name, "") is Role.COLLECTIVE)
    spans = np.flatnonzero(is_collective & (trace.end_ns > trace.start_ns))
    if not _find_copies(trace, spans).any():
        return trace, None
    is_copy = _find_copies(trace, np.arange(len(trace)))
    collectives = int(np.count_nonzero(is_copy & is_collective))
    return trace.select(~is_copy), CopiedRows((), collectives, int(np.count_nonzero(is_copy)) - collectives)


def _find_copies(trace: Trace, events: Ints) -> Bools:
    """Tell which events are as one before them in name, category, thread and times; shape ``(len(events),)``."""
    columns = (trace.start_ns, trace.end_ns, trace.lane, trace.name, trace.category)
    rows = np.stack([column[events].astype(np.int64) for column in columns])
    order = np.lexsort((events, *rows[::-1]))
    is_copy = np.zeros(len(events), dtype=np.bool_)
    is_copy[order[1:]] = (rows[:, order[1:]] == rows[:, order[:-1]]).all(axis=0)
    return is_copy

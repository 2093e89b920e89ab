"""When calls were captured into a graph instead of sent to the device: what they launch has no kernel of its own.

::

    BeginCapture  EndCapture            GraphLaunch
    |  a  b  c    |                     |
                       device             ██a██ ██b██c█      all carry the id of the graph's launch
"""

import re
from typing import Final

import numpy as np

from dtbench.traces.kinds.categories import CALLS
from dtbench.traces.time.intervals import Intervals, unite
from dtbench.traces.trace import Trace

# cudaStreamBeginCapture, hipStreamBeginCapture, cuStreamBeginCapture_v2, musaStreamBeginCapture,
# cudaStreamBeginRecaptureToGraph; aclmdlRICaptureBegin
_BEGINS: Final = re.compile(r"Begin(?:Re)?Capture|CaptureBegin", re.IGNORECASE)
_ENDS: Final = re.compile(r"EndCapture|CaptureEnd", re.IGNORECASE)


def find_captures(trace: Trace) -> Intervals:
    """Return when anything was captured, whoever began it.

    What another thread launches meanwhile may be captured too: autograd runs a captured backward on a thread of its
    own. A capture whose end the trace lacks lasts to the end of the trace, one whose beginning it lacks from its start.
    """
    calls = trace.is_one_of(CALLS)
    begins = np.flatnonzero(calls & trace.is_named(_BEGINS.search))
    ends = np.flatnonzero(calls & trace.is_named(_ENDS.search))
    if not len(begins) and not len(ends):
        return unite([], [])
    times_ns = np.concatenate((trace.start_ns[begins], trace.end_ns[ends]))
    turns = np.repeat([1, -1], [len(begins), len(ends)])
    order = np.lexsort((turns, times_ns))
    open_after = np.cumsum(turns[order])
    open_after -= min(0, int(open_after.min()))
    borders = np.concatenate(([trace.start_ns.min()], times_ns[order], [trace.end_ns.max() + 1]))
    is_open = np.concatenate(([open_after[0] - turns[order[0]]], open_after)) > 0
    return unite(borders[:-1][is_open], borders[1:][is_open])

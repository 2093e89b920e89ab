"""Kernels that took no time, by a clock that tells parts of a microsecond: their times were not recorded.

No kernel runs for 0 ns. By a clock of whole microseconds (Kineto's until March 2024) a short one does.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.traces.kinds.categories import KERNEL
from dtbench.traces.trace import Trace, Unread

_REASON: Final = "kernel that took no time"
_MICROSECOND_NS: Final = 1000


def leave_out_timeless(trace: Trace) -> Trace:
    """Return a trace without kernels whose times were not recorded; they are counted as unread."""
    lengths_ns, is_kernel = trace.end_ns - trace.start_ns, trace.is_one_of((KERNEL,))
    is_timeless = is_kernel & (lengths_ns == 0)
    if not is_timeless.any() or not (lengths_ns[is_kernel] % _MICROSECOND_NS).any():
        return trace
    unread = {**trace.unread.events, _REASON: int(np.count_nonzero(is_timeless))}
    return replace(trace.select(~is_timeless), unread=Unread(unread, trace.unread.is_truncated))

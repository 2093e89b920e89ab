"""Time a consumer stood still for a collective, by purpose; on a device, a gap that the end of a collective closes.

What a CPU trace says of waiting is found in ``cpu_waits.py``.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dtbench.analyze.classify import DEVICE_CATEGORIES
from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import Bools, Intervals, Ints, clip, unite
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Purpose

Waits = Mapping[Purpose, Intervals]


def unite_by_purpose(spans: Sequence[tuple[Purpose, int, int]]) -> Waits:
    """Unite purpose, start and end of single waits."""
    return {
        purpose: unite([s for p, s, _ in spans if p is purpose], [e for p, _, e in spans if p is purpose])
        for purpose in Purpose
        if any(p is purpose for p, _, _ in spans)
    }


def find_device_waits(trace: Trace, nesting: Nesting, compute: Bools, collectives: Sequence[Collective]) -> Waits:
    """Find the gaps of the main compute stream that the end of a collective closes.

    ::

        compute stream   ████░░░░░░░░████        next kernel launched here ^ before the collective ended
        collective          ├──────┤
        wait                 ███████             from the end of the kernel before, or from the launch if that is later

    The main compute stream is the one with most compute. A gap counts when a collective ends inside it, and the kernel
    after it had been launched by then: that kernel can only have waited for the collective. The last to end names the
    purpose.
    """
    kernels = _main_stream(trace, compute)
    ended = sorted(
        ((collective.end_ns, collective.purpose) for collective in collectives if len(collective.span.starts_ns)),
        key=lambda item: item[0],
    )
    ends_ns = np.array([end_ns for end_ns, _ in ended], dtype=np.int64)
    spans: list[tuple[Purpose, int, int]] = []
    busy_until = int(trace.end_ns[kernels[0]]) if len(kernels) else 0
    for event in kernels[1:].tolist():
        start_ns, launch = int(trace.start_ns[event]), int(nesting.launch[event])
        last = int(np.searchsorted(ends_ns, start_ns, side="right")) - 1
        launched_ns = int(trace.start_ns[launch])
        if launch != event and last >= 0 and ends_ns[last] > max(busy_until, launched_ns):
            spans.append((ended[last][1], max(busy_until, launched_ns), int(ends_ns[last])))
        busy_until = max(busy_until, int(trace.end_ns[event]))
    return unite_by_purpose(spans)


def _main_stream(trace: Trace, compute: Bools) -> Ints:
    """Give the work of the stream with most compute, in order of start, its copies too."""
    lengths = np.bincount(trace.lane[compute], weights=(trace.end_ns - trace.start_ns)[compute])
    if not len(lengths):
        return np.array([], dtype=np.int64)
    is_work = np.array([category in DEVICE_CATEGORIES for category in trace.categories], dtype=np.bool_)
    events = np.flatnonzero((trace.lane == int(np.argmax(lengths))) & is_work[trace.category])
    return events[np.argsort(trace.start_ns[events], kind="stable")]


def wait_time_ns(waits: Waits, purpose: Purpose, start_ns: int, end_ns: int) -> int:
    """Give the time a consumer waited for a purpose inside a window."""
    return clip(waits[purpose], start_ns, end_ns).length_ns if purpose in waits else 0

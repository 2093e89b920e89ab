"""How long functions under study ran in PROFILED steps, and how much of that nothing hid: from their ranges in traces.

::

    probe      ├─────────────┤        total: 13
    compute    ██░░░░████░░░░░        any thread or stream
    exposed      ├──┤    ├───┤        total less what compute ran beside or inside it: 7

A range of ``torch.profiler`` holds what opening and closing it cost, tens of microseconds: a short function is longer
here than its probe's clock says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.ranges import parse_probe_range
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.intervals import Intervals, Ints, subtract, unite
from dtbench.traces.trace import Trace


@dataclass(frozen=True)
class ProbeTime:
    """One function in one PROFILED step of one rank, or in several: a row of the table ``probes`` without its keys.

    Attributes:
        calls: whose ranges begin inside a step.
        total_ns: in at least one of its ranges, on any thread.
        exposed_ns: the part in which nothing computed, on no thread or stream.
    """

    calls: int
    total_ns: int
    exposed_ns: int

    def __add__(self, other: "ProbeTime") -> "ProbeTime":
        """Put two steps or two ranks together."""
        return ProbeTime(self.calls + other.calls, self.total_ns + other.total_ns, self.exposed_ns + other.exposed_ns)


def time_probes(trace: Trace, steps: Sequence[Window], compute: Intervals) -> tuple[Mapping[str, ProbeTime], ...]:
    """Time every function that has ranges in a trace, by label, for each step in which one began or ran.

    Args:
        trace: as read.
        steps: their host windows, disjoint: a function runs on the host, which is ahead of a device.
        compute: the union of everything that computed.
    """
    parsed = {number: found[0] for number, name in enumerate(trace.names) if (found := parse_probe_range(name))}
    borders = window_borders(steps)
    on_host = ~trace.is_one_of((DEVICE_RANGE,))  # on a device there is a copy of a range, over the kernels in it
    names: dict[str, list[int]] = {}
    for number, label in parsed.items():
        names.setdefault(label, []).append(number)
    timed = {
        label: _time(trace, np.flatnonzero(np.isin(trace.name, numbers) & on_host), borders, compute)
        for label, numbers in names.items()
    }
    nothing = ProbeTime(0, 0, 0)
    return tuple(
        {label: of_steps[index] for label, of_steps in timed.items() if of_steps[index] != nothing}
        for index in range(len(steps))
    )


def _time(trace: Trace, events: Ints, borders: Ints, compute: Intervals) -> list[ProbeTime]:
    """Return one function's time in each step."""
    starts_ns = trace.start_ns[events]
    running = unite(starts_ns, trace.end_ns[events])
    alone = subtract(running, compute)
    begun = (starts_ns[:, None] >= borders[:, 0]) & (starts_ns[:, None] < borders[:, 1])
    columns = (begun.sum(axis=0).tolist(), running.covered_inside(borders), alone.covered_inside(borders))
    return [ProbeTime(*map(int, of_step)) for of_step in zip(*columns, strict=True)]

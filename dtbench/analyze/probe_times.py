"""How long functions under study ran in PROFILED steps, and how much of that nothing hid: from their ranges in traces.

::

    probe      ├─────────────┤        total: 13
    compute    ██░░░░████░░░░░        any thread or stream
    exposed      ├──┤    ├───┤        total less what compute ran beside or inside it: 7

A range of ``torch.profiler`` holds what opening and closing it cost, tens of microseconds: a short function is longer
here than its probe's clock says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.coverage import window_borders
from dtbench.analyze.intervals import Ints, subtract, unite
from dtbench.analyze.launch_tables import find_launch_traces
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace import Trace
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace
from dtbench.analyze.trace_file import TraceFile
from dtbench.errors import TraceError
from dtbench.ranges import parse_probe_range
from dtbench.store.layout import LaunchFolder


@dataclass(frozen=True)
class ProbeTime:
    """One function in the PROFILED steps of one trace, or of several.

    Attributes:
        calls: whose ranges begin inside a step.
        total_ns: in at least one of its ranges, on any thread.
        exposed_ns: the part in which nothing computed, on no thread or stream.
    """

    calls: int
    total_ns: int
    exposed_ns: int

    def __add__(self, other: "ProbeTime") -> "ProbeTime":
        """Put two ranks together."""
        return ProbeTime(self.calls + other.calls, self.total_ns + other.total_ns, self.exposed_ns + other.exposed_ns)


def read_probe_times(folder: LaunchFolder) -> dict[str, ProbeTime]:
    """Sum the probes of a launch over its ranks, by label; a trace that cannot be read is left out."""
    sums: dict[str, ProbeTime] = {}
    for file in find_launch_traces(folder):
        for label, one in _read_file(file).items():
            sums[label] = sums[label] + one if label in sums else one
    return sums


def _read_file(file: TraceFile) -> Mapping[str, ProbeTime]:
    try:
        trace = read_trace(file.source)
        analysis = analyze_trace(trace, rank=file.rank, process_groups=file.process_groups, facts=file.facts)
    except TraceError:
        return {}
    return time_probes(trace, analysis)


def time_probes(trace: Trace, analysis: TraceAnalysis) -> dict[str, ProbeTime]:
    """Time every function that has ranges in a trace, by label."""
    parsed = {number: found[0] for number, name in enumerate(trace.names) if (found := parse_probe_range(name))}
    borders = window_borders(analysis.timeline.steps)
    names: dict[str, list[int]] = {}
    for number, label in parsed.items():
        names.setdefault(label, []).append(number)
    return {
        label: _time(trace, analysis, np.flatnonzero(np.isin(trace.name, numbers)), borders)
        for label, numbers in names.items()
    }


def _time(trace: Trace, analysis: TraceAnalysis, events: Ints, borders: Ints) -> ProbeTime:
    starts_ns = trace.start_ns[events]
    running = unite(starts_ns, trace.end_ns[events])
    alone = subtract(running, analysis.timeline.compute)
    inside = (starts_ns[:, None] >= borders[:, 0]) & (starts_ns[:, None] < borders[:, 1])
    return ProbeTime(
        calls=int(inside.any(axis=1).sum()),
        total_ns=sum(running.covered_inside(borders)),
        exposed_ns=sum(alone.covered_inside(borders)),
    )

"""Graphs of PROFILED steps whose hosts take what they take without the profiler, so that a step is as MEASURED.

::

    PROFILED   |host ▒▒▒▒▒▒▒▒▒▒▒▒|████ link|          the profiler makes hosts slower, links and kernels not
    MEASURED   |host ▒▒▒▒▒▒▒▒▒|████ link|             all of the host's time by one factor, found by false position

As closed forms of known-cost runs do (``prediction/calibrate.py``): what a host's time consists of is not asked.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Final

from dtbench.replay.graph import JobGraph, scale_hosts
from dtbench.replay.run import replay

LEAST: Final = 0.5
MOST: Final = 1.2
"""Between these parts of its profiled time a host's may lie; beyond, it is not the profiler that makes the difference.
"""
_MOST_TRIES: Final = 10
_NEAR: Final = 1e-3
"""Of a step: nearer is as MEASURED."""


@dataclass(frozen=True)
class AsMeasured:
    """A graph whose steps are as MEASURED.

    Attributes:
        host_times: how many times as long hosts take as in the PROFILED steps.
    """

    graph: JobGraph
    host_times: float


def rescale_hosts(graph: JobGraph, step_ns: float) -> AsMeasured | None:
    """Return the graph with hosts that make its mean step as long as it was MEASURED; None: none does.

    Args:
        graph: of PROFILED steps.
        step_ns: of the slowest rank, as MEASURED.
    """
    off_ns = _take(graph, 1.0) - step_ns
    if abs(off_ns) <= _NEAR * step_ns:
        return AsMeasured(graph, 1.0)
    low, high = (1.0, MOST) if off_ns < 0 else (LEAST, 1.0)
    below_ns = -off_ns if off_ns < 0 else step_ns - _take(graph, low)
    above_ns = off_ns if off_ns > 0 else _take(graph, high) - step_ns
    if min(below_ns, above_ns) < 0:
        return None
    for _ in range(_MOST_TRIES):
        times = low + (high - low) * below_ns / (below_ns + above_ns)
        off_ns = _take(graph, times) - step_ns
        if abs(off_ns) <= _NEAR * step_ns:
            break
        if off_ns < 0:  # the weight of the end that stays is halved (Illinois), so that both ends move
            low, below_ns, above_ns = times, -off_ns, above_ns / 2
        else:
            high, below_ns, above_ns = times, below_ns / 2, off_ns
    return AsMeasured(scale_hosts(graph, times), times)


def _take(graph: JobGraph, times: float) -> float:
    return fmean(replay(scale_hosts(graph, times)).steps_ns)

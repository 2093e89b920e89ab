"""Graphs of PROFILED steps whose hosts take what they take without the profiler, so that a step is as MEASURED.

::

    PROFILED   |host ▒▒▒▒▒▒▒▒▒▒▒▒|████ link|          the profiler makes hosts slower, links and kernels not
    MEASURED   |host ▒▒▒▒▒▒▒▒▒|████ link|             all of the host's time by one factor, found by halving

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
_HALVINGS: Final = 10
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
    low, high = LEAST, MOST
    if not _take(graph, low) <= step_ns <= _take(graph, high):
        return None
    for _ in range(_HALVINGS):
        times = (low + high) / 2
        took_ns = _take(graph, times)
        if abs(took_ns - step_ns) <= _NEAR * step_ns:
            break
        low, high = (times, high) if took_ns < step_ns else (low, times)
    return AsMeasured(scale_hosts(graph, times), times)


def _take(graph: JobGraph, times: float) -> float:
    return fmean(replay(scale_hosts(graph, times)).steps_ns)

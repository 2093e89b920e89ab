"""From a CPU trace: what the host issued and waited for, and how long it took between."""

from collections.abc import Collection
from typing import Final

import numpy as np

from dtbench.replay.draft import Draft, DraftStep, Given, Sitting, mean_of
from dtbench.replay.graph import Latencies
from dtbench.traces.host.steps import find_cpu_hosts, find_host_ranges
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.time.coverage import Window
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

_BOUND_NS: Final = 50_000_000
"""Longest that a thread takes to go on once nothing keeps it waiting, where ranks share cores: some of its turns."""


def read_cpu(trace: Trace, analysis: TraceAnalysis, numbers: Collection[int]) -> Draft:
    """Read one rank.

    Args:
        trace: of the rank, read again.
        analysis: of the same trace.
        numbers: of the steps that are read, which follow one another; at least one.
    """
    timeline = analysis.timeline
    ranges = find_host_ranges(trace)
    hosts = {number: host for (number, _), host in zip(ranges, find_cpu_hosts(trace, ranges), strict=True)}
    steps = tuple(
        DraftStep(number, window, hosts[number])
        for number, window in zip(timeline.step_numbers, timeline.steps, strict=True)
        if number in numbers
    )
    inside = Window(steps[0].host.start_ns, steps[-1].host.end_ns)
    lanes = sorted({one.lane for one in timeline.collectives})
    rows = [
        (one.issue_ns, one.start_ns, lanes.index(one.lane), end_ns, end_ns - one.start_ns, index, -1)
        for index, one in enumerate(timeline.collectives)
        for end_ns in [_find_end(one)]
        if one.issue_ns is not None and one.is_seen and inside.start_ns <= one.issue_ns < inside.end_ns
    ]
    given = Given.of(np.array(rows, dtype=np.int64).reshape(-1, 7), lanes)
    sittings = tuple(
        Sitting(Window(start_ns, end_ns), (item,))
        for item, index in enumerate(given.collective.tolist())
        for start_ns, end_ns in zip(*_waits_of(analysis, index), strict=True)
        if end_ns <= inside.end_ns
    )
    return Draft(analysis, steps, given, sittings, _measure(given, sittings), np.zeros(len(given), dtype=np.int64))


def _find_end(one: Collective) -> int:
    """Return when it had ended at the latest: gloo lets its consumer go on before it closes its span."""
    went_on_ns = one.waited.ends_ns[one.waited.ends_ns > one.start_ns]
    return min(one.end_ns, int(went_on_ns[0])) if len(went_on_ns) else one.end_ns


def _waits_of(analysis: TraceAnalysis, index: int) -> tuple[list[int], list[int]]:
    waited = analysis.collectives[index].waited
    return waited.starts_ns.tolist(), waited.ends_ns.tolist()


def _measure(given: Given, sittings: tuple[Sitting, ...]) -> Latencies:
    awaited = np.array([sitting.items[0] for sitting in sittings], dtype=np.int64)
    started_ns = np.array([sitting.window.start_ns for sitting in sittings], dtype=np.int64)
    went_on_ns = np.array([sitting.window.end_ns for sitting in sittings], dtype=np.int64)
    ends_ns = given.end_ns[awaited]
    is_free = given.find_busy_until({}) <= given.given_ns
    stood_for = np.isin(np.arange(len(given)), awaited[ends_ns > started_ns])  # else its thread competes with the host
    chosen = is_free & stood_for if (is_free & stood_for).any() else is_free
    return Latencies(
        launch_ns=mean_of((given.start_ns - given.given_ns)[chosen], _BOUND_NS),
        return_ns=mean_of((went_on_ns - ends_ns)[ends_ns > started_ns], _BOUND_NS),
    )

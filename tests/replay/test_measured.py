"""Hosts of PROFILED steps that take another time, so that a step is as it was MEASURED."""

import pytest

from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.graph import JobGraph
from dtbench.replay.measured import LEAST, MOST, rescale_hosts
from dtbench.replay.read import Recorded
from dtbench.replay.run import replay
from dtbench.replay.what_if import WhatIf, ask
from dtbench.traces.job.trace_set import gather_ranks
from tests.replay.hand_made import Written

STEP_NS = 90_000
"""A bucket that is ready after 20 and takes 40, one ready after 50 that takes 30, and compute until 60."""


def two_buckets(times: int = 1_000) -> JobGraph:
    begun = Written().begin().spend(20 * times).issue("a", 40 * times)
    return {0: begun.spend(30 * times).issue("b", 30 * times).spend(10 * times).sit(0, 1).end().finish()}


def ask_measured(graph: JobGraph, measured_ns: float) -> WhatIf:
    recorded = Recorded(graph, (1,), replay(graph).rank_steps_ns, gather_ranks([]))
    return ask([recorded], [Hidden()], measured_ns=[measured_ns])


@pytest.mark.parametrize(("measured_ns", "host_times"), [(90_000, 1.0), (87_000, 0.85), (93_000, 1.15)])
def test_a_step_is_as_measured_and_links_take_what_they_took(measured_ns: float, host_times: float) -> None:
    """The first bucket ends at 60 or later where hosts are fast: then 20 f + 40 + 30, as long as 50 f <= 20 f + 40."""
    made = rescale_hosts(two_buckets(), measured_ns)
    assert made is not None
    assert made.host_times == pytest.approx(host_times, abs=5e-3)
    found = ask_measured(two_buckets(), measured_ns)
    assert found.step_ns == pytest.approx(measured_ns, rel=1e-3)
    assert found.answers[0].saving_ns == pytest.approx(measured_ns - 60_000 * host_times, rel=0.02)
    assert found.fits[0].worst == 0, "the fit is that of the PROFILED steps"


@pytest.mark.parametrize("measured_ns", [STEP_NS * LEAST, 70_000, STEP_NS * MOST, 1e9])
def test_what_no_host_explains_stays_profiled(measured_ns: float) -> None:
    assert rescale_hosts(two_buckets(), measured_ns) is None
    found = ask_measured(two_buckets(), measured_ns)
    assert (found.step_ns, found.host_times) == (STEP_NS, ())


def test_of_launches_either_all_are_as_measured_or_none() -> None:
    recorded = Recorded(two_buckets(), (1,), replay(two_buckets()).rank_steps_ns, gather_ranks([]))
    assert ask([recorded, recorded], [Hidden()], measured_ns=[87_000, 93_000]).step_ns == pytest.approx(
        90_000, rel=1e-3
    )
    assert ask([recorded, recorded], [Hidden()], measured_ns=[87_000, 10_000]).host_times == ()

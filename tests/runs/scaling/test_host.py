"""The host among more ranks: by hand where lines go through whole numbers, and what never happens."""

import math

import numpy as np
import pytest
from scipy import stats

from dtbench.runs.scaling.host import expect_maximum, foresee_host
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.settings.forecast import LEVEL

MS = 1e6
NAN = float("nan")


def ran(world: int, *hosts_ms: float, cores: int | None = 2, cpu_ms: float = NAN, spread_ms: float = NAN) -> Measured:
    hosts = tuple(host * MS for host in hosts_ms)
    return Measured(world, tuple(300 * MS for _ in hosts), hosts, cpu_ms * MS, spread_ms * MS, cores)


def test_the_largest_of_normal_draws_is_as_known() -> None:
    """The first three have closed forms; the others are held against draws."""
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}
    for count, value in known.items():
        assert expect_maximum(count) == pytest.approx(value, abs=1e-6)
    draws = np.random.default_rng(5).standard_normal((4_000, 512))
    assert expect_maximum(512) == pytest.approx(float(draws.max(axis=1).mean()), abs=0.03)
    rising = [expect_maximum(2**power) for power in range(17)]
    assert rising == sorted(rising)
    assert all(value <= math.sqrt(2 * math.log(2**power)) for power, value in enumerate(rising))  # a known bound


def test_on_a_cluster_the_host_does_not_grow_and_that_of_the_fewest_ranks_counts() -> None:
    measured = [ran(4, 40.0, 44.0), ran(2, 20.0, 22.0)]
    for world in (1, 2, 64, 4096):
        assert foresee_host(measured, world, None).time_ns == 21 * MS


def test_on_one_machine_it_is_on_the_line_through_the_means_and_never_below_the_smallest() -> None:
    measured = [ran(2, 20.0, 22.0), ran(4, 30.0, 32.0)]
    found = {world: foresee_host(measured, world, 8).time_ns / MS for world in (1, 2, 4, 6, 8, 64)}
    assert found == pytest.approx({1: 21.0, 2: 21.0, 4: 31.0, 6: 41.0, 8: 51.0, 64: 51.0})
    falling = [ran(2, 30.0, 32.0), ran(4, 20.0, 22.0)]
    assert foresee_host(falling, 8, 8).time_ns == 26 * MS  # a line that falls is none: the mean


def test_of_a_single_world_cpu_time_grows_with_ranks_to_a_core() -> None:
    """Four ranks on two cores wait twice; of 30 ms 20 are CPU time, stretched; of eight it is twice as much."""
    one = ran(4, 30.0, cpu_ms=10.0)
    assert [foresee_host([one], world, 16).time_ns / MS for world in (2, 4, 8, 16, 99)] == [30, 30, 50, 90, 90]
    assert foresee_host([ran(2, 30.0, cpu_ms=50.0)], 4, 4).time_ns == 60 * MS  # no more than all of it
    assert foresee_host([ran(2, 30.0)], 4, 4).time_ns == 60 * MS  # not told: all of it
    assert foresee_host([ran(2, 30.0, cores=None)], 64, 64).time_ns == 30 * MS  # not known that any share
    assert foresee_host([ran(2, 30.0, cores=16)], 16, 64).time_ns == 30 * MS


def test_the_last_of_more_ranks_is_later() -> None:
    one = ran(2, 20.0, spread_ms=3.0)
    skews = [foresee_host([one], world, None).skew_ns for world in (1, 2, 4, 1024)]
    assert skews[:2] == [0.0, 0.0]
    assert skews[3] == pytest.approx(3 * MS * (expect_maximum(1024) - expect_maximum(2)))
    shared = foresee_host([ran(4, 20.0, spread_ms=3.0)], 1024, None)  # two to a core: CPU time is stretched
    assert shared.skew_ns == pytest.approx(6 * MS * (expect_maximum(1024) - expect_maximum(4)))
    assert foresee_host([one], 8, 8).skew_ns == 0.0  # in the growth of those that share a machine
    assert foresee_host([one], 64, 8).skew_ns == pytest.approx(3 * MS * (expect_maximum(64) - expect_maximum(8)))
    assert foresee_host([ran(2, 20.0)], 1024, None).skew_ns == 0.0
    assert foresee_host([one], 64, None).whole_ns == 20 * MS + foresee_host([one], 64, None).skew_ns


def test_intervals_are_of_launches_and_of_the_line() -> None:
    hosts = [20.0, 23.0, 26.0]
    quantile = float(stats.t.ppf((1 + LEVEL) / 2, 2))
    found = foresee_host([ran(2, *hosts)], 64, None)
    assert found.half_ns == pytest.approx(quantile * 3 * MS * math.sqrt(2 / 3))
    assert foresee_host([ran(2, 20.0)], 64, None).half_ns is None
    assert foresee_host([ran(2, 20.0), ran(4, 30.0)], 8, 8).half_ns is None  # two points say nothing of a line
    line = [ran(2, 20.0, 22.0), ran(4, 30.0, 32.0)]
    halves = [foresee_host(line, world, 64).half_ns or 0.0 for world in (2, 4, 6, 8, 16)]
    assert halves[2:] == sorted(halves[2:])
    assert halves[0] == pytest.approx(halves[1])  # as far from the middle
    variance = 4 / 2  # each is off by one, of four launches two are not free
    share = 1 / 4 + (8 - 3) ** 2 / 4 + 1 / 2
    quantile = float(stats.t.ppf((1 + LEVEL) / 2, 2))
    assert halves[3] == pytest.approx(quantile * math.sqrt(variance * share) * MS)

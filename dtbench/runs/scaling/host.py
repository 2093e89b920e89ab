"""How long the host takes in a step of another number of ranks: the one cost that must be guessed from what was run.

[Note: what of a host grows] A rank's host does the same work however many ranks there are: its Python, its copies, its
part of a ring. Two things make it longer. *Ranks that share cores* take turns, as on one machine whose ranks outnumber
its cores: that grows in proportion to ranks, since all of them come to their hosts' parts at the same places of a
step. *The last of many* is later than the last of few, wherever ranks are. So there are two ways to ask::

    nothing said        a cluster: every rank has as many cores as it had where fewest shared them
    so many on a node   machines such as the one that was measured, each with so many ranks

In the second the line through the means of several worlds is taken (least squares over launches), never one that
falls, and never below the smallest world. Of a single one what was CPU time grows in proportion to how many ranks want
a core; the rest, such as sleeps that end late, does not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Final

import numpy as np
from scipy import special

from dtbench.runs.scaling.measured import Measured, stretch
from dtbench.runs.settings.forecast import LEVEL


@dataclass(frozen=True)
class Host:
    """The host's time in a step, ns.

    Attributes:
        time_ns: of the slowest of as many ranks as share a machine, or as were measured.
        half_ns: half of an interval (``LEVEL``) of the mean of as many launches: what launches vary by, and how well
            the line is known; None: too few launches tell it.
        skew_ns: by how much the last of all ranks is later than the last of those.
    """

    time_ns: float
    half_ns: float | None
    skew_ns: float

    @property
    def whole_ns(self) -> float:
        """Both."""
        return self.time_ns + self.skew_ns


def foresee_host(measured: Sequence[Measured], world: int, ranks_per_node: int | None) -> Host:
    """Return how long the host takes, by [Note: what of a host grows].

    Args:
        measured: at least one, of one kind of machine.
        world: ranks.
        ranks_per_node: how many share a machine such as theirs; None: as many as shared one where they were fewest.
    """
    worlds = sorted(measured, key=lambda one: one.world)
    first = worlds[0]
    if ranks_per_node is None:
        time_ns, half_ns = _bound_mean(first.hosts_ns)
        return Host(time_ns, half_ns, _grow_skew(worlds, first.world, world))
    together = max(first.world, min(world, ranks_per_node))
    if len({one.world for one in worlds}) > 1:
        time_ns, half_ns = _bound_line(worlds, together)
    else:
        time_ns, half_ns = _bound_mean([host_ns for one in worlds for host_ns in one.hosts_ns])
        more = stretch(together, first.cores) / first.waiting - 1
        time_ns += max(0.0, more) * fmean(one.contended_ns for one in worlds)
    return Host(time_ns, half_ns, _grow_skew(worlds, together, world))


def _grow_skew(worlds: Sequence[Measured], known: int, world: int) -> float:
    """Return by how much the last of all ranks is later than the last of those whose time is known."""
    spreads_ns = [one.spread_ns * one.waiting for one in worlds if not math.isnan(one.spread_ns)]
    if not spreads_ns or world <= known:
        return 0.0
    spread_ns = math.sqrt(fmean(spread_ns**2 for spread_ns in spreads_ns))
    return spread_ns * (expect_maximum(world) - expect_maximum(known))


def _bound_mean(hosts_ns: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and half of the interval of another mean of as many: Student's t, of both."""
    count = len(hosts_ns)
    if count == 1:
        return hosts_ns[0], None
    spread_ns = float(np.std(hosts_ns, ddof=1))
    return fmean(hosts_ns), _quantile(count - 1) * spread_ns * math.sqrt(2 / count)


def _bound_line(worlds: Sequence[Measured], ranks: int) -> tuple[float, float | None]:
    """Return the line's value, and half of the interval of a mean of as many launches as a world has.

    The variance of a value that a line predicts is ``s2 (1/n + (x - mean)2 / Sxx + 1/m)`` (Draper and Smith, Applied
    Regression Analysis, 3rd edition, section 3.1), of the mean of m.
    """
    points = [(one.world, host_ns) for one in worlds for host_ns in one.hosts_ns]
    at, hosts_ns = np.array(points, dtype=np.float64).T
    middle, width = float(at.mean()), float(((at - at.mean()) ** 2).sum())
    slope = max(0.0, float(((at - middle) * (hosts_ns - hosts_ns.mean())).sum()) / width)
    value_ns = float(hosts_ns.mean()) + slope * (ranks - middle)
    freedom = len(points) - 2
    if freedom < 1:
        return value_ns, None
    rest_ns = hosts_ns - hosts_ns.mean() - slope * (at - middle)
    variance = float((rest_ns**2).sum()) / freedom
    again = len(points) / len({one.world for one in worlds})
    share = 1 / len(points) + (ranks - middle) ** 2 / width + 1 / again
    return value_ns, _quantile(freedom) * math.sqrt(variance * share)


def _quantile(freedom: int) -> float:
    return float(special.stdtrit(freedom, (1 + LEVEL) / 2))


_MOST_SIGMAS: Final = 12.0
_PARTS: Final = 6_000


@lru_cache(maxsize=256)
def expect_maximum(count: int) -> float:
    """Return the expected maximum of so many draws from the standard normal distribution.

    ``E max = integral from 0 of (1 - F(x)^n - F(-x)^n) dx``, since ``E X = integral P(X > x) - integral P(X < -x)``
    and the maximum of n has ``F^n`` (David and Nagaraja, Order Statistics, 3rd edition, 2003, sections 2.1 and 3.1).

    >>> round(expect_maximum(1), 6), round(expect_maximum(2), 6), round(expect_maximum(4096), 2)
    (0.0, 0.56419, 3.64)
    """
    at = np.linspace(0.0, _MOST_SIGMAS, _PARTS + 1)
    height = 1.0 - special.ndtr(at) ** count - special.ndtr(-at) ** count
    return float((height[1:] + height[:-1]).sum() / 2 * _MOST_SIGMAS / _PARTS)

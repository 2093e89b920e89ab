"""The closed forms of a row's cells: what a step takes and what it exposes, with bounds on either side.

A cell is fed with the costs that were injected and the host's time in its steps, which may or may not hide; or, where
the row has cells without a link, with what the fastest of them measured: when each gradient was ready, and what came
after the last. Only PROFILED steps tell that, and the profiler stretches them: what the host took there is scaled to
what MEASURED steps took.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Arm
from dtbench.prediction.bounds import bound_step, margin_ns
from dtbench.prediction.costs import (
    Costs,
    RankCosts,
    UnitCosts,
    known_costs,
    measured_costs,
    same_costs,
    scale_host,
    spread_host,
)
from dtbench.prediction.predict import Prediction, predict_step
from dtbench.scenario.schema.scenario import Ddp
from dtbench.selftest.evidence import Evidence, Traced
from dtbench.selftest.records import Bounds, ExpectedBounds
from dtbench.selftest.row import Row
from dtbench.store.records.run import CellRecord

_LESS_NS: Final = 5 * NS_PER_MS
_MORE_NS: Final = 10 * NS_PER_MS
_SHARE: Final = 0.1
"""What is exposed may be less than its closed form by 5 ms, a quarter of the smallest unit, and more by 10 ms, as a
step may be, because ranks wait for each other's host; or by a tenth, as estimates may differ among themselves."""
_HOSTS: Final = (0, 1, 2)
"""Times of the host that bound what is exposed: more of it hides more; CPU time does not hold waiting for a core."""
_AGREE_NS: Final = 2 * NS_PER_MS
"""Estimates that differ by less agree in any case (MEASUREMENT.md, section 3)."""


@dataclass(frozen=True)
class Feed:
    """What a run without a link measured.

    Attributes:
        traced: its PROFILED steps.
        forward_ns: in these, until the last rank began backward.
        step_ns: its MEASURED step, slowest rank, median.
    """

    traced: Traced
    forward_ns: int
    step_ns: int


def find_expected_bounds(
    row: Row, cells: Mapping[str, CellRecord], evidence: Mapping[str, Evidence]
) -> dict[str, ExpectedBounds]:
    """Return the closed form of each cell of a row that has one.

    Args:
        row: its cells.
        cells: as planned, by name.
        evidence: what they left behind, by name.
    """
    found: dict[str, ExpectedBounds] = {}
    feed = find_feed([evidence[name] for name in row.fed_by if name in evidence])
    for name in row.cells:
        if name in row.fed_by or name not in evidence:
            continue  # it has no link, or left nothing
        with suppress(PredictionError):  # the row is told that there is none
            found[name] = _find_bounds(cells[name], evidence[name], feed)
    return found


def find_feed(unlinked: Sequence[Evidence]) -> Feed | None:
    """Return what feeds closed forms: the run without a link with the shortest MEASURED step; None: there is none."""
    feeds = [
        Feed(one.traced, one.traced.backward_at_ns, round(one.summary.step_time.median))
        for one in unlinked
        if one.traced is not None
        and one.traced.backward_at_ns is not None
        and one.traced.buckets
        and not math.isnan(one.summary.step_time.median)
    ]
    return min(feeds, key=lambda feed: feed.step_ns, default=None)


def _find_bounds(cell: CellRecord, evidence: Evidence, feed: Feed | None) -> ExpectedBounds:
    if isinstance(cell.scenario.parallel, Ddp) and feed is not None:
        return bounds_from_measured(cell, feed)
    if evidence.host_ns is None:
        raise PredictionError(f"cell {cell.name} came to no MEASURED step, so that its host's time is not known")
    return bounds_from_known(cell, host_ns=evidence.host_ns, turns=evidence.turns)


def bounds_from_known(cell: CellRecord, *, host_ns: int, turns: float = 1.0) -> ExpectedBounds:
    """Return the closed form from costs as injected, and the host's time of a step.

    Args:
        cell: as planned.
        host_ns: of a rank.
        turns: ranks that take turns on a core: each waits so much longer for the others.

    Raises:
        PredictionError: there is none.
    """
    known = known_costs(cell.scenario, cell.plan)
    step = bound_step(cell.scenario, cell.plan, host_ns=host_ns)
    exposed_ns = [_exposed_with_host_ns(cell, known, times * host_ns) for times in _HOSTS]
    less_ns, more_ns = (max(least_ns, round(_SHARE * exposed_ns[1])) for least_ns in (_LESS_NS, _MORE_NS))
    return ExpectedBounds(
        step_ns=Bounds(expected_ns=step.expected_ns, low_ns=step.low_ns, high_ns=step.high_ns),
        exposed_ns=Bounds(
            expected_ns=exposed_ns[1],
            low_ns=max(0, min(exposed_ns) - less_ns),
            high_ns=max(exposed_ns) + round(more_ns * turns),
        ),
        source="costs as injected, and the host's time in a step",
        is_disputed=_is_disputed(cell, known),
    )


def _exposed_with_host_ns(cell: CellRecord, known: RankCosts, host_ns: int) -> int:
    batches = cell.scenario.accumulation.micro_batches
    spread = {rank: spread_host(costs, host_ns, micro_batches=batches) for rank, costs in known.items()}
    return _mean_exposed_ns(predict_step(cell.scenario, cell.plan, spread), cell.plan.ranks)


def bounds_from_measured(cell: CellRecord, feed: Feed) -> ExpectedBounds:
    """Return the closed form from what a run without a link measured, with a bucket for each block.

    Raises:
        PredictionError: there is none, or the run does not fit the cell.
    """
    known, traced = known_costs(cell.scenario, cell.plan)[0], feed.traced
    profiled = measured_costs(
        known,
        forward_ns=feed.forward_ns,
        ready_ns=[bucket.ready_ns for bucket in traced.buckets],
        after_ns=max(0, traced.step_ns - max(bucket.end_ns for bucket in traced.buckets)),
    )
    measured = scale_host(profiled, _host_ratio(known, feed))
    costs = same_costs(measured, cell.plan)
    step_ns = predict_step(cell.scenario, cell.plan, costs).step_ns
    exposed_ns, most_ns = (
        _mean_exposed_ns(predict_step(cell.scenario, cell.plan, same_costs(one, cell.plan)), cell.plan.ranks)
        for one in (_take_host_for_compute(measured), measured)
    )
    margin = margin_ns(exposed_ns)
    return ExpectedBounds(
        step_ns=_around(step_ns, margin_ns(step_ns)),
        exposed_ns=Bounds(
            expected_ns=exposed_ns, low_ns=max(0, exposed_ns - margin), high_ns=max(exposed_ns, most_ns) + margin
        ),
        source="ready times and what came after them, measured without a link",
        is_disputed=_is_disputed(cell, costs),
    )


def _host_ratio(known: Costs, feed: Feed) -> float:
    """Return the host's time in MEASURED steps over that in PROFILED ones: all that no block is known to take."""
    known_ns = sum(unit.forward_ns + unit.backward_ns for unit in known.units)
    profiled_ns = feed.traced.step_ns - known_ns
    return max(0, feed.step_ns - known_ns) / profiled_ns if profiled_ns > 0 else 1.0


def _take_host_for_compute(costs: Costs) -> Costs:
    """Return costs of blocks without host time: what they took beside the known cost is operators, for the most."""
    units = tuple(
        UnitCosts(unit.forward_ns + unit.forward_host_ns, unit.backward_ns + unit.backward_host_ns)
        for unit in costs.units
    )
    return replace(costs, units=units)


def _around(expected_ns: int, slack_ns: int) -> Bounds:
    return Bounds(expected_ns=expected_ns, low_ns=max(0, expected_ns - slack_ns), high_ns=expected_ns + slack_ns)


def _mean_exposed_ns(prediction: Prediction, ranks: int) -> int:
    return round(fmean(prediction.of(rank).exposed_comm_ns for rank in range(ranks)))


def _is_disputed(cell: CellRecord, costs: RankCosts) -> bool:
    """Tell whether by the closed form itself the trace and the step without communication differ, on any rank."""
    full, removed = (predict_step(cell.scenario, cell.plan, costs, arm=arm) for arm in (Arm.FULL, Arm.REMOVED))
    for rank in range(cell.plan.ranks):
        gained_ns = full.of(rank).step_ns - removed.of(rank).step_ns
        traced_ns = full.of(rank).exposed_comm_ns
        if abs(gained_ns - traced_ns) > max(_AGREE_NS, _SHARE * max(gained_ns, traced_ns)):
            return True
    return False

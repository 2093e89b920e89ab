"""What one rank's step costs without communication: known, or measured in a run without a link.

::

    host   |before  unit 0  unit 1 ... after | before  ... unit 1  unit 0  after | optimizer
            forward                            backward
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Region
from dtbench.plan.plan import Plan
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.presets import written_model
from dtbench.scenario.schema.scenario import Scenario


@dataclass(frozen=True)
class UnitCosts:
    """What a block costs in one micro-batch.

    Attributes:
        forward_ns: compute of its forward.
        backward_ns: compute of its backward, before its gradients are ready.
        forward_host_ns, backward_host_ns: time of the host on top of that, which is no compute.
        ready: for each of its parameters in their order, the share of ``backward_ns`` after which its gradient is
            there, in ``(0, 1]``; empty: all are only after the whole block, host included.
    """

    forward_ns: int
    backward_ns: int
    forward_host_ns: int = 0
    backward_host_ns: int = 0
    ready: tuple[float, ...] = ()


@dataclass(frozen=True)
class Costs:
    """What a rank's step costs without communication.

    Attributes:
        units: the blocks, in the order of forward.
        forward_before_ns, forward_after_ns: compute of each forward before the first block and after the last.
        backward_before_ns, backward_after_ns: the same of each backward, in its own order.
        issue_ns: of the host for each collective before its issue.
        finish_ns: of the host for each collective after a wait that is no part of its issue: copies out.
        optimizer_ns: of the host in the optimizer's region.
    """

    units: tuple[UnitCosts, ...]
    forward_before_ns: int = 0
    forward_after_ns: int = 0
    backward_before_ns: int = 0
    backward_after_ns: int = 0
    issue_ns: int = 0
    finish_ns: int = 0
    optimizer_ns: int = 0


RankCosts = Mapping[int, Costs]
"""Costs by global rank."""


def known_costs(scenario: Scenario, plan: Plan) -> dict[int, Costs]:
    """Return what the timed model says of each rank; the host costs nothing.

    Raises:
        PredictionError: what this model costs is unknown.
    """
    model = scenario.model
    if not isinstance(model, Timed):
        kind = written_model(model).kind
        raise PredictionError(
            f"it is not known what model.kind={kind} costs; take model.kind=timed, or measure it without a link"
        )
    made: dict[UnitCosts, Costs] = {}  # ranks that cost the same share one value: there may be thousands
    found = {}
    for rank in range(plan.ranks):
        of = model.cost_ns(rank)
        unit = UnitCosts(of[Region.FORWARD], of[Region.BACKWARD])
        found[rank] = made.setdefault(unit, Costs(units=(unit,) * model.layers))
    return found


def same_costs(costs: Costs, plan: Plan) -> dict[int, Costs]:
    """Let every rank cost the same."""
    return dict.fromkeys(range(plan.ranks), costs)


def measured_costs(
    known: Costs, *, forward_ns: int, ready_ns: Sequence[int], after_ns: int, finish_ns: int = 0, issue_ns: int = 0
) -> Costs:
    """Add to known compute what the host was seen to take in a run without a link, with one micro-batch.

    Args:
        known: compute of each block.
        forward_ns: from the step's start to that of backward.
        ready_ns: when each block's gradients were ready, from the step's start, in the order of backward.
        after_ns: from the end of the last wait, its copy out included, to the step's end.
        finish_ns: of each bucket or unit after the wait for it.
        issue_ns: of each before its issue, where ``ready_ns`` does not hold it.

    Raises:
        PredictionError: there is not one time for each block, or they fall.
    """
    if len(ready_ns) != len(known.units) or list(ready_ns) != sorted(ready_ns) or ready_ns[0] < forward_ns:
        raise PredictionError(
            f"ready times must be one for each of {len(known.units)} blocks, in the order of backward, and rise"
        )
    before_ns = (forward_ns, *ready_ns[:-1])
    backward_ns = [ready - before for ready, before in zip(ready_ns, before_ns, strict=True)][::-1]
    forward_host_ns = max(0, forward_ns - sum(unit.forward_ns for unit in known.units))
    units = tuple(
        replace(
            unit,
            forward_host_ns=_share(forward_host_ns, len(known.units), place),
            backward_host_ns=max(0, taken_ns - unit.backward_ns),
        )
        for place, (unit, taken_ns) in enumerate(zip(known.units, backward_ns, strict=True))
    )
    return replace(known, units=units, finish_ns=finish_ns, issue_ns=issue_ns, optimizer_ns=after_ns)


def scale_host(costs: Costs, ratio: float) -> Costs:
    """Let the host take another time everywhere, such as without the profiler; compute stays as it is."""

    def scale(host_ns: int) -> int:
        return round(ratio * host_ns)

    units = tuple(
        replace(unit, forward_host_ns=scale(unit.forward_host_ns), backward_host_ns=scale(unit.backward_host_ns))
        for unit in costs.units
    )
    return replace(
        costs,
        units=units,
        issue_ns=scale(costs.issue_ns),
        finish_ns=scale(costs.finish_ns),
        optimizer_ns=scale(costs.optimizer_ns),
    )


def spread_host(costs: Costs, host_ns: int, *, micro_batches: int) -> Costs:
    """Spread the host's time of a whole step over blocks and optimizer, where it is unknown where it lies.

    A block's backward has twice the products of its forward, and the optimizer visits each parameter once: of four
    equal parts for each block these get one, two and one.
    """
    count = len(costs.units)
    forward_ns, optimizer_ns = host_ns // 4, host_ns // 4
    backward_ns = host_ns - forward_ns - optimizer_ns
    units = tuple(
        replace(
            unit,
            forward_host_ns=unit.forward_host_ns + _share(forward_ns // micro_batches, count, place),
            backward_host_ns=unit.backward_host_ns + _share(backward_ns // micro_batches, count, place),
        )
        for place, unit in enumerate(costs.units)
    )
    return replace(costs, units=units, optimizer_ns=costs.optimizer_ns + optimizer_ns)


def spread_host_over_ranks(costs: RankCosts, host_ns: int, *, micro_batches: int) -> dict[int, Costs]:
    """Spread the same host's time on every rank, as ``spread_host`` does; ranks that cost the same share one value."""
    made: dict[int, Costs] = {}
    for one in costs.values():
        if id(one) not in made:
            made[id(one)] = spread_host(one, host_ns, micro_batches=micro_batches)
    return {rank: made[id(one)] for rank, one in costs.items()}


def count_host_ns(costs: Costs, *, micro_batches: int) -> int:
    """Return the host's time of a whole step, without what each collective takes: what ``spread_host`` spread."""
    units_ns = sum(unit.forward_host_ns + unit.backward_host_ns for unit in costs.units)
    return micro_batches * units_ns + costs.optimizer_ns


def _share(whole_ns: int, count: int, place: int) -> int:
    """Return one of equal parts that add up to the whole."""
    return whole_ns * (place + 1) // count - whole_ns * place // count

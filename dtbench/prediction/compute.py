"""How long a real model computes, found from how long the regions of its steps were measured to be.

::

    measured      |██████▒▒██████| forward    |████████████████▒▒▒▒| backward    |███| optimizer
                   blocks  ▒▒ exposed          blocks           ▒▒ exposed        update

A region is as long as what its rank computes in it and what of communication is not hidden there. How much is hidden
depends on compute, so this is found by trying: the longer blocks compute, the longer is their region in the closed
form, and of one length it is as long as measured. Time of the host is in that, and what ranks wait for each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, assert_never

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Region
from dtbench.plan.plan import Plan
from dtbench.prediction.calibrate import PRECISION, find_length, is_below
from dtbench.prediction.costs import Costs, RankCosts, UnitCosts, same_costs
from dtbench.prediction.predict import MEAN_JITTER, time_regions
from dtbench.prediction.products import Products, count_products
from dtbench.scenario.schema.model import Custom, Mlp, Timed, Transformer
from dtbench.scenario.schema.scenario import Scenario

OF_A_STEP: Final = (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER)
"""Regions that must be known of a step."""

_ROUNDS: Final = 8
"""Forward does not depend on backward, but for gathers that a micro-batch's backward leaves to the next forward."""
_FITS: Final = 1e-3
"""Of a step, to which all regions must be given at once."""

_Field = Literal["forward_ns", "backward_ns", "optimizer_ns"]
_FIELDS: Final[Mapping[Region, _Field]] = {
    Region.FORWARD: "forward_ns",
    Region.BACKWARD: "backward_ns",
    Region.OPTIMIZER: "optimizer_ns",
}


@dataclass(frozen=True)
class Compute:
    """What one rank computes in a step, over all its micro-batches."""

    forward_ns: int = 0
    backward_ns: int = 0
    optimizer_ns: int = 0


def calibrate_compute(scenario: Scenario, plan: Plan, measured_ns: Mapping[Region, float]) -> RankCosts:
    """Return costs with which each region is as long in the closed form as it was measured.

    They are the same on all ranks, which do the same work, and shared among blocks by their products.

    Args:
        scenario: as run.
        plan: of it.
        measured_ns: how long each of ``OF_A_STEP`` was, of all ranks alike: their mean.

    Raises:
        PredictionError: there is no closed form for this, it is not known what blocks compute, or no compute gives
            these regions.
    """
    products = _count(scenario)
    batches, step_ns = scenario.accumulation.micro_batches, sum(measured_ns[region] for region in OF_A_STEP)

    def share(found: Compute) -> RankCosts:
        return same_costs(share_compute(products, found, micro_batches=batches), plan)

    def time(found: Compute) -> Mapping[Region, float]:
        return time_regions(scenario, plan, share(found), jitter_share=MEAN_JITTER)

    found = Compute()
    for _ in range(_ROUNDS):
        for region in OF_A_STEP:
            found = _find(region, found, time, (measured_ns[region], step_ns))
        told_ns = time(found)
        if all(abs(told_ns[region] - measured_ns[region]) <= _FITS * step_ns for region in OF_A_STEP):
            return share(found)
    raise PredictionError("no compute of blocks gives forward and backward as long as measured by their closed form")


def _find(
    region: Region,
    found: Compute,
    time: Callable[[Compute], Mapping[Region, float]],
    measured_ns: tuple[float, float],
) -> Compute:
    """Return the compute of one region with which it is as long as measured; that of the others stays.

    ``measured_ns``: of the region, and of the step.
    """
    name, (region_ns, step_ns) = _FIELDS[region], measured_ns

    def length(compute_ns: int) -> float:
        return time(replace(found, **{name: compute_ns}))[region]

    if is_below(region_ns, least_ns := length(0)):
        raise PredictionError(
            f"{region} of a measured step takes {format_ns(region_ns)}, less than the {format_ns(least_ns)} that its "
            "communication alone takes by its closed form: these do not fit"
        )
    compute_ns = find_length(length, region_ns, most_ns=round(region_ns) + 1, precision_ns=PRECISION * step_ns)
    return replace(found, **{name: compute_ns})


def _count(scenario: Scenario) -> Products:
    model = scenario.model
    match model:
        case Transformer() | Mlp():
            return count_products(model, scenario.data.sequence_length)
        case Timed() | Custom():
            raise PredictionError(f"model.kind={model.kind}: how its blocks share what they compute is not known")
        case _:
            assert_never(model)


def share_compute(products: Products, found: Compute, *, micro_batches: int) -> Costs:
    """Share what a rank computes in a step among its micro-batches, and of each among blocks by their products."""
    forward_ns = _share(found.forward_ns // micro_batches, (*products.forward, products.head))
    backward_ns = _share(found.backward_ns // micro_batches, (*products.backward, products.backward_head))
    return Costs(
        units=tuple(
            UnitCosts(of_forward_ns, of_backward_ns, ready=ready)
            for of_forward_ns, of_backward_ns, ready in zip(
                forward_ns[:-1], backward_ns[:-1], products.ready, strict=True
            )
        ),
        forward_after_ns=forward_ns[-1],
        backward_before_ns=backward_ns[-1],
        optimizer_ns=found.optimizer_ns,
    )


def _share(whole_ns: int, weights: Sequence[int]) -> list[int]:
    """Return whole parts by these weights that add up to the whole."""
    ends_ns = [whole_ns * sum(weights[:place]) // sum(weights) for place in range(len(weights) + 1)]
    return [after - before for before, after in pairwise(ends_ns)]

"""What a cell that ran cost, launch by launch, so that its closed form gives its MEASURED steps.

::

    timed models    blocks are known   the host's time is found from the step
    real models     nothing is known   compute is found from forward, backward and optimizer, which were timed apart,
                                       and held against what PROFILED steps showed to be exposed, which did not enter
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.base.vocabulary import Cause, Phase
from dtbench.plan.plan import Plan
from dtbench.prediction.calibrate import calibrate
from dtbench.prediction.compute import calibrate_compute
from dtbench.prediction.costs import RankCosts
from dtbench.prediction.obstacles import find_obstacles
from dtbench.prediction.predict import predict_step
from dtbench.runs.cell.cell_notes import say_taken
from dtbench.runs.doubt_words import describe_doubt
from dtbench.runs.representative import UNSURE
from dtbench.runs.summary import CellSummary, RegionTimes
from dtbench.runs.wrong_results import find_wrong_results, say_unseen
from dtbench.scenario.schema.model import Custom, Timed
from dtbench.scenario.schema.network import EmulatedNetwork, Network
from dtbench.scenario.schema.scenario import Scenario

MOST_OFF: Final = 0.08
"""Of a MEASURED step: where exposed communication of the closed form and of PROFILED steps are further apart, by
purpose or in all, what hiding it saves is not known."""
MOST_OUTSIDE: Final = 0.05
"""Of a step: its regions must add up to it but for so much."""

_ALL: Final = "all purposes"


class CostSource(StrEnum):
    """How the costs are known with which a closed form speaks."""

    KNOWN = "known"
    """The scenario says what blocks and link take; the host's time was found."""
    REGIONS = "regions"
    """The scenario says what the link takes; compute was found from how long regions of steps were."""


@dataclass(frozen=True)
class Base:
    """An unchanged cell.

    Attributes:
        scenario: as run.
        plan: of it.
        measured_ns: MEASURED step of each launch that has one, median of the slowest rank.
        costs: with which the closed form gives each.
        source: how these are known.
        off: of what was found, the most by which its exposed communication and that of PROFILED steps are apart, of a
            step; None: it was not found.
    """

    scenario: Scenario
    plan: Plan
    measured_ns: tuple[float, ...]
    costs: tuple[RankCosts, ...]
    source: CostSource
    off: float | None = None


def find_base(cell: CellSummary) -> Base:
    """Return what a cell cost.

    Raises:
        PredictionError: something is not known, or speaks against its steps.
    """
    scenario, plan = cell.scenario, cell.plan
    if scenario is None or not isinstance(plan, Plan):
        raise PredictionError("it is a loop of one's own, of which no closed form is known")
    if not isinstance(scenario.network, EmulatedNetwork):
        raise PredictionError(
            f"network.kind={scenario.network.kind}: what it carries has no known cost; network.kind=emulated has"
        )
    if isinstance(scenario.model, Custom):
        raise PredictionError(
            f"model.kind={scenario.model.kind}: how its blocks share what they compute is not known; of models of "
            "dtbench's own it is"
        )
    if (why := why_not_measured(cell)) is not None:
        raise PredictionError(f"its steps are not gone by: {why}")
    if all(math.isnan(time_ns) for time_ns in cell.launch_medians_ns):
        raise PredictionError("there is no MEASURED step")
    refuse_jitter(scenario.network)
    return _find_timed(cell, scenario, plan) if isinstance(scenario.model, Timed) else _find_real(cell, scenario, plan)


def why_not_measured(cell: CellSummary) -> str | None:
    """Say, as a clause, why no MEASURED step of a cell may be gone by; None: they may."""
    taken = [one for one in cell.disturbed if one.phase is Phase.MEASURED]
    if taken:
        return say_taken(taken)
    unlike = cell.unlike.get(cell.name)
    if unlike is not None:
        return f"its launches ran in unlike environments: {unlike}"
    return find_wrong_results(cell) or next(iter(cell.rank_doubts), None) or cell.reason


def refuse_jitter(network: Network) -> None:
    """Refuse a link whose collectives take longer by chance.

    Raises:
        PredictionError: it is one.
    """
    if isinstance(network, EmulatedNetwork) and network.jitter is not None:
        raise PredictionError("network.jitter: which collective takes how much longer is not known beforehand")


def _known(cell: CellSummary) -> tuple[float, ...]:
    return tuple(time_ns for time_ns in cell.launch_medians_ns if not math.isnan(time_ns))


def _find_timed(cell: CellSummary, scenario: Scenario, plan: Plan) -> Base:
    held, measured_ns = cell.prediction, _known(cell)
    if held is None or math.isnan(held.low_ns):
        raise PredictionError("it was not held against its closed form" if held is None else held.sentence)
    if outside := [time_ns for time_ns in measured_ns if not held.low_ns <= time_ns <= held.high_ns]:
        raise PredictionError(
            f"{len(outside)} of {len(measured_ns)} launches measured a step outside its closed "
            f"form's bounds, {format_ns(held.low_ns)} to {format_ns(held.high_ns)}: {format_ns(outside[0])}"
        )
    costs = tuple(calibrate(scenario, plan, time_ns, most_ns=held.high_ns) for time_ns in measured_ns)
    return Base(scenario, plan, measured_ns, costs, CostSource.KNOWN)


def _find_real(cell: CellSummary, scenario: Scenario, plan: Plan) -> Base:
    if obstacles := list(find_obstacles(scenario, plan)):
        raise PredictionError(f"no closed form: {'; '.join(obstacles)}")
    _refuse_machine(cell, scenario, plan)
    measured_ns, costs = [], []
    for launch, step_ns, regions in _read_launches(cell):
        if regions is None:
            raise PredictionError(
                f"not all ranks of launch {launch} tell how long forward, backward and optimizer took"
            )
        whole_ns = sum(regions.by_region.values())
        if abs(whole_ns - step_ns) > MOST_OUTSIDE * step_ns:
            raise PredictionError(
                f"forward, backward and optimizer of launch {launch} take {format_ns(whole_ns)} together, and a "
                f"measured step {format_ns(step_ns)}: these do not fit"
            )
        measured_ns.append(step_ns)
        costs.append(calibrate_compute(scenario, plan, regions.by_region))
    base = Base(scenario, plan, tuple(measured_ns), tuple(costs), CostSource.REGIONS)
    return replace(base, off=_hold_exposed(cell, base))


def _refuse_machine(cell: CellSummary, scenario: Scenario, plan: Plan) -> None:
    """Refuse ranks that compute at each other's cost, or exchange inside blocks where nobody has timed it.

    Raises:
        PredictionError: they do.
    """
    if scenario.parallel.tensor > 1:
        raise PredictionError(
            "over a tensor axis a real model exchanges inside its blocks, and what these compute before and after is "
            "not known apart"
        )
    ranks = plan.ranks if cell.ranks_per_host is None else cell.ranks_per_host
    if cell.cores is not None and ranks > cell.cores:
        raise PredictionError(
            f"{count_things(ranks, 'rank')} share {count_things(cell.cores, 'core')}: while one waits the others "
            "compute faster, which no closed form knows"
        )


def _read_launches(cell: CellSummary) -> Iterator[tuple[int, float, RegionTimes | None]]:
    """Yield number, MEASURED step, ns, and regions of each launch that has such a step."""
    told = cell.launch_regions or (None,) * len(cell.launches)
    for launch, step_ns, regions in zip(cell.launches, cell.launch_medians_ns, told, strict=True):
        if not math.isnan(step_ns):
            yield launch, step_ns, regions


def _hold_exposed(cell: CellSummary, base: Base) -> float:
    """Return how far what the closed form leaves exposed is from what PROFILED steps showed, of a MEASURED step.

    The most of any purpose, and of all together.

    Raises:
        PredictionError: they are further apart than ``MOST_OFF``, or it is not known what was exposed.
    """
    if (why := _why_nothing_seen(cell)) is not None:
        raise PredictionError(f"there is nothing to hold its closed form against: {why}")
    told, seen = _tell_exposed(base), _see_exposed(cell, fmean(base.measured_ns))
    off = {what: abs(told.get(what, 0.0) - seen.get(what, 0.0)) for what in dict.fromkeys((*told, *seen))}
    worst = max(off, key=lambda what: off[what])
    if off[worst] > MOST_OFF:
        raise PredictionError(
            f"of {worst} its closed form leaves {format_fraction(told.get(worst, 0.0))} of a measured step exposed, "
            f"and PROFILED steps showed {format_fraction(seen.get(worst, 0.0))} of it: more than "
            f"{format_fraction(MOST_OFF)} apart, so that what hiding it saves is not known"
        )
    return off[worst]


def _why_nothing_seen(cell: CellSummary) -> str | None:
    """Say, as a clause, why it is not known what was exposed; None: it is."""
    if not cell.ranks:
        return "no PROFILED step was traced"
    if taken := [one for one in cell.disturbed if one.phase is Phase.PROFILED]:
        return f"of PROFILED steps, {say_taken(taken)}"
    if (unseen := say_unseen(cell)) is not None:
        return unseen
    if any(one.exposed_ns is None for one in cell.purposes):
        return "what was exposed is not known of each purpose"
    return next((describe_doubt(one) for one in cell.doubts if one.kind not in UNSURE), None)


def _see_exposed(cell: CellSummary, step_ns: float) -> dict[str, float]:
    """Return what was exposed in a PROFILED step, by purpose and in all, as shares of a MEASURED one.

    Not of its own: the profiler makes steps longer, and a link takes what it takes. Without what ranks waited for each
    other: ranks that are alike do not, and what real ones did is in the compute that was found for all.
    """
    exposed_ns = {str(one.purpose): one.exposed_ns for one in cell.purposes if one.exposed_ns is not None}
    for one in cell.owners:
        if one.cause is Cause.SKEW and one.purpose in exposed_ns:
            exposed_ns[one.purpose] -= one.exposed_ns
    shares = {purpose: max(0, time_ns) / step_ns for purpose, time_ns in exposed_ns.items()}
    return {**shares, _ALL: sum(shares.values())}


def _tell_exposed(base: Base) -> dict[str, float]:
    """Return the same of the closed form's step, mean over ranks and launches."""
    shares = dict[str, float]()
    for costs in base.costs:
        ranks = predict_step(base.scenario, base.plan, costs).ranks
        for one in ranks:
            for collective in one.collectives:
                skew_ns = sum(time_ns for cause, time_ns in collective.causes if cause is Cause.SKEW)
                share = (collective.exposed_ns - skew_ns) / one.step_ns / len(ranks) / len(base.costs)
                shares[collective.purpose] = shares.get(collective.purpose, 0.0) + share
    return {**shares, _ALL: sum(shares.values())}

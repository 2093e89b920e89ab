"""By how much other settings would change a cell's MEASURED step: its closed form, with what its steps had cost.

::

    launch 0   measured 312 ms   ->  host 21 ms  ->  closed form of the changed cell with 21 ms of host: 290 ms
    launch 1   measured 309 ms   ->  host 18 ms  ->                                                     287 ms
    ...                                              saving 22 ms, with what launches and closed forms are off by

Nothing of it was run. Of a timed model over an emulated link all but the host is known; of a real one compute is found,
see ``base.py``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import fmean, stdev
from typing import Final, assert_never

from scipy import special

from dtbench.base.errors import PlanError, PredictionError, ScenarioError
from dtbench.plan.plan import Machine, Plan, make_plan, plan_mesh
from dtbench.prediction.costs import RankCosts
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.prediction.same_compute import find_other_compute, held_share
from dtbench.runs.settings.base import Base, CostSource, find_base, refuse_jitter
from dtbench.runs.settings.candidates import AND, Candidate, find_candidates
from dtbench.runs.summary import CellSummary
from dtbench.scenario.mistakes import join_words
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import change_field

SETTING: Final = "setting"
"""Kind of a change that no replay knows, but a closed form."""

LEVEL: Final = 0.9
"""Of intervals."""

MODEL_ERROR: Final = 0.02
"""By which part of a step closed forms of changed settings are off in 9 of 10 pairs, beside the spread of launches."""

MODEL_ERROR_SHARED: Final = 0.03
"""The same where compute was found, and shares its cores with what moves the data: 14 of 15 pairs, of seeds that were
looked at, were off by less."""

OPTION: Final = "--change"
"""With which a person gives a change."""

_CHANGEABLE: Final = ("parallel", "network")
"""Sections of which a closed form knows what another value does to the same work."""


@dataclass(frozen=True)
class SettingAnswer:
    """What one change of settings would do; times in ns.

    Attributes:
        change: as it was asked for.
        costs: what has to be paid for it; empty: nothing that is known.
        step_ns: MEASURED step of the changed cell, mean over launches, of the slowest rank.
        saving_ns: by how much it would be shorter; below 0: longer.
        low_ns, high_ns: of the saving, ``LEVEL``; None: one launch tells no interval.
    """

    change: str
    costs: str
    step_ns: float
    saving_ns: float
    low_ns: float | None
    high_ns: float | None


@dataclass(frozen=True)
class Forecast:
    """What other settings would do to one cell.

    Attributes:
        step_ns: MEASURED step, mean over launches.
        launches: how many there are.
        missing: how many more have no MEASURED step.
        answers: largest saving first.
        not_asked: changes that do not apply, and why.
        source: how the closed form knows what the cell cost.
        off: of a step, how far what it leaves exposed is from what PROFILED steps showed; None: these were not asked.
    """

    step_ns: float
    launches: int
    missing: int
    answers: tuple[SettingAnswer, ...]
    not_asked: tuple[tuple[str, str], ...]
    source: CostSource = CostSource.KNOWN
    off: float | None = None

    @property
    def model_error(self) -> float:
        """By which part of a step the closed form may be off."""
        return find_model_error(self.source)


def find_model_error(source: CostSource) -> float:
    """Return by which part of a step closed forms with such costs are off in 9 of 10 pairs."""
    match source:
        case CostSource.KNOWN:
            return MODEL_ERROR
        case CostSource.REGIONS:
            return MODEL_ERROR_SHARED
        case _:
            assert_never(source)


def forecast_cell(cell: CellSummary, changes: Sequence[str] | None = None) -> Forecast:
    """Say what other settings would do to a cell.

    Args:
        cell: its numbers.
        changes: fields and values as ``--set`` has them, several joined by ``AND``; None: what may apply.

    Raises:
        PredictionError: nothing can be said of this cell, or of a change that was asked for.
    """
    base = find_base(cell)
    answers, not_asked = [], []
    offered = {one.change: one for one in find_candidates(base.scenario.parallel)}
    every = offered.values() if changes is None else [offered.get(one, Candidate(one)) for one in changes]
    for candidate in every:
        try:
            answers.append(_answer(candidate, base))
        except PredictionError as error:
            not_asked.append((candidate.change, str(error)))
    if changes is not None and not answers:
        raise PredictionError("; ".join(why for _, why in not_asked))
    return Forecast(
        step_ns=fmean(base.measured_ns),
        launches=len(base.measured_ns),
        missing=len(cell.launch_medians_ns) - len(base.measured_ns),
        answers=tuple(sorted(answers, key=lambda answer: -answer.saving_ns)),
        not_asked=tuple(not_asked),
        source=base.source,
        off=base.off,
    )


def apply_change(scenario: Scenario, change: str) -> Scenario:
    """Return the changed cell; it has as many ranks as before.

    Raises:
        PredictionError: there is no such setting, or it changes the work itself.
    """
    changed = scenario
    for override in change.split(AND):
        refuse_other_work(override.strip())
        try:
            changed = change_field(changed, override.strip(), OPTION)
        except ScenarioError as error:
            raise PredictionError("; ".join(str(error).splitlines())) from error
    refuse_other_ranks(scenario, changed, f"`{change}`")
    return changed


def refuse_other_ranks(scenario: Scenario, changed: Scenario, what: str) -> None:
    """Refuse a change of the number of ranks, in the name of what is changed.

    Raises:
        PredictionError: there are more of them, or fewer.
    """
    before, after = (prod(axis.size for axis in plan_mesh(one)) for one in (scenario, changed))
    if before != after:
        raise PredictionError(f"{what} has {after} ranks in place of {before}: that is another job")


def refuse_other_work(setting: str) -> None:
    """Refuse what changes more than how the same work is done.

    Args:
        setting: begins with the dotted name of a field.

    Raises:
        PredictionError: it is of no section that may be asked for.
    """
    if setting.partition(".")[0].strip() not in _CHANGEABLE:
        sections = " or ".join(f"`{name}.`" for name in _CHANGEABLE)
        raise PredictionError(
            f"`{setting}`: settings that may be asked for begin with {sections}; what else a scenario says is the work "
            "itself, how it is measured, or where"
        )


def _answer(candidate: Candidate, base: Base) -> SettingAnswer:
    scenario, plan = base.scenario, base.plan
    changed = apply_change(scenario, candidate.change)
    if type(changed.parallel) is not type(scenario.parallel):
        raise PredictionError(
            f"`{candidate.change}` is another strategy, whose host takes a time that was not measured"
        )
    refuse_jitter(changed.network)
    changed_plan, change_costs = _plan_alike(changed, plan), _find_change_of_costs(candidate, base, changed)
    savings_ns = [
        time_step(scenario, plan, costs, jitter_share=MEAN_JITTER)
        - time_step(changed, changed_plan, change_costs(costs), jitter_share=MEAN_JITTER)
        for costs in base.costs
    ]
    steps_ns = [before - saved for before, saved in zip(base.measured_ns, savings_ns, strict=True)]
    low_ns, high_ns = _bound(savings_ns, base)
    return SettingAnswer(candidate.change, candidate.costs, fmean(steps_ns), fmean(savings_ns), low_ns, high_ns)


def _find_change_of_costs(candidate: Candidate, base: Base, changed: Scenario) -> Callable[[RankCosts], RankCosts]:
    """Return what a change does to what ranks compute: nothing, but that each may update another share of parameters.

    Raises:
        PredictionError: of a real model it may do more.
    """
    if base.source is CostSource.KNOWN:
        return lambda costs: costs
    if others := list(find_other_compute(base.scenario.parallel, changed.parallel)):
        raise PredictionError(
            f"`{candidate.change}`: how long a real model computes with another {join_words(others, last='and')} was "
            "not measured"
        )
    ratio = held_share(changed.parallel) / held_share(base.scenario.parallel)

    def scale(costs: RankCosts) -> RankCosts:
        return {rank: replace(one, optimizer_ns=round(ratio * one.optimizer_ns)) for rank, one in costs.items()}

    return scale


def _plan_alike(scenario: Scenario, plan: Plan) -> Plan:
    """Plan a changed cell for the machine and the torch on which it ran unchanged.

    Raises:
        PredictionError: it cannot run there.
    """
    cores = None if plan.threads_per_rank is None else plan.ranks_per_node * plan.threads_per_rank
    nodes = None if plan.nodes == 1 else plan.nodes
    try:
        return make_plan(scenario, Machine(cpu_cores=cores, cuda_devices=0, torch=plan.torch, nodes=nodes))
    except PlanError as error:
        raise PredictionError("; ".join(str(error).splitlines())) from error


def _bound(savings_ns: Sequence[float], base: Base) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of a saving: launches of both sides vary, and the closed form is off.

    Student's t over launches, twice, since a run of the changed cell would vary as much; what closed forms are off by
    in squares.
    """
    count, step_ns = len(savings_ns), fmean(base.measured_ns)
    if count == 1:
        return None, None
    quantile = float(special.stdtrit(count - 1, (1 + LEVEL) / 2))
    of_launches_ns = math.sqrt(2 / count) * quantile * stdev(base.measured_ns)
    half_ns = math.hypot(of_launches_ns, find_model_error(base.source) * step_ns)
    return fmean(savings_ns) - half_ns, fmean(savings_ns) + half_ns


def is_setting(change: str) -> bool:
    """Whether a change is of settings, and not of a graph."""
    name, equals, _ = change.partition("=")
    return bool(equals) and ":" not in name

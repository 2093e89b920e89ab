"""By how much other settings would change a cell's MEASURED step: its closed form, with the host that its steps had.

::

    launch 0   measured 312 ms   ->  host 21 ms  ->  closed form of the changed cell with 21 ms of host: 290 ms
    launch 1   measured 309 ms   ->  host 18 ms  ->                                                     287 ms
    ...                                              saving 22 ms, with what launches and closed forms are off by

Nothing of it was run. Only where all but the host is known: a timed model over an emulated link.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

from scipy import special

from dtbench.base.errors import PlanError, PredictionError, ScenarioError
from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.prediction.calibrate import calibrate
from dtbench.prediction.costs import RankCosts
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.runs.cell.cell_notes import say_taken
from dtbench.runs.settings.candidates import AND, Candidate, find_candidates
from dtbench.runs.summary import CellSummary
from dtbench.runs.wrong_results import find_wrong_results
from dtbench.scenario.schema.network import EmulatedNetwork, Network
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import change_field

LEVEL: Final = 0.9
"""Of intervals."""

MODEL_ERROR: Final = 0.02
"""By which part of a step closed forms of changed settings are off in 9 of 10 pairs, beside the spread of launches."""

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
    """

    step_ns: float
    launches: int
    missing: int
    answers: tuple[SettingAnswer, ...]
    not_asked: tuple[tuple[str, str], ...]


def forecast_cell(cell: CellSummary, changes: Sequence[str] | None = None) -> Forecast:
    """Say what other settings would do to a cell.

    Args:
        cell: its numbers.
        changes: fields and values as ``--set`` has them, several joined by ``AND``; None: what may apply.

    Raises:
        PredictionError: nothing can be said of this cell, or of a change that was asked for.
    """
    scenario, plan, high_ns = _check(cell)
    measured_ns = [time_ns for time_ns in cell.launch_medians_ns if not math.isnan(time_ns)]
    base = [calibrate(scenario, plan, time_ns, most_ns=high_ns) for time_ns in measured_ns]
    answers, not_asked = [], []
    offered = {one.change: one for one in find_candidates(scenario.parallel)}
    every = offered.values() if changes is None else [offered.get(one, Candidate(one)) for one in changes]
    for candidate in every:
        try:
            answers.append(_answer(candidate, (scenario, plan), measured_ns, base))
        except PredictionError as error:
            not_asked.append((candidate.change, str(error)))
    if changes is not None and not answers:
        raise PredictionError("; ".join(why for _, why in not_asked))
    return Forecast(
        step_ns=fmean(measured_ns),
        launches=len(measured_ns),
        missing=len(cell.launch_medians_ns) - len(measured_ns),
        answers=tuple(sorted(answers, key=lambda answer: -answer.saving_ns)),
        not_asked=tuple(not_asked),
    )


def apply_change(scenario: Scenario, change: str) -> Scenario:
    """Return the changed cell.

    Raises:
        PredictionError: there is no such setting, or it changes the work itself.
    """
    changed = scenario
    for override in change.split(AND):
        refuse_other_work(override.strip())
        try:
            changed = change_field(changed, override.strip())
        except ScenarioError as error:
            raise PredictionError("; ".join(str(error).splitlines())) from error
    return changed


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


def _check(cell: CellSummary) -> tuple[Scenario, Plan, float]:
    """Return what is needed of a cell: what ran, its plan, and how long a step can take at most.

    Raises:
        PredictionError: something is missing, or speaks against its steps.
    """
    scenario, plan, held = cell.scenario, cell.plan, cell.prediction
    if scenario is None or not isinstance(plan, Plan):
        raise PredictionError("it is a loop of one's own, of which no closed form is known")
    if held is None:
        raise PredictionError(
            "what its model computes, or its network carries, has no known cost: a timed model over an emulated link "
            "has"
        )
    if (why := why_not_measured(cell)) is not None:
        raise PredictionError(f"its steps are not gone by: {why}")
    known_ns = [time_ns for time_ns in cell.launch_medians_ns if not math.isnan(time_ns)]
    if not known_ns or math.isnan(held.low_ns):
        raise PredictionError(held.sentence if known_ns else "there is no MEASURED step")
    if outside := [time_ns for time_ns in known_ns if not held.low_ns <= time_ns <= held.high_ns]:
        raise PredictionError(
            f"{len(outside)} of {len(known_ns)} launches measured a step outside its closed "
            f"form's bounds, {format_ns(held.low_ns)} to {format_ns(held.high_ns)}: {format_ns(outside[0])}"
        )
    _refuse_jitter(scenario.network)
    return scenario, plan, held.high_ns


def _refuse_jitter(network: Network) -> None:
    if isinstance(network, EmulatedNetwork) and network.jitter is not None:
        raise PredictionError("network.jitter: which collective takes how much longer is not known beforehand")


def why_not_measured(cell: CellSummary) -> str | None:
    """Say, as a clause, why no MEASURED step of a cell may be gone by; None: they may."""
    taken = [one for one in cell.disturbed if one.phase is Phase.MEASURED]
    if taken:
        return say_taken(taken)
    return find_wrong_results(cell) or next(iter(cell.rank_doubts), None) or cell.reason


def _answer(
    candidate: Candidate, ran: tuple[Scenario, Plan], measured_ns: Sequence[float], base: Sequence[RankCosts]
) -> SettingAnswer:
    scenario, plan = ran
    changed = apply_change(scenario, candidate.change)
    if type(changed.parallel) is not type(scenario.parallel):
        raise PredictionError(
            f"`{candidate.change}` is another strategy, whose host takes a time that was not measured"
        )
    _refuse_jitter(changed.network)
    changed_plan = _plan_alike(changed, plan)
    savings_ns = [
        time_step(scenario, plan, costs, jitter_share=MEAN_JITTER)
        - time_step(changed, changed_plan, costs, jitter_share=MEAN_JITTER)
        for costs in base
    ]
    steps_ns = [before - saved for before, saved in zip(measured_ns, savings_ns, strict=True)]
    low_ns, high_ns = _bound(savings_ns, measured_ns)
    return SettingAnswer(candidate.change, candidate.costs, fmean(steps_ns), fmean(savings_ns), low_ns, high_ns)


def _plan_alike(scenario: Scenario, plan: Plan) -> Plan:
    """Plan a changed cell for the machine and the torch on which it ran unchanged.

    Raises:
        PredictionError: it cannot run there.
    """
    cores = plan.ranks * plan.threads_per_rank
    try:
        made = make_plan(scenario, Machine(cpu_cores=cores, cuda_devices=0, torch=plan.torch))
    except PlanError as error:
        raise PredictionError("; ".join(str(error).splitlines())) from error
    if made.ranks != plan.ranks:
        raise PredictionError(f"it has {made.ranks} ranks in place of {plan.ranks}: that is another job")
    return made


def _bound(savings_ns: Sequence[float], measured_ns: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of a saving: launches of both sides vary, and the closed form is off.

    Student's t over launches, twice, since a run of the changed cell would vary as much; ``MODEL_ERROR`` in squares.
    """
    count = len(savings_ns)
    if count == 1:
        return None, None
    quantile = float(special.stdtrit(count - 1, (1 + LEVEL) / 2))
    of_launches_ns = math.sqrt(2 / count) * quantile * stdev(measured_ns)
    half_ns = math.hypot(of_launches_ns, MODEL_ERROR * fmean(measured_ns))
    return fmean(savings_ns) - half_ns, fmean(savings_ns) + half_ns


def is_setting(change: str) -> bool:
    """Whether a change is of settings, and not of a graph."""
    name, equals, _ = change.partition("=")
    return bool(equals) and ":" not in name

"""Holds a cell's step time against its closed form: below the bounds is as wrong as above.

Only for the timed model on an emulated link, whose costs are known; see ``dtbench.prediction.bounds``.
"""

import math

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_ns
from dtbench.plan.plan import Plan
from dtbench.prediction.bounds import Bounds, bound_step
from dtbench.runs.summary import CellSummary, PredictionSummary
from dtbench.runs.wrong_results import why_unreliable
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.network import EmulatedNetwork


def bound_cell(cell: CellSummary, cores: int | None) -> PredictionSummary | None:
    """Hold the MEASURED step time (median of the slowest rank) against its closed form; None: its costs are not known.

    The host's time is the run's own CPU time of a MEASURED step, stretched where ranks share cores.

    Args:
        cell: its numbers.
        cores: of the machine that it ran on; None: not known, so that a step may be longer than its bounds by what
            ranks that share cores wait for each other.
    """
    scenario, plan = cell.scenario, cell.plan
    if scenario is None or not isinstance(plan, Plan) or not isinstance(scenario.model, Timed):
        return None
    if not isinstance(scenario.network, EmulatedNetwork):
        return None
    step_ns, cpu_ns = cell.step_time.median, cell.cpu_ns_per_step
    if math.isnan(step_ns) or math.isnan(cpu_ns):
        lacking = "there is no MEASURED step" if math.isnan(step_ns) else "the CPU time of its steps is not known"
        return _unknown(f"not held against its closed form: {lacking}")
    host_ns = round(cpu_ns * max(1.0, plan.ranks / cores if cores else 1.0))
    try:
        bounds = bound_step(scenario, plan, host_ns=host_ns)
    except PredictionError as error:
        return _unknown(f"no closed form: {'; '.join(str(error).splitlines())}")
    if cores is None and plan.ranks > 1 and step_ns > bounds.high_ns:
        above = f"above {format_ns(bounds.low_ns)} to {format_ns(bounds.high_ns)}, where each rank has a core"
        return _unknown(f"not held against its closed form: {above}; how many cores ranks shared is not known")
    return PredictionSummary(
        expected_ns=bounds.expected_ns,
        low_ns=bounds.low_ns,
        high_ns=bounds.high_ns,
        is_inside=bounds.holds(step_ns),
        sentence=_describe(bounds, step_ns),
    )


def leave_unjudged_prediction(cell: CellSummary, held: PredictionSummary | None) -> PredictionSummary | None:
    """Return what came of it; undecided where nothing may be judged by the cell's step time."""
    why = why_unreliable(cell) or next(iter(cell.rank_doubts), None)
    if held is None or held.is_inside is None or why is None:
        return held
    return held.model_copy(update={"is_inside": None, "sentence": f"not judged, since {why}: {held.sentence}"})


def _unknown(sentence: str) -> PredictionSummary:
    return PredictionSummary(expected_ns=math.nan, low_ns=math.nan, high_ns=math.nan, is_inside=None, sentence=sentence)


def _describe(bounds: Bounds, step_ns: float) -> str:
    between = f"{format_ns(bounds.low_ns)} to {format_ns(bounds.high_ns)}"
    if bounds.holds(step_ns):
        return f"inside its closed form's bounds, {between}; expected {format_ns(bounds.expected_ns)}"
    if step_ns < bounds.low_ns:
        return (
            f"OUTSIDE, below {between}: neither model nor link ends early, so something was not waited for, "
            "or went past the link"
        )
    return (
        f"OUTSIDE, above {between}: model, link and host explain no more; something else was waited for, "
        "or the machine had other work"
    )

"""How long the host takes, found from a step that was measured: the one cost that a timed model does not tell.

::

    measured  |████████ blocks and link ████████|▒▒ host ▒▒|      the closed form with a host of that length is the step
"""

from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_ns
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import RankCosts, known_costs, spread_host
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.scenario.schema.scenario import Scenario

_PRECISION: Final = 1e-5
"""Of a step, to which the host's time is found."""
_BELOW: Final = 0.005
"""By which part of itself a measured step may be shorter than one whose host takes no time: medians of ranks that
begin a step apart."""


def calibrate(scenario: Scenario, plan: Plan, step_ns: float, *, most_ns: float) -> RankCosts:
    """Return costs with which the closed form gives a step that was measured.

    The host's time is spread as ``spread_host`` does, the same on every rank.

    Args:
        scenario: as run.
        plan: of it.
        step_ns: of the slowest rank, as measured.
        most_ns: what the host can have taken in a step at most.

    Raises:
        PredictionError: there is no closed form for this, or no host's time gives that step.
    """
    known = known_costs(scenario, plan)

    def spread(host_ns: int) -> RankCosts:
        batches = scenario.accumulation.micro_batches
        return {rank: spread_host(costs, host_ns, micro_batches=batches) for rank, costs in known.items()}

    def time(host_ns: int) -> int:
        return time_step(scenario, plan, spread(host_ns), jitter_share=MEAN_JITTER)

    least_ns = time(0)
    if step_ns < least_ns * (1 - _BELOW):
        raise PredictionError(
            f"a measured step takes {format_ns(step_ns)}, less than the {format_ns(least_ns)} that blocks and link "
            "alone take by its closed form: these do not fit"
        )
    low_ns, high_ns = 0, round(most_ns)
    if time(high_ns) < step_ns:
        raise PredictionError(
            f"a measured step takes {format_ns(step_ns)}, more than blocks and link do with the longest host that "
            f"there may be, by its closed form ({format_ns(time(high_ns))}): these do not fit"
        )
    while high_ns - low_ns > max(1.0, _PRECISION * step_ns):
        middle_ns = (low_ns + high_ns) // 2
        low_ns, high_ns = (middle_ns, high_ns) if time(middle_ns) < step_ns else (low_ns, middle_ns)
    return spread(low_ns)

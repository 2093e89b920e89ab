"""How long the host takes, found from a step that was measured: the one cost that a timed model does not tell.

::

    measured  |████████ blocks and link ████████|▒▒ host ▒▒|      the closed form with a host of that length is the step
"""

from collections.abc import Callable
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_ns
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import RankCosts, known_costs, spread_host
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.scenario.schema.scenario import Scenario

PRECISION: Final = 1e-5
"""Of a step, to which what is not known of it is found."""
_BELOW: Final = 0.005
"""By which part of itself a measured time may be shorter than one in which nothing is to be found: medians of ranks
that begin a step apart."""


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

    if is_below(step_ns, least_ns := time(0)):
        raise PredictionError(
            f"a measured step takes {format_ns(step_ns)}, less than the {format_ns(least_ns)} that blocks and link "
            "alone take by its closed form: these do not fit"
        )
    longest_ns = round(most_ns)
    if time(longest_ns) < step_ns:
        raise PredictionError(
            f"a measured step takes {format_ns(step_ns)}, more than blocks and link do with the longest host that "
            f"there may be, by its closed form ({format_ns(time(longest_ns))}): these do not fit"
        )
    return spread(find_length(time, step_ns, most_ns=longest_ns, precision_ns=PRECISION * step_ns))


def is_below(measured_ns: float, least_ns: float) -> bool:
    """Whether a time was measured that cannot be: shorter than if what is to be found of it took none."""
    return measured_ns < least_ns * (1 - _BELOW)


def find_length(time: Callable[[int], float], wanted_ns: float, *, most_ns: int, precision_ns: float) -> int:
    """Return the length, ns, with which a time that rises with it is as wanted, by bisection.

    Args:
        time: of a length.
        wanted_ns: time that is wanted.
        most_ns: a length that is enough.
        precision_ns: to which it is found; to 1 ns at best.
    """
    low_ns, high_ns = 0, most_ns
    while high_ns - low_ns > max(1.0, precision_ns):
        middle_ns = (low_ns + high_ns) // 2
        low_ns, high_ns = (middle_ns, high_ns) if time(middle_ns) < wanted_ns else (low_ns, middle_ns)
    return low_ns

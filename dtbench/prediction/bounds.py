"""Between which step times a run must lie: below is as wrong as above.

::

    |low                |expected     |low + host           |high
     sleeps and link     host's time   host's time hidden
     never end early     spread out    nowhere              + margin
"""

from dataclasses import dataclass
from typing import Final

from dtbench.base.units import NS_PER_MS
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import known_costs, spread_host
from dtbench.prediction.predict import MEAN_JITTER, time_ranks_alone, time_step
from dtbench.scenario.schema.scenario import Scenario

MARGIN_NS: Final = 10 * NS_PER_MS
MARGIN_FRACTION: Final = 0.04
"""A step may be longer than its closed form by the larger of the two: what two cores with gloo were seen to add."""


@dataclass(frozen=True)
class Bounds:
    """Step times of a job, slowest rank, ns."""

    expected_ns: int
    low_ns: int
    high_ns: int

    def holds(self, step_ns: float) -> bool:
        """Tell whether a measured step time lies inside, ends included."""
        return self.low_ns <= step_ns <= self.high_ns


def margin_ns(expected_ns: float) -> int:
    """Return by how much a measured step may differ from its closed form."""
    return max(MARGIN_NS, round(MARGIN_FRACTION * expected_ns))


def bound_step(scenario: Scenario, plan: Plan, *, host_ns: int) -> Bounds:
    """Bound the step time of a timed model.

    The lower bound is the closed form with a host that costs nothing and a link without jitter, of each rank alone:
    ranks that start a step apart may hide each other's delays. In the upper one all of
    the host's time is hidden nowhere: no delay of a part delays the whole by more than itself.

    Args:
        scenario: as run.
        plan: of it.
        host_ns: time of the host in a step of one rank.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    known = known_costs(scenario, plan)
    batches = scenario.accumulation.micro_batches
    spread = {rank: spread_host(costs, host_ns, micro_batches=batches) for rank, costs in known.items()}
    expected_ns = time_step(scenario, plan, spread, jitter_share=MEAN_JITTER)
    latest_ns = time_step(scenario, plan, known, jitter_share=1.0) + host_ns
    return Bounds(
        expected_ns=expected_ns,
        low_ns=time_ranks_alone(scenario, plan, known, jitter_share=0.0),
        high_ns=latest_ns + margin_ns(latest_ns),
    )

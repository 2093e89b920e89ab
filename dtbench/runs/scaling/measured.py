"""What a cell's launches tell of its host: how long it takes in a step, and how much ranks differ in that."""

import math
from dataclasses import dataclass
from statistics import fmean

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import count_host_ns
from dtbench.runs.reading.cell_data import CellData
from dtbench.runs.reading.undisturbed import keep_finished
from dtbench.runs.settings.base import find_base
from dtbench.runs.summary import CellSummary
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.scenario import Scenario


@dataclass(frozen=True)
class Measured:
    """A cell at the number of ranks with which it ran; times in ns.

    Attributes:
        world: ranks.
        steps_ns: MEASURED step of each launch, median over steps, of the slowest rank.
        hosts_ns: the host's time with which the closed form is that step, of each launch.
        cpu_ns: CPU time of a rank in a MEASURED step, median; NaN: not known.
        spread_ns: standard deviation over ranks of a rank's CPU time in a MEASURED step; NaN: not known.
        cores: of the machine; None: not known.
    """

    world: int
    steps_ns: tuple[float, ...]
    hosts_ns: tuple[float, ...]
    cpu_ns: float = math.nan
    spread_ns: float = math.nan
    cores: int | None = None

    @property
    def host_ns(self) -> float:
        """Mean over launches."""
        return fmean(self.hosts_ns)

    @property
    def waiting(self) -> float:
        """How many ranks want each core, 1 where all have one: by so much CPU time is stretched."""
        return stretch(self.world, self.cores)

    @property
    def contended_ns(self) -> float:
        """What of the host's time is CPU time, which ranks that share cores take turns at: all of it if not known."""
        return self.host_ns if math.isnan(self.cpu_ns) else min(self.host_ns, self.waiting * self.cpu_ns)


def stretch(ranks: int, cores: int | None) -> float:
    """Return how much longer a host takes where so many ranks share cores; None: each has one."""
    return max(1.0, ranks / cores if cores else 1.0)


def measure_host(cell: CellSummary, data: CellData, cores: int | None) -> tuple[Scenario, Plan, Measured]:
    """Return what ran, and what its launches tell.

    Args:
        cell: its numbers.
        data: the same as it was read.
        cores: of the machine that it ran on; None: not known.

    Raises:
        PredictionError: there is no closed form for it, or something speaks against its steps.
    """
    if cell.scenario is not None and not isinstance(cell.scenario.model, Timed):
        raise PredictionError("what its model computes has no known cost: a timed model (model.kind=timed) has")
    base = find_base(cell)
    scenario, plan, batches = base.scenario, base.plan, base.scenario.accumulation.micro_batches
    hosts_ns = tuple(float(count_host_ns(next(iter(costs.values())), micro_batches=batches)) for costs in base.costs)
    measured = Measured(
        world=plan.ranks,
        steps_ns=base.measured_ns,
        hosts_ns=hosts_ns,
        cpu_ns=cell.cpu_ns_per_step,
        spread_ns=find_spread_ns(data, plan.ranks),
        cores=cores,
    )
    return scenario, plan, measured


def find_spread_ns(data: CellData, ranks: int) -> float:
    """Return how much ranks differ in the CPU time of a step: the root of the mean variance over steps and launches.

    NaN where there are no two ranks, or no step of which all tell it.
    """
    variances = list[float]()
    for launch in data.launches:
        steps = keep_finished(launch.steps[launch.steps["phase"] == Phase.MEASURED], ranks)
        by_step = steps.groupby("step")["cpu_ns"]
        variances += [float(value) for value in by_step.var(ddof=1).dropna()]
    return math.sqrt(fmean(variances)) if variances else math.nan

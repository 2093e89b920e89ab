"""A cell at another number of ranks: which axis of its mesh grows, and what stays.

Scaling is weak: a rank has the rows that it had, and ``data.global_batch`` grows with the ranks that see different
rows. The tensor axis stays, as its ranks share the products of a block; of HSDP the shards stay, as they are a node's.
"""

from math import prod
from typing import NamedTuple, assert_never

from dtbench.base.errors import PlanError, PredictionError
from dtbench.plan.plan import Machine, Plan, make_plan, plan_mesh
from dtbench.plan.rules.machine import MOST_RANKS
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.measure import Measure
from dtbench.scenario.schema.model import Timed
from dtbench.scenario.schema.scenario import Correctness, Ddp, Fsdp1, Fsdp2, Parallel, Scenario


class Growth(NamedTuple):
    """How a strategy's mesh grows.

    Attributes:
        field: of ``parallel`` that grows.
        step: ranks that one more of it adds.
        least: fewest of it with which the strategy is still what it is.
        fixed: what stays, as a file has it; empty: nothing does.
    """

    field: str
    step: int
    least: int
    fixed: str


def find_growth(parallel: Parallel) -> Growth:
    """Return which axis of a strategy grows with the ranks."""
    tensor = parallel.tensor
    cut = "" if tensor == 1 else f"parallel.tensor={tensor}"
    match parallel:
        case Ddp():
            return Growth("replicas", tensor, 1, cut)
        case Fsdp1(shards=shards, replicas=replicas) | Fsdp2(shards=shards, replicas=replicas) if replicas > 1:
            fixed = " x ".join(word for word in (f"parallel.shards={shards}", cut) if word)
            return Growth("replicas", shards * tensor, 2, fixed)
        case Fsdp1() | Fsdp2():
            return Growth("shards", tensor, 1, cut)
        case _:
            assert_never(parallel)


def count_ranks(scenario: Scenario) -> int:
    """Return the ranks that a cell asks for."""
    return prod(axis.size for axis in plan_mesh(scenario))


def put_at_world(scenario: Scenario, world: int) -> Scenario:
    """Return a cell with so many ranks and as many rows for each.

    Raises:
        PredictionError: its mesh has no such number; names the nearest that it has.
    """
    growth = find_growth(scenario.parallel)
    count, rest = divmod(world, growth.step)
    if rest or count < growth.least:
        raise PredictionError(_name_nearest(world, growth))
    parallel = scenario.parallel.model_copy(update={growth.field: count})
    rows = scenario.data.global_batch // count_data_ranks(scenario.parallel)
    data = scenario.data.model_copy(update={"global_batch": rows * count_data_ranks(parallel)})
    return scenario.model_copy(update={"parallel": parallel, "data": data})


def _name_nearest(world: int, growth: Growth) -> str:
    least = growth.least * growth.step
    below = max(least, world // growth.step * growth.step)
    near = sorted({below, max(least, -(-world // growth.step) * growth.step)})
    named = " and ".join(str(one) for one in near if one <= MOST_RANKS)
    what = f"{growth.fixed} needs" if growth.fixed else f"parallel.{growth.field} needs"
    multiple = f"a multiple of {growth.step}" if growth.step > 1 else "more"
    few = f", at least {least}" if growth.least > 1 else ""
    nearest = f"the nearest {'are' if len(near) > 1 else 'is'} {named}"
    return f"{world} ranks do not divide into its mesh: {what} {multiple}{few}; {nearest}"


def plan_world(scenario: Scenario, torch: str | None) -> Plan:
    """Plan a cell for a machine, or machines, where each rank has a core or a device of its own.

    Args:
        scenario: at its world.
        torch: version of the ranks', whose defaults are planned with; None: not known.

    Raises:
        PredictionError: it could not run anywhere.
    """
    ranks = count_ranks(scenario)
    machine = Machine(cpu_cores=ranks, cuda_devices=ranks if scenario.device == "cuda" else 0, torch=torch)
    try:
        return make_plan(scenario, machine)
    except PlanError as error:
        raise PredictionError("; ".join(str(error).splitlines())) from error


def name_work(scenario: Scenario) -> str:
    """Return what two cells have in common that differ in their number of ranks only, and in how they are measured.

    Rows count where blocks exchange them: a timed block takes as long whatever it has.
    """
    growth = find_growth(scenario.parallel)
    plain = {"measure": Measure(), "correctness": Correctness(), "repeat": 1, "seed": 0, "state_dict": None}
    same = put_at_world(scenario, growth.step * growth.least).model_copy(update=plain)
    if isinstance(scenario.model, Timed) and scenario.parallel.tensor == 1:
        rows = count_data_ranks(same.parallel) * scenario.accumulation.micro_batches
        same = same.model_copy(update={"data": same.data.model_copy(update={"global_batch": rows})})
    return same.model_dump_json()

"""Timed scenarios on a link, and programs of hosts: small enough to follow by eye, or drawn from a seed."""

import random
from typing import Any

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.prediction.account import PredictedStep
from dtbench.prediction.costs import known_costs
from dtbench.prediction.predict import predict_step
from dtbench.prediction.program import Collective, Compute, Host, Issue, Program, Request, Wait
from dtbench.scenario.schema.scenario import Scenario

TEN_MS_PER_MIB = 0.1048576  # GB/s


def link(latency_ms: float, ms_per_mib: float, **fields: Any) -> dict[str, Any]:
    """A link of so many ms for each message and each MiB; 0 for a MiB: as good as nothing."""
    bandwidth = 10 * TEN_MS_PER_MIB / ms_per_mib if ms_per_mib else 1e9
    return {"kind": "emulated", "latency_us": 1e3 * latency_ms, "bandwidth_gb_per_s": bandwidth, **fields}


def timed(layers: int, forward_ms: float, backward_ms: float, **fields: Any) -> dict[str, Any]:
    """Blocks of 1 MiB each, in two matrices of one half."""
    return {"kind": "timed", "layers": layers, "forward_ms": forward_ms, "backward_ms": backward_ms, **fields}


def plan_of(scenario: Scenario) -> Plan:
    return make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))


def predict_rank(scenario: Scenario, rank: int = 0, **options: Any) -> PredictedStep:
    """Predict a rank's step with a host that costs nothing."""
    plan = plan_of(scenario)
    return predict_step(scenario, plan, known_costs(scenario, plan), **options).of(rank)


def in_ms(time_ns: float) -> float:
    return round(time_ns / NS_PER_MS, 3)


def make_collective(
    group: str, service_ns: int, *, lane: str | None = None, ranks: tuple[int, ...] = (0, 1)
) -> Collective:
    """Return a collective among some ranks; what it is for makes no difference to the link."""
    request = Request(Axis.REPLICATE, Operation.ALL_REDUCE, Purpose.GRAD_REDUCE, size_bytes=1)
    return Collective(request, group, ranks, group if lane is None else lane, service_ns)


def draw_programs(chance: random.Random) -> dict[int, Program]:
    """Draw programs of three ranks that issue alike and compute as they like; not all ranks are in all groups."""
    ranks, lane = (0, 1, 2), chance.choice([None, ""])
    programs: dict[int, list[Compute | Host | Issue | Wait]] = {rank: [] for rank in ranks}
    numbers = dict.fromkeys(ranks, 0)
    for _ in range(chance.randrange(2, 9)):
        group, members = chance.choice([("all", ranks), ("pair", (0, 1)), ("other", (1, 2))])
        one = make_collective(group, chance.randrange(12), lane=lane, ranks=members)
        is_blocking, waits = chance.random() < 0.3, chance.random() < 0.4
        for rank in ranks:
            programs[rank].append(Compute(chance.randrange(9)))
            if rank in members:
                programs[rank].append(Issue(one, is_blocking))
                programs[rank] += [Wait(numbers[rank])] * is_blocking
                numbers[rank] += 1
            if waits and numbers[rank]:
                programs[rank] += [Host(chance.randrange(3)), Wait(chance.randrange(numbers[rank]))]
    for rank in ranks:
        programs[rank] += [Wait(number) for number in range(numbers[rank])]
    return {rank: tuple(program) for rank, program in programs.items()}

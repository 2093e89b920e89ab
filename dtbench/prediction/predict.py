"""A step's closed form: programs of all ranks that differ, run against the link, accounted for."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import assert_never

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Arm, Purpose, Region
from dtbench.plan.plan import Plan
from dtbench.plan.rules.newer_knobs import spell_defaults
from dtbench.plan.traffic.parameters import Parameter, known_parameters
from dtbench.prediction.account import PredictedStep, account_step, time_in
from dtbench.prediction.classes import find_representatives
from dtbench.prediction.costs import Costs, RankCosts
from dtbench.prediction.ddp import make_ddp, make_first_ddp
from dtbench.prediction.fsdp1 import make_fsdp1
from dtbench.prediction.fsdp2 import make_fsdp2
from dtbench.prediction.obstacles import find_obstacles
from dtbench.prediction.program import Program, ProgramWriter, Request, make_serial, remove_communication
from dtbench.prediction.simulate import simulate
from dtbench.prediction.step import Frame, Hooks, write_step
from dtbench.prediction.wire import Wire
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario

MEAN_JITTER = 0.5

_MakeHooks = Callable[[Scenario, tuple[Parameter, ...], Costs, ProgramWriter], Hooks]
_ChooseRanks = Callable[[Sequence[int], int], Sequence[int]]
"""Of those that stand for all, and how many there are."""


@dataclass(frozen=True)
class Prediction:
    """A step of a job.

    Attributes:
        ranks: one for each rank, in order; where all do the same, rank 0 alone.
    """

    ranks: tuple[PredictedStep, ...]

    @property
    def step_ns(self) -> int:
        """The slowest rank's."""
        return max(rank.step_ns for rank in self.ranks)

    def of(self, rank: int) -> PredictedStep:
        """Return one rank's step."""
        return self.ranks[rank] if len(self.ranks) > 1 else self.ranks[0]


def predict_step(
    scenario: Scenario, plan: Plan, costs: RankCosts, *, arm: Arm = Arm.FULL, jitter_share: float = MEAN_JITTER
) -> Prediction:
    """Predict a step after warm-up.

    Args:
        scenario: as run.
        plan: of it.
        costs: of every rank.
        arm: what is done to communication: nothing, removed, or waited for at once.
        jitter_share: how much of the link's jitter each collective takes, from 0 to 1.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    return _predict(scenario, plan, _Way(costs, _make_hooks, arm, jitter_share, _all_or_one))


def time_step(scenario: Scenario, plan: Plan, costs: RankCosts, *, jitter_share: float) -> int:
    """Return the step time that ``predict_step`` predicts, ns, without accounting for it.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    executions = simulate(_write_programs(scenario, plan, _Way(costs, _make_hooks, Arm.FULL, jitter_share, _few)))
    return max(execution.step_ns for execution in executions.values())


def time_regions(scenario: Scenario, plan: Plan, costs: RankCosts, *, jitter_share: float) -> dict[Region, float]:
    """Return how long ranks are in each region of the step that ``predict_step`` predicts, ns, mean over them.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    executions = simulate(
        _write_programs(scenario, plan, _Way(costs, _make_hooks, Arm.FULL, jitter_share, _all_or_one))
    )
    regions = (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER)
    return {region: fmean(time_in(execution, region) for execution in executions.values()) for region in regions}


def predict_slowest(scenario: Scenario, plan: Plan, costs: RankCosts, *, jitter_share: float) -> PredictedStep:
    """Predict the step of the slowest rank, the first of several; of thousands of ranks those are timed that differ.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    executions = simulate(_write_programs(scenario, plan, _Way(costs, _make_hooks, Arm.FULL, jitter_share, _few)))
    rank = max(executions, key=lambda one: executions[one].step_ns)
    return account_step(rank, executions[rank])


def count_simulated(scenario: Scenario, plan: Plan, costs: RankCosts) -> int:
    """Return how many ranks are timed for one step; those that do the same are one."""
    network = scenario.network
    assert isinstance(network, EmulatedNetwork)
    return len(find_representatives(costs, network, plan.mesh, _find_within(scenario)))


def time_ranks_alone(scenario: Scenario, plan: Plan, costs: RankCosts, *, jitter_share: float) -> int:
    """Return the slowest rank's step time, ns, if for each all others had issued everything long before.

    Whatever the others do, no rank can be faster.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    programs = _write_programs(scenario, plan, _Way(costs, _make_hooks, Arm.FULL, jitter_share, _few))
    return max(simulate({rank: program})[rank].step_ns for rank, program in programs.items())


def predict_first_step(scenario: Scenario, plan: Plan, costs: RankCosts) -> Prediction:
    """Predict the first step: DDP has not rebuilt its buckets yet.

    (FSDP1 does not know yet what to prefetch in forward, which hides nothing on gloo.)

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    return _predict(scenario, plan, _Way(costs, _make_first_hooks, Arm.FULL, MEAN_JITTER, _all_or_one))


def write_programs(scenario: Scenario, plan: Plan, costs: RankCosts) -> dict[int, Program]:
    """Return what the host of each rank does in a step after warm-up, of rank 0 alone where all do the same.

    Raises:
        PredictionError: there is no closed form for this; names all reasons at once.
    """
    return _write_programs(scenario, plan, _Way(costs, _make_hooks, Arm.FULL, MEAN_JITTER, _all_or_one))


@dataclass(frozen=True)
class _Way:
    """How a step is predicted."""

    costs: RankCosts
    make_hooks: _MakeHooks
    arm: Arm
    jitter_share: float
    choose_ranks: _ChooseRanks


def _few(differing: Sequence[int], _ranks: int) -> Sequence[int]:
    return differing


def _all_or_one(differing: Sequence[int], ranks: int) -> Sequence[int]:
    return differing if len(differing) == 1 else range(ranks)


def _predict(scenario: Scenario, plan: Plan, way: _Way) -> Prediction:
    executions = simulate(_write_programs(scenario, plan, way))
    return Prediction(tuple(account_step(rank, execution) for rank, execution in executions.items()))


def _write_programs(scenario: Scenario, plan: Plan, way: _Way) -> dict[int, Program]:
    """Write the program of each rank that is chosen."""
    obstacles = list(find_obstacles(scenario, plan))
    if obstacles:
        raise PredictionError("\n".join(obstacles))
    network, parameters = scenario.network, known_parameters(scenario.model)
    assert isinstance(network, EmulatedNetwork)
    assert parameters is not None
    _check_costs(way.costs, plan, parameters)
    differing = find_representatives(way.costs, network, plan.mesh, _find_within(scenario))
    programs = {}
    for rank in way.choose_ranks(differing, plan.ranks):
        wire, costs = Wire(network, plan.mesh, rank, way.jitter_share), way.costs[rank]
        writer = ProgramWriter(wire.resolve, costs.issue_ns, costs.finish_ns)
        hooks = way.make_hooks(spell_defaults(scenario, plan.torch), parameters, costs, writer)
        programs[rank] = _in_arm(write_step(_make_frame(scenario, plan, costs), hooks, writer), way.arm)
    return programs


def _find_within(scenario: Scenario) -> int | None:
    """Return among how many of the shards units stay spread after forward, where that is a part of them."""
    parallel = scenario.parallel
    asked = parallel.reshard_after_forward if isinstance(parallel, Fsdp2) else None
    return asked if type(asked) is int and isinstance(parallel, Fsdp2) and 0 < asked < parallel.shards else None


def _check_costs(costs: RankCosts, plan: Plan, parameters: tuple[Parameter, ...]) -> None:
    blocks = len({one.unit for one in parameters if one.unit})
    if set(costs) != set(range(plan.ranks)):
        raise PredictionError(f"costs are needed of each of {plan.ranks} ranks")
    if any(len(one.units) != blocks for one in costs.values()):
        raise PredictionError(f"costs are needed of each of {blocks} blocks")
    sizes = list(Counter(one.unit for one in parameters if one.unit).values())
    counts = [zip(one.units, sizes, strict=True) for one in costs.values()]
    if any(len(unit.ready) not in (0, size) for of_rank in counts for unit, size in of_rank):
        raise PredictionError("when gradients are ready is needed of each parameter of a block, or of none")


def _in_arm(program: Program, arm: Arm) -> Program:
    match arm:
        case Arm.FULL:
            return program
        case Arm.REMOVED:
            return remove_communication(program)
        case Arm.SERIAL:
            return make_serial(program)
        case _:
            assert_never(arm)


def _make_hooks(scenario: Scenario, parameters: tuple[Parameter, ...], costs: Costs, writer: ProgramWriter) -> Hooks:
    parallel = scenario.parallel
    match parallel:
        case Ddp():
            return make_ddp(scenario, parallel, parameters, costs, writer)
        case Fsdp1():
            return make_fsdp1(scenario, parallel, parameters, writer)
        case Fsdp2():
            return make_fsdp2(scenario, parallel, parameters, writer)
        case _:
            assert_never(parallel)


def _make_first_hooks(
    scenario: Scenario, parameters: tuple[Parameter, ...], costs: Costs, writer: ProgramWriter
) -> Hooks:
    if isinstance(scenario.parallel, Ddp):
        return make_first_ddp(scenario, scenario.parallel, parameters, costs, writer)
    return _make_hooks(scenario, parameters, costs, writer)


def _make_frame(scenario: Scenario, plan: Plan, costs: Costs) -> Frame:
    """Take what the tensor axis and clipping exchange from the plan's own formulas."""
    crossings = _spread(plan, Purpose.TENSOR)
    return Frame(
        costs=costs,
        micro_batches=scenario.accumulation.micro_batches,
        crossing=crossings[0] if crossings else None,
        clips=_spread(plan, Purpose.OTHER),
    )


def _spread(plan: Plan, purpose: Purpose) -> tuple[Request, ...]:
    """Return a request for each collective of the plan's lines, which are equal within a line."""
    return tuple(
        Request(line.axis, line.operation, purpose, line.size_bytes // line.count)
        for line in plan.traffic or ()
        if line.purpose is purpose
        for _ in range(line.count)
    )

"""The one place that puts a scenario's traffic together."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import assert_never

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.ddp import ddp_traffic
from dtbench.plan.traffic.fsdp1 import fsdp1_traffic
from dtbench.plan.traffic.fsdp2 import fsdp2_traffic
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, make_traffic, sum_traffic
from dtbench.plan.traffic.tensor import tensor_traffic
from dtbench.scenario.schema.ddp import CustomHook
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario


def plan_traffic(
    scenario: Scenario, parameters: tuple[Parameter, ...], silent: Collection[Axis] = ()
) -> tuple[PlannedTraffic, ...]:
    """Return what one rank issues in one step after warm-up; nothing of purposes that ``find_own_purposes`` names.

    Args:
        scenario: says how the model is spread.
        parameters: the model's, in the order of use.
        silent: axes whose collectives come to nothing.
    """
    parallel = scenario.parallel
    if parallel.gather_weights is not None:  # every parameter, biases too, stays in parts of its rows
        parameters = tuple(replace(parameter, tensor_dim=0) for parameter in parameters)
    match parallel:
        case Ddp():
            reduced = ddp_traffic(scenario, parallel, parameters)
        case Fsdp1():
            reduced = fsdp1_traffic(scenario, parallel, parameters)
        case Fsdp2():
            reduced = fsdp2_traffic(scenario, parallel, parameters)
        case _:
            assert_never(parallel)
    cut = tensor_traffic(scenario, parameters)
    lines = (*reduced, *cut, *_clip_traffic(scenario, parameters))
    own = find_own_purposes(scenario)
    return sum_traffic(line for line in lines if line.axis not in silent and line.purpose not in own)


def find_own_purposes(scenario: Scenario) -> frozenset[Purpose]:
    """Return what functions of a person's own do: what is sent for it is unknown, and no formula says."""
    match scenario.parallel:
        case Ddp(comm_hook=CustomHook()):
            return frozenset({Purpose.GRAD_REDUCE})
        case Fsdp2(all_gather=gather, reduce_scatter=reduce, all_reduce_hook=hook):
            named = ((Purpose.UNSHARD, gather), (Purpose.GRAD_REDUCE, reduce), (Purpose.GRAD_REDUCE, hook))
            return frozenset(purpose for purpose, own in named if own is not None)
        case _:
            return frozenset()


def _clip_traffic(scenario: Scenario, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Complete the gradients' norms along each axis that shards them.

    DTensors (FSDP2, and DDP's over a tensor axis) reduce the vector of all parameters' norms; FSDP1 one number.
    """
    parallel = scenario.parallel
    if scenario.gradient_clip_norm is None:
        return
    if isinstance(parallel, Fsdp1):
        if not parallel.is_whole:
            yield make_traffic(Purpose.OTHER, Axis.SHARD, Operation.ALL_REDUCE, 1, DTYPE_BYTES["float32"])
        return
    size_bytes = len(parameters) * DTYPE_BYTES[scenario.precision.dtype]
    shards = parallel.shards if isinstance(parallel, Fsdp2) else 1
    for axis, size in ((Axis.SHARD, shards), (Axis.TENSOR, parallel.tensor)):
        if size > 1:
            yield make_traffic(Purpose.OTHER, axis, Operation.ALL_REDUCE, 1, size_bytes)

"""What FSDP1 gathers and reduces: flat parameters, with their alignment and padding."""

from collections import Counter
from collections.abc import Iterable
from math import ceil
from typing import Final

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.parameters import Parameter
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, make_traffic, reduce_gradients
from dtbench.scenario.schema.scenario import Accumulation, Fsdp1, Scenario

FLAT_PARAM_ALIGNMENT_BYTES: Final = 16  # torch/distributed/fsdp/_flat_param.py: _get_aligned_numel


def fsdp1_traffic(scenario: Scenario, parallel: Fsdp1, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Gather each flat parameter and reduce its gradient; ``NO_SHARD``, or one rank along shard, only all-reduces."""
    gathered_bytes, reduced_bytes = DTYPE_BYTES[scenario.gather_dtype], DTYPE_BYTES[scenario.reduce_dtype]
    syncs = count_syncs(scenario.accumulation)
    for unit, numel in flat_unit_elements(parameters, parallel, gathered_bytes).items():
        if parallel.is_whole:
            yield reduce_gradients(Axis.SHARD, Operation.ALL_REDUCE, syncs, syncs * numel * reduced_bytes)
            continue
        padded = ceil(numel / parallel.shards) * parallel.shards
        gathers = _fsdp1_gathers(scenario.accumulation, parallel, is_root=unit == "")
        yield make_traffic(
            Purpose.UNSHARD, Axis.SHARD, Operation.ALL_GATHER, gathers, gathers * padded * gathered_bytes
        )
        yield reduce_gradients(Axis.SHARD, Operation.REDUCE_SCATTER, syncs, syncs * padded * reduced_bytes)
        if "HYBRID" in parallel.sharding_strategy:
            shard_bytes = padded // parallel.shards * reduced_bytes
            yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, syncs, syncs * shard_bytes)


def _fsdp1_gathers(accumulation: Accumulation, parallel: Fsdp1, *, is_root: bool) -> int:
    """Count a unit's all-gathers in a step.

    The root is never freed after forward. Strategies that keep parameters after forward also keep them after a backward
    that does not reduce (``_should_free_in_backward``).
    """
    frees_after_forward = parallel.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
    if not frees_after_forward:
        return count_syncs(accumulation)
    return accumulation.micro_batches * (1 if is_root else 2)


def flat_unit_elements(parameters: tuple[Parameter, ...], parallel: Fsdp1, element_bytes: int) -> Counter[str]:
    """Return the elements of each unit's flat parameter.

    With ``use_orig_params`` every parameter starts at a multiple of 16 bytes, and the whole is a multiple of the ranks
    (``FlatParamHandle._init_flat_param_and_metadata``).
    """
    elements: Counter[str] = Counter()
    step = FLAT_PARAM_ALIGNMENT_BYTES // element_bytes if parallel.use_orig_params else 1
    for parameter in parameters:
        start = ceil(elements[parameter.unit] / step) * step
        elements[parameter.unit] = start + parameter.local_numel(parallel.tensor)
    if parallel.use_orig_params:
        for unit, numel in elements.items():
            elements[unit] = ceil(numel / parallel.shards) * parallel.shards
    return elements

"""What FSDP2 gathers and reduces: parameters sharded one by one on dim 0, with its padding; HSDP's second tier."""

from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil, prod

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.traffic.parameters import Parameter, find_under, list_holders
from dtbench.plan.traffic.planned import DTYPE_BYTES, PlannedTraffic, count_syncs, make_traffic, reduce_gradients
from dtbench.scenario.schema.scenario import Accumulation, Fsdp2, Scenario


def fsdp2_traffic(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...]) -> Iterable[PlannedTraffic]:
    """Gather each unit, reduce-scatter its gradients, and all-reduce the shards over the replicas."""
    reduced_bytes = DTYPE_BYTES[scenario.reduce_dtype]
    accumulation = scenario.accumulation
    syncs = count_syncs(accumulation)
    units = padded_unit_elements(parameters, parallel)
    gathered_bytes = gathered_unit_bytes(scenario, parallel, parameters)
    again = _gathered_again(accumulation, list(units), parallel)
    for unit, count in units.items():
        if parallel.shards > 1:
            gathers = _count_gathers(accumulation, parallel, unit) + (unit == again)
            size_bytes = gathers * gathered_bytes[unit]
            yield make_traffic(Purpose.UNSHARD, Axis.SHARD, Operation.ALL_GATHER, gathers, size_bytes)
            yield reduce_gradients(Axis.SHARD, Operation.REDUCE_SCATTER, syncs, syncs * count * reduced_bytes)
        if parallel.replicas > 1:
            reduces = 1 if accumulation.sync == "reduce_scatter" else syncs
            shard_bytes = count // parallel.shards * reduced_bytes
            yield reduce_gradients(Axis.REPLICATE, Operation.ALL_REDUCE, reduces, reduces * shard_bytes)


def _count_gathers(accumulation: Accumulation, parallel: Fsdp2, unit: str) -> int:
    """Count a unit's all-gathers in a step: before forward and backward, where it is not whole still and is needed."""
    asked = parallel.reshard_after_forward
    reshards = unit != "" if asked is None else bool(asked)
    is_needed = unit not in parallel.needless_in_backward
    is_kept = not (parallel.reshard_after_backward or (reshards and not is_needed))
    forwards = 1 if is_kept else accumulation.micro_batches
    return forwards + (accumulation.micro_batches if reshards and is_needed else 0)


def _gathered_again(accumulation: Accumulation, units: list[str], parallel: Fsdp2) -> str | None:
    """Name the unit that the last backward gathers for nobody; None: there is none.

    Several backwards leave the order of forwards uncleared until the last one ends, and in it the first block follows
    the unit that the forward before ended with: where no root is in between, backward's implicit prefetch gathers the
    last block once more (``_fsdp_param_group.py``: ``_backward_prefetch``, ``finalize_backward``).
    """
    is_again = accumulation.micro_batches > 1 and "" not in units and len(units) > 1
    return units[-1] if is_again and units[-1] not in parallel.needless_in_backward else None


def padded_unit_elements(parameters: tuple[Parameter, ...], parallel: Fsdp2) -> Counter[str]:
    """Return the elements that one all-gather of each unit puts out: dim 0 is padded up to a multiple of the shards.

    Of a parameter that is sharded along another dim torch wants a multiple, and pads nothing.
    """
    return _sum_units(parameters, parallel, lambda _: 1)


def gathered_unit_bytes(scenario: Scenario, parallel: Fsdp2, parameters: tuple[Parameter, ...]) -> Counter[str]:
    """Return the bytes that one all-gather of each unit puts out; parameters of unlike dtypes are sent in one."""
    kept = find_under((one.name for one in parameters), parallel.mixed_precision.keep_dtype)

    def item_bytes(parameter: Parameter) -> int:
        return DTYPE_BYTES[scenario.precision.dtype if parameter.name in kept else scenario.gather_dtype]

    return _sum_units(parameters, parallel, item_bytes)


def _sum_units(parameters: tuple[Parameter, ...], parallel: Fsdp2, weigh: Callable[[Parameter], int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    units = name_units((one.unit for one in parameters), parallel)
    for parameter in parameters:
        rows, *rest = parameter.local_shape(parallel.tensor) or (1,)  # a single number: torch refuses to shard it
        padded = rows if find_shard_dim(parameter.name, parallel) else ceil(rows / parallel.shards) * parallel.shards
        sums[units[parameter.unit]] += padded * prod(rest) * weigh(parameter)
    return sums


def name_units(modules: Iterable[str], parallel: Fsdp2) -> dict[str, str]:
    """Return the unit of each block, as torch spells it: ``layers.0, layers.1``; the root's, ``""``, is its own.

    Args:
        modules: FQNs of blocks in the order of the model, and of the root; again and again is allowed.
        parallel: says how many blocks share a unit.
    """
    blocks = [name for name in dict.fromkeys(modules) if name]
    shared = [blocks[at : at + parallel.blocks_per_unit] for at in range(0, len(blocks), parallel.blocks_per_unit)]
    return {"": "", **{block: ", ".join(unit) for unit in shared for block in unit}}


def find_shard_dim(name: str, parallel: Fsdp2) -> int:
    """Return the dimension along which a parameter is sharded: of the longest name that it is under, else 0."""
    return next((parallel.shard_dim[one] for one in list_holders(name) if one in parallel.shard_dim), 0)

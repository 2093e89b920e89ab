"""What a run says of itself that an advice must know: its strategy, and which of its knobs are set already."""

from dataclasses import replace
from typing import Final

from dtbench.base.vocabulary import DeviceKind, Runtime
from dtbench.plan.traffic.parameters import known_parameters
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.report.words.knobs import OF_PRECISION, Knob, Ran, find_untold, read_releases, without_effect
from dtbench.runs.summary import CellSummary
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario
from dtbench.traces.who.strategy import Strategy

_MOST_QUEUES: Final = 8
"""Hardware queues from which on more are no advice: CUDA's own number where nobody sets one."""


def describe_cell(cell: CellSummary) -> Ran:
    """Return what a cell ran; of a person's own loop where, and DDP by its buckets."""
    is_device = cell.plan.device is not DeviceKind.CPU
    releases = read_releases(torch=cell.torch, nccl=[] if cell.nccl is None else [cell.nccl])
    if cell.scenario is not None:
        ran = describe_scenario(cell.scenario, cell.runtime, is_device=is_device, ranks_per_host=cell.ranks_per_host)
        return replace(ran, releases=releases)
    is_ddp = any(row.owner.startswith("bucket ") for row in cell.owners)
    return Ran(
        is_device,
        Strategy.DDP if is_ddp else None,
        done=find_untold(is_device=is_device),
        runtime=cell.runtime,
        uses_nccl=is_device,
        releases=releases,
    )


def describe_scenario(
    scenario: Scenario, runtime: Runtime | None, *, is_device: bool, ranks_per_host: int | None = None
) -> Ran:
    """Return what a scenario says of how it is run.

    Args:
        scenario: as it ran.
        runtime: through which its devices were driven; None: it had none, or nobody wrote it down.
        is_device: it ran on accelerators.
        ranks_per_host: the most that one machine had; None: nobody wrote it down.
    """
    parallel = scenario.parallel
    is_unbucketed = isinstance(parallel, Ddp) and parallel.python_reducer
    return Ran(
        is_device=is_device,
        strategy=Strategy(parallel.kind) if not isinstance(parallel, Ddp) or parallel.wrap else None,
        done=_find_done(scenario, is_device=is_device),
        runtime=runtime,
        uses_nccl=is_device,
        tensor=parallel.tensor,
        has_replicas=parallel.replicas > 1,
        shards=None if isinstance(parallel, Ddp) else parallel.shards,
        shards_in_node=_count_in_node(scenario, ranks_per_host),
        is_compiled=getattr(scenario.model, "compile", None) is not None,
        keeps_logits=parallel.loss_parallel,
        is_unbucketed=is_unbucketed,
        is_set_down=True,
        sizes_bytes=_measure_parameters(scenario),
        last_ready=0 if isinstance(parallel, Ddp) and _is_in_definition_order(parallel) else -1,
    )


def _count_in_node(scenario: Scenario, ranks_per_host: int | None) -> int | None:
    """Count the shards on one node, which an emulated network says of itself; the tensor axis is the innermost."""
    parallel, network = scenario.parallel, scenario.network
    if isinstance(parallel, Ddp):
        return None
    if isinstance(network, EmulatedNetwork):
        if network.between_nodes is None:
            return parallel.shards
        ranks_per_host = network.between_nodes.ranks_per_node
    return None if ranks_per_host is None else min(parallel.shards, max(1, ranks_per_host // parallel.tensor))


def _is_in_definition_order(parallel: Ddp) -> bool:
    """Tell whether buckets keep the order of definition, the reverse of that in which gradients come."""
    return parallel.find_unused_parameters and not parallel.static_graph


def _measure_parameters(scenario: Scenario) -> dict[str, int]:
    element_bytes = DTYPE_BYTES[scenario.precision.dtype]
    return {
        parameter.name: element_bytes * parameter.local_numel(scenario.parallel.tensor)
        for parameter in known_parameters(scenario.model) or ()
    }


def _find_done(scenario: Scenario, *, is_device: bool) -> frozenset[Knob]:
    """Return the knobs that no advice may name: set already, or without effect here."""
    done = without_effect(is_device=is_device)
    done |= {knob for knob in (Knob.MAX_CTAS, Knob.CTA_POLICY, Knob.HIP_QUEUES) if knob.value in scenario.env}
    if int(scenario.env.get(Knob.CONNECTIONS.value, "1") or 1) >= _MOST_QUEUES:
        done.add(Knob.CONNECTIONS)
    if scenario.precision.dtype != "float32":
        done |= OF_PRECISION
    match scenario.parallel:
        case Ddp() as ddp:
            done |= _find_done_ddp(ddp)
        case Fsdp1() as fsdp1:
            done |= _find_done_fsdp1(fsdp1)
        case Fsdp2() as fsdp2:
            done |= _find_done_fsdp2(fsdp2)
    return frozenset(done)


def _find_done_ddp(ddp: Ddp) -> set[Knob]:
    hooks = {Knob.BF16_HOOK, Knob.FP16_HOOK, Knob.POWER_SGD}
    caps = {Knob.BUCKET_CAP, Knob.BUCKET_CAPS}
    done = {Knob.BUCKET_CAPS} if ddp.bucket_cap_mb_list is None else {Knob.BUCKET_CAP}
    if ddp.comm_hook is not None and ddp.comm_hook.kind != "allreduce":
        done |= hooks
    if ddp.tensor > 1 or ddp.mixed_precision.reduce_dtype or ddp.mixed_precision.param_dtype or ddp.join is not None:
        done |= hooks  # what may not be combined, or is low already
    if ddp.optimizer_in_backward or ddp.python_reducer or ddp.compiled_autograd:
        done |= hooks
    if ddp.python_reducer:
        done |= caps
    else:
        done.add(Knob.NO_PYTHON_REDUCER)
    return done


def _find_done_fsdp1(fsdp1: Fsdp1) -> set[Knob]:
    done: set[Knob] = set()
    if fsdp1.forward_prefetch:
        done.add(Knob.FSDP1_PREFETCH)
    if fsdp1.sharding_strategy not in ("FULL_SHARD", "HYBRID_SHARD"):
        done.add(Knob.FSDP1_KEEP)
    if fsdp1.sharding_strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"):
        done |= {Knob.FSDP1_HYBRID, Knob.FSDP1_KEEP}
    if fsdp1.mixed_precision.param_dtype is not None:
        done |= {Knob.FSDP1_PARAM_DTYPE, Knob.FSDP1_REDUCE_DTYPE}
    if fsdp1.mixed_precision.reduce_dtype is not None:
        done.add(Knob.FSDP1_REDUCE_DTYPE)
    return done


def _find_done_fsdp2(fsdp2: Fsdp2) -> set[Knob]:
    states = {
        Knob.PREFETCH_FORWARD: fsdp2.forward_prefetch > 0,
        Knob.PREFETCH_BACKWARD: fsdp2.backward_prefetch is not None,
        Knob.UNSHARD_ASYNC: fsdp2.unshard_async_op,
        Knob.SEPARATE_GROUP: fsdp2.separate_reduce_scatter_group,
        Knob.KEEP: fsdp2.reshard_after_forward is False,
        Knob.PARAM_DTYPE: fsdp2.mixed_precision.param_dtype is not None,
        Knob.REDUCE_DTYPE: (fsdp2.mixed_precision.reduce_dtype or fsdp2.mixed_precision.param_dtype) is not None,
    }
    return {knob for knob, is_done in states.items() if is_done}

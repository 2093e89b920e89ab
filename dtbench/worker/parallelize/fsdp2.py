"""``fully_shard`` on each block and on the root, over DTensor's tensor parallelism; and its knobs read back.

The root unit holds what no block owns: embedding, final norm and head. torch never reshards it after forward unless
told to, since backward needs it at once.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from dtbench.plan import Plan
from dtbench.scenario.schema import DtypeName, Fsdp2, MixedPrecision
from dtbench.store.records import OverlapPossible, Receipt, Traffic
from dtbench.vocabulary import Axis, DeviceKind, Purpose
from dtbench.worker.models.tensor_plan import apply_tensor_parallel
from dtbench.worker.receipts import compare, without_effect


@dataclass(frozen=True)
class ShardedModel:
    """A model under ``fully_shard``, and the placement that its first norm's output had when forward first ran."""

    model: Any
    norm_placements: list[tuple[object, ...]]


def wrap_fsdp2(model: Any, mesh: DeviceMesh, parallel: Fsdp2) -> ShardedModel:
    """Cut along ``tensor``, then shard each block and the root along ``shard``; sets every knob of ``parallel``."""
    if parallel.tensor > 1:
        apply_tensor_parallel(
            model, mesh[Axis.TENSOR.value], layers=len(model.layers), sequence_parallel=parallel.sequence_parallel
        )
    placements = _watch_norm(model.layers[0].attention_norm)
    settings: dict[str, Any] = {
        "mesh": mesh[Axis.SHARD.value],
        "reshard_after_forward": parallel.reshard_after_forward,
        "offload_policy": CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
        if parallel.cpu_offload
        else OffloadPolicy(),
    }
    policy = _mixed_precision_policy(parallel.mixed_precision)
    for layer in model.layers:
        fully_shard(layer, mp_policy=replace(policy, output_dtype=None), **settings)
    fully_shard(model, mp_policy=policy, **settings)
    if parallel.unshard_async_op:
        model._set_unshard_async_op(async_op=True)
    _set_prefetch(model, parallel)
    return ShardedModel(model=model, norm_placements=placements)


def _set_prefetch(model: Any, parallel: Fsdp2) -> None:
    """Name for each unit the next in forward and the previous in backward; the root runs before and after all."""
    blocks = list(model.layers)
    units = [model, *blocks]
    if parallel.forward_prefetch:
        for position, unit in enumerate(units[:-1]):
            unit.set_modules_to_forward_prefetch(blocks[position : position + parallel.forward_prefetch])
    if parallel.backward_prefetch:
        backward = [model, *reversed(blocks)]
        for position, unit in enumerate(backward[:-1]):
            unit.set_modules_to_backward_prefetch(backward[position + 1 : position + 1 + parallel.backward_prefetch])


def _mixed_precision_policy(settings: MixedPrecision) -> MixedPrecisionPolicy:
    return MixedPrecisionPolicy(
        param_dtype=_dtype(settings.param_dtype),
        reduce_dtype=_dtype(settings.reduce_dtype),
        output_dtype=_dtype(settings.output_dtype),
        cast_forward_inputs=settings.cast_forward_inputs,
    )


def _dtype(name: DtypeName | None) -> torch.dtype | None:
    return None if name is None else getattr(torch, name)


def _watch_norm(norm: nn.Module) -> list[tuple[object, ...]]:
    """Note the placements of the norm's first output, then look away: the evidence of sequence parallelism."""
    seen: list[tuple[object, ...]] = []

    def note(_module: nn.Module, _inputs: object, output: object) -> None:
        seen.append(tuple(output.placements) if isinstance(output, DTensor) else ())
        handle.remove()

    handle = norm.register_forward_hook(note)
    return seen


def list_units(model: nn.Module) -> tuple[str, ...]:
    """Give the FQNs of the FSDP units, root first as ``""``, in the order of ``named_modules``."""
    return tuple(name for name, module in model.named_modules() if isinstance(module, FSDPModule))


def read_fsdp2_receipts(sharded: ShardedModel, parallel: Fsdp2, plan: Plan) -> tuple[Receipt, ...]:
    """Read every knob back from the units' live state."""
    model = sharded.model
    blocks = [layer._get_fsdp_state() for layer in model.layers]
    groups = [state._fsdp_param_group for state in blocks]
    root = model._get_fsdp_state()._fsdp_param_group
    reshards = (groups[0]._reshard_after_forward, root._reshard_after_forward)
    wanted = (True, False) if parallel.reshard_after_forward is None else (parallel.reshard_after_forward,) * 2
    offload = compare("parallel.cpu_offload", parallel.cpu_offload, isinstance(root.offload_policy, CPUOffloadPolicy))
    if plan.device is DeviceKind.CPU and parallel.cpu_offload:
        offload = without_effect(offload, "parameters are in host memory already")
    sequence = any(isinstance(placement, Shard) for placements in sharded.norm_placements for placement in placements)
    return (
        compare("parallel.shards", parallel.shards, root._all_gather_process_group.size()),
        compare("parallel.tensor", parallel.tensor, _tensor_size(groups[0].fsdp_params)),
        compare("parallel.sequence_parallel", parallel.sequence_parallel, sequence),
        compare(
            "parallel.reshard_after_forward",
            parallel.reshard_after_forward,
            reshards,
            expected=wanted,
            note="blocks, root",
        ),
        *_mixed_precision_receipts(parallel.mixed_precision, root.mp_policy),
        offload,
        compare(
            "parallel.unshard_async_op",
            parallel.unshard_async_op,
            all(group.unshard_async_op for group in (*groups, root)),
        ),
        *_prefetch_receipts(model, parallel, plan),
    )


def _tensor_size(parameters: list[Any]) -> int:
    """Size of the tensor axis: what the first sharded matrix is cut by beyond FSDP."""
    matrix = next(parameter for parameter in parameters if parameter.sharded_param.ndim == 2)
    mesh = matrix.sharded_param.device_mesh
    names = mesh.mesh_dim_names or ()
    return mesh.size(names.index(Axis.TENSOR.value)) if Axis.TENSOR.value in names else 1


def _mixed_precision_receipts(asked: MixedPrecision, policy: MixedPrecisionPolicy) -> tuple[Receipt, ...]:
    fields = ("param_dtype", "reduce_dtype", "output_dtype")
    casts = compare(
        "parallel.mixed_precision.cast_forward_inputs", asked.cast_forward_inputs, policy.cast_forward_inputs
    )
    return (
        *(
            compare(f"parallel.mixed_precision.{name}", getattr(asked, name), _name(getattr(policy, name)))
            for name in fields
        ),
        casts,
    )


def _name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _prefetch_receipts(model: Any, parallel: Fsdp2, plan: Plan) -> tuple[Receipt, ...]:
    """Compare the root's prefetch lists; on gloo a prefetch without async unshard only moves a blocking call."""
    layers = len(model.layers)
    root = model._get_fsdp_state()
    forward = compare(
        "parallel.forward_prefetch",
        parallel.forward_prefetch,
        len(root._states_to_forward_prefetch),
        expected=min(parallel.forward_prefetch, layers),
    )
    backward = compare(
        "parallel.backward_prefetch",
        parallel.backward_prefetch,
        len(root._states_to_backward_prefetch),
        expected=min(parallel.backward_prefetch or 0, layers),
    )
    if plan.device is DeviceKind.CUDA or parallel.unshard_async_op:
        return forward, backward
    reason = "gloo gathers synchronously; set parallel.unshard_async_op to give prefetch something to do"
    return (
        without_effect(forward, reason) if parallel.forward_prefetch else forward,
        without_effect(backward, reason) if parallel.backward_prefetch else backward,
    )


def read_fsdp2_overlap(parallel: Fsdp2, plan: Plan, traffic: tuple[Traffic, ...]) -> tuple[OverlapPossible, ...]:
    """Say for each purpose whether it can run beside compute, from the async flags as issued where they are known."""
    notes = []
    if parallel.shards > 1:
        notes += [_unshard_overlap(parallel, plan, traffic), _reduce_overlap(parallel, plan, traffic)]
    if parallel.tensor > 1:
        reason = "the next operator consumes its result at once"
        notes.append(OverlapPossible(purpose=Purpose.TENSOR, possible=False, reason=reason))
    reason = "gradient clipping needs the norm before it can go on"
    notes.append(OverlapPossible(purpose=Purpose.OTHER, possible=False, reason=reason))
    return tuple(notes)


def _unshard_overlap(parallel: Fsdp2, plan: Plan, traffic: tuple[Traffic, ...]) -> OverlapPossible:
    if plan.device is DeviceKind.CUDA:
        return OverlapPossible(purpose=Purpose.UNSHARD, possible=True, reason="own stream, issued ahead of use")
    if not all(item.count_async == item.count for item in traffic if item.purpose is Purpose.UNSHARD):
        reason = "gloo issues FSDP2's collectives synchronously"
        return OverlapPossible(purpose=Purpose.UNSHARD, possible=False, reason=reason)
    where = "forward and backward" if parallel.forward_prefetch else "backward only: forward has no prefetch"
    return OverlapPossible(purpose=Purpose.UNSHARD, possible=True, reason=f"async_op=True, prefetched in {where}")


def _reduce_overlap(parallel: Fsdp2, plan: Plan, traffic: tuple[Traffic, ...]) -> OverlapPossible:
    if plan.device is DeviceKind.CUDA:
        return OverlapPossible(
            purpose=Purpose.GRAD_REDUCE, possible=True, reason="own stream, beside the rest of backward"
        )
    is_async = all(item.count_async == item.count for item in traffic if item.purpose is Purpose.GRAD_REDUCE)
    what = "reduce-scatters" if parallel.unshard_async_op else "collectives"
    reason = "async_op=True" if is_async else f"gloo issues FSDP2's {what} synchronously"
    return OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=is_async, reason=reason)

"""``fully_shard`` on each block and on the root, over DTensor's tensor parallelism; and its knobs read back.

The root unit holds what no block owns, for a transformer embedding, final norm and head. torch never reshards it after
forward unless told to, since backward needs it at once. On a mesh with a ``replicate`` axis it is HSDP.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import Axis, DeviceKind, Purpose
from dtbench.plan.plan import Plan
from dtbench.plan.traffic.fsdp2 import find_shard_dim
from dtbench.plan.traffic.parameters import find_under
from dtbench.scenario.schema.scenario import Fsdp2, Fsdp2MixedPrecision
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import Carried, OverlapPossible, Traffic
from dtbench.worker.dtypes import dtype_name, to_dtype
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.parallelize.fsdp2_own import read_own_receipts, set_own
from dtbench.worker.parallelize.fsdp2_switches import read_switch_receipts, require_switches, set_switches
from dtbench.worker.parallelize.knobs import require_methods
from dtbench.worker.parallelize.owners import watch_fsdp2_units
from dtbench.worker.parallelize.parallelized import Sync, plain_fqn, whole_gradients
from dtbench.worker.parallelize.tensor import (
    TensorEvidence,
    parallelize_tensor,
    read_inline_overlap,
    read_tensor_receipts,
)
from dtbench.worker.receipts import compare, without_effect
from dtbench.worker.recording.recorder import Recorder


@dataclass(frozen=True)
class ShardedModel:
    """A model under ``fully_shard``.

    Attributes:
        model: the root unit.
        blocks: of each other unit its first block, in the order of use in forward.
        tensor: what tensor parallelism was seen to do.
        keeps_unsharded: no reshard after the backward of any micro-batch but the last.
        finalizes: backward ends when its caller says so.
    """

    model: Any
    blocks: tuple[Any, ...]
    tensor: TensorEvidence
    keeps_unsharded: bool
    finalizes: bool

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the FSDP units, root first as ``""``, in the order of ``named_modules``: their modules' FQNs."""
        return tuple(self._unit_modules())

    def named_units(self) -> dict[str, Any]:
        """Return each FSDP unit's first module by the unit's name, without what wrappers add; root first as ``""``."""
        return {
            ", ".join(plain_fqn(f"{name}.").removesuffix(".") for name in unit.split(", ")): module
            for unit, module in self._unit_modules().items()
        }

    def _unit_modules(self) -> dict[str, Any]:
        """Return of each FSDP unit its first module by the FQNs of all."""
        found: dict[int, tuple[list[str], Any]] = {}
        for name, module in self.model.named_modules():
            if isinstance(module, FSDPModule):
                found.setdefault(id(module._get_fsdp_state()), ([], module))[0].append(name)
        return {", ".join(names): module for names, module in found.values()}

    @property
    def groups(self) -> dict[str, Axis]:
        """Process groups that FSDP2 made beside the mesh's: of a second sharding after forward, of reduce-scatters."""
        found = {}
        for group in self.param_groups():
            meshes = (group.mesh_info, group.post_forward_mesh_info)
            candidates = [getattr(info, "shard_process_group", None) for info in meshes]
            candidates.append(getattr(group, "_reduce_scatter_process_group", None))
            found.update({item.group_name: Axis.SHARD for item in candidates if item is not None})
        return found

    def param_groups(self) -> list[Any]:
        """Return torch's parameter group of each unit that has one, root first."""
        states = [unit._get_fsdp_state() for unit in (self.model, *self.blocks)]
        return [state._fsdp_param_group for state in states if state._fsdp_param_group is not None]

    def watch_owners(self, recorder: Recorder) -> AbstractContextManager[None]:
        """Return the context in which the recorder is told which unit asks."""
        return watch_fsdp2_units(recorder, {id(group): unit for unit, group in self._named_groups()})

    def read_carried(self) -> tuple[Carried, ...]:
        """Return the parameters of each unit, root first."""
        return tuple(
            Carried(
                owner=unit or ROOT,
                parameters=tuple(plain_fqn(parameter._param_fqn) for parameter in group.fsdp_params),
                size_bytes=sum(
                    parameter._orig_size.numel() * parameter.orig_dtype.itemsize for parameter in group.fsdp_params
                ),
            )
            for unit, group in self._named_groups()
        )

    def _named_groups(self) -> Iterator[tuple[str, Any]]:
        for name, unit in self.named_units().items():
            if (group := unit._get_fsdp_state()._fsdp_param_group) is not None:
                yield name, group

    def gather_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield FQN and whole gradient of every parameter; collective over all axes."""
        for name, gradient in whole_gradients(self.model):
            yield name, gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

    def prepare_micro_batch(self, sync: str, *, is_last: bool) -> None:
        """Say what the coming backward is to do with gradients and gathered parameters."""
        self.model.set_is_last_backward(is_last)
        if self.keeps_unsharded:
            self.model.set_reshard_after_backward(is_last)
        if sync == "last":
            self.model.set_requires_gradient_sync(is_last)
        elif sync == "reduce_scatter":
            self.model.set_requires_all_reduce(is_last)

    def finish_backward(self) -> None:
        """End the backward of a step where torch leaves that to its caller."""
        if self.finalizes:
            self.model.finalize_backward()

    def mark_update(self) -> None:
        """Tell the next step's all-gathers which event to wait for: all that was issued until now."""
        event = torch.Event(self.device)
        event.record()
        self.model.set_post_optim_event(event)

    @property
    def device(self) -> torch.device:
        """Where the root's parameters are gathered."""
        found: torch.device = self.model._get_fsdp_state()._device
        return found

    def read_sync(self) -> Sync:
        """Ask torch what the coming backward will do to the gradients."""
        group = self.param_groups()[0]
        if not group.reduce_grads:
            return Sync.HOLD
        return Sync.REDUCE if group.all_reduce_grads else Sync.REDUCE_SCATTER


def wrap_fsdp2(
    built: BuiltModel, mesh: DeviceMesh, parallel: Fsdp2, import_folders: Sequence[str] = ()
) -> ShardedModel:
    """Cut along ``tensor``, then shard each block and the root along ``shard``; sets every knob of ``parallel``.

    Raises:
        MissingError: the installed torch lacks a knob that is asked for.
        PlanError: a unit, or a person's own function, cannot be found.
    """
    require_switches(parallel)
    evidence = parallelize_tensor(built, mesh, parallel)
    model: Any = built.module
    blocks = tuple(model.get_submodule(name) for name in built.blocks)
    axes = (Axis.REPLICATE.value, Axis.SHARD.value) if parallel.replicas > 1 else (Axis.SHARD.value,)
    settings: dict[str, Any] = {
        "mesh": mesh[axes],
        "reshard_after_forward": parallel.reshard_after_forward,
        "offload_policy": CPUOffloadPolicy(pin_memory=torch.accelerator.is_available())
        if parallel.cpu_offload
        else OffloadPolicy(),
        **_shard_placement(model, parallel),
    }
    policy = _mixed_precision_policy(model, parallel.mixed_precision)
    for start in range(0, len(blocks), parallel.blocks_per_unit):
        unit = blocks[start : start + parallel.blocks_per_unit]
        fully_shard(list(unit) if len(unit) > 1 else unit[0], mp_policy=replace(policy, output_dtype=None), **settings)
    fully_shard(model, mp_policy=policy, **settings)
    built.materialize(model, home=torch.device("cpu") if parallel.cpu_offload else None)
    sharded = ShardedModel(
        model,
        blocks[:: parallel.blocks_per_unit],
        evidence,
        keeps_unsharded=not parallel.reshard_after_backward,
        finalizes=parallel.manual_backward_finalization,
    )
    set_switches(sharded.named_units(), parallel)
    set_own(sharded.named_units(), parallel, import_folders)
    _set_prefetch(sharded, parallel)
    return sharded


def _shard_placement(model: Any, parallel: Fsdp2) -> dict[str, Any]:
    """Return the argument that says along which dimension each parameter is sharded; none where it is the first."""
    if not parallel.shard_dim:
        return {}
    dims = {id(one): find_shard_dim(plain_fqn(name), parallel) for name, one in model.named_parameters()}
    return {"shard_placement_fn": lambda parameter: Shard(dims[id(parameter)])}


def _read_shard_dims(sharded: ShardedModel, parallel: Fsdp2) -> Receipt:
    """Compare the parameters that are sharded along another dimension than the first."""
    found = {plain_fqn(one._param_fqn): one for group in sharded.param_groups() for one in group.fsdp_params}
    got = {name: one.fsdp_placement.dim for name, one in found.items() if one.fsdp_placement.dim}
    expected = {name: dim for name in found if (dim := find_shard_dim(name, parallel))}
    return compare("parallel.shard_dim", parallel.shard_dim, got, expected=expected)


def _set_prefetch(sharded: ShardedModel, parallel: Fsdp2) -> None:
    """Name for each unit the next in forward and the previous in backward; the root runs before and after all."""
    model, blocks = sharded.model, list(sharded.blocks)
    units = [model, *blocks]
    if parallel.forward_prefetch:
        for position, unit in enumerate(units[:-1]):
            unit.set_modules_to_forward_prefetch(blocks[position : position + parallel.forward_prefetch])
    if parallel.backward_prefetch:
        backward = [model, *reversed(blocks)]
        for position, unit in enumerate(backward[:-1]):
            unit.set_modules_to_backward_prefetch(backward[position + 1 : position + 1 + parallel.backward_prefetch])


def _mixed_precision_policy(model: Any, settings: Fsdp2MixedPrecision) -> MixedPrecisionPolicy:
    """Return torch's policy; raises MissingError where it has no dtypes of single parameters."""
    own: dict[str, Any] = {}
    if settings.keep_dtype:
        methods = [("keep_dtype", "param_dtype_override_fn")]
        require_methods(MixedPrecisionPolicy, methods, "parallel.mixed_precision")
        named = {plain_fqn(name): one for name, one in model.named_parameters()}
        kept = {id(named[name]) for name in find_under(named, settings.keep_dtype)}
        own = {"param_dtype_override_fn": lambda parameter: parameter.dtype if id(parameter) in kept else None}
    return MixedPrecisionPolicy(
        param_dtype=to_dtype(settings.param_dtype),
        reduce_dtype=to_dtype(settings.reduce_dtype),
        output_dtype=to_dtype(settings.output_dtype),
        cast_forward_inputs=settings.cast_forward_inputs,
        **own,
    )


def _read_kept(sharded: ShardedModel, settings: Fsdp2MixedPrecision) -> Receipt:
    """Compare the parameters that are gathered in another dtype than their unit's."""
    units = [unit._get_fsdp_state() for unit in sharded.named_units().values()]
    found = [
        (plain_fqn(one._param_fqn), one.mp_policy.param_dtype != unit._mp_policy.param_dtype)
        for unit in units
        if unit._fsdp_param_group is not None
        for one in unit._fsdp_param_group.fsdp_params
    ]
    asked = find_under((name for name, _ in found), settings.keep_dtype)
    return compare(
        "parallel.mixed_precision.keep_dtype",
        settings.keep_dtype,
        tuple(name for name, is_kept in found if is_kept),
        expected=tuple(name for name, _ in found if name in asked),
    )


def read_fsdp2_receipts(sharded: ShardedModel, parallel: Fsdp2, plan: Plan) -> tuple[Receipt, ...]:
    """Read every knob back from the units' live state."""
    root = sharded.param_groups()[0]
    offload = compare("parallel.cpu_offload", parallel.cpu_offload, isinstance(root.offload_policy, CPUOffloadPolicy))
    if plan.device is DeviceKind.CPU and parallel.cpu_offload:
        offload = without_effect(offload, "parameters are in host memory already")
    replicas = getattr(root.mesh_info, "replicate_mesh_size", 1)
    return (
        compare("parallel.shards", parallel.shards, root.mesh_info.shard_mesh_size),
        compare("parallel.replicas", parallel.replicas, replicas),
        _read_blocks_per_unit(sharded, parallel),
        *read_tensor_receipts(sharded.tensor, parallel, through="DTensor itself"),
        _read_shard_dims(sharded, parallel),
        *read_own_receipts(sharded.named_units(), parallel),
        *_reshard_receipts(sharded, parallel),
        _read_kept(sharded, parallel.mixed_precision),
        *_mixed_precision_receipts(parallel.mixed_precision, sharded.model._get_fsdp_state()._mp_policy),
        offload,
        *read_switch_receipts(sharded.named_units(), parallel, plan.device),
        *_prefetch_receipts(sharded, parallel, plan),
        *_reduce_scatter_receipts(root, parallel, plan),
    )


def _read_blocks_per_unit(sharded: ShardedModel, parallel: Fsdp2) -> Receipt:
    """Compare the modules of each unit but the root; the last may have fewer."""
    got = [len(block._get_fsdp_state()._modules) for block in sharded.blocks]
    is_asked = all(count == parallel.blocks_per_unit for count in got[:-1]) and max(got, default=0) <= (
        parallel.blocks_per_unit
    )
    return compare(
        "parallel.blocks_per_unit", parallel.blocks_per_unit, parallel.blocks_per_unit if is_asked else tuple(got)
    )


def _reshard_receipts(sharded: ShardedModel, parallel: Fsdp2) -> Iterator[Receipt]:
    """Compare what units do after forward and between micro-batches; a number shows as the size of a second group."""
    groups = sharded.param_groups()
    root = sharded.model._get_fsdp_state()._fsdp_param_group  # None for a root that holds no parameters
    asked = parallel.reshard_after_forward
    wanted = {"block": True, "root": False} if asked is None else {"block": asked, "root": asked}
    units = {"block": next((group for group in groups if group is not root), None), "root": root}
    reshards = {name: _reshard_word(group) for name, group in units.items() if group is not None}
    expected = tuple(wanted[name] for name in reshards)
    note = ", ".join(reshards)
    yield compare("parallel.reshard_after_forward", asked, tuple(reshards.values()), expected=expected, note=note)
    keeps = any(not group.reshard_after_backward for group in groups) or sharded.keeps_unsharded
    yield compare("parallel.reshard_after_backward", parallel.reshard_after_backward, not keeps)


def _reshard_word(group: Any) -> bool | int:
    second = group.post_forward_mesh_info
    if not group._reshard_after_forward:
        return False
    return second.shard_mesh_size if group._use_post_forward_mesh else True


def _mixed_precision_receipts(asked: Fsdp2MixedPrecision, policy: MixedPrecisionPolicy) -> tuple[Receipt, ...]:
    fields = ("param_dtype", "reduce_dtype", "output_dtype")
    casts = compare(
        "parallel.mixed_precision.cast_forward_inputs", asked.cast_forward_inputs, policy.cast_forward_inputs
    )
    return (
        *(
            compare(f"parallel.mixed_precision.{name}", getattr(asked, name), dtype_name(getattr(policy, name)))
            for name in fields
        ),
        casts,
    )


def _prefetch_receipts(sharded: ShardedModel, parallel: Fsdp2, plan: Plan) -> tuple[Receipt, ...]:
    """Compare the root's prefetch lists; on gloo a prefetch without async unshard only moves a blocking call."""
    blocks = len(sharded.blocks)
    root = sharded.model._get_fsdp_state()
    forward = compare(
        "parallel.forward_prefetch",
        parallel.forward_prefetch,
        len(root._states_to_forward_prefetch),
        expected=min(parallel.forward_prefetch, blocks),
    )
    backward = compare(
        "parallel.backward_prefetch",
        parallel.backward_prefetch,
        len(root._states_to_backward_prefetch),
        expected=min(parallel.backward_prefetch or 0, blocks),
    )
    if plan.device is DeviceKind.CUDA or parallel.unshard_async_op:
        return forward, backward
    reason = "gloo gathers synchronously; set parallel.unshard_async_op to give prefetch something to do"
    return (
        without_effect(forward, reason) if parallel.forward_prefetch else forward,
        without_effect(backward, reason) if parallel.backward_prefetch else backward,
    )


def _reduce_scatter_receipts(root: Any, parallel: Fsdp2, plan: Plan) -> Iterator[Receipt]:
    """Compare how gradients are reduced; group and buffers can only matter where it runs beside something.

    On gloo backward stands still while it reduces: no second input is in flight. A gather that was issued before may
    be, if gathers are asynchronous; a group of its own then saves a reduction from standing behind that.
    """
    gathers, reduces = root._all_gather_process_group, root._reduce_scatter_process_group
    apart = compare(
        "parallel.separate_reduce_scatter_group", parallel.separate_reduce_scatter_group, gathers != reduces
    )
    buffers = compare(
        "parallel.reduce_scatter_max_input_buffers",
        parallel.reduce_scatter_max_input_buffers,
        getattr(root, "reduce_scatter_max_input_buffers", 1),
    )
    if plan.device is DeviceKind.CPU:
        reason = "gloo issues FSDP2's reduce-scatters synchronously: there is nothing beside them"
        is_alone = parallel.separate_reduce_scatter_group and not parallel.unshard_async_op
        apart = without_effect(apart, reason) if is_alone else apart
        buffers = without_effect(buffers, reason) if parallel.reduce_scatter_max_input_buffers > 1 else buffers
    yield apart
    yield buffers


def read_fsdp2_overlap(
    parallel: Fsdp2, plan: Plan, traffic: tuple[Traffic, ...], *, clips: bool
) -> tuple[OverlapPossible, ...]:
    """Say for each purpose whether it can run beside compute, from the async flags as issued where they are known."""
    notes = []
    if parallel.shards > 1:
        notes += [_unshard_overlap(parallel, plan, traffic), _reduce_overlap(parallel, plan, traffic)]
    return (*notes, *read_inline_overlap(parallel, traffic, clips=clips))


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
    reduces = "reduce-scatters and all-reduces" if parallel.replicas > 1 else "reduce-scatters"
    what = reduces if parallel.unshard_async_op else "collectives"
    reason = "async_op=True" if is_async else f"gloo issues FSDP2's {what} synchronously"
    return OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=is_async, reason=reason)

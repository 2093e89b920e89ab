"""``FullyShardedDataParallel`` (FSDP1) on each block and on the root, alone or over a tensor axis; knobs read back.

Each unit's parameters live in one flat tensor that is sharded evenly, whatever the parameters' borders. Over a tensor
axis torch finds the mesh's other dimension itself and lets ``DTensorExtensions`` take local parts in and out.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.fsdp._init_utils as torch_fsdp
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import DTensor

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import Axis, DeviceKind, Purpose
from dtbench.plan.plan import Plan
from dtbench.scenario.schema.scenario import Fsdp1, Fsdp1MixedPrecision
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import Carried, OverlapPossible, Traffic
from dtbench.worker.dtypes import dtype_name, to_dtype
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.parallelize.owners import watch_fsdp1_units
from dtbench.worker.parallelize.parallelized import Sync, plain_fqn
from dtbench.worker.parallelize.tensor import (
    TensorEvidence,
    parallelize_tensor,
    read_inline_overlap,
    read_tensor_receipts,
)
from dtbench.worker.receipts import compare, without_effect
from dtbench.worker.recording.recorder import Recorder


@dataclass(frozen=True)
class FlatModel:
    """A model under FSDP1 and what was seen while it was built."""

    model: Any
    tensor: TensorEvidence
    initial_syncs: int

    @property
    def units(self) -> tuple[str, ...]:
        """FQNs of the units, root first as ``""``."""
        return tuple(name for name, _ in self._named_handles())

    @property
    def extension(self) -> str | None:
        """The class that takes DTensors in and out of flat parameters, if FSDP1 found a tensor axis."""
        extension = self.model._fsdp_extension
        return None if extension is None else type(extension).__name__

    def _named_handles(self) -> Iterator[tuple[str, Any]]:
        for name, module in self.model.named_modules():
            if isinstance(module, FullyShardedDataParallel) and module._handle is not None:
                yield plain_fqn(name + ".").removesuffix("."), module._handle

    def watch_owners(self, recorder: Recorder) -> AbstractContextManager[None]:
        """Return the context in which the recorder is told which unit asks."""
        return watch_fsdp1_units(recorder, {id(handle): unit for unit, handle in self._named_handles()})

    def read_carried(self) -> tuple[Carried, ...]:
        """Return the parameters of each unit's flat tensor, root first."""
        return tuple(
            Carried(
                owner=unit or ROOT,
                parameters=tuple(plain_fqn(f"{unit}.{fqn}" if unit else fqn) for fqn in handle.flat_param._fqns),
                size_bytes=sum(handle.flat_param._numels) * handle.flat_param.element_size(),
            )
            for unit, handle in self._named_handles()
        )

    def read_local_parts(self) -> dict[tuple[int, int], str]:
        """Return the FQN of each parameter by the flat one that holds it (its ``id``) and where in it it begins."""
        parts = {}
        for unit, handle in self._named_handles():
            flat = handle.flat_param
            numels = flat._numels_with_padding
            begins = [end - numel for end, numel in zip(accumulate(numels), numels, strict=True)]
            mine = [begin for begin, pads in zip(begins, flat._is_padding_mask, strict=True) if not pads]
            for fqn, begin in zip(flat._fqns, mine, strict=True):
                parts[id(flat), begin] = plain_fqn(f"{unit}.{fqn}" if unit else fqn)
        return parts

    def gather_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield FQN and whole gradient of every parameter; collective over all axes.

        torch gives whole gradients only with ``use_orig_params``; the flat ones hold the same in either case.
        """
        for unit, handle in self._named_handles():
            shard = handle.sharded_grad
            if shard is None:
                continue
            whole = _gather_flat(shard, handle)
            for fqn, gradient in zip(handle.flat_param._fqns, handle._get_unflat_views(whole), strict=True):
                full = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
                yield plain_fqn(f"{unit}.{fqn}" if unit else fqn), full

    def read_sync(self) -> Sync:
        """Ask torch whether the coming backward will reduce."""
        return Sync.REDUCE if self.model._sync_gradients else Sync.HOLD


def _gather_flat(shard: Tensor, handle: Any) -> Tensor:
    """Return the whole flat gradient without the padding at its end."""
    if handle.uses_sharded_strategy:
        shard = shard.to(handle.device)
        whole = shard.new_empty(shard.numel() * handle.world_size)
        dist.all_gather_into_tensor(whole, shard.contiguous(), group=handle.process_group)
    else:
        whole = shard
    masks = handle.flat_param._is_padding_mask
    length = sum(handle.flat_param._numels_with_padding if any(masks) else handle.flat_param._numels)
    return whole.flatten()[:length]


def wrap_fsdp1(built: BuiltModel, mesh: DeviceMesh, parallel: Fsdp1, plan: Plan) -> FlatModel:
    """Cut along ``tensor`` if asked, then shard each block and the root; sets every knob of ``parallel``."""
    evidence = parallelize_tensor(built, mesh, parallel)
    blocks = {built.module.get_submodule(name) for name in built.blocks}
    is_hybrid = "HYBRID" in parallel.sharding_strategy
    axes = (Axis.REPLICATE.value, Axis.SHARD.value) if is_hybrid else (Axis.SHARD.value,)
    prefetch = parallel.backward_prefetch
    precision = parallel.mixed_precision
    settings: dict[str, Any] = {
        **_choose_ranks(mesh[axes], parallel),
        "sharding_strategy": ShardingStrategy[parallel.sharding_strategy],
        "use_orig_params": parallel.use_orig_params,
        "backward_prefetch": None if prefetch is None else BackwardPrefetch[prefetch],
        "forward_prefetch": parallel.forward_prefetch,
        "limit_all_gathers": parallel.limit_all_gathers,
        "mixed_precision": None if precision == Fsdp1MixedPrecision() else _mixed_precision(precision),
        "cpu_offload": CPUOffload(offload_params=True) if parallel.cpu_offload else None,
        "sync_module_states": parallel.sync_module_states,
        "param_init_fn": None if built.weights is None else built.weights.materialize_own,
        "auto_wrap_policy": CustomPolicy(lambda module: module in blocks),
        "device_id": torch.device("cpu") if plan.device is DeviceKind.CPU else torch.accelerator.current_device_index(),
    }
    with _count_initial_syncs() as syncs, warnings.catch_warnings():
        # both are said in the receipt of sharding_strategy
        warnings.filterwarnings("ignore", message=".*NO_SHARD.*")
        model = FullyShardedDataParallel(built.module, **settings)
    if parallel.sharded_state == "sharded_tensor" and parallel.tensor > 1:
        _forget_mesh(model)
    return FlatModel(model=model, tensor=evidence, initial_syncs=len(syncs))


def _choose_ranks(mesh: DeviceMesh, parallel: Fsdp1) -> dict[str, Any]:
    """Say over whom units are sharded: over a mesh sharded states are ``DTensor``, over groups ``ShardedTensor``."""
    if parallel.sharded_state == "dtensor" or parallel.tensor > 1:
        return {"device_mesh": mesh}
    if mesh.ndim == 1:
        return {"process_group": mesh.get_group()}
    return {"process_group": (mesh.get_group(Axis.SHARD.value), mesh.get_group(Axis.REPLICATE.value))}


def _forget_mesh(model: FullyShardedDataParallel) -> None:
    """Let sharded states be ``ShardedTensor``; ``DTensorExtensions``, which cut them, come only with a mesh."""
    for unit in FullyShardedDataParallel.fsdp_modules(model):
        unit._device_mesh = None


def _mixed_precision(settings: Fsdp1MixedPrecision) -> MixedPrecision:
    return MixedPrecision(
        param_dtype=to_dtype(settings.param_dtype),
        reduce_dtype=to_dtype(settings.reduce_dtype),
        buffer_dtype=to_dtype(settings.buffer_dtype),
        keep_low_precision_grads=settings.keep_low_precision_grads,
        cast_forward_inputs=settings.cast_forward_inputs,
        cast_root_forward_inputs=settings.cast_root_forward_inputs,
    )


@contextmanager
def _count_initial_syncs() -> Iterator[list[None]]:
    """Count how often FSDP1 broadcasts parameters while it wraps."""
    original = torch_fsdp._sync_module_params_and_buffers
    calls: list[None] = []

    def counted(*args: object, **kwargs: object) -> None:
        calls.append(None)
        original(*args, **kwargs)

    with mock.patch.object(torch_fsdp, "_sync_module_params_and_buffers", counted):
        yield calls


def read_fsdp1_receipts(flat: FlatModel, parallel: Fsdp1, plan: Plan) -> tuple[Receipt, ...]:
    """Read every knob back from the root's live state."""
    model = flat.model
    is_hybrid = model.sharding_strategy.name in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
    offload = compare("parallel.cpu_offload", parallel.cpu_offload, bool(model.cpu_offload.offload_params))
    if plan.device is DeviceKind.CPU and parallel.cpu_offload:
        offload = without_effect(offload, "parameters are in host memory already")
    return (
        compare("parallel.shards", parallel.shards, model.process_group.size()),
        compare("parallel.replicas", parallel.replicas, model._inter_node_pg.size() if is_hybrid else 1),
        *read_tensor_receipts(flat.tensor, parallel, through=flat.extension),
        _strategy_receipt(model, parallel),
        compare("parallel.use_orig_params", parallel.use_orig_params, bool(model._use_orig_params)),
        *_prefetch_receipts(model, parallel, plan),
        *_mixed_precision_receipts(model.mixed_precision, parallel.mixed_precision),
        offload,
        compare("parallel.sync_module_states", parallel.sync_module_states, flat.initial_syncs > 0),
        compare(
            "parallel.sharded_state",
            parallel.sharded_state,
            "sharded_tensor" if getattr(model, "_device_mesh", None) is None else "dtensor",
        ),
    )


def _strategy_receipt(model: Any, parallel: Fsdp1) -> Receipt:
    name = model.sharding_strategy.name
    if parallel.shards == 1 and name == "NO_SHARD" and parallel.sharding_strategy != name:
        agreed = compare("parallel.sharding_strategy", parallel.sharding_strategy, name, expected=name)
        return without_effect(agreed, "one rank along shard: torch takes NO_SHARD")
    return compare("parallel.sharding_strategy", parallel.sharding_strategy, name)


def _prefetch_receipts(model: Any, parallel: Fsdp1, plan: Plan) -> Iterator[Receipt]:
    """Compare what decides when a unit is gathered; on gloo each gather blocks, so moving it hides nothing."""
    backward = None if model.backward_prefetch is None else model.backward_prefetch.name
    receipts = (
        compare("parallel.backward_prefetch", parallel.backward_prefetch, backward),
        compare("parallel.forward_prefetch", parallel.forward_prefetch, bool(model.forward_prefetch)),
        compare("parallel.limit_all_gathers", parallel.limit_all_gathers, bool(model.limit_all_gathers)),
    )
    for receipt in receipts:
        field = Fsdp1.model_fields[receipt.knob.removeprefix("parallel.")]
        is_default = getattr(parallel, receipt.knob.removeprefix("parallel.")) == field.default
        if plan.device is DeviceKind.CUDA or is_default:
            yield receipt
        else:
            yield without_effect(receipt, "gloo issues FSDP1's all-gathers synchronously: none runs ahead")


def _mixed_precision_receipts(got: MixedPrecision, asked: Fsdp1MixedPrecision) -> Iterator[Receipt]:
    for name in Fsdp1MixedPrecision.model_fields:
        value = getattr(got, name)
        word = dtype_name(value) if name.endswith("_dtype") else value
        receipt = compare(f"parallel.mixed_precision.{name}", getattr(asked, name), word)
        yield receipt


def read_fsdp1_overlap(
    parallel: Fsdp1, plan: Plan, traffic: tuple[Traffic, ...], *, clips: bool
) -> tuple[OverlapPossible, ...]:
    """Say for each purpose whether it can run beside compute, from the async flags as issued where they are known."""
    notes = []
    for purpose, where in (
        (Purpose.UNSHARD, "own stream, issued ahead of use"),
        (Purpose.GRAD_REDUCE, "own stream, beside the rest of backward"),
    ):
        if plan.device is DeviceKind.CUDA:
            notes.append(OverlapPossible(purpose=purpose, possible=True, reason=where))
            continue
        issued = [item for item in traffic if item.purpose is purpose]
        is_async = bool(issued) and all(item.count_async == item.count for item in issued)
        reason = "async_op=True" if is_async else "gloo issues FSDP1's collectives synchronously"
        notes.append(OverlapPossible(purpose=purpose, possible=is_async, reason=reason))
    return (*notes, *read_inline_overlap(parallel, traffic, clips=clips))

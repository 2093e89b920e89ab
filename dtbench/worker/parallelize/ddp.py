"""``DistributedDataParallel``, alone or over a tensor axis: wrap, train, and read buckets and knobs back.

[Note: parameters that DDP over tensor parallelism hides] ``_pre_dp_module_transform`` replaces DTensor parameters by
local ones before DDP sees them, and the first forward replaces these by DTensors again, as plain attributes: from then
on ``module.parameters()`` is empty. The optimizer, clipping and the correctness check therefore keep the local
parameters and their specs from before.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as torch_ddp
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import _OptimizerHookState
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

from dtbench.errors import PlanError
from dtbench.plan import Plan
from dtbench.scenario.schema import (
    Bf16Compress,
    CommHook,
    Ddp,
    DdpMixedPrecision,
    Fp16Compress,
    Optimizer,
    PlainAllReduce,
    PowerSgd,
    Scenario,
)
from dtbench.store.records import Carried, OverlapPossible, Receipt, Traffic
from dtbench.traffic.ddp import DDP_DEFAULT_CAP_BYTES
from dtbench.traffic.parameters import is_under
from dtbench.units import MIB
from dtbench.vocabulary import Axis, DeviceKind, Purpose
from dtbench.worker.dtypes import dtype_name, to_dtype
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.network.named_gloo import find_recorder
from dtbench.worker.optimizer import optimizer_class
from dtbench.worker.parallelize.buckets import BucketAssignment, carry, keep_assignment, name_powersgd, read_buckets
from dtbench.worker.parallelize.knobs import require_arguments
from dtbench.worker.parallelize.parallelized import Sync, clip_gradients, plain_fqn
from dtbench.worker.parallelize.tensor import TensorEvidence, cut_model, read_inline_overlap, read_tensor_receipts
from dtbench.worker.receipts import compare, without_effect
from dtbench.worker.recorder import DELAYED

_PASSED_ON = (
    "bucket_cap_mb",
    "bucket_cap_mb_list",
    "gradient_as_bucket_view",
    "static_graph",
    "find_unused_parameters",
    "skip_all_reduce_unused_params",
    "broadcast_buffers",
    "init_sync",
    "batched_grad_copy",
)
"""Fields of ``Ddp`` that are arguments of torch's constructor, under torch's names."""


@dataclass(frozen=True)
class LocalParameter:
    """A parameter as DDP sees it: the local part of a DTensor where ``spec`` is one's, whole where it is None."""

    fqn: str
    parameter: nn.Parameter
    spec: Any

    def gradient(self) -> Tensor:
        """Give the gradient, as a DTensor where it is a part."""
        gradient = self.parameter.grad
        assert gradient is not None
        if self.spec is None:
            return gradient
        shape, stride = self.spec.shape, self.spec.stride
        return DTensor.from_local(
            gradient, self.spec.mesh, self.spec.placements, run_check=False, shape=shape, stride=stride
        )


class WaitedDdp(DistributedDataParallel):
    """DDP that keeps the ``Work`` of its delayed all-reduce.

    torch drops it (2.13, ``_delayed_all_reduce_hook``), so that the optimizer may read gradients that are still being
    reduced: losses were off by 1e-5 on gloo. ``wait_for_delayed`` is called at the end of backward.
    """

    _delayed_work: Any = None

    def _delayed_all_reduce_hook(self, grad: Tensor) -> Tensor:
        original = dist.all_reduce
        recorder = find_recorder(self.process_group)

        def keep_work(*args: Any, **kwargs: Any) -> Any:
            with nullcontext() if recorder is None else recorder.reducing(DELAYED):
                self._delayed_work = original(*args, **kwargs)
            return self._delayed_work

        with mock.patch.object(dist, "all_reduce", keep_work):
            return super()._delayed_all_reduce_hook(grad)

    def wait_for_delayed(self) -> None:
        """Wait for the delayed all-reduce of this backward, if there was one."""
        if self._delayed_work is not None:
            self._delayed_work.wait()
            self._delayed_work = None


@dataclass(frozen=True)
class WrappedDdp:
    """A DDP model and what was seen while it was built."""

    model: WaitedDdp
    parameters: tuple[LocalParameter, ...]
    tensor: TensorEvidence
    initial_syncs: int
    delayed: tuple[str, ...]
    assigned: BucketAssignment

    @property
    def local_parameters(self) -> tuple[nn.Parameter, ...]:
        """What the optimizer updates."""
        return tuple(item.parameter for item in self.parameters)

    def gather_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Give FQN and whole gradient of every parameter; collective over the tensor axis."""
        for item in self.parameters:
            if item.parameter.grad is not None:
                gradient = item.gradient()
                yield item.fqn, gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

    def clip(self, max_norm: float) -> Tensor:
        """Scale gradients to a total norm over all of the model, tensor parts included."""
        if all(item.spec is None for item in self.parameters):
            return clip_gradients(self.local_parameters, max_norm)
        gradients = [item.gradient() for item in self.parameters if item.parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        torch.nn.utils.clip_grads_with_norm_(self.local_parameters, max_norm, norm)
        return norm

    @property
    def localized(self) -> str | None:
        """What ``_pre_dp_module_transform`` left: local parameters that remember their DTensor."""
        count = sum(item.spec is not None for item in self.parameters)
        return f"_pre_dp_module_transform: {count} local parts" if count else None

    @property
    def inner_optimizer(self) -> Any:
        """The functional optimizer inside DDP's hook, if ``_register_fused_optim`` put one there."""
        for hook, _ in self.model._comm_hooks:
            for cell in getattr(hook, "__closure__", None) or ():
                if isinstance(cell.cell_contents, _OptimizerHookState):
                    return cell.cell_contents.functional_optimizer
        return None

    def read_carried(self) -> tuple[Carried, ...]:
        """Give the parameters of each bucket in order of issue, then of the delayed all-reduce."""
        fqns = {id(item.parameter): item.fqn for item in self.parameters}
        delayed = [item.parameter for item in self.parameters if item.fqn in self.delayed]
        buckets = read_buckets(self.model, self.assigned, fqns)
        return (*buckets, carry(DELAYED, delayed, fqns)) if delayed else buckets

    def hold_back(self) -> AbstractContextManager[Any]:
        """Give the context in which gradients are kept local."""
        return self.model.no_sync()

    def read_sync(self) -> Sync:
        """Ask torch whether the coming backward will reduce."""
        return Sync.REDUCE if self.model.require_backward_grad_sync else Sync.HOLD


def wrap_ddp(built: BuiltModel, mesh: DeviceMesh, scenario: Scenario, plan: Plan) -> WrappedDdp:
    """Cut along ``tensor`` if asked, wrap, and set every knob; one at torch's default is not passed.

    Raises:
        MissingError: the installed torch lacks a knob that is asked for.
        PlanError: ``delay_all_reduce`` does not fit the names of a person's own model.
    """
    parallel = scenario.parallel
    assert isinstance(parallel, Ddp)
    evidence = cut_model(built, mesh, parallel)
    built.materialize(built.module)
    module = built.module
    fqns = [name for name, _ in module.named_parameters()]
    if parallel.tensor > 1:
        _pre_dp_module_transform(module)
    parameters = tuple(
        LocalParameter(plain_fqn(name), parameter, getattr(parameter, "_st_info", None))
        for name, parameter in ((name, module.get_parameter(name)) for name in fqns)
    )
    named = zip(fqns, parameters, strict=True)
    delayed = [(name, item) for name, item in named if is_under(item.fqn, parallel.delay_all_reduce)]
    knobs = _constructor_knobs(parallel)
    if parallel.delay_all_reduce:
        _check_delayed(parameters, [item for _, item in delayed])
    if delayed:  # by their names as wrapped: torch keeps in the buckets what it does not find
        knobs["delay_all_reduce_named_params"] = [(name, item.parameter) for name, item in delayed]
        knobs["param_to_hook_all_reduce"] = parameters[0].parameter
    if plan.device is DeviceKind.CUDA:
        knobs["device_ids"] = [parameters[0].parameter.device.index]
    with _count_initial_syncs() as syncs, keep_assignment() as assigned, warnings.catch_warnings():
        # 2.13 prefers forward_sync_buffers, which 2.11 does not have; who sets the knob means the one with this name
        warnings.filterwarnings("ignore", message=".*broadcast_buffers.*", category=FutureWarning)
        wrapped = WaitedDdp(module, process_group=mesh.get_group(Axis.REPLICATE.value), **knobs)
    _register_hook(wrapped, parallel, scenario.optimizer)
    return WrappedDdp(wrapped, parameters, evidence, len(syncs), tuple(item.fqn for _, item in delayed), assigned)


def _check_delayed(parameters: tuple[LocalParameter, ...], delayed: list[LocalParameter]) -> None:
    """Refuse what plans refuse, for a model whose names only building it shows.

    Raises:
        PlanError: no parameter has such a name, or the first one, whose gradient starts the all-reduce, cannot.
    """
    first = parameters[0]
    if not delayed:
        raise PlanError(f"parallel.delay_all_reduce: no parameter's name starts so; `{parameters[-1].fqn}` is one")
    if first in delayed or not first.parameter.requires_grad:
        raise PlanError(
            f"parallel.delay_all_reduce: the gradient of `{first.fqn}`, the first parameter, starts the delayed "
            "all-reduce; it must be trained and not be delayed itself"
        )
    if any("." not in item.fqn for item in delayed):
        raise PlanError(
            "parallel.delay_all_reduce: torch delays no parameter of the root; name parameters of its parts"
        )


def _constructor_knobs(parallel: Ddp) -> dict[str, Any]:
    """Give the arguments that differ from torch's defaults: a renamed one only matters to who sets it."""
    fields = Ddp.model_fields
    knobs = {name: getattr(parallel, name) for name in _PASSED_ON if getattr(parallel, name) != fields[name].default}
    require_arguments(DistributedDataParallel.__init__, knobs, "parallel")
    if parallel.bucket_cap_mb_list is not None:
        knobs["bucket_cap_mb_list"] = list(parallel.bucket_cap_mb_list)
    precision = parallel.mixed_precision
    if precision != DdpMixedPrecision():
        dtypes = {name: to_dtype(getattr(precision, name)) for name in DdpMixedPrecision.model_fields}
        knobs["mixed_precision"] = torch_ddp._MixedPrecision(**dtypes)
    return knobs


def _register_hook(model: DistributedDataParallel, parallel: Ddp, optimizer: Optimizer) -> None:
    """Register the communication hook, or the optimizer that runs in one."""
    if parallel.optimizer_in_backward:
        settings = optimizer.model_dump(exclude={"kind"}, exclude_none=True)
        with warnings.catch_warnings():  # torch scripts its functional optimizers when they are imported
            warnings.filterwarnings("ignore", message=".*(torch.jit|TorchScript).*", category=DeprecationWarning)
            model._register_fused_optim(optimizer_class(optimizer), **settings)
    elif parallel.comm_hook is not None:
        model.register_comm_hook(*_make_hook(model, parallel.comm_hook))


def _make_hook(model: DistributedDataParallel, hook: CommHook) -> tuple[object, Callable[..., Any]]:
    """Give state and function for ``register_comm_hook``."""
    match hook:
        case PlainAllReduce():
            return model.process_group, default_hooks.allreduce_hook
        case Fp16Compress():
            return model.process_group, default_hooks.fp16_compress_hook
        case Bf16Compress():
            return model.process_group, default_hooks.bf16_compress_hook
        case PowerSgd():
            settings = hook.model_dump(exclude={"kind", "start_powersgd_iter"})
            state = powerSGD_hook.PowerSGDState(
                model.process_group, start_powerSGD_iter=hook.start_powersgd_iter, **settings
            )
            return state, name_powersgd


@contextmanager
def _count_initial_syncs() -> Iterator[list[None]]:
    """Count how often DDP's constructor broadcasts the parameters."""
    original = torch_ddp._sync_module_states
    calls: list[None] = []

    def counted(*args: object, **kwargs: object) -> None:
        calls.append(None)
        original(*args, **kwargs)

    with mock.patch.object(torch_ddp, "_sync_module_states", counted):
        yield calls


def read_ddp_receipts(wrapped: WrappedDdp, parallel: Ddp) -> tuple[Receipt, ...]:
    """Read every knob back from the live wrapper and its reducer."""
    model = wrapped.model
    data = model._get_ddp_logging_data()
    return (
        compare("parallel.replicas", parallel.replicas, int(data["world_size"])),
        *read_tensor_receipts(wrapped.tensor, parallel, through=wrapped.localized),
        *_bucket_receipts(model, data, parallel),
        compare(
            "parallel.gradient_as_bucket_view", parallel.gradient_as_bucket_view, bool(data["gradient_as_bucket_view"])
        ),
        compare("parallel.static_graph", parallel.static_graph, bool(model.static_graph)),
        *_unused_receipts(model, data, parallel),
        _buffer_receipt(model, data, parallel),
        compare("parallel.init_sync", parallel.init_sync, wrapped.initial_syncs > 0),
        compare(
            "parallel.batched_grad_copy", parallel.batched_grad_copy, bool(getattr(model, "batched_grad_copy", False))
        ),
        *_hook_receipts(model, parallel),
        compare(
            "parallel.delay_all_reduce",
            parallel.delay_all_reduce,
            len(model._delay_all_reduce_params),
            expected=len(wrapped.delayed) if wrapped.delayed or not parallel.delay_all_reduce else "some",
            note="parameters that left the buckets; dtbench waits for their all-reduce, torch does not",
        ),
        *_mixed_precision_receipts(model, parallel.mixed_precision),
    )


def _bucket_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    caps = parallel.bucket_cap_mb_list
    if caps is not None:
        cap_bytes = int(max(caps) * MIB)
    else:
        cap_bytes = DDP_DEFAULT_CAP_BYTES if parallel.bucket_cap_mb is None else int(parallel.bucket_cap_mb * MIB)
    got = int(data["bucket_cap_bytes"])
    cap = compare("parallel.bucket_cap_mb", parallel.bucket_cap_mb, got, expected=cap_bytes, note="in bytes")
    yield without_effect(cap, "bucket_cap_mb_list decides") if caps is not None and parallel.bucket_cap_mb else cap
    listed = tuple(getattr(model, "bucket_bytes_cap_list", ()))  # torch 2.13
    expected = tuple(int(size * MIB) for size in caps or ())
    yield compare("parallel.bucket_cap_mb_list", caps, listed, expected=expected, note="in bytes")


def _unused_receipts(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    unused = compare(
        "parallel.find_unused_parameters", parallel.find_unused_parameters, bool(data["find_unused_parameters"])
    )
    if parallel.static_graph and parallel.find_unused_parameters:
        unused = without_effect(unused, "static_graph already knows the unused parameters")
    yield unused
    skip = compare(
        "parallel.skip_all_reduce_unused_params",
        parallel.skip_all_reduce_unused_params,
        bool(getattr(model, "skip_all_reduce_unused_params", False)),
    )
    yield without_effect(skip, "every parameter of this model is used") if skip.got == "true" else skip


def _buffer_receipt(model: DistributedDataParallel, data: dict[str, Any], parallel: Ddp) -> Receipt:
    broadcast = compare("parallel.broadcast_buffers", parallel.broadcast_buffers, bool(data["broadcast_buffers"]))
    if any(True for _ in model.module.buffers()):
        return broadcast
    return without_effect(broadcast, "the model has no buffers")


_OPTIMIZER_HOOK = "hook_then_optimizer_wrapper"
_HOOKS = {
    "allreduce_hook": "allreduce",
    "fp16_compress_hook": "fp16_compress",
    "bf16_compress_hook": "bf16_compress",
    "powerSGD_hook": "powersgd",
}


def _hook_receipts(model: DistributedDataParallel, parallel: Ddp) -> Iterator[Receipt]:
    """Compare with the hook that is registered, and PowerSGD's settings with its live state."""
    hooks = [(getattr(hook, "__name__", repr(hook)), state) for hook, state in model._comm_hooks]
    kind = None if parallel.comm_hook is None else parallel.comm_hook.kind
    in_backward = any(name == _OPTIMIZER_HOOK for name, _ in hooks)
    names = [_HOOKS.get(name, name) for name, _ in hooks if name != _OPTIMIZER_HOOK]
    yield compare("parallel.comm_hook.kind", kind, names[0] if names else None)
    yield compare("parallel.optimizer_in_backward", parallel.optimizer_in_backward, in_backward)
    if not isinstance(parallel.comm_hook, PowerSgd):
        return
    states = [state for _, state in hooks if isinstance(state, powerSGD_hook.PowerSGDState)]
    for knob in (name for name in PowerSgd.model_fields if name != "kind"):
        attribute = "start_powerSGD_iter" if knob == "start_powersgd_iter" else knob
        got = getattr(states[0], attribute) if states else None
        yield compare(f"parallel.comm_hook.{knob}", getattr(parallel.comm_hook, knob), got)


def _mixed_precision_receipts(model: DistributedDataParallel, asked: DdpMixedPrecision) -> Iterator[Receipt]:
    for name in DdpMixedPrecision.model_fields:
        got = None if model.mixed_precision is None else dtype_name(getattr(model.mixed_precision, name))
        yield compare(f"parallel.mixed_precision.{name}", getattr(asked, name), got)


def read_ddp_overlap(
    parallel: Ddp, bucket_bytes: tuple[int, ...], traffic: tuple[Traffic, ...]
) -> tuple[OverlapPossible, ...]:
    """Say that buckets overlap backward, unless they are issued blocking or none is ready before its end.

    Over a tensor axis every gradient passes through a ``from_local`` node that was made before forward, so autograd
    comes to it last (seen on gloo: 72 % of DDP's all-reduces hidden, 6 % with a tensor axis).
    """
    reduces = [item for item in traffic if item.purpose is Purpose.GRAD_REDUCE]
    possible, reason = False, ""
    if any(item.count_async < item.count for item in reduces):
        reason = "all-reduces are issued synchronously"
    elif parallel.tensor > 1:
        reason = "over a tensor axis gradients are ready only when backward is over"
    elif len(bucket_bytes) == 1:
        reason = "one bucket: ready when backward is over"
    else:
        possible, reason = True, f"{len(bucket_bytes)} buckets, each all-reduced while backward goes on"
    gradients = OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=possible, reason=reason)
    return (gradients, *read_inline_overlap(parallel))

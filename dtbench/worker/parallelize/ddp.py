"""``DistributedDataParallel``, alone or over a tensor axis: wrap a model and train it.

[Note: parameters that DDP over tensor parallelism hides] ``_pre_dp_module_transform`` replaces DTensor parameters by
local ones before DDP sees them, and the first forward replaces these by DTensors again, as plain attributes: from then
on ``module.parameters()`` is empty. The optimizer, clipping and the correctness check therefore keep the local
parameters and their specs from before.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._dynamo.utils as dynamo
import torch.nn.parallel.distributed as torch_ddp
from torch import Tensor, nn
from torch._dynamo.compiled_autograd import _enable as compile_backward
from torch.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import _OptimizerHookState
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.errors import MissingError, PlanError
from dtbench.base.vocabulary import Axis, DeviceKind
from dtbench.plan.plan import Plan
from dtbench.plan.traffic.parameters import find_under
from dtbench.scenario.schema.ddp import Ddp, DdpMixedPrecision
from dtbench.scenario.schema.model import Compile
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.traffic import Carried
from dtbench.worker.dtypes import to_dtype
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.parallelize.buckets import BucketAssignment, carry, keep_assignment, read_buckets
from dtbench.worker.parallelize.ddp_hooks import register_hooks
from dtbench.worker.parallelize.knobs import require_arguments, require_methods
from dtbench.worker.parallelize.parallelized import Sync, clip_gradients, plain_fqn, total_norm
from dtbench.worker.parallelize.tensor import TensorEvidence, parallelize_tensor
from dtbench.worker.parallelize.waited_ddp import WaitedDdp
from dtbench.worker.recording.recorder import DELAYED, IGNORED, Recorder

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
    "lazy_bucket_allocation",
)
"""Fields of ``Ddp`` that are arguments of torch's constructor, under torch's names."""


@dataclass(frozen=True)
class LocalParameter:
    """A parameter as DDP sees it: the local part of a DTensor where ``spec`` is one's, whole where it is None.

    Attributes:
        name: as in the module, with what wrappers put into it.
    """

    fqn: str
    name: str
    parameter: nn.Parameter
    spec: Any

    def gradient(self) -> Tensor:
        """Return the gradient, as a DTensor where it is a part."""
        gradient = self.parameter.grad
        assert gradient is not None
        if self.spec is None:
            return gradient
        shape, stride = self.spec.shape, self.spec.stride
        return DTensor.from_local(
            gradient, self.spec.mesh, self.spec.placements, run_check=False, shape=shape, stride=stride
        )


@dataclass(frozen=True)
class WrappedDdp:
    """A DDP model and what was seen while it was built.

    Attributes:
        delayed: FQNs of the parameters that leave the buckets for one late all-reduce.
        ignored: names of the parameters and buffers that DDP leaves alone.
        assigned: what its reducer was given.
        backward: what compiles backward; None: nothing does.
    """

    model: WaitedDdp
    parameters: tuple[LocalParameter, ...]
    tensor: TensorEvidence
    initial_syncs: int
    delayed: tuple[str, ...]
    ignored: tuple[str, ...]
    assigned: BucketAssignment
    backward: Compile | None

    @property
    def local_parameters(self) -> tuple[nn.Parameter, ...]:
        """What the optimizer updates."""
        return tuple(item.parameter for item in self.parameters)

    def gather_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield FQN and whole gradient of every parameter; collective over the tensor axis."""
        for item in self.parameters:
            if item.parameter.grad is not None:
                gradient = item.gradient()
                yield item.fqn, gradient.full_tensor() if isinstance(gradient, DTensor) else gradient

    def clip(self, max_norm: float) -> Tensor:
        """Scale gradients to a total norm over all of the model, tensor parts included."""
        if all(item.spec is None for item in self.parameters):
            return clip_gradients(self.local_parameters, max_norm)
        gradients = [item.gradient() for item in self.parameters if item.parameter.grad is not None]
        norm = total_norm(gradients)
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
        """Return the parameters of each bucket in order of issue, then of all-reduces outside the buckets."""
        fqns = {id(item.parameter): item.fqn for item in self.parameters}
        delayed = [item.parameter for item in self.parameters if item.fqn in self.delayed]
        ignored = [item.parameter for item in self.parameters if item.name in self.ignored]
        buckets = read_buckets(self.model, self.assigned, fqns)
        outside = ((DELAYED, delayed), (IGNORED, ignored))
        return (*buckets, *(carry(owner, parameters, fqns) for owner, parameters in outside if parameters))

    def hold_back(self) -> AbstractContextManager[Any]:
        """Return the context in which gradients are kept local."""
        return self.model.no_sync()

    def join(self, parallel: Ddp) -> AbstractContextManager[Any]:
        """Return the context in which ranks may have unequally many iterations."""
        assert parallel.join is not None
        return self.model.join(divide_by_initial_world_size=parallel.join.divide_by_initial_world_size)

    def read_sync(self) -> Sync:
        """Ask torch whether the coming backward will reduce."""
        return Sync.REDUCE if self.model.require_backward_grad_sync else Sync.HOLD

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Compile backward, with DDP's gradient hooks in its graph."""
        assert self.backward is not None
        backend = self.backward.backend
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())  # Dynamo asks its stand-ins of parameters for gradients
            warnings.filterwarnings(
                "ignore", message=".*attribute of a Tensor that is not a leaf", category=UserWarning
            )
            stack.enter_context(torch._dynamo.config.patch(optimize_ddp="python_reducer"))
            stack.enter_context(compile_backward(lambda graph: torch.compile(graph, backend=backend)))
            yield

    def compiled_backwards(self) -> int:
        """Count the graphs of backward that were captured in this process."""
        return 0 if self.backward is None else dynamo.counters["compiled_autograd"]["captures"]


def wrap_ddp(
    built: BuiltModel,
    mesh: DeviceMesh,
    scenario: Scenario,
    plan: Plan,
    recorder: Recorder,
    import_folders: Sequence[str],
) -> WrappedDdp:
    """Cut along ``tensor`` if asked, wrap, and set every knob; one at torch's default is not passed.

    Raises:
        MissingError: the installed torch lacks a knob that is asked for.
        PlanError: ``delay_all_reduce`` or ``ignore`` does not fit the names of a person's own model, or their own hook
            cannot be found.
    """
    parallel = scenario.parallel
    assert isinstance(parallel, Ddp)
    evidence = parallelize_tensor(built, mesh, parallel)
    built.materialize(built.module)
    module = built.module
    fqns = [name for name, _ in module.named_parameters()]
    if parallel.tensor > 1:
        _pre_dp_module_transform(module)
    parameters = tuple(
        LocalParameter(plain_fqn(name), name, parameter, getattr(parameter, "_st_info", None))
        for name, parameter in ((name, module.get_parameter(name)) for name in fqns)
    )
    asked = find_under((item.fqn for item in parameters), parallel.delay_all_reduce)
    delayed = [item for item in parameters if item.fqn in asked]
    ignored = _leave_alone(module, parallel)
    knobs = _constructor_knobs(parallel)
    if parallel.delay_all_reduce:
        _check_delayed(parameters, delayed)
    if delayed:  # by their names as wrapped: torch keeps in the buckets what it does not find
        knobs["delay_all_reduce_named_params"] = [(item.name, item.parameter) for item in delayed]
        knobs["param_to_hook_all_reduce"] = parameters[0].parameter
    if plan.device is DeviceKind.CUDA:
        knobs["device_ids"] = [parameters[0].parameter.device.index]
    reducer = {"optimize_ddp": "python_reducer"} if parallel.python_reducer else {}
    with (
        _count_initial_syncs() as syncs,
        keep_assignment() as assigned,
        torch._dynamo.config.patch(reducer),
        warnings.catch_warnings(),
    ):
        # 2.13 prefers forward_sync_buffers, which 2.11 does not have; who sets the knob means the one with this name
        warnings.filterwarnings("ignore", message=".*broadcast_buffers.*", category=FutureWarning)
        wrapped = WaitedDdp(module, process_group=mesh.get_group(Axis.REPLICATE.value), **knobs)
    wrapped.recorder = recorder
    wrapped.left_alone = tuple(item.parameter for item in parameters if item.name in ignored)
    if not parallel.ddp_sink_clone:
        wrapped._set_ddp_sink_clone(val=False)
    if parallel.manual_backward_finalization:
        wrapped.require_manual_backward_finalization = True
    register_hooks(wrapped, parallel, scenario.optimizer, import_folders)
    names = tuple(item.fqn for item in delayed)
    backward = scenario.model.compile if parallel.compiled_autograd else None
    return WrappedDdp(wrapped, parameters, evidence, len(syncs), names, ignored, assigned, backward)


def _leave_alone(module: nn.Module, parallel: Ddp) -> tuple[str, ...]:
    """Tell DDP which parameters and buffers are none of its business; gives their names.

    Raises:
        PlanError: there are none, or one that torch would reduce all the same.
    """
    if not parallel.ignore:
        return ()
    known = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    asked = find_under(map(plain_fqn, known), parallel.ignore)
    names = tuple(name for name in known if plain_fqn(name) in asked)
    _check_ignored(names, known)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    return names


def _check_ignored(names: Sequence[str], known: Sequence[str]) -> None:
    if not names:
        raise PlanError(f"parallel.ignore: no parameter's or buffer's name starts so; `{known[-1]}` is one")
    if any("." not in name for name in names):
        raise PlanError("parallel.ignore: torch ignores no parameter of the root; name parameters of its parts")


def _check_delayed(parameters: Sequence[LocalParameter], delayed: Sequence[LocalParameter]) -> None:
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
    """Return the arguments that differ from torch's defaults: a renamed one only matters to who sets it."""
    fields = Ddp.model_fields
    knobs = {name: getattr(parallel, name) for name in _PASSED_ON if getattr(parallel, name) != fields[name].default}
    require_arguments(DistributedDataParallel.__init__, knobs, "parallel")
    if parallel.manual_backward_finalization:
        require_methods(
            DistributedDataParallel,
            [("manual_backward_finalization", "require_manual_backward_finalization")],
            "parallel",
        )
    is_whole = _delays_in_whole_mib(parallel)
    if parallel.bucket_cap_mb is not None:
        knobs["bucket_cap_mb"] = _to_cap(parallel.bucket_cap_mb, is_whole=is_whole)
    if parallel.bucket_cap_mb_list is not None:
        knobs["bucket_cap_mb_list"] = [_to_cap(cap, is_whole=is_whole) for cap in parallel.bucket_cap_mb_list]
    precision = parallel.mixed_precision
    if precision != DdpMixedPrecision():
        dtypes = {name: to_dtype(getattr(precision, name)) for name in DdpMixedPrecision.model_fields}
        knobs["mixed_precision"] = torch_ddp._MixedPrecision(**dtypes)
    return knobs


def _delays_in_whole_mib(parallel: Ddp) -> bool:
    """Tell whether torch hands the cap on to C++, which takes whole numbers: 2.11 does where it delays."""
    return bool(parallel.delay_all_reduce) and not hasattr(torch_ddp, "_BucketCapacityConfig")


def _to_cap(cap_mib: float, *, is_whole: bool) -> float:
    """Return the cap as torch takes it.

    Raises:
        MissingError: the installed torch takes no such cap beside ``delay_all_reduce``.
    """
    if not is_whole:
        return cap_mib
    if not cap_mib.is_integer():
        raise MissingError(
            f"torch {torch.__version__} takes a bucket cap in whole MiB only beside parallel.delay_all_reduce, not "
            f"{cap_mib:g}; round it or use a newer torch"
        )
    return int(cap_mib)


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

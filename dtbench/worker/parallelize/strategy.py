"""The one place that picks a strategy for a scenario.

To add a strategy, see ``docs/architecture.md``; mypy names every ``match`` that lacks it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import loss_parallel

from dtbench.plan.plan import Plan
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Parallel, Scenario
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.parallelize.buckets import BucketLog
from dtbench.worker.parallelize.ddp import WrappedDdp, wrap_ddp
from dtbench.worker.parallelize.ddp_receipts import read_ddp_overlap, read_ddp_receipts, read_unwrapped_receipts
from dtbench.worker.parallelize.fsdp1 import read_fsdp1_overlap, read_fsdp1_receipts, wrap_fsdp1
from dtbench.worker.parallelize.fsdp2 import read_fsdp2_overlap, read_fsdp2_receipts, wrap_fsdp2
from dtbench.worker.parallelize.parallelized import Parallelized, clip_gradients, leave_alone
from dtbench.worker.parallelize.tensor import parallelize_tensor
from dtbench.worker.probes.parameters import place_of
from dtbench.worker.recording.recorder import Recorder

_Kind = TypeVar("_Kind", Ddp, Fsdp1, Fsdp2)


def parallelize(
    built: BuiltModel,
    mesh: DeviceMesh,
    scenario: Scenario,
    plan: Plan,
    recorder: Recorder,
    import_folders: Sequence[str] = (),
) -> Parallelized:
    """Apply the scenario's strategy to a plain model.

    Args:
        built: the model.
        mesh: over all ranks.
        scenario: says how.
        plan: says where.
        recorder: told what DDP reduces out of order.
        import_folders: where a person's own hooks are looked for.

    Raises:
        MissingError: the installed torch lacks a knob that is asked for.
    """
    match scenario.parallel:
        case Ddp():
            if not scenario.parallel.wrap:
                return _leave_unwrapped(built, mesh, scenario.parallel)
            return _parallelize_ddp(scenario, wrap_ddp(built, mesh, scenario, plan, recorder, import_folders))
        case Fsdp1():
            return _parallelize_fsdp1(built, mesh, scenario, plan)
        case Fsdp2():
            return _parallelize_fsdp2(built, mesh, scenario, plan, import_folders)


def _parallelize_ddp(scenario: Scenario, wrapped: WrappedDdp) -> Parallelized:
    parallel = narrow(scenario.parallel, Ddp)
    buckets = BucketLog(wrapped.model)
    return Parallelized(
        model=wrapped.model,
        parameters=wrapped.local_parameters,
        gather_gradients=wrapped.gather_gradients,
        clip=wrapped.clip,
        accumulate=_hold_back_until_last(scenario, wrapped.hold_back)
        if wrapped.backward is None
        else lambda _is_last: wrapped.compiled(),
        join=nullcontext if parallel.join is None else lambda: wrapped.join(parallel),
        read_sync=wrapped.read_sync,
        loss_context=_loss_context(scenario),
        finish_backward=wrapped.model.finish_backward,
        bucket_bytes=buckets.read,
        read_carried=wrapped.read_carried,
        local_parts={place_of(item.parameter): item.fqn for item in wrapped.parameters if item.spec is not None},
        inner_optimizer=wrapped.inner_optimizer,
        read_receipts=lambda asked: read_ddp_receipts(wrapped, narrow(asked, Ddp)),
        read_overlap=lambda traffic: read_ddp_overlap(
            parallel, buckets.read(), traffic, clips=scenario.gradient_clip_norm is not None
        ),
    )


def _leave_unwrapped(built: BuiltModel, mesh: DeviceMesh, parallel: Ddp) -> Parallelized:
    """Return the plain model of one rank."""
    parallelize_tensor(built, mesh, parallel)
    built.materialize(built.module)
    return replace(
        leave_alone(built.module), read_receipts=lambda asked: read_unwrapped_receipts(narrow(asked, Ddp), mesh.size())
    )


def _parallelize_fsdp1(built: BuiltModel, mesh: DeviceMesh, scenario: Scenario, plan: Plan) -> Parallelized:
    parallel = narrow(scenario.parallel, Fsdp1)
    flat = wrap_fsdp1(built, mesh, parallel, plan)
    return Parallelized(
        model=flat.model,
        parameters=tuple(flat.model.parameters()),
        gather_gradients=flat.gather_gradients,
        clip=flat.model.clip_grad_norm_,
        accumulate=_hold_back_until_last(scenario, flat.model.no_sync),
        read_sync=flat.read_sync,
        loss_context=_loss_context(scenario),
        units=flat.units,
        watch_owners=flat.watch_owners,
        read_carried=flat.read_carried,
        local_parts=flat.read_local_parts(),
        read_receipts=lambda asked: read_fsdp1_receipts(flat, narrow(asked, Fsdp1), plan),
        read_overlap=lambda traffic: read_fsdp1_overlap(
            parallel, plan, traffic, clips=scenario.gradient_clip_norm is not None
        ),
    )


def _parallelize_fsdp2(
    built: BuiltModel, mesh: DeviceMesh, scenario: Scenario, plan: Plan, import_folders: Sequence[str]
) -> Parallelized:
    parallel = narrow(scenario.parallel, Fsdp2)
    sharded = wrap_fsdp2(built, mesh, parallel, import_folders)
    parameters = tuple(sharded.model.parameters())

    def accumulate(is_last: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 - a fact, not a mode
        sharded.prepare_micro_batch(scenario.accumulation.sync, is_last=is_last)
        return nullcontext()

    return Parallelized(
        model=sharded.model,
        parameters=parameters,
        gather_gradients=sharded.gather_gradients,
        clip=lambda max_norm: clip_gradients(parameters, max_norm),
        accumulate=accumulate if scenario.accumulation.micro_batches > 1 else lambda _is_last: nullcontext(),
        read_sync=sharded.read_sync,
        loss_context=_loss_context(scenario),
        finish_backward=sharded.finish_backward,
        after_update=sharded.mark_update if parallel.post_optimizer_event else _leave_unmarked,
        groups=sharded.groups,
        units=sharded.units,
        watch_owners=sharded.watch_owners,
        read_carried=sharded.read_carried,
        read_receipts=lambda asked: read_fsdp2_receipts(sharded, narrow(asked, Fsdp2), plan),
        read_overlap=lambda traffic: read_fsdp2_overlap(
            parallel, plan, traffic, clips=scenario.gradient_clip_norm is not None
        ),
    )


def _leave_unmarked() -> None:
    pass


def narrow(asked: Parallel, kind: type[_Kind]) -> _Kind:
    """Return a section as the strategy's own; receipts of one strategy cannot answer for another."""
    assert isinstance(asked, kind)
    return asked


def _hold_back_until_last(
    scenario: Scenario, hold_back: Callable[[], AbstractContextManager[Any]]
) -> Callable[[bool], AbstractContextManager[Any]]:
    """Keep gradients local in all micro-batches but the last, if the scenario says so."""
    if scenario.accumulation.sync == "last":
        return lambda is_last: nullcontext() if is_last else hold_back()
    return lambda _is_last: nullcontext()


def _loss_context(scenario: Scenario) -> Callable[[], AbstractContextManager[Any]]:
    return loss_parallel if scenario.parallel.loss_parallel else nullcontext

"""What every strategy gives back: the model on its mesh, and how to train, look into and question it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dtbench.base.vocabulary import Axis
from dtbench.scenario.schema.scenario import Parallel
from dtbench.store.records.rank import Receipt
from dtbench.store.records.traffic import Carried, OverlapPossible, Traffic
from dtbench.worker.recording.recorder import Recorder


class Sync(Enum):
    """What one backward lets happen to its gradients: kept local, reduced, or reduce-scattered without replicas."""

    HOLD = auto()
    REDUCE = auto()
    REDUCE_SCATTER = auto()


def _nothing_left() -> None:
    pass


def _always_reduced() -> Sync:
    return Sync.REDUCE


def _nothing_carried() -> tuple[Carried, ...]:
    return ()


def _nothing_to_watch(_recorder: Recorder) -> AbstractContextManager[Any]:
    return nullcontext()


def _no_receipts(_asked: Parallel) -> tuple[Receipt, ...]:
    return ()


def _no_overlap(_traffic: tuple[Traffic, ...]) -> tuple[OverlapPossible, ...]:
    return ()


def _nothing_to_hold_back(_is_last: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 - a fact, not a mode
    return nullcontext()


@dataclass(frozen=True)
class Parallelized:
    """A model on its mesh.

    Attributes:
        model: what forward is called on.
        parameters: what the optimizer updates. Kept, since DDP over tensor parallelism takes them off the module.
        gather_gradients: give FQN and whole gradient of every parameter (collective), after backward.
        clip: scale the gradients to a total 2-norm and give the norm before.
        accumulate: a context for forward and backward of one micro-batch, told whether it is the step's last.
        read_sync: ask torch, inside such a context, what the coming backward will do to the gradients.
        loss_context: a context for forward and backward in which the loss may be computed on sharded logits.
        finish_backward: wait for what the strategy left in flight when the step's last backward returned.
        after_update: what is to be done once the optimizer has updated.
        join: a context for the iterations of a step, of which ranks may have unequally many.
        groups: mesh axis of each process group that the strategy made beside the mesh's own, by torch's name.
        units: FQNs of the FSDP units, the root as ``""``; empty for DDP.
        bucket_bytes: DDP's current bucket sizes in order of issue; empty for others.
        watch_owners: a context for PROFILED steps in which the recorder is told whose each collective is.
        read_carried: say which parameters each DDP bucket or FSDP unit carries; call it after the last step.
        local_parts: FQN of each parameter that was a DTensor when it was wrapped, by ``place_of`` its local part.
        inner_optimizer: torch's functional optimizer, where DDP updates inside backward; None: the step needs one.
        read_receipts: ask torch what became of every knob of a section; call it after MEASURED steps.
        read_overlap: say for each purpose whether it can run beside compute here, given a step's traffic as issued
            (empty on NCCL).
    """

    model: nn.Module
    parameters: tuple[nn.Parameter, ...]
    gather_gradients: Callable[[], Iterator[tuple[str, Tensor]]]
    clip: Callable[[float], Tensor]
    accumulate: Callable[[bool], AbstractContextManager[Any]] = _nothing_to_hold_back
    read_sync: Callable[[], Sync] = _always_reduced
    loss_context: Callable[[], AbstractContextManager[Any]] = nullcontext
    finish_backward: Callable[[], None] = _nothing_left
    after_update: Callable[[], None] = _nothing_left
    join: Callable[[], AbstractContextManager[Any]] = nullcontext
    groups: Mapping[str, Axis] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    bucket_bytes: Callable[[], tuple[int, ...]] = tuple
    watch_owners: Callable[[Recorder], AbstractContextManager[Any]] = _nothing_to_watch
    read_carried: Callable[[], tuple[Carried, ...]] = _nothing_carried
    local_parts: Mapping[tuple[int, int], str] = field(default_factory=dict)
    inner_optimizer: Any = None
    read_receipts: Callable[[Parallel], tuple[Receipt, ...]] = _no_receipts
    read_overlap: Callable[[tuple[Traffic, ...]], tuple[OverlapPossible, ...]] = _no_overlap


def whole_gradients(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield FQN and gradient of every parameter that has one; ``prefix`` is what a wrapper puts before each FQN."""
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            yield plain_fqn(name.removeprefix(prefix)), parameter.grad


def plain_fqn(name: str) -> str:
    """Return an FQN without what wrappers put into it: activation checkpointing, ``torch.compile``, FSDP1."""
    for inserted in ("_checkpoint_wrapped_module.", "_orig_mod.", "_fsdp_wrapped_module."):
        name = name.replace(inserted, "")
    return name


def clip_gradients(parameters: tuple[nn.Parameter, ...], max_norm: float) -> Tensor:
    """Scale gradients in place to a total 2-norm of at most ``max_norm``; gives the norm before.

    torch's ``clip_grad_norm_`` refuses gradients of several meshes, as a tensor axis leaves them where a layer is not
    cut: there each mesh's are scaled by the norm of all.
    """
    of_mesh = _group_by_mesh((parameter, parameter.grad) for parameter in parameters)
    if len(of_mesh) <= 1:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    norm = total_norm([gradient for some in of_mesh.values() for _, gradient in some])
    for some in of_mesh.values():
        torch.nn.utils.clip_grads_with_norm_([parameter for parameter, _ in some], max_norm, norm)
    return norm


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the 2-norm of all gradients, whole on every rank, whatever meshes they are of."""
    of_mesh = _group_by_mesh((gradient, gradient) for gradient in gradients)
    norms = [torch.nn.utils.get_total_norm([gradient for gradient, _ in some]) for some in of_mesh.values()]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    return whole[0] if len(whole) == 1 else torch.linalg.vector_norm(torch.stack(whole))


def _group_by_mesh(
    gradients: Iterable[tuple[Tensor, Tensor | None]],
) -> dict[DeviceMesh | None, list[tuple[Tensor, Tensor]]]:
    """Group what gradients are of, with the gradients, by their mesh; None: they are no DTensors."""
    groups: dict[DeviceMesh | None, list[tuple[Tensor, Tensor]]] = {}
    for owner, gradient in gradients:
        if gradient is not None:
            mesh = gradient.device_mesh if isinstance(gradient, DTensor) else None
            groups.setdefault(mesh, []).append((owner, gradient))
    return groups


def leave_alone(module: nn.Module) -> Parallelized:
    """Return the plain module of a single process the same face."""
    parameters = tuple(module.parameters())
    return Parallelized(
        model=module,
        parameters=parameters,
        gather_gradients=lambda: whole_gradients(module),
        clip=lambda max_norm: clip_gradients(parameters, max_norm),
    )

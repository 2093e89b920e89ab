"""What is done to DDP's buckets and buffers in place of its own: torch's hooks, those of its docstring, a person's."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, assert_never

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation

from dtbench.scenario.schema.ddp import (
    Bf16Compress,
    BufferCommHook,
    CommHook,
    CustomHook,
    Ddp,
    EncodeAndDecode,
    Fp16Compress,
    Noop,
    PlainAllReduce,
    PowerSgd,
)
from dtbench.scenario.schema.scenario import Optimizer
from dtbench.store.records.rank import Receipt
from dtbench.worker.dtypes import dtype_name, to_dtype
from dtbench.worker.models.factory import find_function
from dtbench.worker.models.optimizer import optimizer_class
from dtbench.worker.parallelize.buckets import name_powersgd
from dtbench.worker.parallelize.waited_ddp import WaitedDdp
from dtbench.worker.receipts import compare

_OPTIMIZER_HOOK = "hook_then_optimizer_wrapper"
_PRECISION_HOOK = "_reducer_allreduce_and_upcast_hook"
"""What mixed precision registers; its own receipts tell of it."""
_HOOKS = {
    "allreduce_hook": "allreduce",
    "fp16_compress_hook": "fp16_compress",
    "bf16_compress_hook": "bf16_compress",
    "powerSGD_hook": "powersgd",
    "encode_and_decode": "encode_and_decode",
    "noop": "noop",
}
_TORCHS: Mapping[str, Callable[..., Any]] = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16_compress": default_hooks.fp16_compress_hook,
    "bf16_compress": default_hooks.bf16_compress_hook,
}
_BUILTIN = {
    "allreduce": dist.BuiltinCommHookType.ALLREDUCE,
    "fp16_compress": dist.BuiltinCommHookType.FP16_COMPRESS,
}


def register_hooks(
    model: DistributedDataParallel, parallel: Ddp, optimizer: Optimizer, import_folders: Sequence[str]
) -> None:
    """Register the communication hook, or the optimizer that runs in one, and what is done to buffers.

    Raises:
        PlanError: a person's own hook cannot be found.
    """
    if parallel.buffer_comm_hook is not None:
        model._register_buffer_comm_hook(
            model.process_group,
            _buffer_hook(parallel.buffer_comm_hook),
            _BufferCommHookLocation[parallel.buffer_comm_hook.location.upper()],
        )
    if parallel.optimizer_in_backward:
        settings = optimizer.model_dump(exclude={"kind"}, exclude_none=True)
        with warnings.catch_warnings():  # torch scripts its functional optimizers when they are imported
            warnings.filterwarnings("ignore", message=".*(torch.jit|TorchScript).*", category=DeprecationWarning)
            model._register_fused_optim(optimizer_class(optimizer), **settings)
    elif isinstance(parallel.comm_hook, PlainAllReduce | Fp16Compress) and parallel.comm_hook.builtin:
        model._register_builtin_comm_hook(_BUILTIN[parallel.comm_hook.kind])
    elif parallel.comm_hook is not None:
        model.register_comm_hook(*_make_hook(model, parallel.comm_hook, import_folders))


def _make_hook(model: WaitedDdp, hook: CommHook, import_folders: Sequence[str]) -> tuple[object, Callable[..., Any]]:
    """Return state and function for ``register_comm_hook``."""
    match hook:
        case PlainAllReduce() | Fp16Compress() | Bf16Compress():
            return model.process_group, _TORCHS[hook.kind]
        case EncodeAndDecode(dtype=dtype):
            return Wire(model.process_group, to_dtype(dtype)), encode_and_decode
        case Noop():
            return None, noop
        case CustomHook(function=function):
            return model.process_group, find_function(function, import_folders, field="parallel.comm_hook.function")
        case PowerSgd():
            settings = hook.model_dump(exclude={"kind", "start_powersgd_iter"})
            state = powerSGD_hook.PowerSGDState(
                model.process_group, start_powerSGD_iter=hook.start_powersgd_iter, **settings
            )
            return state, name_powersgd(model.recorder)
        case _:
            assert_never(hook)


class Wire:
    """State of ``encode_and_decode``: who shares, and what gradients are while they travel."""

    def __init__(self, group: dist.ProcessGroup, dtype: torch.dtype) -> None:
        self.group, self.dtype = group, dtype


def noop(state: object, bucket: dist.GradBucket) -> Future[Tensor]:  # noqa: ARG001 - the signature is torch's
    """Return the bucket back as it is."""
    done: Future[Tensor] = Future()
    done.set_result(bucket.buffer())
    return done


def encode_and_decode(state: Wire, bucket: dist.GradBucket) -> Future[Tensor]:
    """Reduce the mean of the bucket in another dtype."""
    buffer = bucket.buffer()
    encoded = (buffer / state.group.size()).to(state.dtype)
    sent = dist.all_reduce(encoded, group=state.group, async_op=True).get_future()

    def decode(received: Future[list[Tensor]]) -> Tensor:
        buffer.copy_(received.value()[0])
        return buffer

    return sent.then(decode)


def _buffer_hook(hook: BufferCommHook) -> Callable[..., Any]:
    """Return the hook for a place: before forward it waits, after it DDP waits at the end of backward."""
    return average_and_wait if hook.location == "pre_forward" else average_buffers


def average_buffers(group: dist.ProcessGroup, buffers: Mapping[str, Tensor]) -> list[Future[Any]]:
    """Average all floating-point buffers over the group in one all-reduce; done when the future is."""
    mine = [buffer for buffer in buffers.values() if buffer.is_floating_point()]
    flat = torch.cat([buffer.flatten() for buffer in mine]) / group.size()
    sent = dist.all_reduce(flat, group=group, async_op=True).get_future()
    return [sent.then(partial(_put_back, mine, flat))]


def average_and_wait(group: dist.ProcessGroup, buffers: Mapping[str, Tensor]) -> None:
    """Do the same, at once."""
    for sent in average_buffers(group, buffers):
        sent.wait()


def _put_back(buffers: Sequence[Tensor], flat: Tensor, _sent: object) -> list[Tensor]:
    """Fill the buffers and give them: on CUDA whoever waits waits for the devices of a future's value alone."""
    with torch.no_grad():
        for buffer, average in zip(buffers, flat.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(average.view_as(buffer))
    return list(buffers)


def read_hook_receipts(model: DistributedDataParallel, data: Mapping[str, Any], parallel: Ddp) -> Iterator[Receipt]:
    """Compare with the hooks that are registered, and PowerSGD's settings with its live state.

    Args:
        model: the wrapper.
        data: what its logger says.
        parallel: what was asked for.
    """
    named = [(hook, getattr(hook, "__name__", repr(hook)), state) for hook, state in model._comm_hooks]
    hooks = [one for one in named if one[1] != _PRECISION_HOOK]
    asked = parallel.comm_hook
    kept = [(hook, name, state) for hook, name, state in hooks if name != _OPTIMIZER_HOOK]
    builtin = next((kind for kind, hook in _BUILTIN.items() if data.get("comm_hook") == str(hook)), None)
    names = [_name_hook(name, asked) for _, name, _ in kept]
    kind = None if asked is None else asked.kind
    yield compare("parallel.comm_hook.kind", kind, names[0] if names else builtin)
    yield compare("parallel.optimizer_in_backward", parallel.optimizer_in_backward, len(kept) < len(hooks))
    states = [state for _, _, state in kept]
    match asked:
        case PlainAllReduce() | Fp16Compress():
            yield compare("parallel.comm_hook.builtin", asked.builtin, builtin is not None)
        case EncodeAndDecode():
            got = next((dtype_name(state.dtype) for state in states if isinstance(state, Wire)), None)
            yield compare("parallel.comm_hook.dtype", asked.dtype, got)
        case CustomHook():
            names = [f"{hook.__module__}:{getattr(hook, '__qualname__', name)}" for hook, name, _ in kept]
            yield compare("parallel.comm_hook.function", asked.function, names[0] if names else None)
        case PowerSgd():
            yield from _powersgd_receipts(asked, states)
        case _:
            return


def _name_hook(name: str, asked: CommHook | None) -> str:
    """Return the kind of a hook by its function's name; one that is none of torch's is a person's own."""
    return _HOOKS.get(name, asked.kind if isinstance(asked, CustomHook) else name)


def _powersgd_receipts(asked: PowerSgd, states: Sequence[object]) -> Iterator[Receipt]:
    live = [state for state in states if isinstance(state, powerSGD_hook.PowerSGDState)]
    for knob in (name for name in PowerSgd.model_fields if name != "kind"):
        attribute = "start_powerSGD_iter" if knob == "start_powersgd_iter" else knob
        got = getattr(live[0], attribute) if live else None
        yield compare(f"parallel.comm_hook.{knob}", getattr(asked, knob), got)


def read_buffer_hook_receipt(model: DistributedDataParallel, parallel: Ddp) -> Receipt:
    """Compare with the place of the buffer hook that is registered."""
    hook = getattr(model, "buffer_hook", None)
    asked = None if parallel.buffer_comm_hook is None else parallel.buffer_comm_hook.location
    got = None if hook is None else hook.buffer_comm_hook_location.name.lower()
    return compare("parallel.buffer_comm_hook.location", asked, got)

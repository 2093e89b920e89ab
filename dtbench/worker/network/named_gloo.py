"""A gloo process group that tells the recorder about every collective and gives each a named range in the trace.

torch calls it like any backend: from Python (``torch.distributed``), from C++ (DDP's reducer, functional collectives).
It forwards each call unchanged to a real ``ProcessGroup`` over gloo and returns gloo's own ``Work``, so waiting, errors
and results are gloo's. See [Note: why gloo is wrapped and NCCL is not] in ``dtbench.worker.recording.recorder``.
"""

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.profiler import record_function

from dtbench.base.ranges import WaitLabel, collective_range, wait_range
from dtbench.base.vocabulary import Operation
from dtbench.worker.network.carrier import Carrier, Issued
from dtbench.worker.network.link import flatten_tensors
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.uncompiled import keep_uncompiled

BACKEND_NAME = "dtbench_gloo"

# Backend methods under the names of torch 2.11 to 2.15, with the argument whose bytes nccl-tests calls the size.
_OUTPUT, _INPUT = 0, 1
METHODS: dict[str, tuple[Operation, int]] = {
    "allreduce": (Operation.ALL_REDUCE, _OUTPUT),
    "allreduce_coalesced": (Operation.ALL_REDUCE, _OUTPUT),
    "broadcast": (Operation.BROADCAST, _OUTPUT),
    "reduce": (Operation.REDUCE, _OUTPUT),
    "allgather": (Operation.ALL_GATHER, _OUTPUT),
    "allgather_coalesced": (Operation.ALL_GATHER, _OUTPUT),
    "_allgather_base": (Operation.ALL_GATHER, _OUTPUT),
    "allgather_into_tensor_coalesced": (Operation.ALL_GATHER, _OUTPUT),
    "all_gather_single": (Operation.ALL_GATHER, _OUTPUT),
    "all_gather_single_coalesced": (Operation.ALL_GATHER, _OUTPUT),
    "reduce_scatter": (Operation.REDUCE_SCATTER, _INPUT),
    "_reduce_scatter_base": (Operation.REDUCE_SCATTER, _INPUT),
    "reduce_scatter_tensor_coalesced": (Operation.REDUCE_SCATTER, _INPUT),
    "reduce_scatter_single": (Operation.REDUCE_SCATTER, _INPUT),
    "reduce_scatter_single_coalesced": (Operation.REDUCE_SCATTER, _INPUT),
    "alltoall": (Operation.ALL_TO_ALL, _OUTPUT),
    "alltoall_base": (Operation.ALL_TO_ALL, _OUTPUT),
    "all_to_all_single": (Operation.ALL_TO_ALL, _OUTPUT),
    "gather": (Operation.GATHER, _OUTPUT),
    "gather_single": (Operation.GATHER, _OUTPUT),
    "gather_into_tensor": (Operation.GATHER, _OUTPUT),
    "scatter": (Operation.SCATTER, _INPUT),
    "send": (Operation.SEND, _OUTPUT),
    "recv": (Operation.RECV, _OUTPUT),
    "recv_anysource": (Operation.RECV, _OUTPUT),
    "barrier": (Operation.BARRIER, _OUTPUT),
    "monitored_barrier": (Operation.BARRIER, _OUTPUT),
}
_PLAIN_GATHERS = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "all_gather_single_coalesced": "all_gather_single",
}
"""For one tensor these are the same; see [Note: gloo's coalesced all-gathers]."""
_OF_ROOT = (Operation.GATHER, Operation.SCATTER)
"""The root alone holds all of what crosses; another rank has an equal part of it, and nothing in the root's place."""


def register_named_gloo(recorder: Recorder, carrier: Carrier | None = None) -> str:
    """Make the backend known to ``torch.distributed`` and give its name for ``init_process_group``.

    Args:
        recorder: told about every collective.
        carrier: carries them; None: gloo alone does.
    """
    group_class = make_group_class(recorder, carrier or Carrier(), GlooGroup)

    def create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        inner = dist.ProcessGroup(store, rank, size)
        inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        return group_class(inner, recorder, rank, size)

    dist.Backend.register_backend(BACKEND_NAME, create, devices=["cpu"])
    return BACKEND_NAME


def make_group_class(recorder: Recorder, carrier: Carrier, base: type["Group"]) -> Callable[..., Any]:
    """Return the class of a backend's groups: one forwarding method for each collective that this torch has.

    Waits for what they give are named from then on.

    Args:
        recorder: told about every collective.
        carrier: carries them.
        base: what the groups answer beside.
    """
    watch = _Watch(recorder, carrier, weakref.WeakKeyDictionary())
    forwards = {
        method: _forward(method, operation, payload, watch)
        for method, (operation, payload) in METHODS.items()
        if hasattr(dist.ProcessGroup, method)
    }
    _name_waits(recorder, watch.waits)
    return type(f"Named{base.__name__}", (base,), {**forwards, "watch": watch})


def is_registered() -> bool:
    """Tell whether ``torch.distributed`` knows the backend already."""
    return BACKEND_NAME in dist.Backend.backend_list


def find_recorder(group: dist.ProcessGroup) -> Recorder | None:
    """Return the recorder that a group tells about its collectives; None for a group of any other backend."""
    return group.recorder if isinstance(group, Group) else None


@dataclass(frozen=True)
class _Watch:
    """Who is told about a collective, and what carries it."""

    recorder: Recorder
    carrier: Carrier
    waits: "weakref.WeakKeyDictionary[Any, WaitLabel]"


class Group(dist.ProcessGroup):
    """What torch asks of a group beside collectives, answered for a real group inside.

    Attributes:
        watch: who is told, and what carries.
        recorder: of the collectives.
    """

    watch: ClassVar[_Watch]

    def __init__(self, inner: Any, recorder: Recorder, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.recorder = recorder
        self._inner = inner
        self._size = size
        self._name = ""
        self._description = ""
        self._ranks: tuple[int, ...] = ()

    @keep_uncompiled
    def size(self) -> int:
        """How many ranks are in it."""
        return self._size

    @keep_uncompiled
    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Name under which torch knows the backend."""
        return BACKEND_NAME

    def pg_name(self) -> str:
        """Name that torch gave it."""
        return self._name

    @property
    def group_name(self) -> str:
        """Name that torch gave it."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What it is for."""
        return self._description

    def abandon(self) -> None:
        """Close this rank's connections: who waits for it in a collective is told so; nothing can be issued after it.

        gloo's own ``abort`` leaves them open (torch 2.13): only the end of the group that is wrapped closes them.
        """
        self._inner = None

    @property
    def _device_types(self) -> list[torch.device]:
        """Devices whose tensors it carries: torch's state dicts and asynchronous saves ask; none until torch made it.

        torch 2.15 attaches its flight recorder to every new group that names devices, by a name that a group in Python
        cannot give (``ProcessGroup::getGroupName``). gloo's own keeps recording: it is the backend's, inside.
        """
        return self._list_devices() if self in dist.distributed_c10d._world.pg_map else []

    def _list_devices(self) -> list[torch.device]:
        return list(self._inner._device_types)

    def _set_group_name(self, name: str) -> None:
        self._name = name
        self._inner._set_group_name(name)

    def _set_group_desc(self, description: str) -> None:
        self._description = description
        self._inner._set_group_desc(description)

    def ranks(self) -> tuple[int, ...]:
        """Return the global ranks of the group, in its own order."""
        if not self._ranks:
            self._ranks = tuple(dist.get_process_group_ranks(self))
        return self._ranks

    def _get_backend(self, device: torch.device) -> Any:
        return self._inner._get_backend(device)

    def ask_backend(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the real group inside do what torch asks of this one; gives its ``Work``."""
        return getattr(self._inner, method)(*args, **kwargs)

    def send_off(self, issued: Issued, start: Callable[[], Any]) -> Any:
        """Let a collective be carried, in a range of its own where it is named; gives its ``Work``."""
        with record_function(collective_range(issued.label)) if issued.is_named else nullcontext():
            work = self.watch.carrier.carry(issued, start)
        if issued.is_named and work is not None:
            self.watch.waits[work] = WaitLabel(group=issued.label.group, seq=issued.label.seq)
        return work


class GlooGroup(Group):
    """A group over gloo; a coalesced all-gather of one tensor is carried as a plain one.

    [Note: gloo's coalesced all-gathers] Every functional all-gather (DTensor's, too) reaches its group as a coalesced
    one of a single tensor. While several of different sizes are under way, gloo's own (torch 2.13) writes past its
    memory: "malloc(): unaligned tcache chunk detected", SIGSEGV. Sixteen at a time crashed two ranks of plain torch in
    seconds in two of three tries; as plain all-gathers, which move the same bytes, 2,800 times sixteen did not.
    """

    def ask_backend(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let gloo do it; see [Note: gloo's coalesced all-gathers]."""
        plain = _PLAIN_GATHERS.get(method)
        if plain is None or len(args[0]) != 1:
            return super().ask_backend(method, args, kwargs)
        outputs, inputs, *options = args
        return super().ask_backend(plain, (outputs[0], inputs[0], *options), kwargs)


def _forward(method: str, operation: Operation, payload: int, watch: _Watch) -> Callable[..., Any]:
    recorder = watch.recorder

    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = tuple(flatten_tensors(args[payload])) if len(args) > payload else ()
        times = 1
        if operation in _OF_ROOT and not any(tensor.numel() for tensor in tensors):  # an empty one stands for none
            tensors, times = tuple(flatten_tensors(args[1 - payload])), group.size()
        label = recorder.issue(
            group._name,
            operation,
            times * sum(count_bytes(tensor) for tensor in tensors),
            is_async=is_async_call(args, kwargs),
            is_integer=bool(tensors) and not tensors[0].is_floating_point(),
        )

        def start(*others: Any) -> Any:
            return group.ask_backend(method, others or args, kwargs)

        return group.send_off(Issued(label, recorder.region, group, method, args, is_named=recorder.is_naming), start)

    return keep_uncompiled(call)  # DDP's reducer calls it inside a forward that is compiled


def count_bytes(tensor: torch.Tensor) -> int:
    """Return what a tensor holds: of a sparse one its values and their indices."""
    if tensor.is_sparse:
        return tensor._values().nbytes + tensor._indices().nbytes
    return tensor.nbytes


def _name_waits(recorder: Recorder, waits: "weakref.WeakKeyDictionary[Any, WaitLabel]") -> None:
    """Put a named range around every ``Work.wait`` that Python makes in PROFILED steps; waits in C++ have none."""
    wait = dist.Work.wait

    def named_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        label = waits.get(work) if recorder.is_naming else None
        with record_function(wait_range(label)) if label is not None else nullcontext():
            return wait(work, *args, **kwargs)

    dist.Work.wait = keep_uncompiled(named_wait)


def is_async_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Read ``asyncOp`` from the options that torch passes last; a call without options (send, recv) is asynchronous."""
    options = kwargs.get("opts", args[-1] if args else None)
    return bool(getattr(options, "asyncOp", True))

"""NCCL process groups behind a link: torch calls them like any backend, and every collective is carried by the link.

Without a link nothing stands before NCCL, see [Note: why gloo is wrapped and NCCL is not] in
``dtbench.worker.recording.recorder``; with one, what a frame of Python costs is small beside what the link does.

[Note: coalescing] ``_coalescing_manager`` brackets collectives that NCCL is to launch as one. They are held until the
bracket closes: the first then carries the whole bracket to NCCL, and the link serves one after another.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from dtbench.worker.network.carrier import Carrier, Issued
from dtbench.worker.network.named_gloo import Group, make_group_class
from dtbench.worker.recording.recorder import Recorder

BACKEND_NAME: Final = "dtbench_nccl"

_Held = list[tuple[Issued, Callable[[], Any]]]


def register_named_nccl(recorder: Recorder, carrier: Carrier) -> str:
    """Make the backend known to ``torch.distributed`` and give its name for ``init_process_group``.

    Args:
        recorder: told about every collective.
        carrier: carries them.
    """
    group_class = make_group_class(recorder, carrier, NcclGroup)

    def create(asked: Any, _options: Any) -> dist.ProcessGroup:
        engine = _make_engine(asked)
        if carrier.link is not None:
            carrier.link.backend = type(engine).__name__.removeprefix("ProcessGroup")
        inner = dist.ProcessGroup(asked.store, asked.group_rank, asked.group_size)
        inner._set_default_backend(dist.ProcessGroup.BackendType.NCCL)
        inner._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, engine)
        group = group_class(inner, recorder, asked.group_rank, asked.group_size)
        group.members = tuple(asked.global_ranks_in_group) or tuple(range(asked.group_size))
        return group

    dist.Backend.register_backend(BACKEND_NAME, create, extended_api=True, devices=["cuda"])
    return BACKEND_NAME


def _make_engine(asked: Any) -> Any:
    """Return the backend that torch builds for the name ``nccl``: from 2.15 on by a function that it registers.

    That is ``ProcessGroupNCCL2`` there, unless ``TORCH_DIST_USE_NCCL2=0``.
    """
    if hasattr(dist.Backend, "_ensure_backend_registered"):  # torch registers it when it is first asked for
        dist.Backend._ensure_backend_registered(dist.Backend.NCCL)
    registered = dist.Backend._plugins.get(dist.Backend.NCCL.upper())
    if registered is not None:
        return registered.creator_fn(asked, None)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = asked.timeout
    options.global_ranks_in_group = asked.global_ranks_in_group
    options.group_name = asked.group_id
    engine = dist.ProcessGroupNCCL(asked.store, asked.group_rank, asked.group_size, options)
    engine._set_sequence_number_for_group()
    return engine


class NcclGroup(Group):
    """A group over NCCL, with its coalescing, which gloo does not have.

    Attributes:
        members: global ranks, in the group's order.
    """

    members: tuple[int, ...] = ()
    _held: _Held | None = None

    def _set_group_desc(self, description: str) -> None:
        """Name the group inside, and let torch's flight recorder hear of it, which passes over groups in Python."""
        super()._set_group_desc(description)
        attach = getattr(dist.distributed_c10d, "_maybe_attach_flight_recorder", None)  # from torch 2.15 on
        if attach is not None:
            attach(self._inner, dist.distributed_c10d.BackendConfig("cuda:nccl"), list(self.members))

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Name under which torch knows the backend."""
        return BACKEND_NAME

    def _list_devices(self) -> list[torch.device]:
        """Where its tensors are: torch puts objects and what a barrier sends there."""
        return [torch.device("cuda")]

    def send_off(self, issued: Issued, start: Callable[[], Any]) -> Any:
        """Do as ``Group``; inside a bracket hold what was issued, which has no ``Work`` of its own there."""
        if self._held is None:
            return super().send_off(issued, start)
        self._held.append((issued, start))
        return None

    def _start_coalescing(self, _device: torch.device) -> None:
        """Open a bracket; see [Note: coalescing]."""
        self._held = []

    def _end_coalescing(self, device: torch.device) -> Any:
        """Close it and give the ``Work`` of all that it holds; None: it holds nothing."""
        held, self._held = self._held or [], None
        backends: list[Any] = []

        def start_all() -> Any:
            if not backends:
                self._inner._start_coalescing(device)
                for _, start in held:
                    start()
                backends.append(self._inner._end_coalescing(device))
            return backends[0]

        work = None  # the last one's is done when all are: a lane serves in order
        for issued, _ in held:
            work = super().send_off(issued, start_all)
        return work

    def abandon(self) -> None:
        """Abort what is in flight here; ranks of other machines that wait for it lose their connections, too."""
        self._inner.abort()

    def shutdown(self) -> None:
        """Let NCCL free what it holds, as torch asks of groups of its own."""
        self._inner.shutdown()

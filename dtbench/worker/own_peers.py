"""The ranks of a person's own loop: found in the process group that is there, talked to through its store.

Nothing here is a collective, so nothing disturbs the traffic that is measured, and a rank that is gone is a key that
does not come.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from dtbench.errors import CaptureError
from dtbench.record import Record
from dtbench.store.traffic_records import ProcessGroupInfo
from dtbench.vocabulary import MESH_PREFIX, DeviceKind, axis_described
from dtbench.worker.network.named_gloo import BACKEND_NAME, find_recorder
from dtbench.worker.recorder import Recorder

_MUCH_MORE: Final = 10
"""A device that holds so many times what the current one holds is the one that a rank computes on."""


class Said(Record):
    """What one rank says at a meeting.

    Attributes:
        host: where it runs.
        wants: the numbers of steps that it was asked for.
        problem: why it cannot take part; None: it can.
    """

    host: str
    wants: tuple[int, ...]
    problem: str | None


@dataclass(frozen=True)
class Peers:
    """This rank among the others.

    Attributes:
        store: of this capture alone.
        backend: None without a process group.
        recorder: the one that the named backend tells; None: nobody tells about collectives.
    """

    rank: int
    size: int
    store: Any
    device: DeviceKind
    backend: str | None
    recorder: Recorder | None

    def meet(self, mine: Said) -> tuple[Said, ...]:
        """Say something and hear what every rank says there, in order of rank."""
        self.store.set(f"said/{self.rank}", mine.model_dump_json())
        return tuple(Said.model_validate_json(self.hear(f"said/{rank}", rank)) for rank in range(self.size))

    def hear(self, key: str, rank: int) -> str:
        """Wait, as long as the process group would, for what a rank says as it enters.

        Raises:
            CaptureError: it never came.
        """
        try:
            return bytes(self.store.get(key)).decode()
        except dist.DistStoreError as error:
            raise CaptureError(
                f"rank {rank} did not enter dtbench.capture; every rank must, and with the same options"
            ) from error

    def say_left(self, reason: str) -> None:
        """Say that this rank steps no more; ``reason`` is empty when it saw every step."""
        self.store.set(f"left/{self.rank}", reason)

    def hear_left(self, rank: int, patience: timedelta) -> str | None:
        """Give what a rank said when it left; None when it said nothing for so long."""
        try:
            self.store.wait([f"left/{rank}"], patience)
        except dist.DistStoreError:
            return None
        return bytes(self.store.get(f"left/{rank}")).decode()

    def is_first(self, name: str) -> bool:
        """Tell one rank alone that it is the first to ask; without a store (its host is gone) every rank is."""
        try:
            return int(self.store.add(name, 1)) == 1
        except (RuntimeError, dist.DistError):
            return True


def find_peers() -> Peers:
    """Find the ranks that were started with this one.

    Raises:
        CaptureError: there are others, but no process group yet.
    """
    if dist.is_available() and dist.is_initialized():
        default, config = dist.distributed_c10d._get_default_store(), str(dist.get_backend_config())
        rank = dist.get_rank()
        count = default.add(f"dtbench/captures/{rank}", 1)  # the store counts: every rank's n-th capture is the same
        return Peers(
            rank=rank,
            size=dist.get_world_size(),
            store=dist.PrefixStore(f"dtbench/capture{count}", default),
            device=_find_device(config),
            backend=_name_backend(config),
            recorder=find_recorder(dist.group.WORLD),
        )
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        raise CaptureError(
            f"{ranks} ranks were started (WORLD_SIZE), but they have no process group yet; "
            "call torch.distributed.init_process_group before dtbench.capture"
        )
    return Peers(rank=0, size=1, store=dist.HashStore(), device=_find_device(""), backend=None, recorder=None)


def _name_backend(config: str) -> str:
    """Name the backend of the device that computes: torch may have one for each (``cpu:gloo,cuda:nccl``)."""
    if BACKEND_NAME in config:
        return "gloo"
    return "nccl" if "nccl" in config and _on_cuda(config) else str(dist.get_backend())


def _on_cuda(config: str) -> bool:
    """Tell whether this process uses a GPU: its group serves nothing else, or a model that was moved to one began CUDA.

    Args:
        config: as torch writes what a group has for each device: ``cpu:gloo,cuda:nccl``; empty without a group.
    """
    if not torch.cuda.is_available():
        return False
    serves_nothing_else = bool(config) and all(part.startswith("cuda:") for part in config.split(","))
    return serves_nothing_else or torch.cuda.is_initialized()


def _find_device(config: str) -> DeviceKind:
    return DeviceKind.CUDA if _on_cuda(config) else DeviceKind.CPU


def find_device_problem(cuda: Any = torch.cuda) -> str | None:
    """Say that this rank computes on another device than its current one, whose streams are timed; None: it does not.

    Args:
        cuda: ``torch.cuda``, or what stands in for it.
    """
    if not (cuda.is_available() and cuda.is_initialized()):
        return None
    held = [cuda.memory_allocated(index) for index in range(cuda.device_count())]
    current, fullest = cuda.current_device(), max(range(len(held)), key=held.__getitem__)
    if held[current] * _MUCH_MORE >= held[fullest]:
        return None
    return (
        f"its tensors are on cuda:{fullest}, but its current device is cuda:{current}, whose streams would be timed; "
        f"call torch.cuda.set_device({fullest}) before anything is put on a device"
    )


def list_groups() -> Iterator[tuple[str, dist.ProcessGroup]]:
    """Give every process group of this rank with the name of its mesh axis; empty where no device mesh made it."""
    if not (dist.is_available() and dist.is_initialized()):
        return
    for group in dist.distributed_c10d._world.pg_map:
        description = str(group.group_desc or "")
        yield description.removeprefix(MESH_PREFIX) if description.startswith(MESH_PREFIX) else "", group


def count_collectives() -> dict[str, int]:
    """Give how many collectives each group has issued whose backend tells no recorder, by torch's name of the group."""
    counts = {}
    for _, group in list_groups():
        if find_recorder(group) is None:
            with suppress(RuntimeError):  # a backend that does not count
                counts[str(group.group_name)] = int(group._get_sequence_number_for_group())
    return counts


def describe_groups(names: Mapping[str, str]) -> tuple[ProcessGroupInfo, ...]:
    """Describe every process group of this rank.

    Args:
        names: name of the mesh axis by torch's name of the group, where there is one.
    """
    return tuple(
        ProcessGroupInfo(
            name=group.group_name,
            axis=axis_described(names.get(group.group_name)),
            backend=str(dist.get_backend(group)).replace(BACKEND_NAME, "gloo"),
            ranks=tuple(dist.get_process_group_ranks(group)),
        )
        for _, group in list_groups()
    )

"""The ranks of a person's own loop: found in the process group that is there, talked to through its store.

Nothing here is a collective, so nothing disturbs the traffic that is measured, and a rank that is gone is a key that
does not come.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from dtbench.base.errors import CaptureError
from dtbench.base.record import Record
from dtbench.base.vocabulary import MESH_PREFIX, DeviceKind, axis_described
from dtbench.store.records.traffic import ProcessGroupInfo
from dtbench.worker.machine.accelerator import find_device
from dtbench.worker.machine.look import RankProcess
from dtbench.worker.network.named_gloo import BACKEND_NAME, find_recorder
from dtbench.worker.recording.recorder import Recorder


class RankHello(Record):
    """What one rank says at a meeting.

    Attributes:
        host: where it runs.
        process: that it is.
        wants: the numbers of steps that it was asked for.
        problem: why it cannot take part; None: it can.
    """

    host: str
    process: RankProcess
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

    def meet(self, mine: RankHello) -> tuple[RankHello, ...]:
        """Say something and hear what every rank says there, in order of rank."""
        self.store.set(f"said/{self.rank}", mine.model_dump_json())
        return tuple(RankHello.model_validate_json(self.hear(f"said/{rank}", rank)) for rank in range(self.size))

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
        """Return what a rank said when it left; None when it said nothing for so long."""
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
        CaptureError: there are others, but no process group yet; or this one computes on a device that is not timed.
    """
    if dist.is_available() and dist.is_initialized():
        default, config = dist.distributed_c10d._get_default_store(), str(dist.get_backend_config())
        rank, device = dist.get_rank(), find_device(config)
        count = default.add(f"dtbench/captures/{rank}", 1)  # the store counts: every rank's n-th capture is the same
        return Peers(
            rank=rank,
            size=dist.get_world_size(),
            store=dist.PrefixStore(f"dtbench/capture{count}", default),
            device=device,
            backend=_name_backend(config, device),
            recorder=find_recorder(dist.group.WORLD),
        )
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        raise CaptureError(
            f"{ranks} ranks were started (WORLD_SIZE), but they have no process group yet; "
            "call torch.distributed.init_process_group before dtbench.capture"
        )
    return Peers(rank=0, size=1, store=dist.HashStore(), device=find_device(""), backend=None, recorder=None)


def _name_backend(config: str, device: DeviceKind) -> str:
    """Name the backend of the device that computes: torch may have one for each (``cpu:gloo,cuda:nccl``)."""
    if BACKEND_NAME in config:
        return "gloo"
    return "nccl" if "nccl" in config and device is DeviceKind.CUDA else str(dist.get_backend())


def list_groups() -> Iterator[tuple[str, dist.ProcessGroup]]:
    """Yield every process group of this rank with the name of its mesh axis; empty where no device mesh made it."""
    if not (dist.is_available() and dist.is_initialized()):
        return
    for group in dist.distributed_c10d._world.pg_map:
        description = str(group.group_desc or "")
        yield description.removeprefix(MESH_PREFIX) if description.startswith(MESH_PREFIX) else "", group


def count_collectives() -> dict[str, int]:
    """Return how many collectives each group has issued whose backend tells no recorder, by torch's name of it."""
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

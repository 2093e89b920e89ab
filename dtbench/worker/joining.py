"""How a rank joins the others: which one it is, its device and its place, and the process group."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from dtbench.base.vocabulary import Axis, DeviceKind
from dtbench.plan.plan import Plan
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.named_gloo import register_named_gloo
from dtbench.worker.network.named_nccl import register_named_nccl
from dtbench.worker.recording.recorder import Recorder


@dataclass(frozen=True)
class Rank:
    """Which rank this process is, as torchrun's variables say."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def from_environment(cls) -> "Rank":
        """Read ``RANK``, ``LOCAL_RANK`` and ``WORLD_SIZE``; alone when they are missing."""
        rank = int(os.environ.get("RANK", "0"))
        return cls(rank, int(os.environ.get("LOCAL_RANK", str(rank))), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def process_group(
    plan: Plan, recorder: Recorder, rank: Rank, carrier: Carrier, *, shares_host_tensors: bool
) -> Iterator[None]:
    """Join all ranks over a carrier; leave only when nothing is in flight and results are on disk.

    Time-outs are twice the launcher's own, so that the launcher, who knows every rank, speaks first.

    Args:
        plan: says device and ranks.
        recorder: told about every collective.
        rank: which rank this process is.
        carrier: carries collectives.
        shares_host_tensors: ranks on devices reduce tensors in host memory, too, which NCCL cannot.
    """
    backend = _register_backend(plan, recorder, carrier)
    if plan.device is DeviceKind.CUDA:
        backend = f"cpu:gloo,cuda:{backend}" if shares_host_tensors else backend
        torch.accelerator.set_device_index(rank.local_rank)
        if isinstance(carrier.link, CudaLink):
            carrier.link.prepare(make_device(plan, rank))
    dist.init_process_group(backend, timeout=timedelta(microseconds=2 * plan.stall_timeout_ns // 1000))
    yield
    if carrier.is_abandoned:
        _meet_in_store(rank.rank, plan.ranks)
        return
    dist.barrier()
    dist.destroy_process_group()


def _meet_in_store(rank: int, ranks: int) -> None:
    """Wait for all ranks without a collective; groups stay as they are, and the process ends with them."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"dtbench/leaves/{rank}", "")
    store.wait([f"dtbench/leaves/{one}" for one in range(ranks)])


def _register_backend(plan: Plan, recorder: Recorder, carrier: Carrier) -> str:
    """Return the name of what carries collectives: over NCCL nothing stands before it but a link."""
    if plan.device is DeviceKind.CPU:
        return register_named_gloo(recorder, carrier)
    return "nccl" if carrier.link is None else register_named_nccl(recorder, carrier)


def make_device(plan: Plan, rank: Rank) -> torch.device:
    """Return this rank's device."""
    return torch.device("cpu") if plan.device is DeviceKind.CPU else torch.device(plan.device, rank.local_rank)


def find_data_rank(plan: Plan, mesh: DeviceMesh) -> int:
    """Return which share of the rows is this rank's: its place along all axes but ``tensor``, outermost first."""
    place = 0
    for axis in plan.mesh:
        if axis.name is not Axis.TENSOR:
            place = place * axis.size + mesh.get_local_rank(axis.name.value)
    return place

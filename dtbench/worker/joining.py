"""How a rank joins the others: which one it is, its device and its place, and the process group."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from dtbench.base.errors import NodesError
from dtbench.base.vocabulary import Axis, DeviceKind
from dtbench.plan.plan import Plan
from dtbench.store.records.run import WorkerOrder
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.named_gloo import register_named_gloo
from dtbench.worker.network.named_nccl import register_named_nccl
from dtbench.worker.recording.recorder import Recorder


@dataclass(frozen=True)
class Rank:
    """Which rank this process is, as torchrun's variables say; ``nodes``: on which all ranks are."""

    rank: int
    local_rank: int
    world_size: int
    nodes: int = 1

    @classmethod
    def from_environment(cls) -> "Rank":
        """Read ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE`` and ``GROUP_WORLD_SIZE``; alone when they are missing."""
        rank = int(os.environ.get("RANK", "0"))
        local_rank, world_size = int(os.environ.get("LOCAL_RANK", str(rank))), int(os.environ.get("WORLD_SIZE", "1"))
        return cls(rank, local_rank, world_size, int(os.environ.get("GROUP_WORLD_SIZE", "1")))


@contextmanager
def process_group(
    order: WorkerOrder, recorder: Recorder, rank: Rank, carrier: Carrier, *, shares_host_tensors: bool
) -> Iterator[None]:
    """Join all ranks over a carrier; leave only when nothing is in flight and results are on disk.

    Time-outs are twice the launcher's own, so that the launcher, who knows every rank, speaks first.

    Args:
        order: says device and ranks; all ranks have been given the same.
        recorder: told about every collective.
        rank: which rank this process is.
        carrier: carries collectives.
        shares_host_tensors: ranks on devices reduce tensors in host memory, too, which NCCL cannot.

    Raises:
        NodesError: ranks were started for different launches.
    """
    plan = order.plan
    backend = _register_backend(plan, recorder, carrier)
    if plan.device is DeviceKind.CUDA:
        backend = f"cpu:gloo,cuda:{backend}" if shares_host_tensors else backend
        torch.accelerator.set_device_index(rank.local_rank)
        if isinstance(carrier.link, CudaLink):
            carrier.link.prepare(make_device(plan, rank))
    timeout = timedelta(microseconds=2 * plan.stall_timeout_ns // 1000)
    store, place, ranks = next(dist.rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    agree_on_order(store, place, ranks, order)
    in_group = dist.PrefixStore("default_pg", store)  # as init_process_group does with a store that it finds itself
    dist.init_process_group(backend, store=in_group, rank=place, world_size=ranks, timeout=timeout)
    yield
    if carrier.is_abandoned:
        _meet_in_store(rank.rank, plan.ranks)
        return
    dist.barrier()
    dist.destroy_process_group()


def agree_on_order(store: dist.Store, rank: int, ranks: int, order: WorkerOrder) -> None:
    """Hold with all ranks what each was told to run, before any of them waits for another in a collective.

    Two nodes on which torchrun was started for different launches find each other at the same endpoint.

    Args:
        store: that of all ranks.
        rank: which one this is.
        ranks: how many were started.
        order: what it was told.

    Raises:
        NodesError: they are told different things, or another number of ranks was started; every rank raises it.
    """
    told = f"{order.plan.ranks}|{order.digest}|{order.words}|{socket.gethostname()}"
    store.set(f"dtbench/told/{rank}", told)
    if rank == 0:
        heard = [bytes(store.get(f"dtbench/told/{one}")).decode() for one in range(ranks)]
        store.set("dtbench/agreed", _find_disagreement(heard))
    disagreement = bytes(store.get("dtbench/agreed")).decode()
    if disagreement:
        raise NodesError(disagreement)


def _find_disagreement(heard: list[str]) -> str:
    """Say who was told something else than rank 0; empty: all agree."""
    wanted, digest, words, host = heard[0].split("|", 3)
    for rank, one in enumerate(heard):
        _, other, other_words, other_host = one.split("|", 3)
        if other != digest:
            which = f"{other_words}" if other_words != words else f"{words}, planned otherwise"
            return (
                f"rank {rank} on {other_host} was started for {which} (order {other}), and rank 0 on {host} for "
                f"{words} (order {digest}): start the same order on every node"
            )
    if int(wanted) != len(heard):
        return f"{words} has {wanted} ranks, and {len(heard)} were started: see --nnodes and --nproc-per-node"
    return ""


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

"""``DistributedDataParallel``: wrap, and read its buckets and knobs back."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch.nn.parallel.distributed as torch_ddp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from dtbench.plan import Plan
from dtbench.scenario.schema import Ddp
from dtbench.store.records import OverlapPossible, Receipt, Traffic
from dtbench.traffic import DDP_DEFAULT_CAP_BYTES
from dtbench.units import MIB
from dtbench.vocabulary import Axis, DeviceKind, Purpose
from dtbench.worker.receipts import compare, without_effect

_KNOBS = tuple(name for name in Ddp.model_fields if name not in ("kind", "replicas"))


@dataclass(frozen=True)
class WrappedDdp:
    """A DDP model and what was seen while it was built."""

    model: DistributedDataParallel
    initial_syncs: int


def wrap_ddp(model: nn.Module, mesh: DeviceMesh, parallel: Ddp, plan: Plan) -> WrappedDdp:
    """Wrap a model; a knob at torch's default is not passed: a renamed one only matters to who sets it."""
    knobs = {
        name: getattr(parallel, name) for name in _KNOBS if getattr(parallel, name) != Ddp.model_fields[name].default
    }
    if plan.device is DeviceKind.CUDA:
        knobs["device_ids"] = [next(model.parameters()).device.index]
    with _count_initial_syncs() as syncs, warnings.catch_warnings():
        # 2.13 prefers forward_sync_buffers, which 2.11 does not have; who sets the knob means the one with this name
        warnings.filterwarnings("ignore", message=".*broadcast_buffers.*", category=FutureWarning)
        wrapped = DistributedDataParallel(model, process_group=mesh.get_group(Axis.REPLICATE.value), **knobs)
    return WrappedDdp(model=wrapped, initial_syncs=len(syncs))


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


class BucketLog:
    """Reads DDP's bucket sizes from torch's own logger."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model = model

    def read(self) -> tuple[int, ...]:
        """Give the bytes of each bucket in order of issue: as rebuilt, else as first assigned."""
        data = self._model._get_ddp_logging_data()
        text = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
        return tuple(int(size) for size in text.split(",") if size.strip())


def read_ddp_receipts(wrapped: WrappedDdp, parallel: Ddp) -> tuple[Receipt, ...]:
    """Read every knob back from the live wrapper and its reducer."""
    model = wrapped.model
    data = model._get_ddp_logging_data()
    cap_bytes = DDP_DEFAULT_CAP_BYTES if parallel.bucket_cap_mb is None else int(parallel.bucket_cap_mb * MIB)
    broadcast = compare("parallel.broadcast_buffers", parallel.broadcast_buffers, bool(data["broadcast_buffers"]))
    if not any(True for _ in model.module.buffers()):
        broadcast = without_effect(broadcast, "the model has no buffers")
    unused = compare(
        "parallel.find_unused_parameters", parallel.find_unused_parameters, bool(data["find_unused_parameters"])
    )
    if parallel.static_graph and parallel.find_unused_parameters:
        unused = without_effect(unused, "static_graph already knows the unused parameters")
    views = bool(data["gradient_as_bucket_view"])
    return (
        compare("parallel.replicas", parallel.replicas, int(data["world_size"])),
        compare(
            "parallel.bucket_cap_mb",
            parallel.bucket_cap_mb,
            int(data["bucket_cap_bytes"]),
            expected=cap_bytes,
            note="in bytes",
        ),
        compare("parallel.gradient_as_bucket_view", parallel.gradient_as_bucket_view, views),
        compare("parallel.static_graph", parallel.static_graph, bool(model.static_graph)),
        unused,
        broadcast,
        compare("parallel.init_sync", parallel.init_sync, wrapped.initial_syncs > 0),
    )


def read_ddp_overlap(bucket_bytes: tuple[int, ...], traffic: tuple[Traffic, ...]) -> tuple[OverlapPossible, ...]:
    """Say that buckets overlap backward, unless they are issued blocking or there is only one, ready at its end."""
    reduces = [item for item in traffic if item.purpose is Purpose.GRAD_REDUCE]
    if any(item.count_async < item.count for item in reduces):
        return (
            OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=False, reason="all-reduces are issued synchronously"),
        )
    several = len(bucket_bytes) > 1
    reason = (
        f"{len(bucket_bytes)} buckets, each all-reduced while backward goes on"
        if several
        else "one bucket: ready when backward is over"
    )
    return (OverlapPossible(purpose=Purpose.GRAD_REDUCE, possible=several, reason=reason),)

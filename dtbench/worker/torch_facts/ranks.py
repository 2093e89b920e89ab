"""Two small ranks over gloo train in each way that dtbench measures; the first writes down what torch did.

``python -m dtbench.worker.torch_facts.ranks <rank> <folder>``
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from dtbench.worker.torch_facts.facts import Kind

RANKS: Final = 2
LIVE: Final = "live.json"
"""What the first rank writes: facts as lists of kind, name and what is said."""
ASKED: Final = "private.json"
"""Private attributes that are looked for in torch's objects."""

_WIDTH: Final = 16
_TIMEOUT: Final = timedelta(seconds=300)
_STEPS: Final = 2
_DEEP: Final = 6
"""Objects from a model to what dtbench reads in it."""
_HOMES: Final = ("torch.distributed", "torch.nn.parallel", "torch._C._distributed_c10d")
_TOLD: Final = re.compile(r"(?<![A-Za-z_\d])\d+|(?<=evaluate_function: ).*")
"""What of a name is of one model or step."""
_OF_TRACES: Final = re.compile(r"^(?!aten::)[\w.]+::|^record_param_comms")
_OF_COMMUNICATION: Final = re.compile(r"^(record_param_comms|gloo:|c10d::|_c10d_functional::|FSDP::|ProfilerStep)")
_OF_RUN: Final = ("finished",)
"""Fields that depend on when a trace ended."""
_SENDS: Final = re.compile(r"^(gloo:|c10d::)")


def train_all(folder: Path, private: Collection[str]) -> Iterator[tuple[Kind, str, str]]:
    """Train in each way, and yield what traces, messages and objects of it hold."""
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("shard",))
    yield Kind.ENGINE, "engine of a gloo group", type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__
    for name, build in _WAYS.items():
        torch.manual_seed(0)
        model = build(mesh)
        trace = _profile(model, folder / "trace.json")
        yield from read_trace(name, trace)
        yield from find_attributes([model, mesh, dist.group.WORLD], private)


def _stack() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(2)))


def _build_ddp(_: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(_stack())


def _build_fsdp1(mesh: DeviceMesh) -> nn.Module:
    def wrap(part: nn.Module) -> nn.Module:
        return FullyShardedDataParallel(
            part,
            device_mesh=mesh,
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            use_orig_params=True,
            device_id=torch.device("cpu"),
        )

    return wrap(nn.Sequential(*map(wrap, _stack())))


def _build_fsdp2(policy: MixedPrecisionPolicy) -> Callable[[DeviceMesh], nn.Module]:
    def build(mesh: DeviceMesh) -> nn.Module:
        model = _stack()
        for part in (*model, model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
        return model

    return build


def _build_tensor(mesh: DeviceMesh) -> nn.Module:
    return parallelize_module(_stack(), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})


_WAYS: Final[Mapping[str, Callable[[DeviceMesh], nn.Module]]] = {
    "DDP": _build_ddp,
    "FSDP1, param_dtype=bfloat16": _build_fsdp1,
    "FSDP2": _build_fsdp2(MixedPrecisionPolicy()),
    "FSDP2, param_dtype=bfloat16": _build_fsdp2(MixedPrecisionPolicy(param_dtype=torch.bfloat16)),
    "FSDP2, reduce_dtype=float32": _build_fsdp2(
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    ),
    "tensor parallel": _build_tensor,
}


def _profile(model: nn.Module, path: Path) -> dict[str, Any]:
    """Train some steps, one not profiled before them, and return their trace."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.ones(4, _WIDTH)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=_STEPS),
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(1 + _STEPS):
            model(data).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    raw = path.read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    return document


def read_trace(way: str, trace: Mapping[str, Any]) -> Iterator[tuple[Kind, str, str]]:
    """Yield names and fields of a trace, and which tensors of which dtype each collective of a step took."""
    yield from ((Kind.FIELD, f"of a trace: {key}", "there") for key in trace)
    sent: Counter[tuple[str, str]] = Counter()
    for event in trace["traceEvents"]:
        name, category = _TOLD.sub("N", str(event.get("name", ""))), event.get("cat")
        if category is None or not (_OF_TRACES.search(name) or category == "user_annotation"):
            continue
        yield Kind.TRACE, f"{category}: {name}", "there"
        told = event.get("args", {})
        if (kept := _OF_COMMUNICATION.match(name)) is not None:
            yield from ((Kind.FIELD, f"of {kept[1].rstrip(':')}: {key}", "there") for key in told if key not in _OF_RUN)
        if _SENDS.match(name):
            sent[name, _spell_tensors(told)] += 1
    yield from _say_sent(way, sent)


def _spell_tensors(told: Mapping[str, Any]) -> str:
    """Spell the sizes and dtypes of what was sent, as recorded."""
    pairs = zip(told.get("Input Dims", ()), told.get("Input type", ()), strict=False)
    return ", ".join(f"{dtype.removeprefix('c10::')} {sizes}" for sizes, dtype in pairs if sizes)


def _say_sent(way: str, sent: Counter[tuple[str, str]]) -> Iterator[tuple[Kind, str, str]]:
    by_name: dict[str, list[str]] = {}
    for (name, tensors), count in sorted(sent.items()):
        by_name.setdefault(name, []).append(f"{count // _STEPS} x {tensors or 'not recorded'}")
    yield from ((Kind.WIRE, f"{way}: {name}", "; ".join(said)) for name, said in by_name.items())


def find_attributes(roots: list[Any], private: Collection[str]) -> Iterator[tuple[Kind, str, str]]:
    """Yield which of torch's objects that can be reached from some have a private attribute."""
    seen: set[int] = set()
    layer = [*roots, *(module for root in roots if isinstance(root, nn.Module) for module in root.modules())]
    for _ in range(_DEEP):
        fresh = [one for one in layer if id(one) not in seen and _is_looked_at(one)]
        seen |= {id(one) for one in fresh}
        for one in fresh:
            there = {*getattr(one, "__dict__", ()), *dir(type(one))}
            home = type(one).__name__
            yield from ((Kind.ATTRIBUTE, f"{home}.{name}", "there") for name in private if name in there)
        layer = [part for one in fresh for value in _parts_of(one) for part in _unpack(value)]


def _parts_of(thing: Any) -> Iterator[Any]:
    yield from getattr(thing, "__dict__", {}).values()
    if isinstance(thing, nn.Module):
        if (state := getattr(thing, "_get_fsdp_state", None)) is not None:
            yield state()
        yield from thing.parameters(recurse=False)


def _unpack(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _is_looked_at(thing: Any) -> bool:
    return isinstance(thing, nn.Module | torch.Tensor) or type(thing).__module__.startswith(_HOMES)


def main(rank: int, folder: Path) -> None:
    """Run one rank."""
    torch.set_num_threads(1)
    private = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    store = dist.FileStore(str(folder / "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=_TIMEOUT)
    own = folder / f"rank{rank}"
    own.mkdir()
    facts = sorted(set(train_all(own, private)))
    if rank == 0:
        (folder / LIVE).write_text(json.dumps(facts), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

"""A training loop that ``dtbench.monitor`` watches, on ranks that torchrun starts; rank 1 sleeps in every step.

``loop.py FOLDER HOW WHERE``; HOW: ``ddp``, ``named`` (DDP behind ``named_gloo``), ``fsdp``, ``tensor``; WHERE it
sleeps: ``forward``, ``backward``, ``between``. It trains twice, unwatched first: the losses have to be the same.
"""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dtbench
from dtbench.live.sinks import json_lines

FOLDER, HOW, WHERE = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
STEPS, EVERY, SLEEP_S = 1 + 2 * 8, 8, 0.03


class Late(torch.autograd.Function):
    """Passes its input on; sleeps in forward or in backward."""

    @staticmethod
    def forward(_context: Any, value: torch.Tensor) -> torch.Tensor:
        sleep("forward")
        return value.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        sleep("backward")
        return gradient


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(value).relu())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.second(Late.apply(self.first(value)))


def sleep(where: str) -> None:
    if where == WHERE and dist.get_rank() == 1:
        time.sleep(SLEEP_S)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = Model()
    match HOW:
        case "fsdp":
            for block in (model.first, model.second):
                fully_shard(block)
            return fully_shard(model)
        case "tensor":
            mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
            for block in (model.first, model.second):
                parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
            return model
    return DistributedDataParallel(model, bucket_cap_mb=0.02)


def train(monitor: Any) -> list[float]:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(STEPS):
        sleep("between")
        batch = torch.randn(8, 64, generator=generator)
        with nullcontext() if monitor is None else monitor.step():
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
    return losses


torch.set_num_threads(1)
dist.init_process_group(dtbench.named_gloo() if HOW == "named" else "gloo")
rank = dist.get_rank()
plain = train(None)
with dtbench.monitor(json_lines(FOLDER / "live.jsonl"), every=EVERY) as monitor:
    watched = train(monitor)
assert watched == plain
report = monitor.report
assert report is not None
told = {
    "numbers": report.numbers,
    "late": str(report.late),
    "owners": monitor.owner_wait_ms(),
    "where": "" if report.late is None else report.late.where,
}
(FOLDER / f"rank{rank}.json").write_text(json.dumps(told))
dist.destroy_process_group()

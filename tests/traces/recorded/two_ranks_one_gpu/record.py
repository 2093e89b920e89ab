"""Record the traces beside this file: two NCCL ranks on one GPU, each loop under torch's profiler alone.

``RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python record.py LOOP FOLDER``, and the same with rank 1.
NCCL refuses two ranks of one machine on one device, so each says that it is a machine of its own. Under MPS
(``nvidia-cuda-mps-control -d``) their kernels run at once; without it the device is theirs in turn.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK = int(os.environ["RANK"])
os.environ.update(NCCL_HOSTID=f"h{RANK}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_MNNVL_ENABLE="0")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3
CYCLES_PER_MS = 1_700_000  # 0.86 ms on an H200, at 1.98 GHz
Step = Callable[[], None]


class Pair(nn.Module):
    """Two linear layers: 256 to 1,024 to 256."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Small(nn.Module):
    """Three pairs and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Pair() for _ in range(3)), nn.Linear(256, 16)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Cost(torch.autograd.Function):
    """Spin for some milliseconds in forward, and in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_ms: float, backward_ms: float) -> Tensor:
        ctx.backward_ms = backward_ms
        torch.cuda._sleep(round(forward_ms * CYCLES_PER_MS))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        torch.cuda._sleep(round(ctx.backward_ms * CYCLES_PER_MS))
        return gradient.clone(), None, None


class Costly(nn.Module):
    """Four linear layers of 1,024 that take 2 ms and 12 ms, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(4)), nn.Linear(1024, 16)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(Cost.apply(x, 2.0, 12.0))
        return self.head(x)


def train(model: nn.Module, width: int = 256, *, clip: bool = False, before: Step = lambda: None) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    x = torch.randn(64, width, device="cuda")

    def step() -> None:
        before()
        model(x).square().mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def wrap(model: nn.Module, bucket_cap_mb: int) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[0], bucket_cap_mb=bucket_cap_mb)


def ddp() -> Step:
    return train(wrap(Small(), 1), clip=True)


def compiled() -> Step:
    return train(torch.compile(wrap(Small(), 1)))


def fsdp2() -> Step:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Small().cuda()
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    return train(fully_shard(model, mp_policy=policy), clip=True)


def fsdp2_tp() -> Step:
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("dp", "tp"))
    model = Small().cuda()
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    return train(fully_shard(model, mesh=mesh["dp"]))


def skew() -> Step:
    """Rank 1's device begins each step with 25 ms of something else."""
    return train(wrap(Costly(), 3), 1024, before=lambda: torch.cuda._sleep(25 * CYCLES_PER_MS) if RANK else None)


def host() -> Step:
    """In backward, each rank's host waits for its device and then sleeps for 40 ms."""
    model = Costly().cuda()

    def stand_still(_: Tensor) -> None:
        torch.cuda.synchronize()
        time.sleep(0.04)

    model.layers[1].weight.register_hook(stand_still)
    return train(wrap(model, 3), 1024)


def graph() -> Step:
    """The whole step, NCCL included, is one captured graph."""
    stream, x = torch.cuda.Stream(), torch.randn(64, 256, device="cuda")
    with torch.cuda.stream(stream):
        model = wrap(Small(), 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
        for _ in range(12):
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(captured):
        model(x).square().mean().backward()
        optimizer.step()

    def step() -> None:
        captured.replay()

    return step


def at_once() -> Step:
    """A blocking all-reduce between two kernels of 3 ms."""
    tensor = torch.randn(1 << 20, device="cuda")

    def step() -> None:
        torch.cuda._sleep(3 * CYCLES_PER_MS)
        dist.all_reduce(tensor)
        tensor.mul_(0.5)
        torch.cuda._sleep(3 * CYCLES_PER_MS)

    return step


def sendrecv() -> Step:
    """Both ranks send and receive 4 MiB, coalesced, and use it at once."""
    sent, received = torch.randn(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    both = [dist.P2POp(dist.isend, sent, 1 - RANK), dist.P2POp(dist.irecv, received, 1 - RANK)]

    def step() -> None:
        torch.cuda._sleep(2 * CYCLES_PER_MS)
        for work in dist.batch_isend_irecv(both):
            work.wait()
        received.mul_(2.0)
        torch.cuda._sleep(2 * CYCLES_PER_MS)

    return step


def record(step: Step, path: Path) -> None:
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    plan = schedule(wait=0, warmup=2, active=STEPS)
    with profile(
        activities=both, schedule=plan, on_trace_ready=lambda it: it.export_chrome_trace(str(path))
    ) as profiler:
        for number in range(2 + STEPS):
            step()
            if number == 1 + STEPS:
                torch.cuda.synchronize()
            profiler.step()


def main() -> None:
    loops = (at_once, compiled, ddp, fsdp2, fsdp2_tp, graph, host, sendrecv, skew)
    loop = {one.__name__: one for one in loops}[sys.argv[1]]
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    torch.manual_seed(0)
    record(loop(), Path(sys.argv[2]) / f"rank{RANK}.json")
    dist.barrier()
    os._exit(0)  # a captured graph keeps its communicator


if __name__ == "__main__":
    main()

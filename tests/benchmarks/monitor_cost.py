"""What ``dtbench.monitor`` costs in a step: CPU time of the training thread with it and without, blocks taking turns.

``python -m tests.benchmarks.monitor_cost`` trains four blocks of two linear layers with FSDP2 over torch's fake group,
whose collectives are done at once: nothing but the thread's own work is in its time, which other processes disturb
little (DDP does not run there). ``python -m tests.benchmarks.monitor_cost 2`` trains with DDP and FSDP2 on so many
gloo ranks; there a step's CPU time moves by milliseconds with what else the machine does. Both print microseconds a
step. A benchmark, not a test.
"""

import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dtbench

LIMIT_US = 200
BLOCKS, ROUNDS, STEPS = 4, 8, 50


def make_model(how: str) -> nn.Module:
    """Return the model, wrapped."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)) for _ in range(BLOCKS)))
    if how == "ddp":
        return DistributedDataParallel(model, bucket_cap_mb=0.2)
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def run_steps(model: nn.Module, optimizer: torch.optim.Optimizer, monitor: Any) -> float:
    """Return the median CPU time of this thread in a step, us; the monitor looks up groups after the first."""
    batch = torch.zeros(8, 128)
    times_ns = []
    for _ in range(STEPS + 1):
        begun_ns = time.thread_time_ns()
        with nullcontext() if monitor is None else monitor.step():
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        times_ns.append(time.thread_time_ns() - begun_ns)
    return statistics.median(times_ns[1:]) / 1e3


def measure(how: str) -> tuple[float, float, float]:
    """Return medians over blocks, us: a step without, what it takes more with, how far two without are apart."""
    model = make_model(how)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run_steps(model, optimizer, None)
    plain, extra, noise = [], [], []
    for _ in range(ROUNDS):
        before = run_steps(model, optimizer, None)
        with dtbench.monitor(lambda _: None) as monitor:
            watched = run_steps(model, optimizer, monitor)
        after = run_steps(model, optimizer, None)
        plain.append((before + after) / 2)
        extra.append(watched - plain[-1])
        noise.append(abs(after - before))
    return statistics.median(plain), statistics.median(extra), statistics.median(noise)


def tell(how: str, ranks: str, measured: tuple[float, float, float]) -> None:
    """Print what was measured."""
    plain_us, extra_us, noise_us = measured
    print(
        f"{how}, {ranks}: {extra_us:.0f} us a step (limit {LIMIT_US}), beside {plain_us:.0f} us without; "
        f"blocks without differ by {noise_us:.0f} us",
        flush=True,
    )


def measure_alone() -> None:
    """Measure in one process: rank 0 of two over torch's fake group."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    with mock.patch("dtbench.live.monitor._find_ranks", return_value=None):  # no gloo here to exchange rows over
        tell("fsdp2", "fake group", measure("fsdp2"))
    dist.destroy_process_group()


def measure_ranks() -> None:
    """Measure on one of the gloo ranks that torchrun started."""
    dist.init_process_group("gloo")
    for how in ("ddp", "fsdp2"):
        tell(how, f"rank {dist.get_rank()} of {dist.get_world_size()}", measure(how))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--rank" in sys.argv:
        measure_ranks()
    elif len(sys.argv) > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", sys.argv[1]]
        sys.exit(subprocess.run([*launcher, "-m", "tests.benchmarks.monitor_cost", "--rank"], check=False).returncode)
    else:
        measure_alone()

"""The same loop twice, for tests: over plain gloo with torch's profiler alone, then over dtbench's under ``capture``.

``torchrun --nproc-per-node 2 named_and_plain.py RESULTS``: experts on the group over which DDP sums gradients, and a
loss that is summed for a log. Traces are in ``RESULTS/plain``, and in a run ``RESULTS/named``.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

import dtbench
from tests.foreign.along_axes import TOKENS, MoE
from tests.foreign.job import WIDTH

RESULTS = Path(sys.argv[1])
STEPS = 8 + 4 + 1 + 2


def sum_losses(loss: torch.Tensor, group: Any) -> float:
    total = loss.detach().clone()
    dist.all_reduce(total, group=group)
    return float(total)


def make_steps(group: Any) -> Iterator[Callable[[], float]]:
    """Yield as many steps as a capture takes, each to be called."""
    torch.manual_seed(dist.get_rank())
    blocks = nn.Sequential(*(MoE(group, None) for _ in range(2)))
    experts = [name for name, _ in blocks.named_parameters() if "experts" in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(blocks, experts)
    model = DistributedDataParallel(blocks, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> float:
        loss = model(torch.randn(TOKENS, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return sum_losses(loss, group)

    yield from [train] * STEPS


torch.set_num_threads(1)
dist.init_process_group(dtbench.named_gloo())
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=STEPS - 3, warmup=1, active=2),
    record_shapes=True,
    experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
    on_trace_ready=dtbench.trace_handler(RESULTS / "plain"),
) as profiler:
    losses = []
    for train in make_steps(dist.new_group(backend="gloo")):
        losses.append(train())
        profiler.step()
with dtbench.capture(RESULTS / "named", name="named", max_warmup_steps=8, measured_steps=4, profiled_steps=2) as step:
    for number, train in enumerate(make_steps(dist.group.WORLD)):
        with step():
            assert train() == losses[number]
dist.destroy_process_group()

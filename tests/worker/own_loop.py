"""A training loop that knows nothing of scenarios: DDP on random tokens, started by torchrun or alone.

``torchrun --nproc-per-node 2 own_loop.py RESULTS HOW [STEPS]`` with HOW: ``named``, ``plain``, ``fsdp``, ``raise``
(rank 1, in step 10) or ``disagree`` (ranks that do not talk, and rank 1 alone ends after STEPS). Where DDP trains, it
does so twice: first over gloo, with nobody measuring; its losses have to be the same, bit by bit. Where FSDP does, it
also sums losses and counts rows over ranks, as for a log.
"""

import itertools
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

import dtbench

RESULTS, HOW = sys.argv[1:3]
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 200


def load() -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
    steps = 200 if HOW == "disagree" and os.environ["RANK"] == "0" else STEPS
    for _ in range(steps):
        yield torch.randn(16, 128, generator=generator)


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.GELU())))


def sum_losses(loss: torch.Tensor) -> torch.Tensor:
    total = loss.detach().clone()
    dist.all_reduce(total)
    with record_function("count rows"):
        dist.all_reduce(torch.full((2,), 16.0))
    return total


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, number: int = 0) -> float:
    loss = model(batch).square().mean()
    loss.backward()
    if HOW == "raise" and number == 10 and dist.get_rank() == 1 and losses == plain[:10]:
        raise RuntimeError("planted: the data loader lost its file")
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float((sum_losses(loss) if HOW == "fsdp" else loss).item())


def wrap(group: dist.ProcessGroup | None = None) -> DistributedDataParallel:
    return DistributedDataParallel(make_model(), bucket_cap_mb=0.1, process_group=group)


def train_unmeasured() -> list[float]:
    group = dist.new_group(backend="gloo")
    model = wrap(group)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = [train(model, optimizer, batch) for batch in itertools.islice(load(), 8 + 4 + 1 + 2)]
    del model
    dist.destroy_process_group(group)
    return losses


torch.set_num_threads(1)
is_alone = "RANK" not in os.environ
plain: list[float] = []
losses: list[float] = []
model: nn.Module = make_model()
if not is_alone:
    dist.init_process_group("gloo" if HOW == "plain" else dtbench.named_gloo())
    if HOW == "fsdp":
        model = fully_shard(model)
    elif HOW != "disagree":
        plain = train_unmeasured()
        model = wrap()
optimizer = torch.optim.AdamW(model.parameters())

with dtbench.capture(RESULTS, tokens_per_step=32, measured_steps=4, profiled_steps=2, max_warmup_steps=8) as step:
    for number, batch in enumerate(load()):
        with step():
            losses.append(train(model, optimizer, batch, number))
        if step.is_done:
            break

assert not plain or losses == plain, f"being measured changed what was trained: {losses} for {plain}"
if not is_alone:
    dist.destroy_process_group()

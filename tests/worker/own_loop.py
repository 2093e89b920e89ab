"""A training loop that knows nothing of scenarios: DDP on random tokens, started by torchrun or alone.

``torchrun --nproc-per-node 2 own_loop.py RESULTS HOW [STEPS]`` with HOW: ``named``, ``plain``, ``fsdp``, ``raise``
(rank 1, in step 10) or ``disagree`` (ranks that do not talk, and rank 1 alone ends after STEPS).
"""

import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dtbench

RESULTS, HOW = sys.argv[1:3]
STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 200


def load() -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
    steps = 200 if HOW == "disagree" and os.environ["RANK"] == "0" else STEPS
    for _ in range(steps):
        yield torch.randn(16, 128, generator=generator)


torch.manual_seed(0)
torch.set_num_threads(1)
model: nn.Module = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.GELU())))
is_alone = "RANK" not in os.environ
if not is_alone:
    dist.init_process_group("gloo" if HOW == "plain" else dtbench.named_gloo())
    if HOW == "fsdp":
        model = fully_shard(model)
    elif HOW != "disagree":
        model = DistributedDataParallel(model, bucket_cap_mb=0.1)
optimizer = torch.optim.AdamW(model.parameters())

with dtbench.capture(RESULTS, tokens_per_step=32, measured_steps=4, profiled_steps=2, max_warmup_steps=8) as step:
    for number, batch in enumerate(load()):
        with step():
            model(batch).square().mean().backward()
            if HOW == "raise" and number == 10 and dist.get_rank() == 1:
                raise RuntimeError("planted: the data loader lost its file")
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if step.is_done:
            break

if not is_alone:
    dist.destroy_process_group()

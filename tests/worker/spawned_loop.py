"""A training loop of two ranks that ``torch.multiprocessing.spawn`` starts: ``python spawned_loop.py RESULTS``.

Nothing in the environment says who is a rank here, and how many there are on this machine.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import dtbench


def train(rank: int, results: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(results).parent / "store"), 2)
    dist.init_process_group(dtbench.named_gloo(), store=store, rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Linear(512, 512))
    with dtbench.capture(results, measured_steps=4, profiled_steps=2, max_warmup_steps=8) as step:
        while not step.is_done:
            with step():
                model(torch.ones(512, 512)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(train, args=sys.argv[1:], nprocs=2)

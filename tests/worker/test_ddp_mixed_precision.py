"""torch's DDP in mixed precision: its first backward reduces a buffer that nobody wrote to, later ones do not.

A test of torch, not of dtbench, which tells so where a run's gradients are wrong (``cell_notes``): when it fails, torch
has mended it, and the note's versions end.
"""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

PROGRAM = """
import copy, json, tempfile
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

class Stream:  # the CPU has none, and its work is done when a call returns
    __enter__ = lambda self: self
    __exit__ = lambda self, *error: None
    wait_stream = lambda self, other: None

class Event:
    record = lambda self: None
    wait = lambda self, stream: None

torch.Stream, torch.Event, torch.accelerator.current_stream = Stream, Event, Stream
with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
    torch.manual_seed(0)
    plain = torch.nn.Linear(16, 16)
    policy = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    mixed = DistributedDataParallel(copy.deepcopy(plain), mixed_precision=policy)
    errors = []
    for _ in range(3):
        batch = torch.randn(8, 16)
        for model in (plain, mixed):
            model.zero_grad()
        plain(batch).square().mean().backward()
        mixed(batch.bfloat16()).float().square().mean().backward()
        distance = (mixed.module.weight.grad - plain.weight.grad).norm() / plain.weight.grad.norm()
        errors.append(float(distance))
    dist.destroy_process_group()
print(json.dumps(errors))
"""


def test_the_first_backward_is_wrong_and_later_ones_are_right() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    first, *later = json.loads(ended.stdout)
    assert not first < 0.05
    assert max(later) < 0.05

"""The parameters that each DDP bucket carries, as read back, against what torch's reducer itself says."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dtbench.worker.parallelize.buckets import keep_assignment, read_buckets


@pytest.fixture
def alone() -> Iterator[None]:
    """Be a group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("knobs", [{}, {"static_graph": True}, {"find_unused_parameters": True}])
@pytest.mark.usefixtures("alone")
def test_buckets_read_back_are_the_reducers_own(knobs: dict[str, Any]) -> None:
    module = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))
    fqns = {id(parameter): name for name, parameter in module.named_parameters()}
    with keep_assignment() as assigned:
        model = DistributedDataParallel(module, bucket_cap_mb=0.0005, **knobs)
    for _ in range(4):
        model(torch.ones(2, 8)).sum().backward()
    own = [[fqns[id(one)] for one in bucket.parameters()] for bucket in model.reducer._get_zeros_like_grad_buckets()]
    assert [list(one.parameters) for one in read_buckets(model, assigned, fqns)] == own
    assert [one.owner for one in read_buckets(model, assigned, fqns)] == [f"bucket {i}" for i in range(len(own))]
    assert {one.size_bytes for one in read_buckets(model, assigned, fqns)} == {
        sum(parameter.nbytes for parameter in bucket.parameters())
        for bucket in model.reducer._get_zeros_like_grad_buckets()
    }

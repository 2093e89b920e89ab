"""Communication hooks of a person's own, as a scenario names them."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter


def average(state: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce the mean."""
    buffer = bucket.buffer().div_(state.size())
    return dist.all_reduce(buffer, group=state, async_op=True).get_future().then(lambda done: done.value()[0])


def forget(state: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce a sum where a mean is wanted."""
    sent = dist.all_reduce(bucket.buffer(), group=state, async_op=True)
    return sent.get_future().then(lambda done: done.value()[0])


class Gather(AllGather):
    """FSDP2's all-gather from lists: one tensor for each rank."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        return dist.all_gather(list(output_tensor.chunk(group.size())), input_tensor, group, async_op=async_op)


class Reduce(ReduceScatter):
    """FSDP2's reduce-scatter by an all-reduce, of which each rank keeps its part."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        done = dist.all_reduce(input_tensor, group=group, async_op=async_op)
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()]).div_(group.size())
        return done


def halve(reduced: torch.Tensor) -> None:
    """Take half of the reduced gradients."""
    reduced.div_(2)


def look(reduced: torch.Tensor) -> None:
    """Leave the reduced gradients as they are."""
    assert torch.isfinite(reduced).all()

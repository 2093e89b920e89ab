"""Communication hooks of a person's own, as a scenario names them."""

import torch
import torch.distributed as dist


def average(state: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce the mean."""
    buffer = bucket.buffer().div_(state.size())
    return dist.all_reduce(buffer, group=state, async_op=True).get_future().then(lambda done: done.value()[0])


def forget(state: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce a sum where a mean is wanted."""
    sent = dist.all_reduce(bucket.buffer(), group=state, async_op=True)
    return sent.get_future().then(lambda done: done.value()[0])

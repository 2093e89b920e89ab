"""A ``Work`` of ours for a collective of which nothing is left to do on the host.

On a device it is done when everything is that had been enqueued on the current stream when it was made: whoever waits
for it lets the stream wait that is current then, and the host goes on (torch's ``Future`` records and waits for the
events). It is a real ``Work``, since FSDP2 waits for nothing else.
"""

from collections.abc import Sequence
from typing import Any

import torch


class Outputs(list[torch.Tensor]):
    """What a future of a collective gives: its outputs.

    Attributes:
        kept: lives as long as this does: what a backend may still read when the caller has dropped it.
    """

    kept: object = None

    def __reduce__(self) -> tuple[type[list[Any]], tuple[tuple[torch.Tensor, ...]]]:
        """Torch finds tensors in a future's value by pickling it: the outputs, not what is kept."""
        return list, (tuple(self),)


def make_finished_work(outputs: Sequence[torch.Tensor], kept: object = None) -> Any:
    """Return a ``Work`` that is done when the current streams of its outputs' devices have come here.

    Args:
        outputs: what its future gives; one at least where a stream is to be waited for.
        kept: lives until nobody holds the work any more.
    """
    devices = sorted({tensor.device for tensor in outputs if tensor.is_cuda}, key=str)
    done: Any = torch.futures.Future(devices=devices)
    value = Outputs(outputs)
    value.kept = kept
    done.set_result(value)
    return torch._C._distributed_c10d._create_work_from_future(done)

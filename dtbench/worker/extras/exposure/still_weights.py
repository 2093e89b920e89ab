"""Optimizers that do all their work and change no weight."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from dtbench.worker.loop.train import TrainStep


@contextmanager
def hold_weights(step: TrainStep) -> Iterator[None]:
    """Train with a learning rate of 0, inside DDP's backward too, and put the rates back.

    SGD and AdamW scale momentum, weight decay and update by it. Their own state goes on changing.
    """
    rates = [group["lr"] for group in _read_groups(step)]
    for group in _read_groups(step):
        group["lr"] = 0.0
    try:
        yield
    finally:
        for group, rate in zip(_read_groups(step), rates, strict=True):  # other groups, if a state was loaded meanwhile
            group["lr"] = rate


def _read_groups(step: TrainStep) -> list[dict[str, Any]]:
    return step.optimizer.param_groups if step.optimizer is not None else [step.parallel.inner_optimizer.defaults]


def sum_weights(parameters: Iterable[nn.Parameter]) -> tuple[str, ...]:
    """Give a sum over this rank's part of each parameter, as text, so that NaN equals itself."""
    return tuple(repr(float(local_part(parameter).sum(dtype=torch.float64))) for parameter in parameters)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Give this rank's part of a parameter or buffer, in its own memory."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

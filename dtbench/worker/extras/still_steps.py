"""Steps that leave nothing behind: optimizers that change no weight, and all that a step changes put back.

A step that is repeated must repeat itself, and what comes after an extra's steps must not be of them.
"""

import copy
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
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
    """Return a sum over this rank's part of each parameter, as text, so that NaN equals itself."""
    return tuple(repr(float(_local_part(parameter).sum(dtype=torch.float64))) for parameter in parameters)


class StillState:
    """Weights, buffers, random numbers and what PowerSGD remembers, as they were when this was made.

    The optimizer's state is not kept: with a learning rate of 0 it decides nothing that a step shows.
    """

    def __init__(self, step: TrainStep) -> None:
        model = step.parallel.model
        self._tensors: list[Tensor] = [*step.parallel.parameters, *model.buffers()]
        self._values = [_local_part(tensor).clone() for tensor in self._tensors]
        self._hooks = list(_find_hook_states(model))
        self._hook_values = [_read_slots(state) for state in self._hooks]
        self._random = (torch.get_rng_state(), random.getstate())

    def restore(self) -> None:
        """Put all of it back."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors, self._values, strict=True):
                _local_part(tensor).copy_(value)
        for state, values in zip(self._hooks, self._hook_values, strict=True):
            for name, value in _copy_values(values).items():
                setattr(state, name, value)
        torch.set_rng_state(self._random[0])
        random.setstate(self._random[1])


def _local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a parameter or buffer, in its own memory."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _find_hook_states(model: Any) -> Iterator[PowerSGDState]:
    """Yield what DDP's hooks remember from step to step."""
    for _, state in getattr(model, "_comm_hooks", ()):
        if isinstance(state, PowerSGDState):
            yield state


def _read_slots(state: PowerSGDState) -> dict[str, Any]:
    return _copy_values({name: getattr(state, name) for name in state.__slots__ if name != "process_group"})


def _copy_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in values.items()}

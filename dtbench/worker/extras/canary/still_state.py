"""All that a step changes and a later one computes with, put back: a step that is repeated must repeat itself."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from dtbench.worker.extras.exposure.still_weights import local_part
from dtbench.worker.loop.train import TrainStep


class StillState:
    """Weights, buffers, random numbers and what PowerSGD remembers, as they were when this was made.

    The optimizer's state is not kept: with a learning rate of 0 it decides nothing that a step shows.
    """

    def __init__(self, step: TrainStep) -> None:
        model = step.parallel.model
        self._tensors: list[Tensor] = [*step.parallel.parameters, *model.buffers()]
        self._values = [local_part(tensor).clone() for tensor in self._tensors]
        self._hooks = list(_find_hook_states(model))
        self._hook_values = [_read_slots(state) for state in self._hooks]
        self._random = (torch.get_rng_state(), random.getstate())

    def restore(self) -> None:
        """Put all of it back."""
        with torch.no_grad():
            for tensor, value in zip(self._tensors, self._values, strict=True):
                local_part(tensor).copy_(value)
        for state, values in zip(self._hooks, self._hook_values, strict=True):
            for name, value in _copy_values(values).items():
                setattr(state, name, value)
        torch.set_rng_state(self._random[0])
        random.setstate(self._random[1])


def _find_hook_states(model: Any) -> Iterator[PowerSGDState]:
    """Give what DDP's hooks remember from step to step."""
    for _, state in getattr(model, "_comm_hooks", ()):
        if isinstance(state, PowerSGDState):
            yield state


def _read_slots(state: PowerSGDState) -> dict[str, Any]:
    return _copy_values({name: getattr(state, name) for name in state.__slots__ if name != "process_group"})


def _copy_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in values.items()}

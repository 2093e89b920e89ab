"""The global batch of each step, the same whatever the number of ranks, and each rank's rows of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dtbench.scenario.schema import Scenario


@dataclass(frozen=True)
class Batch:
    """Tokens and the tokens that follow them, both (rows, tokens), int64."""

    inputs: Tensor
    targets: Tensor

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.inputs.device.type

    def split(self, parts: int) -> tuple["Batch", ...]:
        """Cut into micro-batches of equal rows, as views."""
        if parts == 1:
            return (self,)
        pairs = zip(self.inputs.chunk(parts), self.targets.chunk(parts), strict=True)
        return tuple(Batch(inputs, targets) for inputs, targets in pairs)


class Batches:
    """Random tokens by step number; kept on the device ahead of the steps, so that loading is never timed."""

    def __init__(self, scenario: Scenario, device: torch.device, *, rows: slice) -> None:
        self._scenario = scenario
        self._device = device
        self._rows = rows

    def make(self, step: int) -> Batch:
        """Draw the global batch of a step and give this rank's rows; the same step always gives the same rows."""
        data = self._scenario.data
        generator = torch.Generator().manual_seed(self._scenario.seed * 1_000_003 + step)
        shape = (data.global_batch, data.sequence_length + 1)
        tokens = torch.randint(self._scenario.model.vocab_size, shape, generator=generator)[self._rows].to(self._device)
        return Batch(inputs=tokens[:, :-1].contiguous(), targets=tokens[:, 1:].contiguous())

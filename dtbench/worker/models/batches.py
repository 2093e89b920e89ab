"""The global batch of each step, the same whatever the number of ranks, and each rank's rows of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dtbench.scenario.schema.scenario import Scenario


@dataclass(frozen=True)
class Batch:
    """Nested tensors with rows on dim 0, as the model's ``make_batch`` gave them."""

    content: Any

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return find_tensors(self.content)[0].device.type

    def split(self, parts: int) -> tuple["Batch", ...]:
        """Cut into micro-batches of equal rows, as views."""
        if parts == 1:
            return (self,)
        rows = len(find_tensors(self.content)[0]) // parts
        return tuple(Batch(take_rows(self.content, slice(i * rows, (i + 1) * rows))) for i in range(parts))


class Batches:
    """Random batches by step number; kept on the device ahead of the steps, so that loading is never timed."""

    def __init__(
        self,
        scenario: Scenario,
        make_batch: Callable[[torch.Generator, int], Any],
        device: torch.device,
        *,
        rows: slice,
    ) -> None:
        self._scenario = scenario
        self._make_batch = make_batch
        self._device = device
        self._rows = rows

    def make(self, step: int) -> Batch:
        """Draw the global batch of a step and give this rank's rows; the same step always gives the same rows."""
        generator = torch.Generator().manual_seed(self._scenario.seed * 1_000_003 + step)
        content = take_rows(self._make_batch(generator, self._scenario.data.global_batch), self._rows)
        return Batch(pytree.tree_map_only(Tensor, lambda tensor: tensor.to(self._device).contiguous(), content))


def find_tensors(content: Any) -> list[Tensor]:
    """Return the tensors of a nested value in order."""
    return [leaf for leaf in pytree.tree_leaves(content) if isinstance(leaf, Tensor)]


def take_rows(content: Any, rows: slice) -> Any:
    """Return some rows of every tensor of a nested value, as views."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor[rows], content)

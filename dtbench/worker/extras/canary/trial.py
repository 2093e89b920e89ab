"""One step of the canary: how it ended, and how far that is from how another one ended."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from dtbench.worker.loop.correctness import relative_difference, relative_distance
from dtbench.worker.network.deferred import CollectiveKey


@dataclass(frozen=True)
class Trial:
    """How a step ended on this rank.

    Attributes:
        gradients: of each parameter this rank's part after backward, then after clipping, then the total norm.
        seen: collectives that were deferred, in order of issue.
        forgotten: those of them that nobody had waited for when the step was over.
    """

    loss: float
    gradients: tuple[Tensor | None, ...]
    duration_ns: int
    seen: tuple[CollectiveKey, ...] = ()
    forgotten: frozenset[CollectiveKey] = frozenset()

    @property
    def is_finite(self) -> bool:
        """Whether every number of it is one."""
        found = (gradient for gradient in self.gradients if gradient is not None)
        return math.isfinite(self.loss) and all(bool(gradient.isfinite().all()) for gradient in found)


@dataclass(frozen=True)
class Difference:
    """The largest relative difference of two steps: of the loss, and of a gradient (2-norm); infinite where NaN is."""

    loss: float
    gradient: float
    is_equal: bool

    def is_within(self, tolerances: tuple[float, float]) -> bool:
        """Whether loss and gradients are as equal as they must be."""
        return self.loss <= tolerances[0] and self.gradient <= tolerances[1]


def compare_trials(found: Trial, expected: Trial) -> Difference:
    """Compare a step with one that has only finite numbers."""
    pairs = list(zip(found.gradients, expected.gradients, strict=True))
    return Difference(
        loss=_worst([relative_difference(found.loss, expected.loss)]),
        gradient=_worst([_compare_gradients(one, other) for one, other in pairs]),
        is_equal=found.loss == expected.loss and all(_equal(one, other) for one, other in pairs),
    )


def worst_of(differences: Iterable[Difference]) -> Difference:
    """Return the worst of everything."""
    differences = tuple(differences)
    return Difference(
        loss=_worst([one.loss for one in differences]),
        gradient=_worst([one.gradient for one in differences]),
        is_equal=all(one.is_equal for one in differences),
    )


def read_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[Tensor | None]:
    """Copy this rank's part of each gradient, as who computes with it would find it."""
    for parameter in parameters:
        yield None if parameter.grad is None else read_part(parameter.grad)


def read_part(tensor: Tensor) -> Tensor:
    """Copy this rank's part of a tensor; where it is on its way, an honest reader waits."""
    part = tensor.detach()
    part = part.to_local() if isinstance(part, DTensor) else part
    return part.to_dense() if part.layout is not torch.strided else part.clone()


def _compare_gradients(found: Tensor | None, expected: Tensor | None) -> float:
    if found is None or expected is None:
        return 0.0 if found is expected else math.inf
    return relative_distance(found.float(), expected.float())


def _equal(found: Tensor | None, expected: Tensor | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return torch.equal(found, expected)


def _worst(values: Iterable[float]) -> float:
    return max((math.inf if math.isnan(value) else value for value in values), default=0.0)

"""Correct beside fast: the first steps against one process that sees the whole batch.

Losses of steps 2 to 5 and the gradients of step 1, before clipping; the reference runs in float32. Each data-parallel
rank sees its own rows, so a lost all-reduce shows; the weights are updated in between, so a lost all-gather shows too.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from dtbench.scenario.schema.scenario import Correctness, Ddp, PlainAllReduce, Scenario
from dtbench.store.records.rank import CorrectnessResult
from dtbench.store.write import half_written, replace_file

CHECKED_STEPS = 5
NORM = "(total norm that clips)"
NORM_TOLERANCE = 1e-2
"""Largest honest relative difference of the total norm: FSDP1 takes it over whole flat parameters, which torch sums in
float32 on CPU (seen: 5.6e-5 over 3 M elements, 2.7e-3 over 38 M); one that lacks a mesh axis is off by a tenth or more.
"""


@dataclass
class GradientProbe:
    """Collects whole gradients by FQN; ``keep`` False takes part in the gathering and keeps nothing."""

    gather: Callable[[], Iterator[tuple[str, Tensor]]]
    keep: bool
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def collect(self) -> None:
        """Gather every gradient (collective), to host memory in float32."""
        for name, gradient in self.gather():
            if self.keep:
                whole = gradient.to_dense() if gradient.is_sparse else gradient
                self.gradients[name] = whole.detach().to("cpu", torch.float32, copy=True)

    def note_norm(self, norm: Tensor | None) -> None:
        """Keep the total norm that clipping found, as if it were a gradient of its own (collective for a DTensor).

        Adam hardly sees the scale of gradients: a norm that lacks a mesh axis would not show in the losses.
        """
        if norm is not None:
            whole = norm.full_tensor() if isinstance(norm, DTensor) else norm
            if self.keep:
                self.gradients[NORM] = whole.detach().to("cpu", torch.float32, copy=True)


def write_reference(path: Path, losses: list[float], gradients: dict[str, Tensor]) -> None:
    """Keep what the single process saw.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """

    def save(temporary: Path) -> None:
        try:
            torch.save({"losses": losses, "gradients": gradients}, temporary)
        except RuntimeError as error:  # as torch's own writer of files says that one of its writes failed
            raise half_written("torch") from error

    replace_file(path, save)


def mean_over_ranks(losses: list[Tensor], device: torch.device) -> list[float]:
    """Return the mean loss of each step (collective); tensor-parallel peers share a loss, so ranks weigh alike."""
    total = torch.stack([loss.to(device, torch.float64) for loss in losses])
    dist.all_reduce(total)
    return [float(value) / dist.get_world_size() for value in total]


def compare_with_reference(
    path: Path, losses: list[float], gradients: dict[str, Tensor], scenario: Scenario
) -> CorrectnessResult:
    """Compare on the rank that kept the gradients; NaN anywhere is a failure, never a pass."""
    reference: dict[str, Any] = torch.load(path, weights_only=True)
    loss_tolerance, gradient_tolerance = find_tolerances(scenario)
    loss_errors = [relative_difference(a, b) for a, b in zip(losses[1:], reference["losses"][1:], strict=True)]
    loss_error = math.nan if any(math.isnan(error) for error in loss_errors) else max(loss_errors)
    errors = {
        name: relative_distance(gradients.get(name), expected) for name, expected in reference["gradients"].items()
    }
    if errors.get(NORM, math.inf) <= NORM_TOLERANCE:
        del errors[NORM]
    worst = max(errors, key=lambda name: math.inf if math.isnan(errors[name]) else errors[name])
    return CorrectnessResult(
        passed=loss_error <= loss_tolerance and errors[worst] <= gradient_tolerance,
        loss_error=loss_error,
        loss_tolerance=loss_tolerance,
        gradient_error=errors[worst],
        gradient_tolerance=gradient_tolerance,
        worst_parameter=worst,
    )


def find_tolerances(scenario: Scenario) -> tuple[float, float]:
    """Return the bounds of losses and gradients: 1e-5 in float32; below, what rounding to 8 bits allows."""
    settings: Correctness = scenario.correctness
    loss, gradient = (1e-5, 1e-5) if is_exact(scenario) else (2e-2, 5e-2)
    return settings.loss_tolerance or loss, settings.gradient_tolerance or gradient


def is_exact(scenario: Scenario) -> bool:
    """Tell whether everything is computed and sent in float32, uncompressed."""
    parallel = scenario.parallel
    policy = parallel.mixed_precision
    dtypes = [scenario.precision.dtype, scenario.precision.autocast, policy.param_dtype, policy.reduce_dtype]
    compresses = isinstance(parallel, Ddp) and not isinstance(parallel.comm_hook, (PlainAllReduce, type(None)))
    return not compresses and all(dtype in (None, "float32") for dtype in dtypes)


def relative_difference(value: float, expected: float) -> float:
    """Return how far two losses are apart; NaN where one is."""
    return abs(value - expected) / max(abs(expected), 1e-30)


def relative_distance(gradient: Tensor | None, expected: Tensor) -> float:
    """Return the difference's 2-norm over the expected's; NaN when there is no gradient or another shape."""
    if gradient is None or gradient.shape != expected.shape:
        return math.nan
    return float(torch.linalg.vector_norm(gradient - expected) / torch.linalg.vector_norm(expected).clamp_min(1e-30))

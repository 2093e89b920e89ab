"""One training step: forward, backward, clip, update; each region said to the recorder, nothing synchronised."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's usual name
from torch import Tensor, nn
from torch.profiler import record_function

from dtbench.ranges import region_range
from dtbench.scenario.schema import AdamW, Optimizer, Scenario, Sgd
from dtbench.store.records import Receipt
from dtbench.vocabulary import Region
from dtbench.worker.batches import Batch
from dtbench.worker.receipts import compare
from dtbench.worker.recorder import Recorder


@dataclass(slots=True)
class Observed:
    """What a step really did, kept for the receipts: references only, nothing is read while steps run."""

    logits_dtype: torch.dtype | None = None
    gradient_norm: Tensor | None = None


@dataclass(frozen=True)
class TrainStep:
    """Everything that one step needs; ``run`` is what is timed."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    recorder: Recorder
    autocast: torch.dtype | None
    clip_norm: float | None
    observed: Observed

    def run(self, batch: Batch, after_backward: Callable[[], None] | None = None) -> Tensor:
        """Train on one batch and give the detached loss, unread: reading it would wait for the device.

        Args:
            batch: this rank's rows.
            after_backward: called with whole gradients in place, before clipping; only the correctness check uses it.
        """
        with self._region(Region.FORWARD):
            with self._autocast(batch.inputs.device.type):
                logits = self.model(batch.inputs)
            self.observed.logits_dtype = logits.dtype
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.targets.flatten())
        with self._region(Region.BACKWARD):
            loss.backward()
        if after_backward is not None:
            self.recorder.enter(None)
            after_backward()
        with self._region(Region.OPTIMIZER):
            if self.clip_norm is not None:
                self.observed.gradient_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.recorder.enter(None)
        return loss.detach()

    def _region(self, region: Region) -> AbstractContextManager[Any]:
        self.recorder.enter(region)
        return record_function(region_range(region)) if self.recorder.is_naming else nullcontext()

    def _autocast(self, device_type: str) -> AbstractContextManager[Any]:
        return nullcontext() if self.autocast is None else torch.autocast(device_type, dtype=self.autocast)


def make_optimizer(settings: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer over the parameters as the strategy left them."""
    kind: type[torch.optim.Optimizer]
    match settings:
        case AdamW():
            kind = torch.optim.AdamW
        case Sgd():
            kind = torch.optim.SGD
    return kind(model.parameters(), **settings.model_dump(exclude={"kind"}))


def read_training_receipts(step: TrainStep, scenario: Scenario) -> tuple[Receipt, ...]:
    """Read optimizer, dtype, autocast and clipping back from the live objects and from what the last step did."""
    group = step.optimizer.param_groups[0]
    optimizer = scenario.optimizer
    names = [name for name in type(optimizer).model_fields if name != "kind"]
    dtypes = sorted({_name(parameter.dtype) for parameter in step.model.parameters()})
    clipped = scenario.gradient_clip_norm if step.observed.gradient_norm is not None else None
    return (
        compare("optimizer.kind", optimizer.kind, type(step.optimizer).__name__.lower()),
        *(compare(f"optimizer.{name}", getattr(optimizer, name), group.get(name)) for name in names),
        compare("precision.dtype", scenario.precision.dtype, ", ".join(dtypes)),
        _autocast_receipt(step, scenario),
        compare("gradient_clip_norm", scenario.gradient_clip_norm, clipped),
    )


def _autocast_receipt(step: TrainStep, scenario: Scenario) -> Receipt:
    """Compare with the dtype of the logits: autocast shows in what the head put out."""
    logits = None if step.observed.logits_dtype is None else _name(step.observed.logits_dtype)
    asked = scenario.precision.autocast
    if asked is None:
        return compare("precision.autocast", None, "autocast is on" if torch.is_autocast_enabled("cpu") else None)
    return compare("precision.autocast", asked, logits, note="dtype of the logits")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

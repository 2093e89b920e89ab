"""One training step: forward, backward, clip, update; each region said to the recorder, nothing synchronised."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.profiler import record_function

from dtbench.base.ranges import CLIPPING_RANGE, region_range
from dtbench.base.vocabulary import Region
from dtbench.scenario.schema.scenario import Optimizer, Scenario
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.dtypes import dtype_name
from dtbench.worker.models.batches import Batch, find_tensors
from dtbench.worker.models.built import BuiltModel
from dtbench.worker.parallelize.parallelized import Parallelized, Sync
from dtbench.worker.receipts import compare, without_effect
from dtbench.worker.recording.recorder import Recorder


@dataclass(slots=True)
class Observed:
    """What a step really did, kept for the receipts: references only, nothing is read while steps run."""

    output_dtype: torch.dtype | None = None
    output_placements: tuple[object, ...] = ()
    gradient_norm: Tensor | None = None
    syncs: list[Sync] = field(default_factory=list)

    def note_output(self, output: Any) -> None:
        """Keep dtype and placements of a model's output, the first tensor in it that is no single number."""
        output = next((tensor for tensor in find_tensors(output) if tensor.dim()), None)
        if output is not None:
            self.output_dtype = output.dtype
            self.output_placements = tuple(output.placements) if isinstance(output, DTensor) else ()


@dataclass(frozen=True)
class TrainStep:
    """Everything that one step needs; ``run`` is what is timed.

    Attributes:
        optimizer: None when DDP updates the parameters inside backward.
        micro_batches: parts of a rank's rows, one forward and backward each, one update for all.
        run_backward: how backward is run from a loss.
    """

    parallel: Parallelized
    built: BuiltModel
    optimizer: torch.optim.Optimizer | None
    recorder: Recorder
    autocast: torch.dtype | None
    clip_norm: float | None
    micro_batches: int
    observed: Observed
    run_backward: Callable[[Tensor], Any] = Tensor.backward

    def run(self, batch: Batch, after_backward: Callable[[], None] | None = None) -> Tensor:
        """Train on one batch and give the detached loss, unread: reading it would wait for the device.

        Args:
            batch: this rank's rows.
            after_backward: called with whole gradients in place, before clipping; only the correctness check uses it.
        """
        self.observed.syncs.clear()
        losses = [
            self._accumulate(part, is_last=number == self.micro_batches - 1)
            for number, part in enumerate(batch.split(self.micro_batches))
        ]
        if after_backward is not None:
            self.recorder.enter(None)
            after_backward()
        with self._region(Region.OPTIMIZER):
            if self.clip_norm is not None:
                with record_function(CLIPPING_RANGE) if self.recorder.is_naming else nullcontext():
                    self.observed.gradient_norm = self.parallel.clip(self.clip_norm)
            if self.optimizer is not None:
                self.optimizer.step()
                self.parallel.after_update()
                self.optimizer.zero_grad()
            else:
                self.parallel.model.zero_grad()
        self.recorder.enter(None)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _accumulate(self, part: Batch, *, is_last: bool) -> Tensor:
        """Run forward and backward of one micro-batch; gives its share of the step's mean loss."""
        with self.parallel.accumulate(is_last), self.parallel.loss_context():
            with self._region(Region.FORWARD):
                with self._autocast(part.device_type):
                    output = self.built.compute_output(self.parallel.model, part.content)
                self.observed.note_output(output)
                loss = self.built.compute_loss(output, part.content)
                if self.micro_batches > 1:
                    loss = loss / self.micro_batches
                    self.observed.syncs.append(self.parallel.read_sync())
            with self._region(Region.BACKWARD):
                self.run_backward(loss)
                if is_last:
                    self.parallel.finish_backward()
        return loss.detach().to_local() if isinstance(loss, DTensor) else loss.detach()

    def _region(self, region: Region) -> AbstractContextManager[Any]:
        self.recorder.enter(region)
        return record_function(region_range(region)) if self.recorder.is_naming else nullcontext()

    def _autocast(self, device_type: str) -> AbstractContextManager[Any]:
        return nullcontext() if self.autocast is None else torch.autocast(device_type, dtype=self.autocast)


def read_training_receipts(step: TrainStep, scenario: Scenario) -> tuple[Receipt, ...]:
    """Read optimizer, dtype, autocast, clipping and accumulation back from the live objects and the last step."""
    dtypes = sorted({str(dtype_name(parameter.dtype)) for parameter in step.parallel.parameters})
    clipped = scenario.gradient_clip_norm if step.observed.gradient_norm is not None else None
    options = scenario.parallel
    is_cut = any(isinstance(placement, Shard) for placement in step.observed.output_placements)
    return (
        *_optimizer_receipts(step, scenario.optimizer),
        compare("precision.dtype", scenario.precision.dtype, ", ".join(dtypes)),
        _autocast_receipt(step, scenario),
        compare("gradient_clip_norm", scenario.gradient_clip_norm, clipped),
        compare("parallel.loss_parallel", options.loss_parallel, is_cut),
        *_accumulation_receipts(step, scenario),
        *(() if step.built.options is None else step.built.options.read_receipts()),
        *(() if step.built.known_cost is None else step.built.known_cost.read_receipts()),
    )


def _optimizer_receipts(step: TrainStep, asked: Optimizer) -> Iterator[Receipt]:
    """Compare with the live optimizer; inside DDP's backward it is torch's functional one."""
    names = [name for name in type(asked).model_fields if name != "kind"]
    if step.optimizer is None:
        inner = step.parallel.inner_optimizer
        kind = type(inner).__name__.lower().removeprefix("_functional")
        yield compare("optimizer.kind", asked.kind, kind, note="inside DDP's backward")
        for name in names:
            yield _functional_receipt(name, getattr(asked, name), inner)
        return
    group = step.optimizer.param_groups[0]
    yield compare("optimizer.kind", asked.kind, type(step.optimizer).__name__.lower())
    for name in names:
        got = group.get(name)  # torch makes a list of betas when it loads a whole optimizer state
        yield compare(f"optimizer.{name}", getattr(asked, name), tuple(got) if isinstance(got, list) else got)


def _functional_receipt(name: str, asked: object, inner: Any) -> Receipt:
    """Compare with a functional optimizer, which spells betas apart and decides nothing by device."""
    settings = inner.defaults
    if name == "betas":
        return compare("optimizer.betas", asked, (settings["beta1"], settings["beta2"]))
    got = settings.get(name, getattr(inner, name, None))
    expected = False if asked is None else None  # foreach, fused
    return compare(f"optimizer.{name}", asked, got, expected=expected)


def _accumulation_receipts(step: TrainStep, scenario: Scenario) -> Iterator[Receipt]:
    """Compare with the micro-batches that the last step ran, and what each let happen to its gradients."""
    asked, syncs = scenario.accumulation, step.observed.syncs
    yield compare("accumulation.micro_batches", asked.micro_batches, max(1, len(syncs)))
    if len(syncs) < 2:
        receipt = compare("accumulation.sync", asked.sync, "last")
        alone = receipt.model_copy(update={"got": asked.sync, "outcome": ReceiptOutcome.AGREES, "note": ""})
        yield receipt if asked.sync == "last" else without_effect(alone, "there is one micro-batch")
        return
    words = {Sync.HOLD: "last", Sync.REDUCE: "every", Sync.REDUCE_SCATTER: "reduce_scatter"}
    yield compare("accumulation.sync", asked.sync, words[syncs[0]] if syncs[-1] is Sync.REDUCE else "never")


def _autocast_receipt(step: TrainStep, scenario: Scenario) -> Receipt:
    """Compare with the dtype of the logits: autocast shows in what the head put out."""
    logits = dtype_name(step.observed.output_dtype)
    asked = scenario.precision.autocast
    if asked is None:
        return compare("precision.autocast", None, "autocast is on" if torch.is_autocast_enabled("cpu") else None)
    return compare("precision.autocast", asked, logits, note="dtype of the logits")

"""Measure what transformers' ``Trainer`` trains: ``Trainer(..., callbacks=[DtbenchCallback("results")])``.

On CPU call ``dist.init_process_group(dtbench.named_gloo())`` before ``TrainingArguments``, which then takes that group.
"""

from os import PathLike
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

import dtbench

if TYPE_CHECKING:
    from dtbench.worker.own_loop import OwnSteps


class DtbenchCallback(TrainerCallback):
    """One step is one update of the weights with all its accumulated batches; training is not cut short.

    Args:
        results: folder of all runs, which every rank must see.
        options: as those of ``dtbench.capture``.
    """

    def __init__(self, results: str | PathLike[str] = "results", **options: Any) -> None:
        self._results, self._options = results, options
        self.step: OwnSteps | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin to measure: every rank has its model."""
        self.step = dtbench.start(self._results, **self._options)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin a step: its batches were fetched."""
        if self.step is not None:
            self.step.begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End it, before logging, evaluation and saving."""
        if self.step is not None:
            self.step.end()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Say how the run ended."""
        if self.step is not None:
            self.step.stop()

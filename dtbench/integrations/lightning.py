"""Measure what Lightning's ``Trainer`` trains: ``Trainer(..., callbacks=[DtbenchCallback("results")])``.

On CPU ``DDPStrategy(process_group_backend=dtbench.named_gloo())`` lets dtbench name collectives.
"""

from os import PathLike
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

import dtbench

if TYPE_CHECKING:
    from dtbench.worker.own_loop import OwnSteps


class DtbenchCallback(Callback):
    """One step is one batch; batches that are accumulated take turns, and are measured together.

    Args:
        results: folder of all runs, which every rank must see.
        options: as those of ``dtbench.capture``.
    """

    def __init__(self, results: str | PathLike[str] = "results", **options: Any) -> None:
        self._results, self._options = results, options
        self.step: OwnSteps | None = None

    def on_train_start(self, *_: Any) -> None:
        """Begin to measure: every rank has its model."""
        self.step = dtbench.start(self._results, **self._options)

    def on_train_batch_start(self, *_: Any) -> None:
        """Begin a step: its batch was fetched."""
        if self.step is not None:
            self.step.begin()

    def on_train_batch_end(self, *_: Any) -> None:
        """End it."""
        if self.step is not None:
            self.step.end()

    def on_train_end(self, *_: Any) -> None:
        """Say how the run ended."""
        if self.step is not None:
            self.step.stop()

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Record what training raised."""
        if self.step is not None:
            self.step.stop(exception)

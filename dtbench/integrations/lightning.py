"""Measure what Lightning's ``Trainer`` trains: ``Trainer(..., callbacks=[DtbenchCallback("results")])``.

On CPU ``DDPStrategy(process_group_backend=dtbench.named_gloo())`` lets dtbench name collectives.
"""

from typing import Any

from lightning.pytorch import Callback

from dtbench.integrations.measured import Measured


class DtbenchCallback(Measured, Callback):
    """One step is one batch; batches that are accumulated take turns, and are measured together."""

    on_train_start = Measured.start
    on_train_batch_start = Measured.begin
    on_train_batch_end = Measured.end
    on_train_end = Measured.stop

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Record what training raised."""
        if self.step is not None:
            self.step.stop(exception)

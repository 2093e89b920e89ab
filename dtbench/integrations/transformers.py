"""Measure what transformers' ``Trainer`` trains: ``Trainer(..., callbacks=[DtbenchCallback("results")])``.

On CPU call ``dist.init_process_group(dtbench.named_gloo())`` before ``TrainingArguments``, which then takes that group.
"""

from transformers import TrainerCallback

from dtbench.integrations.measured import Measured


class DtbenchCallback(Measured, TrainerCallback):
    """One step is one update of the weights with all its accumulated batches; training is not cut short."""

    on_train_begin = Measured.start
    on_step_begin = Measured.begin
    on_step_end = Measured.end
    on_train_end = Measured.stop

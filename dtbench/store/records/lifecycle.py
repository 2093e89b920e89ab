"""What was done to a live model after PROFILED steps, and how it trained afterwards: parts of a rank's record."""

from dtbench.base.record import Amount, FloatOrNan, Record


class LifecycleCall(Record):
    """One call, how long each time took, and how the model trained afterwards.

    ``loss_error`` and ``gradient_error`` are relative differences from before; ``passed``: they are what they should
    be (after ``remove_autograd_hooks`` nothing is reduced, so that gradients must differ), or ``error`` is. That is
    torch's own, where it is known to raise; the differences are NaN then.
    """

    call: str
    duration_ns: tuple[Amount, ...]
    loss_error: FloatOrNan
    gradient_error: FloatOrNan
    passed: bool
    error: str | None = None


class LifecycleRecord(Record):
    """What ``parallel.lifecycle`` asked for, in its order."""

    calls: tuple[LifecycleCall, ...]

"""Categories of events, in the spelling that ``Trace.categories`` uses."""

from typing import Final

KERNEL: Final = "kernel"
COPIES: Final = ("gpu_memcpy", "gpu_memset")
DEVICE_CATEGORIES: Final = (KERNEL, *COPIES)  # not NO_WORK, not DEVICE_RANGE
DEVICE_RANGE: Final = "gpu_user_annotation"
"""A range of a thread once more, on the device: from the first to the last kernel that was launched in it."""
OPERATOR: Final = "cpu_op"
CALLS: Final = ("cuda_runtime", "cuda_driver")
NO_WORK: Final = ("cuda_sync", "cuda_event", "gpu_pm_counter")
"""On a device, and no work of it: a wait, a moment, a counter."""
HOST_CATEGORIES: Final = (OPERATOR, "user_annotation", "python_function", "cpu_instant_event", "overhead", *CALLS)

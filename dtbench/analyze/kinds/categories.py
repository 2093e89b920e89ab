"""Categories of events, in the spelling that ``Trace.categories`` uses."""

from typing import Final

KERNEL: Final = "kernel"
COPIES: Final = ("gpu_memcpy", "gpu_memset")
DEVICE_CATEGORIES: Final = (KERNEL, *COPIES)  # not cuda_sync (no work), not DEVICE_RANGE
DEVICE_RANGE: Final = "gpu_user_annotation"
"""A range of a thread once more, on the device: from the first to the last kernel that was launched in it."""
CALLS: Final = ("cuda_runtime", "cuda_driver")

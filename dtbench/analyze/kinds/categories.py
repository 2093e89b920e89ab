"""Categories of device events, in the spelling that ``Trace.categories`` uses."""

from typing import Final

KERNEL: Final = "kernel"
COPIES: Final = ("gpu_memcpy", "gpu_memset")
DEVICE_CATEGORIES: Final = (KERNEL, *COPIES)  # not cuda_sync (no work), not gpu_user_annotation (spans its kernels)

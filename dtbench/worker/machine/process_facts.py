"""What this process has used so far, and when it began."""

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import torch

from dtbench.base.units import NS_PER_S
from dtbench.store.records.rank import Memory
from dtbench.worker.machine.accelerator import find_module

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  # random(4): drawn when the kernel starts, alike in containers

_STATUS: Final = Path("/proc/self/status")
_FORGET: Final = Path("/proc/self/clear_refs")
_PEAK_OF_MEMORY: Final = "5"  # proc(5): sets VmHWM back to what the process has now


def read_kernel() -> str | None:
    """Name the start of the kernel that this process runs on; None: the system has no such name."""
    try:
        return _BOOT.read_text().strip() or None
    except OSError:
        return None


def process_start_unix_ns() -> int:
    """When this process began, to the precision of the system's clock ticks (10 ms on Linux)."""
    return round(psutil.Process().create_time() * NS_PER_S)


def read_rss_peak() -> int:
    """Read the most memory that this process had, bytes; on Linux what started it does not count (proc(5), VmHWM)."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit_bytes = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes


def forget_rss_peak() -> bool:
    """Set the peak that ``read_rss_peak`` reads back to what this process has now; False: the system does not do so."""
    try:
        _FORGET.write_text(_PEAK_OF_MEMORY, encoding="ascii")
    except OSError:
        return False
    return True


def read_memory(device: torch.device) -> Memory:
    """Read the peaks: of the process, and on a device of the allocator since the end of warm-up."""
    module = find_module(device.type)
    return Memory(
        rss_peak_bytes=read_rss_peak(),
        allocated_peak_bytes=None if module is None else module.max_memory_allocated(device),
        reserved_peak_bytes=None if module is None else module.max_memory_reserved(device),
    )


def reset_memory(device: torch.device) -> None:
    """Forget the allocator's peaks until now; on CPU there is none that keeps them."""
    if (module := find_module(device.type)) is not None:
        module.reset_peak_memory_stats(device)

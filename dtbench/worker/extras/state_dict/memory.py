"""Peaks of memory inside a stretch of time: of the host the kernel's own, where it can be set back, and sampled."""

import ctypes
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import psutil
import torch

from dtbench.store.records.state import StageMemory
from dtbench.worker.machine.accelerator import find_module
from dtbench.worker.machine.process_facts import forget_rss_peak, read_rss_peak

INTERVAL_S: Final = 0.002
"""Between two samples of the process's resident memory."""

MOST_POINTS: Final = 64
"""Of the curve that is recorded; every second one is left out when there are more, as often as it takes."""


@dataclass
class MemoryWatch:
    """Watches one stretch of time; ``read`` says what it saw."""

    device: torch.device
    _process: psutil.Process = field(default_factory=psutil.Process)
    _host_before_bytes: int = 0
    _host_peak_bytes: int = 0
    _is_host_peak_kept: bool = False
    _samples: int = 0
    _start_ns: int = 0
    _curve: list[tuple[int, int]] = field(default_factory=list)
    _cost_ns: int = 0
    _device_before_bytes: int | None = None
    _device_peak_bytes: int | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample host memory on a thread of its own while something runs; on a device the allocator keeps its peak.

        What is over before the second sample is in none: the kernel's peak counts, where it keeps one (Linux).
        """
        self._is_host_peak_kept = forget_rss_peak()
        self._host_before_bytes = self._host_peak_bytes = self._process.memory_info().rss
        module = find_module(self.device.type)
        if module is not None:
            module.reset_peak_memory_stats(self.device)
            self._device_before_bytes = module.memory_allocated(self.device)
        self._start_ns = time.perf_counter_ns()
        is_over = threading.Event()
        thread = threading.Thread(target=self._sample, args=(is_over,), name="dtbench memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._take()
            if self._is_host_peak_kept:
                self._host_peak_bytes = max(self._host_peak_bytes, read_rss_peak())
            if module is not None:
                self._device_peak_bytes = module.max_memory_allocated(self.device)

    @staticmethod
    def return_free_memory() -> None:
        """Give back what Python and the C library keep for later: what they have already would not be seen to rise."""
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others keep what they keep
        if trim is not None:
            trim(0)

    def read(self) -> StageMemory:
        """Return what was seen."""
        return StageMemory(
            host_before_bytes=self._host_before_bytes,
            host_peak_bytes=self._host_peak_bytes,
            is_host_peak_kept=self._is_host_peak_kept,
            device_before_bytes=self._device_before_bytes,
            device_peak_bytes=self._device_peak_bytes,
            samples=self._samples,
            sampling_cpu_ns=self._cost_ns,
            at_ns=tuple(at_ns for at_ns, _ in self._curve),
            host_bytes=tuple(size_bytes for _, size_bytes in self._curve),
        )

    def _sample(self, is_over: threading.Event) -> None:
        while not is_over.wait(INTERVAL_S):
            self._take()
        self._cost_ns = time.thread_time_ns()

    def _take(self) -> None:
        now_bytes = self._process.memory_info().rss
        self._host_peak_bytes = max(self._host_peak_bytes, now_bytes)
        self._samples += 1
        self._curve.append((time.perf_counter_ns() - self._start_ns, now_bytes))
        if len(self._curve) > MOST_POINTS:
            del self._curve[1::2]

"""The clocks of a step: host time, CPU time, and CUDA events that are read after the phase, never inside a step."""

import time
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reading:
    """How long one step took; ``device_ns`` replaces the host's duration where there is a device clock."""

    start_ns: int
    duration_ns: int
    cpu_ns: int


class StepClock(Protocol):
    """Times steps without synchronising inside them."""

    def start(self) -> None:
        """A step begins."""

    def stop(self) -> Reading:
        """It ended: what the host saw."""

    def settle(self) -> list[int] | None:
        """Wait for the device and give each step's device time since the last call, ns; None: the host's is exact."""


class HostClock:
    """CPU ranks: the host's clock is the step's clock."""

    def __init__(self) -> None:
        self._start_ns = 0
        self._start_cpu_ns = 0

    def start(self) -> None:
        """Read both clocks, CPU time first so that the step's window is the tighter one."""
        self._start_cpu_ns = time.process_time_ns()
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> Reading:
        """Read both clocks again."""
        end_ns = time.perf_counter_ns()
        return Reading(self._start_ns, end_ns - self._start_ns, time.process_time_ns() - self._start_cpu_ns)

    def settle(self) -> list[int] | None:
        """The host's times are exact."""
        return None


class CudaClock:
    """CUDA ranks: an event before and after each step on the current stream, made before the phase, read after it."""

    def __init__(self, torch_cuda: Any, *, capacity: int) -> None:
        self._cuda = torch_cuda
        self._host = HostClock()
        self._events = [torch_cuda.Event(enable_timing=True) for _ in range(2 * capacity)]
        self._used = 0

    def start(self) -> None:
        """Enqueue an event; the host does not wait."""
        self._host.start()
        self._events[self._used].record()

    def stop(self) -> Reading:
        """Enqueue another; the reading is the host's, ``settle`` gives the device's."""
        self._events[self._used + 1].record()
        self._used += 2
        return self._host.stop()

    def settle(self) -> list[int] | None:
        """Synchronise once and read all pairs since the last call."""
        self._cuda.synchronize()
        pairs = zip(self._events[0 : self._used : 2], self._events[1 : self._used : 2], strict=True)
        durations = [round(start.elapsed_time(end) * 1_000_000) for start, end in pairs]
        self._used = 0
        return durations

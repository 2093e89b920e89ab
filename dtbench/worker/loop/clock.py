"""The clocks of a step: host time, CPU time, and a device's events, read after the phase, never inside a step."""

import math
import time
from dataclasses import dataclass
from typing import Any, Protocol

from dtbench.base.units import NS_PER_MS
from dtbench.machine.stolen_time import StolenClock

_SAME_READING_NS = NS_PER_MS
"""Within that after a step its last reading of stolen time is the next step's first: the kernel counts by 10 ms."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How long one step took; ``settle`` replaces the host's duration where there is a device clock.

    Attributes:
        stolen_fraction: the share of its machine's cores that other virtual machines had meanwhile; NaN: not known.
    """

    start_ns: int
    duration_ns: int
    cpu_ns: int
    stolen_fraction: float = math.nan


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
        self._stolen = StolenClock()
        self._stolen_ns: int | None = None
        self._read_ns: int | None = None

    def start(self) -> None:
        """Read all clocks, the step's last so that its window is the tightest one."""
        if self._read_ns is None or time.perf_counter_ns() - self._read_ns > _SAME_READING_NS:
            self._stolen_ns = self._stolen.read_ns()
        self._start_cpu_ns = time.process_time_ns()
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> Reading:
        """Read all clocks again, the step's first."""
        duration_ns = time.perf_counter_ns() - self._start_ns
        cpu_ns = time.process_time_ns() - self._start_cpu_ns
        before_ns, self._stolen_ns = self._stolen_ns, self._stolen.read_ns()
        self._read_ns = time.perf_counter_ns()
        stolen_fraction = self._stolen.give_fraction(before_ns, self._stolen_ns, duration_ns)
        return Reading(self._start_ns, duration_ns, cpu_ns, stolen_fraction)

    def settle(self) -> list[int] | None:
        """The host's times are exact."""
        return None


class DeviceClock:
    """Ranks on devices: an event around each step on the current stream, made before the phase, read after it."""

    def __init__(self, module: Any, *, capacity: int) -> None:
        self._module = module
        self._host = HostClock()
        self._events = [module.Event(enable_timing=True) for _ in range(2 * capacity)]
        for event in self._events:
            event.record()  # torch makes an event when it is first recorded: not in a step
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
        self._module.synchronize()
        pairs = zip(self._events[0 : self._used : 2], self._events[1 : self._used : 2], strict=True)
        durations = [round(start.elapsed_time(end) * 1_000_000) for start, end in pairs]
        self._used = 0
        return durations


def make_clock(module: Any | None, *, capacity: int) -> StepClock:
    """Return the clock of ranks on a device.

    Args:
        module: torch's of that device (``torch.cuda``), or what stands in for it; None: ranks compute on the CPU.
        capacity: steps between two times of settling, at most.
    """
    return HostClock() if module is None else DeviceClock(module, capacity=capacity)

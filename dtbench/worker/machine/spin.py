"""Takes a known time on a CUDA device: what timed blocks and the emulated link do there.

A kernel of one thread reads the clock of its multiprocessor until so many cycles have passed. It leaves all others to
whoever computes beside it, and of its own it holds one of the places for blocks; it needs no memory. The clock's rate
follows the device's, so cycles are tied to time by events on a device that has left its idle rate, and what a spin
really took is measured again afterwards by whoever asked for it.
"""

from collections.abc import Iterator
from functools import cached_property
from statistics import median
from typing import Any, Final

from dtbench.base.units import NS_PER_MS

LONGEST_TRY_NS: Final = 25 * NS_PER_MS
"""What a pause misses is tried with pauses of at most this length."""


class Spin:
    """Kernels that spin for so many cycles of the device's clock."""

    _CYCLES: Final = 50_000_000  # some 30 ms
    _ROUNDS: Final = 5

    def __init__(self, cuda: Any) -> None:
        """Spin on the current device of ``torch.cuda``, or of what stands in for it."""
        self._cuda = cuda

    def calibrate(self) -> None:
        """Tie cycles to time now, some 0.3 s: later the first ``take`` would, wherever it stands."""
        _ = self._cycles_per_ns

    def take(self, duration_ns: int, done_ns: int = 0) -> None:  # noqa: ARG002 - the host's time is not the device's
        """Enqueue a spin of so long on the current stream, whatever the host has done."""
        self._cuda._sleep(round(duration_ns * self._cycles_per_ns))

    def try_out(self, duration_ns: int, times: int) -> Iterator[int]:
        """Spin 25 ms at most; what a clock misses grows with the length."""
        tried_ns = min(duration_ns, LONGEST_TRY_NS)
        for _ in range(times):
            yield abs(self._try_once(tried_ns) - tried_ns) * duration_ns // tried_ns

    def look_back(self, duration_ns: int) -> list[int]:
        """Spin again: no event was recorded inside a step, and the clock may have changed since it was calibrated."""
        return [self._try_once(duration_ns) for _ in range(self._ROUNDS)]

    def _try_once(self, duration_ns: int) -> int:
        return self._time(round(duration_ns * self._cycles_per_ns))

    @cached_property
    def _cycles_per_ns(self) -> float:
        """How fast the clock runs once it has left its idle rate: the first rounds are not counted."""
        times_ns = [self._time(self._CYCLES) for _ in range(2 * self._ROUNDS)]
        return self._CYCLES / median(times_ns[self._ROUNDS :])

    def _time(self, cycles: int) -> int:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._cuda._sleep(cycles)
        end.record()
        end.synchronize()
        return round(start.elapsed_time(end) * NS_PER_MS)

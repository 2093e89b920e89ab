"""Who had the GPUs while ranks worked, and what held their clocks back: asked of the driver from outside the ranks.

The driver keeps, for about a second, how much of each sample of its own (some 0.2 to 1 s long) kernels of each process
ran. A process that only holds memory has none of it. Source: NVML's reference, ``nvmlDeviceGetProcessUtilization`` and
``nvmlClocksThrottleReasons``.
"""

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Final, TypeVar

from dtbench.base.record import Record
from dtbench.base.units import NS_PER_S, NS_PER_US

_Told = TypeVar("_Told")

_WINDOW_NS: Final = NS_PER_S
"""How far back a look reads the driver's samples: they come more rarely than looks."""

HELD_BACK: Final[Mapping[int, str]] = {
    0x04: "its limit on power",
    0x08: "a slowdown by hardware: heat, or too little power",
    0x20: "heat",
    0x40: "heat",
    0x80: "the power supply",
}
"""Why clocks are low, by bit of NVML's reasons; what somebody set holds nobody back, nor does having nothing to do."""


class GpuTaker(Record):
    """Another process on a GPU of the ranks.

    Attributes:
        name: None where its process cannot be seen from here.
        share: of the time, in which its kernels ran; None: the driver does not tell.
    """

    pid: int
    name: str | None
    share: float | None


class GpuSample(Record):
    """One GPU that ranks run on, as it was at a look.

    Attributes:
        index: the driver's number of it.
        ranks_share: of the time, in which kernels of ranks ran; None: the driver does not tell.
        others: all other processes on it.
        clock_mhz, most_clock_mhz: of the multiprocessors, now and at most; None: not told.
        held_back: what keeps its clocks low, in words; None: not told.
    """

    index: int
    name: str
    ranks_share: float | None
    others: tuple[GpuTaker, ...]
    clock_mhz: int | None
    most_clock_mhz: int | None
    held_back: tuple[str, ...] | None

    @property
    def taken(self) -> float | None:
        """The share of the time that others had, as far as ranks wanted it too; None where the driver does not tell.

        Kernels of two processes take turns: what others have while ranks have nothing to run costs them nothing.
        """
        if not self.others:
            return 0.0
        told = [one.share for one in self.others if one.share is not None]
        if self.ranks_share is None or len(told) < len(self.others):
            return None
        return min(1.0, sum(told), self.ranks_share)


@dataclass(frozen=True)
class _Gpu:
    index: int
    name: str
    handle: Any


@dataclass
class GpuWatch:
    """Asks the driver about the GPUs that ranks run on.

    Attributes:
        nvml: the driver's library, ``pynvml``, initialised.
    """

    nvml: Any
    now_unix_ns: Callable[[], int] = time.time_ns
    _gpus: list[_Gpu] = field(init=False)

    def __post_init__(self) -> None:
        count = self._ask(lambda: int(self.nvml.nvmlDeviceGetCount())) or 0
        handles = [(index, self.nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        self._gpus = [_Gpu(index, self._name(handle), handle) for index, handle in handles]

    def look(self, is_ours: Callable[[int], bool], find_name: Callable[[int], str | None]) -> tuple[GpuSample, ...]:
        """Return the GPUs on which a rank has a context by now.

        Args:
            is_ours: tells whether a process is a rank, or was started by one. A driver outside of this container
                numbers processes differently: no GPU has ranks then.
            find_name: of the process with an id; None where it cannot be seen.
        """
        found = []
        for gpu in self._gpus:
            pids = self._find_pids(gpu.handle)
            ours = frozenset(filter(is_ours, pids))
            if ours:
                found.append(self._look_at(gpu, ours, {pid: find_name(pid) for pid in sorted(pids - ours)}))
        return tuple(found)

    def _look_at(self, gpu: _Gpu, ours: frozenset[int], others: Mapping[int, str | None]) -> GpuSample:
        shares, clock = self._find_shares(gpu.handle), self.nvml.NVML_CLOCK_SM
        return GpuSample(
            index=gpu.index,
            name=gpu.name,
            ranks_share=None if shares is None else min(1.0, sum(shares.get(pid, 0.0) for pid in ours)),
            others=tuple(
                GpuTaker(pid=pid, name=name, share=None if shares is None else shares.get(pid, 0.0))
                for pid, name in others.items()
            ),
            clock_mhz=self._ask(lambda: int(self.nvml.nvmlDeviceGetClockInfo(gpu.handle, clock))),
            most_clock_mhz=self._ask(lambda: int(self.nvml.nvmlDeviceGetMaxClockInfo(gpu.handle, clock))),
            held_back=self._find_reasons(gpu.handle),
        )

    def _find_pids(self, handle: Any) -> frozenset[int]:
        """Return who computes or draws on a GPU."""
        asked = (self.nvml.nvmlDeviceGetComputeRunningProcesses, self.nvml.nvmlDeviceGetGraphicsRunningProcesses)
        lists = [self._ask(partial(ask, handle)) for ask in asked]
        return frozenset(int(one.pid) for found in lists for one in found or ())

    def _find_shares(self, handle: Any) -> dict[int, float] | None:
        """Return each process's share of the last samples, none of those that had nothing; None: not told."""
        since_us = (self.now_unix_ns() - _WINDOW_NS) // NS_PER_US
        try:
            samples = self.nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except self.nvml.NVMLError_NotFound:  # nobody ran anything
            return {}
        except self.nvml.NVMLError:  # split GPUs (MIG) and some virtual ones do not tell
            return None
        told: dict[int, list[float]] = {}
        for one in samples:
            told.setdefault(int(one.pid), []).append(int(one.smUtil) / 100)
        return {pid: fmean(shares) for pid, shares in told.items()}

    def _find_reasons(self, handle: Any) -> tuple[str, ...] | None:
        """Return what holds the clocks back; the call's name says *throttle* before driver 535."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            ask = getattr(self.nvml, name, None)
            bits = None if ask is None else self._ask(partial(ask, handle))
            if bits is not None:
                return tuple(dict.fromkeys(words for bit, words in HELD_BACK.items() if int(bits) & bit))
        return None

    def _name(self, handle: Any) -> str:
        name = self._ask(lambda: self.nvml.nvmlDeviceGetName(handle))
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "GPU")

    def _ask(self, ask: Callable[[], _Told]) -> _Told | None:
        """Return what the driver says; None where it does not."""
        try:
            return ask()
        except self.nvml.NVMLError:
            return None


def open_gpus() -> GpuWatch | str:
    """Return a look at this machine's GPUs, or why there is none, as a clause."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
        return GpuWatch(nvml)
    except nvml.NVMLError as error:
        return f"NVIDIA's driver does not answer: {error}"

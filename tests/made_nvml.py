"""NVIDIA's library of what its driver knows, of GPUs that a test makes up: the calls of ``pynvml`` that are used."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace


class NVMLError(Exception):
    """As pynvml has it."""


class NVMLError_NotFound(NVMLError):  # noqa: N801, N818 - pynvml's own name
    """No process has run anything of late."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818 - pynvml's own name
    """A split GPU, a virtual one, or an old one."""


@dataclass
class MadeGpu:
    """One GPU.

    Attributes:
        computing, drawing: ids of the processes on it.
        samples: by process and by when the driver took them, in microseconds: how much of 100 its kernels ran.
        tells: whether it says what each process had, and its clocks.
    """

    name: str | bytes = "NVIDIA H100 80GB HBM3"
    computing: list[int] = field(default_factory=list)
    drawing: list[int] = field(default_factory=list)
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    clock_mhz: int = 1980
    reasons: int = 0
    tells: bool = True


class MadeNvml:
    """The library; ``is_old``: of a driver before 535, which calls reasons of clocks another name."""

    NVML_CLOCK_SM = 1
    NVMLError = NVMLError
    NVMLError_NotFound = NVMLError_NotFound

    def __init__(self, *gpus: MadeGpu, is_old: bool = False) -> None:
        self._gpus = gpus
        self.nvmlInit: Callable[[], None] = lambda: None
        name = "nvmlDeviceGetCurrentClocksThrottleReasons" if is_old else "nvmlDeviceGetCurrentClocksEventReasons"
        setattr(self, name, lambda gpu: self._tell(gpu).reasons)

    @staticmethod
    def _tell(gpu: MadeGpu) -> MadeGpu:
        if not gpu.tells:
            raise NVMLError_NotSupported
        return gpu

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - pynvml's own name, like all below
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> MadeGpu:  # noqa: N802
        return self._gpus[index]

    def nvmlDeviceGetName(self, gpu: MadeGpu) -> str | bytes:  # noqa: N802
        return gpu.name

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: MadeGpu) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in gpu.computing]

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: MadeGpu) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in gpu.drawing]

    def nvmlDeviceGetProcessUtilization(self, gpu: MadeGpu, since_us: int) -> list[SimpleNamespace]:  # noqa: N802
        found = [
            SimpleNamespace(pid=pid, smUtil=percent, timeStamp=at_us)
            for pid, at_us, percent in self._tell(gpu).samples
            if at_us > since_us
        ]
        if not found:
            raise NVMLError_NotFound
        return found

    def nvmlDeviceGetClockInfo(self, gpu: MadeGpu, _kind: int) -> int:  # noqa: N802
        return self._tell(gpu).clock_mhz

    def nvmlDeviceGetMaxClockInfo(self, gpu: MadeGpu, _kind: int) -> int:  # noqa: N802
        return 1980 if self._tell(gpu) else 0

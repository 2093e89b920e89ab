"""What the system tells of all processes: who runs, whose child it is, how much CPU time it has had.

Linux is asked through ``/proc`` and its clocks of processes, to the nanosecond and in about 1 us a process; other
systems through psutil, which does not know how long a process stood ready and waited for a core.
"""

import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

from dtbench.base.units import NS_PER_S, NS_PER_US

_KERNEL: Final = 2
"""``kthreadd``, the parent of the kernel's own threads."""
_PR_SET_PDEATHSIG: Final = 1
"""Of ``prctl(2)``."""
_DTBENCH_RANK: Final = "dtbench.worker"
_LONGEST_COMMAND: Final = 4096
_TICKS: Final = 4
"""Of the first line's times in ``/proc/stat``: user, nice, system, idle; see ``proc_stat(5)``."""


@dataclass(frozen=True)
class Identity:
    """What a process is.

    Attributes:
        name: its program, or what of dtbench it is.
        is_kernel: a thread of the kernel's own, which works for everybody.
    """

    parent: int
    name: str
    is_kernel: bool = False


@dataclass(frozen=True)
class Turn:
    """What a thread has had of the scheduler since it began: how often it ran, and how long it stood ready before."""

    waited_ns: int
    turns: int


@dataclass(frozen=True)
class MachineTimes:
    """What all cores together have spent since the machine started; by the kernel's ticks, 10 ms each."""

    busy_ns: int
    idle_ns: int


class Processes(Protocol):
    """A system's processes; whatever has gone meanwhile, or is not told, is None or missing."""

    def find(self) -> Iterable[int]:
        """Return the ids of all processes that can be seen."""

    def identify(self, pid: int) -> Identity | None:
        """Return what a process is."""

    def read_cpu_ns(self, pid: int) -> int | None:
        """Return the CPU time that all threads of a process have had."""

    def read_turns(self, pid: int) -> Mapping[int, Turn] | None:
        """Return what each thread of a process has had of the scheduler; None where the system does not say."""

    def read_machine(self) -> MachineTimes | None:
        """Return what all cores have spent."""

    def read_pressure_ns(self) -> int | None:
        """Return how long some process of the machine has stood ready without a core since the machine started."""

    def read_throttled_ns(self) -> int | None:
        """Return how long a limit on CPU time has held back this process's control group."""


def open_processes() -> Processes:
    """Return this system's."""
    return ProcTree() if Path("/proc/self/stat").exists() and hasattr(time, "clock_gettime_ns") else AnySystem()


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it ends; elsewhere nobody can be asked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def name_program(name: str, command: Sequence[str]) -> str:
    """Return what to call a process: of Python what it runs, and no other argument, which may be secret.

    >>> name_program("python3", ["python3", "-u", "/home/me/train.py", "--token=x"])
    'python3 train.py'
    >>> name_program("python", ["python", "-m", "pytest"]), name_program("cc1", ["cc1", "-O2"])
    ('python -m pytest', 'cc1')
    """
    if any(word == _DTBENCH_RANK for word in command):
        return "a rank of another dtbench run"
    if not name.startswith("python"):
        return name
    words = iter(command[1:])
    for word in words:
        if word in ("-m", "-c"):
            return f"{name} {word} {next(words, '')}" if word == "-m" else f"{name} {word}"
        if word in ("-W", "-X"):  # they take a word of their own
            next(words, "")
        elif word and not word.startswith("-"):
            return f"{name} {Path(word).name}"
    return name


def read_clock_ns(pid: int) -> int | None:
    """Return the CPU time of a process by its clock, as ``clock_getcpuclockid(3)`` numbers it on Linux."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None


class ProcTree:
    """Linux, or a folder that looks like its ``/proc``.

    Args:
        root: the folder.
        read_cpu_ns: by process id.
        control: folder of the control groups.
    """

    def __init__(
        self,
        root: Path = Path("/proc"),
        read_cpu_ns: Callable[[int], int | None] = read_clock_ns,
        control: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._root = str(root)
        self.read_cpu_ns = read_cpu_ns
        self._tick_ns = NS_PER_S // os.sysconf("SC_CLK_TCK")
        self._throttling = _find_throttling(root, control)

    def find(self) -> Iterable[int]:
        """Return the ids of all processes that this one may see."""
        return [int(name) for name in os.listdir(self._root) if name.isdecimal()]

    def identify(self, pid: int) -> Identity | None:
        """Return what a process is, by its line in ``stat`` and, of a rank of dtbench's, its command."""
        line = _read(f"{self._root}/{pid}/stat")
        name, found, rest = line.partition(b"(")[2].rpartition(b")")
        if not found:
            return None
        parent = int(rest.split()[1])
        command = _read(f"{self._root}/{pid}/cmdline").decode(errors="replace").split("\0")
        is_kernel = _KERNEL in (pid, parent) and command == [""]
        return Identity(parent, name_program(name.decode(errors="replace"), command), is_kernel)

    def read_turns(self, pid: int) -> Mapping[int, Turn] | None:
        """Return what each thread has had, by ``schedstat``; a kernel may be built without."""
        folder = f"{self._root}/{pid}/task"
        try:
            threads = os.listdir(folder)
        except OSError:
            return {}
        found = {}
        for thread in threads:
            words = _read(f"{folder}/{thread}/schedstat").split()
            if len(words) == 3:
                found[int(thread)] = Turn(int(words[1]), int(words[2]))
        return found if found or not threads else None

    def read_machine(self) -> MachineTimes | None:
        """Return the first line of ``stat``."""
        first, *ticks = _read(f"{self._root}/stat", 256).partition(b"\n")[0].split() or [b""]
        if first != b"cpu" or len(ticks) < _TICKS or not all(map(bytes.isdigit, ticks[:_TICKS])):
            return None
        user, nice, system, idle = (int(tick) * self._tick_ns for tick in ticks[:_TICKS])
        return MachineTimes(user + nice + system, idle)

    def read_pressure_ns(self) -> int | None:
        """Return ``some ... total`` of ``pressure/cpu``; a kernel may be built without."""
        word = _read(f"{self._root}/pressure/cpu", 256).partition(b"\n")[0].rpartition(b"total=")[2]
        return int(word) * NS_PER_US if word.isdigit() else None

    def read_throttled_ns(self) -> int | None:
        """Return the counter of ``cpu.stat``: in microseconds in version 2 of control groups, else in nanoseconds."""
        if self._throttling is None:
            return None
        path, name, unit_ns = self._throttling
        for line in _read(str(path)).splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == name and words[1].isdigit():
                return int(words[1]) * unit_ns
        return None


def _find_throttling(root: Path, control: Path) -> tuple[Path, bytes, int] | None:
    """Return where this process's control group says how long it was held back, under which word, in which unit."""
    for line in _read(str(root / "self" / "cgroup")).decode(errors="replace").splitlines():
        number, controllers, group = [*line.split(":", 2), "", ""][:3]
        below = group.lstrip("/")
        if number == "0" and not controllers:
            found = (control / below / "cpu.stat", b"throttled_usec", NS_PER_US)
        elif "cpu" in controllers.split(","):
            found = (control / "cpu" / below / "cpu.stat", b"throttled_time", 1)
        else:
            continue
        if found[0].exists():
            return found
    return None


def _read(path: str, size: int = _LONGEST_COMMAND) -> bytes:
    """Return the beginning of a file of ``/proc``; empty where it is gone or kept secret."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, size)
    except OSError:  # the process ended in between
        return b""
    finally:
        os.close(file)


class AnySystem:
    """What psutil knows of any system; of somebody else's processes it often may not ask."""

    def find(self) -> Iterable[int]:
        """Return the ids of all processes."""
        return psutil.pids()

    def identify(self, pid: int) -> Identity | None:
        """Return what a process is."""
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            return Identity(process.ppid(), name_program(process.name(), process.cmdline()))
        return None

    def read_cpu_ns(self, pid: int) -> int | None:
        """Return user and system time."""
        with suppress(psutil.Error, OSError):
            times = psutil.Process(pid).cpu_times()
            return round((times.user + times.system) * NS_PER_S)
        return None

    def read_turns(self, _pid: int) -> Mapping[int, Turn] | None:
        """Return None: psutil does not know."""
        return None

    def read_machine(self) -> MachineTimes | None:
        """Return what all cores have spent on processes, and on nothing."""
        times = psutil.cpu_times()
        busy_s = times.user + times.system + getattr(times, "nice", 0.0)
        return MachineTimes(round(busy_s * NS_PER_S), round(times.idle * NS_PER_S))

    def read_pressure_ns(self) -> int | None:
        """Return None: psutil does not know."""
        return None

    def read_throttled_ns(self) -> int | None:
        """Return None: psutil does not know."""
        return None


def name_processor() -> str:
    """Name the processor; ``platform.processor`` is empty on most Linux systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - not a path of ours
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def count_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

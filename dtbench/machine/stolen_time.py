"""How much of this machine's cores other guests had meanwhile: on a shared machine the first thing to ask of a time."""

import math
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtbench.base.units import NS_PER_S

_STEAL = 7
"""Which of the first line's times in ``/proc/stat`` went to other virtual machines; see ``proc_stat(5)``."""
_LOOKED_AT = 8
"""The two after those are part of ``user`` and ``nice`` already."""
_FIRST_LINE_BYTES = 256
"""More than ten counters of 20 digits."""
_LOOK_S = 0.5
_NAP_S = 0.02
_WORK_S = 0.005


class StolenTime:
    """Counts from when it is made."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def read_fraction(self) -> float | None:
        """Return the share of all cores' time that others had; None where the system does not say, or says nothing yet.

        A machine that is nobody's guest gives 0; what a container may use is not looked at.
        """
        spent = [now - before for before, now in zip(self._before, self._read(), strict=False)]
        return spent[_STEAL] / sum(spent) if sum(spent) > 0 else None

    def _read(self) -> Sequence[int]:
        try:
            with self._stat.open("rb") as file:
                return _give_ticks(file.read(_FIRST_LINE_BYTES))
        except OSError:
            return ()


class StolenClock:
    """Reads what others have had since the machine started, in about 8 us of CPU time: once before a step, once after.

    A machine from which nothing was ever stolen is nobody's guest, and is not asked again: with many cores the kernel
    takes long to answer.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._file: int | None = None
        self._core_ticks_ns = NS_PER_S // os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0
        self._cores = os.cpu_count() or 1
        self._was_stolen = False
        try:
            file = os.open(stat, os.O_RDONLY)
        except OSError:
            return
        weakref.finalize(self, os.close, file)
        ticks = _read_stolen_ticks(file)
        self._was_stolen = bool(ticks)
        self._file = file if ticks is not None else None

    def read_ns(self) -> int | None:
        """Return the time of all cores together that others have had; None where the system does not say."""
        if self._file is None:
            return None
        if not self._was_stolen:
            return 0
        ticks = _read_stolen_ticks(self._file)
        return None if ticks is None else ticks * self._core_ticks_ns

    def give_fraction(self, before_ns: int | None, after_ns: int | None, duration_ns: int) -> float:
        """Return the share of all cores that others had between two readings, at most 1; NaN where nobody knows.

        The kernel counts in ticks, of 10 ms mostly: in a step shorter than that it is all or nothing.
        """
        if before_ns is None or after_ns is None or duration_ns <= 0:
            return math.nan
        return min(1.0, max(0, after_ns - before_ns) / (duration_ns * self._cores))


def _read_stolen_ticks(file: int) -> int | None:
    """Read the counter of stolen time, in clock ticks; None where the system does not say."""
    try:
        ticks = _give_ticks(os.pread(file, _FIRST_LINE_BYTES, 0))
    except OSError:
        return None
    return ticks[_STEAL] if ticks else None


def _give_ticks(stat: bytes) -> Sequence[int]:
    """Return what all cores together spent on what, shape ``(_LOOKED_AT,)``; empty where the first line is another."""
    first, *ticks = stat.partition(b"\n")[0].split()[: 1 + _LOOKED_AT] or (b"",)
    if first != b"cpu" or len(ticks) != _LOOKED_AT or not all(map(bytes.isdigit, ticks)):
        return ()
    return tuple(map(int, ticks))


@dataclass(frozen=True)
class Look:
    """What others had of this rank's machine, as a fraction of its cores, and how long the look took."""

    stolen_fraction: float
    took_s: float


def look_at_machine(stolen: StolenClock | None = None) -> Look:
    """Sleep and work in turns for half a second: who asks for no core does not notice that others have it.

    Where nothing was ever stolen, or the system does not say, that takes no time.

    Args:
        stolen: what others have of this machine; None: as the system says.
    """
    stolen = StolenClock() if stolen is None else stolen
    start_ns, before_ns = time.monotonic_ns(), stolen.read_ns()
    if not before_ns:
        return Look(math.nan if before_ns is None else 0.0, 0.0)
    end_ns = start_ns + round(_LOOK_S * NS_PER_S)
    while (now_ns := time.monotonic_ns()) < end_ns:
        time.sleep(_NAP_S)
        while time.monotonic_ns() < now_ns + round((_NAP_S + _WORK_S) * NS_PER_S):
            pass
    took_ns = time.monotonic_ns() - start_ns
    return Look(stolen.give_fraction(before_ns, stolen.read_ns(), took_ns), took_ns / NS_PER_S)

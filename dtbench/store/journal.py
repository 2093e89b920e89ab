"""Step timings in a memory-mapped file: the worker stores, the launcher reads, and nothing is lost when a rank dies.

A store into the map is a plain memory write: no system call, no allocation, no synchronisation, so it may happen inside
a timed step. The kernel keeps the page when the process is killed. ::

    offset 0    header: magic, rank, pid, phase, step, region, beat (unix ns), collectives issued, state
    offset 128  one record per finished step: step, phase, start, duration, CPU time (int64, ns)
"""

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from dtbench.errors import StoreError
from dtbench.vocabulary import Phase, Region

_MAGIC = int.from_bytes(b"dtbjrnl1", "little")
_HEADER = struct.Struct("<9q")
_HEADER_BYTES = 128
_STEP = struct.Struct("<5q")
_BEAT = struct.Struct("<2q")
_REGION_OFFSET = 5 * 8
_ISSUED = struct.Struct("<q")
_ISSUED_OFFSET = 7 * 8
_PHASES = tuple(Phase)
_REGIONS = tuple(Region)


class RankState(IntEnum):
    """How far a rank has come."""

    STARTING = 0
    STEPPING = 1
    FINISHING = 2
    DONE = 3


@dataclass(frozen=True)
class StepTiming:
    """One finished step of one rank; ``start_ns`` on that rank's monotonic clock."""

    step: int
    phase: Phase
    start_ns: int
    duration_ns: int
    cpu_ns: int


@dataclass(frozen=True)
class JournalView:
    """What a journal says at one moment.

    Attributes:
        beat_unix_ns: last sign of life.
        issued: collectives since the process began, where the worker sees them (gloo); else 0.
        phase, step, region: where the rank is or was; None before the first step, and region None between steps.
    """

    rank: int
    pid: int
    state: RankState
    phase: Phase | None
    step: int | None
    region: Region | None
    beat_unix_ns: int
    issued: int
    timings: tuple[StepTiming, ...]


class JournalWriter:
    """One rank's side. Every method is a few memory stores."""

    def __init__(self, path: Path, *, rank: int, pid: int, capacity: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        size = _HEADER_BYTES + capacity * _STEP.size
        with path.open("wb") as file:
            file.write(b"\0" * size)  # real bytes, not a hole: a full disk is an error here, not a SIGBUS later
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._rank, self._pid, self._capacity, self._count = rank, pid, capacity, 0
        self._phase, self._step, self._issued = -1, -1, 0
        self._state = RankState.STARTING

    def beat(self, region: Region | None, unix_ns: int) -> None:
        """Say that the rank lives and which region it is in."""
        _BEAT.pack_into(self._map, _REGION_OFFSET, -1 if region is None else _REGIONS.index(region), unix_ns)

    def touch(self, unix_ns: int) -> None:
        """Say that the rank lives, wherever it is."""
        _ISSUED.pack_into(self._map, _REGION_OFFSET + 8, unix_ns)

    def count_issue(self) -> None:
        """Say that one more collective was issued; the rank that issued fewest is the one the others wait for."""
        self._issued += 1
        _ISSUED.pack_into(self._map, _ISSUED_OFFSET, self._issued)

    def enter_step(self, phase: Phase, step: int, unix_ns: int) -> None:
        """Say which step begins."""
        self._phase, self._step, self._state = _PHASES.index(phase), step, RankState.STEPPING
        self._write_header(unix_ns)

    def finish_step(self, timing: StepTiming) -> None:
        """Keep the timing of a step that has ended."""
        if self._count < self._capacity:
            offset = _HEADER_BYTES + self._count * _STEP.size
            values = (timing.step, _PHASES.index(timing.phase), timing.start_ns, timing.duration_ns, timing.cpu_ns)
            _STEP.pack_into(self._map, offset, *values)
            self._count += 1

    def replace_durations(self, durations_ns: list[int]) -> None:
        """Put the device's times in place of the host's for the last ``len(durations_ns)`` steps."""
        for index, duration_ns in enumerate(durations_ns, start=self._count - len(durations_ns)):
            struct.pack_into("<q", self._map, _HEADER_BYTES + index * _STEP.size + 3 * 8, max(1, duration_ns))

    def set_state(self, state: RankState, unix_ns: int) -> None:
        """Say how far the rank has come; also a sign of life."""
        self._state = state
        self._write_header(unix_ns)

    def _write_header(self, unix_ns: int) -> None:
        values = (self._rank, self._pid, self._phase, self._step, -1, unix_ns, self._issued, self._state)
        _HEADER.pack_into(self._map, 0, _MAGIC, *values)

    def close(self) -> None:
        """Unmap; the file stays."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> JournalView | None:
    """Read what is there now; None when the rank has not begun to write.

    Raises:
        StoreError: the file is no journal.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER_BYTES or not any(data[: _HEADER.size]):
        return None
    magic, rank, pid, phase, step, region, beat, issued, state = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise StoreError(f"{path}: is not a dtbench journal")
    return JournalView(
        rank=rank,
        pid=pid,
        state=RankState(state),
        phase=None if phase < 0 else _PHASES[phase],
        step=None if step < 0 else step,
        region=None if region < 0 else _REGIONS[region],
        beat_unix_ns=beat,
        issued=issued,
        timings=tuple(_read_timings(data)),
    )


def _read_timings(data: bytes) -> list[StepTiming]:
    """Read step records up to the first that was never written."""
    timings = []
    usable = (len(data) - _HEADER_BYTES) // _STEP.size * _STEP.size
    for step, phase, start, duration, cpu in _STEP.iter_unpack(data[_HEADER_BYTES : _HEADER_BYTES + usable]):
        if duration <= 0:
            break
        timings.append(StepTiming(step=step, phase=_PHASES[phase], start_ns=start, duration_ns=duration, cpu_ns=cpu))
    return timings

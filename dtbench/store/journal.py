"""Step timings in a memory-mapped file: the worker stores, the launcher reads, and nothing is lost when a rank dies.

A store into the map is a plain memory write: no system call, no allocation, no synchronisation, so it may happen inside
a timed step. The kernel keeps the page when the process is killed. ::

    offset 0    header: magic, rank, pid, phase, step, region, beat (unix ns), collectives issued, state
    offset 128  one record per finished step: step, phase, start, duration, CPU time (int64, ns), stolen (int64, ppm)
"""

import math
import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import Phase, Region

_MAGIC = int.from_bytes(b"dtbjrnl2", "little")
_HEADER = struct.Struct("<9q")
_HEADER_BYTES = 128
_STEP = struct.Struct("<6q")
_MAGIC_AT, _RANK, _PID, _PHASE, _AT_STEP, _REGION, _BEAT, _ISSUED, _STATE = range(9)
"""Words of the header."""

_PPM = 1_000_000
_PHASES = tuple(Phase)
_REGIONS = tuple(Region)


def name_unphased(region: Region | str | None) -> str:
    """Say what a rank does in steps of no phase, after PROFILED ones, by the region that it is in."""
    return "stages of the training state" if region == Region.STATE_DICT else "estimating exposure"


def _to_ppm(fraction: float) -> int:
    """Return a fraction as a word of the file; below zero: not known."""
    return -1 if math.isnan(fraction) else round(_PPM * fraction)


class RankState(IntEnum):
    """How far a rank has come."""

    STARTING = 0
    STEPPING = 1
    FINISHING = 2
    DONE = 3


@dataclass(frozen=True)
class StepTiming:
    """One finished step of one rank.

    Attributes:
        start_ns: on that rank's monotonic clock.
        stolen_fraction: the share of its machine's cores that other virtual machines had meanwhile; NaN: not known.
    """

    step: int
    phase: Phase
    start_ns: int
    duration_ns: int
    cpu_ns: int
    stolen_fraction: float = math.nan


@dataclass(frozen=True)
class JournalView:
    """What a journal says at one moment.

    Attributes:
        beat_unix_ns: last sign of life.
        issued: collectives since the process began, where the worker sees them (gloo); else 0.
        phase, step, region: where the rank is or was; None before the first step, region None between steps, and phase
            None in steps after PROFILED: ``name_unphased``.
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
    """One rank's side. Every method is a few stores of one aligned word each: no reader sees half of one."""

    def __init__(self, path: Path, *, rank: int, pid: int, capacity: int) -> None:
        """Make the file, of real bytes, not a hole: a full disk is an error here, not a SIGBUS later.

        Raises:
            StoreError: the disk is full or the folder cannot be written.
        """
        size = _HEADER_BYTES + capacity * _STEP.size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(b"\0" * size)
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); free some space") from error
        self._words = memoryview(self._map).cast("q")
        self._capacity, self._count, self._issued = capacity, 0, 0
        self._rank, self._pid = rank, pid

    def begin(self, unix_ns: int) -> None:
        """Say that the rank has begun; nothing can be read before."""
        words = self._words
        words[_RANK], words[_PID], words[_PHASE], words[_AT_STEP], words[_REGION] = self._rank, self._pid, -1, -1, -1
        words[_BEAT], words[_STATE] = unix_ns, RankState.STARTING
        words[_MAGIC_AT] = _MAGIC

    def beat(self, region: Region | None, unix_ns: int) -> None:
        """Say that the rank lives and which region it is in."""
        self._words[_REGION] = -1 if region is None else _REGIONS.index(region)
        self._words[_BEAT] = unix_ns

    def touch(self, unix_ns: int) -> None:
        """Say that the rank lives, wherever it is."""
        self._words[_BEAT] = unix_ns

    def count_issue(self) -> None:
        """Say that one more collective was issued; the rank that issued fewest is the one the others wait for."""
        self._issued += 1
        self._words[_ISSUED] = self._issued

    def enter_step(self, phase: Phase | None, step: int, unix_ns: int) -> None:
        """Say which step begins; None: one of no phase, which leaves no timing."""
        words = self._words
        words[_PHASE] = -1 if phase is None else _PHASES.index(phase)
        words[_AT_STEP], words[_REGION] = step, -1
        words[_STATE] = RankState.STEPPING
        words[_BEAT] = unix_ns

    def finish_step(self, timing: StepTiming) -> None:
        """Keep the timing of a step that has ended; its duration, which says that it is there, is stored last."""
        if self._count < self._capacity:
            at = (_HEADER_BYTES + self._count * _STEP.size) // 8
            words = self._words
            words[at], words[at + 1], words[at + 2] = timing.step, _PHASES.index(timing.phase), timing.start_ns
            words[at + 4], words[at + 5] = timing.cpu_ns, _to_ppm(timing.stolen_fraction)
            words[at + 3] = timing.duration_ns
            self._count += 1

    def withdraw(self, count: int) -> None:
        """Forget the last ``count`` steps: they are run again."""
        for _ in range(min(count, self._count)):
            self._count -= 1
            self._words[(_HEADER_BYTES + self._count * _STEP.size) // 8 + 3] = 0

    def give_to(self, phase: Phase, count: int) -> list[int]:
        """Say that the last ``count`` steps were of another phase; gives their durations, ns."""
        places = [(_HEADER_BYTES + index * _STEP.size) // 8 for index in range(self._count - count, self._count)]
        for at in places:
            self._words[at + 1] = _PHASES.index(phase)
        return [self._words[at + 3] for at in places]

    def replace_durations(self, durations_ns: list[int]) -> None:
        """Put the device's times in place of the host's for the last ``len(durations_ns)`` steps."""
        for index, duration_ns in enumerate(durations_ns, start=self._count - len(durations_ns)):
            self._words[(_HEADER_BYTES + index * _STEP.size) // 8 + 3] = max(1, duration_ns)

    def set_state(self, state: RankState, unix_ns: int) -> None:
        """Say how far the rank has come; also a sign of life."""
        self._words[_BEAT] = unix_ns
        self._words[_STATE] = state

    def flush(self) -> None:
        """Have the file system write what is there: over a network, another machine reads nothing of it before."""
        self._map.flush()

    def close(self) -> None:
        """Unmap; the file stays."""
        self._words.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_journal(path: Path) -> JournalView | None:
    """Read what is there now; None when the rank has not begun to write.

    Raises:
        StoreError: the file is no journal, or damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER_BYTES or not any(data[:8]):
        return None
    words = _HEADER.unpack_from(data)
    if words[_MAGIC_AT] != _MAGIC:
        raise StoreError(f"{path}: is not a dtbench journal")
    try:
        return JournalView(
            rank=words[_RANK],
            pid=words[_PID],
            state=RankState(words[_STATE]),
            phase=None if words[_PHASE] < 0 else _PHASES[words[_PHASE]],
            step=None if words[_AT_STEP] < 0 else words[_AT_STEP],
            region=None if words[_REGION] < 0 else _REGIONS[words[_REGION]],
            beat_unix_ns=words[_BEAT],
            issued=words[_ISSUED],
            timings=tuple(_read_timings(data)),
        )
    except (ValueError, IndexError) as error:
        raise StoreError(f"{path}: is a damaged journal ({error})") from error


def _read_timings(data: bytes) -> list[StepTiming]:
    """Read step records up to the first that was never written."""
    timings = []
    usable = (len(data) - _HEADER_BYTES) // _STEP.size * _STEP.size
    for step, phase, start, duration, cpu, stolen in _STEP.iter_unpack(data[_HEADER_BYTES : _HEADER_BYTES + usable]):
        if duration <= 0:
            break
        stolen_fraction = math.nan if stolen < 0 else stolen / _PPM
        timings.append(StepTiming(step, _PHASES[phase], start, duration, cpu, stolen_fraction))
    return timings

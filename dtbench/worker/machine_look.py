"""Who else had the cores: what the launcher saw beside the ranks, or without one, what one rank a machine sees.

Under torchrun, Slurm and in a person's own loop nobody looks from outside. There the lowest rank of each machine looks
between phases, never inside a step, and all steps of a phase share what was seen.
"""

import math
import os
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dtbench.core_use import CoreWatch
from dtbench.disturbance import DISTURBED
from dtbench.errors import StoreError
from dtbench.gpu_use import open_gpus
from dtbench.store.journal import read_journal
from dtbench.store.layout import LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.use_file import MachineUse, UseWriter, read_use
from dtbench.vocabulary import DeviceKind, Phase

_OF_ELASTIC = "TORCHELASTIC_RUN_ID"
"""Where it is set, this process's parent is torch's agent, and its other children are ranks or of no other use."""


class MachineLook:
    """One rank's part; ``look`` does nothing on ranks that are not the lowest of their machine, or have a launcher."""

    def __init__(self, folder: LaunchFolder, rank: int, device: DeviceKind, *, is_launched: bool | None = None) -> None:
        self._folder, self._rank = folder, rank
        self._writer: UseWriter | None = None
        self._ranks = range(rank, rank + _read_number("LOCAL_WORLD_SIZE", 1))
        if LAUNCHER_VARIABLE in os.environ if is_launched is None else is_launched:
            return
        if _read_number("LOCAL_RANK", 0) == 0:
            gpus = open_gpus() if device is DeviceKind.CUDA else None
            self._writer = UseWriter(folder, self._ranks, CoreWatch(roots=_find_roots(), gpus=gpus))

    def look(self) -> None:
        """Note who had the cores since the last look; between phases only."""
        if self._writer is not None:
            self._writer.look([pid for rank in self._ranks if (pid := self._find_pid(rank)) is not None])

    def find_taken(self, starts_ns: Sequence[int], durations_ns: Sequence[int]) -> list[float]:
        """Return the share of the cores that others had in steps of this rank, as far as it is seen; else NaN."""
        mine = self._find_mine()
        if mine is None:
            return [math.nan] * len(starts_ns)
        start_ns, duration_ns = (np.asarray(one, dtype=np.float64) for one in (starts_ns, durations_ns))
        return [float(one) for one in mine.find_taken(start_ns, np.maximum(1.0, duration_ns))]

    def describe_others(self) -> str:
        """Say who had the cores while ranks stood ready, from the first look until now; empty where nobody had many."""
        self.look()
        mine = self._find_mine()
        if mine is None or mine.find_taken(*mine.span)[0] < DISTURBED:
            return ""
        return " and ".join(taker.words for taker in mine.name_all_takers(Phase.WARMUP, *mine.span))

    def _find_mine(self) -> MachineUse | None:
        return next((use for use in read_use(self._folder) if self._rank in use.header.ranks), None)

    def _find_pid(self, rank: int) -> int | None:
        with suppress(StoreError, OSError):
            view = read_journal(self._folder.journal(rank))
            return None if view is None else view.pid
        return None


def _find_roots() -> frozenset[int]:
    return frozenset({os.getpid(), os.getppid()} if _OF_ELASTIC in os.environ else {os.getpid()})


def _read_number(variable: str, default: int) -> int:
    word = os.environ.get(variable, "")
    return int(word) if word.isdecimal() else default

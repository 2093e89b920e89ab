"""Who else had the cores: what the launcher saw beside the ranks, or without one, what one rank a machine sees.

Under torchrun, Slurm and in a person's own loop nobody looks from outside. There the lowest rank of each machine looks
between phases, never inside a step, and all steps of a phase share what was seen. Which ranks share its machine, and
which processes they are, the ranks tell each other: not every launcher says so in the environment.
"""

import math
import multiprocessing
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from dtbench.base.record import Record
from dtbench.base.vocabulary import DeviceKind, Phase
from dtbench.machine.core_use import CoreWatch
from dtbench.machine.disturbance import DISTURBED
from dtbench.machine.gpu_use import open_gpus
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import MachineUse, UseWriter, read_use
from dtbench.worker.machine.process_facts import read_kernel

_OF_ELASTIC: Final = "TORCHELASTIC_RUN_ID"
"""Where it is set, this process's parent is torch's agent."""
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")


class RankProcess(Record):
    """Which process a rank is, as it tells the other ranks.

    Attributes:
        machine: alike on ranks that see each other's processes under the same numbers.
        programs: processes that started this rank and are of the measured program.
    """

    machine: str
    pid: int
    programs: tuple[int, ...]

    @classmethod
    def find(cls) -> "RankProcess":
        """Return that of the rank that asks."""
        parent = multiprocessing.parent_process()
        spawner = () if parent is None or parent.pid is None else (parent.pid,)
        agent = (os.getppid(),) if _OF_ELASTIC in os.environ else ()
        return cls(machine=_name_machine(), pid=os.getpid(), programs=(*spawner, *agent))


def _name_machine() -> str:
    """Name kernel and process namespace: a container may have another name than its machine, and other numbers."""
    namespace = ""
    with suppress(OSError):
        namespace = str(_PID_NAMESPACE.readlink())
    return f"{read_kernel() or socket.gethostname()} {namespace}"


class MachineLook:
    """One rank's part; ``look`` does nothing on ranks that are not the lowest of their machine, or have a launcher.

    Args:
        folder: of the launch.
        rank: that asks.
        device: that ranks compute on.
        processes: of all ranks, in order of rank; empty: a launcher looks.
    """

    def __init__(self, folder: LaunchFolder, rank: int, device: DeviceKind, processes: Sequence[RankProcess]) -> None:
        self._folder, self._rank = folder, rank
        self._writer: UseWriter | None = None
        here = {other: one for other, one in enumerate(processes) if one.machine == processes[rank].machine}
        self._pids = [one.pid for one in here.values()]
        if here and rank == min(here):
            gpus = open_gpus() if device is DeviceKind.CUDA else None
            programs = frozenset(pid for one in here.values() for pid in one.programs)
            self._writer = UseWriter(folder, tuple(here), CoreWatch(frozenset(), gpus=gpus, programs=programs))

    def look(self) -> None:
        """Note who had the cores since the last look; between phases only."""
        if self._writer is not None:
            self._writer.look(self._pids)

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

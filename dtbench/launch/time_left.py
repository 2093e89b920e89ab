"""How long a run takes, as far as the same experiment ran before: its own launches that ended, and an earlier run's.

An earlier run is of the same experiment where each of its cells that are asked for has the same scenario, but how often
it is launched, and it ran on such a machine. Words of the file tell neither: ``--set`` says the same as an edit.
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Self

from dtbench.base.errors import StoreError
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind
from dtbench.launch.cells import interleave
from dtbench.machine.processes import count_cores, name_processor
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_environment, read_launch, read_run
from dtbench.store.records.run import CellRecord, Environment, RunRecord, RunStatus
from dtbench.store.walk import walk_runs_in

Launch = tuple[str, int]
"""A cell and the index of its launch."""

_MINUTE_S = 60
_HOUR_S = 3600


@dataclass(frozen=True)
class Earlier:
    """What an earlier run of the same experiment took.

    Attributes:
        run_id: which.
        launches_ns: what the launches of each cell took that it has and that are asked for.
        rest_ns: what the run took beside its launches: single processes to check against, tables.
        other_cells: those it had besides, of which ``rest_ns`` has a part, too.
    """

    run_id: str
    launches_ns: Mapping[str, Sequence[int]]
    rest_ns: int
    other_cells: Sequence[str] = ()

    def foretell_ns(self, launches: Mapping[str, int]) -> float:
        """Return what so many launches of cells that it has would take; of others nothing is known."""
        typical = {cell: median(times_ns) for cell, times_ns in self.launches_ns.items()}
        return self.rest_ns + sum(typical[cell] * count for cell, count in launches.items() if cell in typical)

    def find_unknown(self, launches: Mapping[str, int]) -> list[str]:
        """Return the cells that it has not."""
        return [cell for cell in launches if cell not in self.launches_ns]


def find_earlier(results: Path, name: str, cells: Mapping[str, Scenario]) -> Earlier | None:
    """Return the newest complete run of the same experiment that has most of its cells.

    None: there is none that can be read.

    Args:
        results: folder of all runs.
        name: of the scenario.
        cells: that are asked for, by name.
    """
    found: Earlier | None = None
    for path in walk_runs_in(results / name):
        with suppress(StoreError):
            run = read_run(path)
            if run.status is RunStatus.COMPLETE and not run.resumed_unix_ns and _is_same(path, run, cells):
                earlier = _read_earlier(path, run, cells)
                if earlier is not None and (found is None or len(earlier.launches_ns) > len(found.launches_ns)):
                    found = earlier
        if found is not None and len(found.launches_ns) == len(cells):
            break
    return found


def _is_same(path: Path, run: RunRecord, cells: Mapping[str, Scenario]) -> bool:
    """Tell whether the cells that a run shares with those that are asked for are the same, on such a machine.

    Raises:
        StoreError: where it ran cannot be read.
    """
    shared = [cell for cell in run.cells if cell.name in cells]
    if not shared or any(cell.scenario is None or not _are_alike(cell.scenario, cells[cell.name]) for cell in shared):
        return False
    used_gpus = any(cell.plan.device is DeviceKind.CUDA for cell in shared)
    return _is_this_machine(read_environment(path), used_gpus=used_gpus)


def _are_alike(one: Scenario, other: Scenario) -> bool:
    return one.model_copy(update={"repeat": other.repeat}) == other


def _is_this_machine(ran_on: Environment, *, used_gpus: bool) -> bool:
    """Tell whether a run's machine has this one's processor and cores, where it used GPUs, whether it is this one."""
    is_alike = (ran_on.processor, ran_on.cores) == (name_processor(), count_cores())
    return is_alike and (not used_gpus or ran_on.host == platform.node())


def _read_earlier(path: Path, run: RunRecord, cells: Mapping[str, Scenario]) -> Earlier | None:
    """Return what a run took; None where it has no launch of these cells.

    Raises:
        StoreError: a launch of it cannot be read.
    """
    folder = RunFolder(path)
    every = {
        cell.name: [read_launch(folder.launch(cell.name, index)).duration_ns for index in cell.launches]
        for cell in run.cells
        if cell.launches
    }
    found = {cell: times_ns for cell, times_ns in every.items() if cell in cells}
    if not found or run.ended_unix_ns is None:
        return None
    in_launches_ns = sum(map(sum, every.values()))
    rest_ns = max(0, run.ended_unix_ns - run.started_unix_ns - in_launches_ns)
    return Earlier(run.run_id, found, rest_ns, [cell for cell in every if cell not in cells])


@dataclass
class TimeLeft:
    """Counts launches as they begin, and says how long those that are left may take.

    Args:
        planned: launches, the one that runs first first.
        known_ns: what launches of each cell took before.
        clock: nanoseconds that only grow.
    """

    planned: Sequence[Launch]
    known_ns: dict[str, list[int]] = field(default_factory=dict)
    clock: Callable[[], int] = time.monotonic_ns
    begun: list[Launch] = field(default_factory=list)
    own_ns: dict[str, list[int]] = field(default_factory=dict)
    _since_ns: int = 0

    @classmethod
    def of(cls, cells: Sequence[CellRecord], earlier: Earlier | None) -> Self:
        """Begin to count a run of these cells."""
        planned = [(cell.name, index) for cell, index in interleave(tuple(cells), 0)]
        known = {} if earlier is None else {cell: [*times_ns] for cell, times_ns in earlier.launches_ns.items()}
        return cls(planned, known)

    def begin(self, launch: Launch) -> None:
        """A launch begins, and so the one before has ended."""
        now_ns = self.clock()
        if self.begun:
            self.own_ns.setdefault(self.begun[-1][0], []).append(now_ns - self._since_ns)
        self.begun.append(launch)
        self._since_ns = now_ns

    def find_guessed(self) -> list[str]:
        """Return the cells that are left, the one that runs among them, of which no launch has ended yet."""
        names = dict.fromkeys(cell for cell, _ in self._find_left())
        return [cell for cell in names if not (self.own_ns.get(cell) or self.known_ns.get(cell))]

    def _find_left(self) -> list[Launch]:
        return [*self.begun[-1:], *(launch for launch in self.planned if launch not in self.begun)]

    def left_ns(self) -> float | None:
        """Return how long it will take from now, as long as others for ``find_guessed``; None: no launch has ended."""
        left = self._find_left()[len(self.begun[-1:]) :]
        typical = {cell: self._typical_ns(cell) for cell, _ in self._find_left()}
        if None in typical.values():
            return None
        now = self.begun[-1][0] if self.begun else None
        rest_ns = 0.0 if now is None else max(0.0, (typical[now] or 0.0) - (self.clock() - self._since_ns))
        return rest_ns + sum(typical[cell] or 0.0 for cell, _ in left)

    def _typical_ns(self, cell: str) -> float | None:
        """Return what a launch of a cell takes: in this run, in an earlier one, else as all cells of this one do."""
        times_ns = self.own_ns.get(cell) or self.known_ns.get(cell)
        if times_ns:
            return median(times_ns)
        own_ns = [time_ns for of_cell in self.own_ns.values() for time_ns in of_cell]
        return fmean(own_ns) if own_ns else None


def spell_about(duration_ns: float) -> str:
    """Spell a duration that is not known well: ``about 40 s``, ``about 3 min``, ``about 1.5 h``.

    >>> spell_about(38e9), spell_about(170e9), spell_about(5400e9), spell_about(1e9)
    ('about 40 s', 'about 3 min', 'about 1.5 h', 'less than 5 s')
    """
    seconds = duration_ns / NS_PER_S
    if seconds < 5:
        return "less than 5 s"
    if seconds < 1.5 * _MINUTE_S:
        return f"about {5 * round(seconds / 5)} s"
    if seconds < _HOUR_S:
        return f"about {round(seconds / _MINUTE_S)} min"
    return f"about {seconds / _HOUR_S:.1f} h"

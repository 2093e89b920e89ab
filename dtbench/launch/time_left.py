"""How long a run takes, as far as anything like it ran before: its own launches that ended, and an earlier run's."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Self

from dtbench.base.errors import StoreError
from dtbench.base.units import NS_PER_S
from dtbench.launch.cells import interleave
from dtbench.store.layout import RunFolder
from dtbench.store.read import find_runs, read_launch, read_run
from dtbench.store.records.run import CellRecord, RunRecord, RunStatus

Launch = tuple[str, int]
"""A cell and the index of its launch."""

_MINUTE_S = 60
_HOUR_S = 3600


@dataclass(frozen=True)
class Earlier:
    """What an earlier run of the same scenario took.

    Attributes:
        run_id: which.
        launches_ns: what the launches of each cell took.
        rest_ns: what the run took beside its launches: single processes to check against, tables.
    """

    run_id: str
    launches_ns: Mapping[str, Sequence[int]]
    rest_ns: int

    def foretell_ns(self, launches: Mapping[str, int]) -> float:
        """Return what so many launches of cells would take; a cell that did not run counts as the others' mean."""
        typical = {cell: median(times_ns) for cell, times_ns in self.launches_ns.items()}
        other = fmean(typical.values())
        return self.rest_ns + sum(typical.get(cell, other) * count for cell, count in launches.items())


def find_earlier(results: Path, name: str, overrides: Sequence[str]) -> Earlier | None:
    """Return the newest complete run of a scenario with the same overrides, but how often cells are launched.

    None: there is none that can be read.
    """
    asked = _leave_repeat(overrides)
    for path in reversed([run for run in find_runs(results) if run.parent.name == name]):
        with suppress(StoreError):
            run = read_run(path)
            if run.status is RunStatus.COMPLETE and _leave_repeat(run.overrides) == asked and not run.resumed_unix_ns:
                return _read_earlier(path, run)
    return None


def _leave_repeat(overrides: Sequence[str]) -> list[str]:
    return [override for override in overrides if not override.startswith("repeat")]


def _read_earlier(path: Path, run: RunRecord) -> Earlier | None:
    """Return what a run took.

    Raises:
        StoreError: a launch of it cannot be read.
    """
    folder = RunFolder(path)
    found = {
        cell.name: [read_launch(folder.launch(cell.name, index)).duration_ns for index in cell.launches]
        for cell in run.cells
        if cell.launches
    }
    if not found or run.ended_unix_ns is None:
        return None
    in_launches_ns = sum(map(sum, found.values()))
    return Earlier(run.run_id, found, max(0, run.ended_unix_ns - run.started_unix_ns - in_launches_ns))


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

    def left_ns(self) -> float | None:
        """Return how long it will take from now; None: of a cell that is left nothing is known."""
        left = [launch for launch in self.planned if launch not in self.begun]
        typical = {cell: self._typical_ns(cell) for cell, _ in [*left, *self.begun[-1:]]}
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

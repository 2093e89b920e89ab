"""Which runs there are, newest first, each cell a row: what it came to, and what speaks against that.

Of ten thousand runs the folders' names are listed, of those that may match the top of ``run.json`` is read, and numbers
only of those that are shown, from what is kept beside them (``reading/kept.py``).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path

from dtbench.base.errors import StoreError
from dtbench.comparison.reading.cells import read_cells
from dtbench.store.head import EnvironmentHead, RunHead, read_environment_head, read_head
from dtbench.store.layout import RunFolder
from dtbench.store.lock import is_held
from dtbench.store.read import read_environment
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.records.run import Environment, RunStatus
from dtbench.store.walk import walk_runs, walk_runs_in

_LEFT_OUT = " is left out: "
UNSETTLED = "warm-up NOT settled"
"""How notes of a side begin or go on that speak against its numbers."""


class ListedStatus(StrEnum):
    """What became of a run."""

    COMPLETE = "complete"
    FAILED = "failed"
    RUNNING = "running"
    INCOMPLETE = "incomplete"
    """It never said how it ended, and nobody writes it."""
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Wanted:
    """Which runs are asked for; None: any.

    Attributes:
        scenario: whose, as their folder is called.
        cell: only this cell, of runs that have it.
        status: what became of it.
        since_unix_ns: that began then or later.
        until_unix_ns: that began then or before.
        commit: how the name of the commit of the user's code begins.
        host: on which machine.
    """

    scenario: str | None = None
    cell: str | None = None
    status: ListedStatus | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None
    commit: str | None = None
    host: str | None = None

    def is_met_by(self, path: Path, head: RunHead) -> bool:
        """Tell whether a run is asked for; its environment is read where that is asked about."""
        latest = math.inf if self.until_unix_ns is None else self.until_unix_ns
        is_in_time = (self.since_unix_ns or 0) <= head.started_unix_ns <= latest
        has_cell = self.cell is None or any(cell.name == self.cell for cell in head.cells)
        if not is_in_time or not has_cell or self.status not in (None, tell_status(path, head)):
            return False
        return (self.commit is None and self.host is None) or self._was_in(read_environment_head(path))

    def _was_in(self, environment: EnvironmentHead) -> bool:
        revision = "" if environment.commit is None else environment.commit.revision
        is_at = self.commit is None or (bool(revision) and revision.startswith(self.commit.lower()))
        return is_at and self.host in (None, environment.host)


@dataclass(frozen=True)
class ListedCell:
    """One cell of a run; of a run that cannot be read, or has no cell yet, one row without numbers.

    Attributes:
        run: its folder.
        scenario: its name.
        run_id: of the run.
        cell: its name; empty: the run has none.
        started_unix_ns: when the run began; 0: not known.
        status: of the run.
        launches: that the run lists of the cell.
        step_ns: step time, as the report has it; NaN: none was timed.
        exposed_fraction: of a PROFILED step, communication that is not hidden; NaN: not known.
        against: what speaks against its numbers, a clause each.
        environment: of the run; None: none is told, or it is broken.
    """

    run: Path
    scenario: str
    run_id: str
    cell: str = ""
    started_unix_ns: int = 0
    status: ListedStatus = ListedStatus.UNREADABLE
    launches: int = 0
    step_ns: float = math.nan
    exposed_fraction: float = math.nan
    against: tuple[str, ...] = ()
    environment: Environment | None = None


@dataclass
class RunList:
    """Runs of a folder of results.

    Attributes:
        results: folder of all runs.
        wanted: which of them.
        rows: those that are shown, each run whole, newest first.
        next_run: the newest that is not shown, with when it began; None: all are.
        unreadable: of how many it is not known whether they are asked for.
    """

    results: Path
    wanted: Wanted
    rows: list[ListedCell] = field(default_factory=list)
    next_run: tuple[Path, int] | None = None
    unreadable: int = 0


def list_runs(results: Path, wanted: Wanted, *, limit: int | None) -> RunList:
    """List runs, newest first.

    Args:
        results: folder of all runs.
        wanted: which of them.
        limit: rows after which no further run is shown; None: all are.
    """
    found = RunList(results, wanted)
    for path, head in find_wanted(results, wanted):
        if isinstance(head, StoreError):
            if wanted != Wanted(scenario=wanted.scenario):
                found.unreadable += 1
                continue
            rows, began = [ListedCell(path, path.parent.name, path.name, against=(str(head),))], 0
        else:
            began = head.started_unix_ns
            rows = [] if _is_full(found, limit) else [*_list_cells(path, head, wanted)]
        if _is_full(found, limit):
            found.next_run = (path, began)
            break
        found.rows += rows
    return found


def find_wanted(results: Path, wanted: Wanted) -> Iterator[tuple[Path, RunHead | StoreError]]:
    """Yield the runs that are asked for, newest first, each with its head; why it has none: it may be asked for."""
    for path in walk_runs(results) if wanted.scenario is None else walk_runs_in(results / wanted.scenario):
        try:
            head = read_head(path)
            is_wanted = wanted.is_met_by(path, head)
        except StoreError as error:
            yield path, error
        else:
            if is_wanted:
                yield path, head


def _is_full(found: RunList, limit: int | None) -> bool:
    return limit is not None and len(found.rows) >= limit


def tell_status(path: Path, head: RunHead) -> ListedStatus:
    """Tell what became of a run: of one that torchrun started, by its launches, as it never says so itself."""
    if RunStatus(head.status) is not RunStatus.RUNNING:
        return ListedStatus(head.status)
    if is_held(RunFolder(path)):
        return ListedStatus.RUNNING
    launches = (RunFolder(path).launch(cell.name, index) for cell in head.cells for index in cell.launches)
    has_ended = head.prepared and all(launch.launch.exists() for launch in launches)
    return ListedStatus.COMPLETE if has_ended else ListedStatus.INCOMPLETE


def _list_cells(path: Path, head: RunHead, wanted: Wanted) -> Iterator[ListedCell]:
    status = tell_status(path, head)
    bare = ListedCell(path, head.name, head.run_id, started_unix_ns=head.started_unix_ns, status=status)
    try:
        measured = read_cells(path, wanted.cell)
        environment = read_environment(path) if RunFolder(path).environment.exists() else None
    except (StoreError, OSError) as error:
        yield replace(bare, against=(str(error),))
        return
    launches = {cell.name: len(cell.launches) for cell in head.cells}
    for name, one in measured.items():
        yield replace(
            bare,
            cell=name,
            launches=launches[name],
            step_ns=one.step_ns,
            exposed_fraction=one.exposed_fraction,
            against=tuple(say_against(one.side, launches[name])),
            environment=environment,
        )
    if not measured:
        yield replace(bare, environment=environment)


def say_against(side: MeasuredSide, launches: int) -> Iterator[str]:
    """Say what speaks against the numbers of a cell, a clause each.

    Args:
        side: its numbers.
        launches: that its run lists.
    """
    reasons = [note.partition(_LEFT_OUT)[2] for note in side.notes if _LEFT_OUT in note]
    if side.left_out:
        count = len(side.left_out)
        which = f"{count} of {launches} launches left out" if launches > 1 else "left out"
        yield ": ".join([which, *dict.fromkeys(reasons[:1])])
    yield from chain(side.unlike, side.doubts, (note for note in side.notes if note.startswith(UNSETTLED)))

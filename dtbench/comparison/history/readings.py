"""What each run has of one number of one cell, and which runs are left out of its history, for which reason.

Like is held against like: runs whose scenario asks for the same, on machines of one kind, those of the newest run.
Other software is no reason to leave a run out: it is what a history shows, and is named where a level changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from dtbench.base.errors import ComparisonError, StoreError
from dtbench.base.vocabulary import Purpose
from dtbench.comparison.metrics import BY_NAME, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE
from dtbench.comparison.reading.cells import read_cells
from dtbench.comparison.reading.settings import find_treatment
from dtbench.comparison.reading.side_numbers import Key, SideNumbers
from dtbench.comparison.run_list import UNSETTLED, ListedStatus, Wanted, find_wanted, tell_status
from dtbench.runs.environments import EnvironmentChange, find_environment_changes
from dtbench.scenario.mistakes import find_nearest
from dtbench.scenario.sweeps.sweep import name_some, point_to
from dtbench.store.head import RunHead
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_environment
from dtbench.store.records.baseline import MeasuredLaunch, MeasuredSide
from dtbench.store.records.run import Environment
from dtbench.store.walk import walk_runs

_OF_MACHINE: Final = ("runner class", "processor", "cores", "devices")
"""What makes machines unlike, where no one runner class makes them alike; see ``runs/environments.py``."""

_MOST_NAMED: Final = 3
_UNREADABLE: Final = "they cannot be read"


@dataclass(frozen=True)
class Reading:
    """One number of one run.

    Attributes:
        run: its folder.
        run_id: of the run.
        started_unix_ns: when the run began.
        values: of its launches that count and tell it, at least one.
        left_out: launches of it that do not.
        is_settled: its warm-up ended as its step times were steady.
        environment: where it ran; None: it does not tell.
        settings: of its scenario, as text; None: it does not tell.
        marks: what its launches share with copies of them, and with no others.
    """

    run: Path
    run_id: str
    started_unix_ns: int
    values: tuple[float, ...]
    left_out: int = 0
    is_settled: bool = True
    environment: Environment | None = None
    settings: Mapping[str, str] | None = None
    marks: frozenset[int] = frozenset()

    @property
    def value(self) -> float:
        """The median over its launches."""
        ordered = sorted(self.values)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass
class Readings:
    """What runs have of one number.

    Attributes:
        scenario: name of their folder.
        cell: its name.
        counted: oldest first.
        left_out: run ids by why they are left out.
    """

    scenario: str
    cell: str
    counted: list[Reading]
    left_out: dict[str, list[str]]


def read_history(results: Path, wanted: Wanted, metric: tuple[str, str]) -> Readings:
    """Read one number of one cell of all runs that are asked for.

    Args:
        results: folder of all runs.
        wanted: which; without a scenario the only one that has runs, without a cell the only one of the newest run.
        metric: name of the metric, and what it is of; empty: the whole step.

    Raises:
        StoreError: there is no run of the scenario, or none that can be read and is asked for.
        ComparisonError: there are several scenarios or cells and none is named, or no cell has the name.
    """
    scenario = _choose_scenario(results, wanted.scenario)
    found = [*find_wanted(results, replace(wanted, scenario=scenario))]
    heads = [(path, head) for path, head in found if not isinstance(head, StoreError)]
    if not heads:
        _refuse(results, scenario, wanted.cell)
    cell = wanted.cell if wanted.cell is not None else _choose_cell(*heads[0])
    readings = Readings(scenario, cell, [], {})
    for path, head in found[::-1]:
        one = _read(path, head, cell, _find_key(metric))
        if isinstance(one, str):
            readings.left_out.setdefault(one, []).append(path.name)
        elif one is not None:
            readings.counted.append(one)
    readings.counted.sort(key=lambda one: (one.started_unix_ns, one.run_id))
    leave_out_unlike(readings)
    return readings


def _refuse(results: Path, scenario: str, cell: str | None) -> NoReturn:
    """Say why no run is what was asked for.

    Raises:
        ComparisonError: the newest run has no such cell.
        StoreError: it is not the cell, or no run can be read.
    """
    every = (head for _, head in find_wanted(results, Wanted(scenario=scenario)) if not isinstance(head, StoreError))
    names = [one.name for one in newest.cells] if (newest := next(every, None)) is not None else []
    if cell is not None and names and cell not in names:
        raise ComparisonError(f"{results / scenario}: the newest run has no cell `{cell}`; {point_to(cell, names)}")
    raise StoreError(f"{results / scenario}: no run that can be read is what was asked for")


def _choose_scenario(results: Path, wanted: str | None) -> str:
    names = list(dict.fromkeys(path.parent.name for path in walk_runs(results)))
    if not names:
        raise StoreError(f"{results}: no runs here; start one with `dtbench run <scenario>`, or name another folder")
    if wanted is not None:
        if wanted not in names:
            near = find_nearest(wanted, names)
            meant = f"did you mean `{near}`?" if near else f"there are runs of {name_some(sorted(names))}"
            raise StoreError(f"{results}: there is no run of `{wanted}`; {meant}")
        return wanted
    if len(names) > 1:
        raise ComparisonError(f"{results}: say of which scenario, there are runs of {name_some(sorted(names))}")
    return names[0]


def _choose_cell(path: Path, head: RunHead) -> str:
    names = [cell.name for cell in head.cells]
    if len(names) == 1:
        return names[0]
    has = f"has {name_some(names)}" if names else "has none yet"
    raise ComparisonError(f"{path}: say of which cell, with --cell; the newest run {has}")


def _find_key(metric: tuple[str, str]) -> list[Key]:
    """Return what a number may be called; ``exposed[layers.3]`` is of an owner where no purpose is called so."""
    name, subject = metric
    return [metric, (EXPOSED_BY_OWNER, subject)] if name == EXPOSED_BY_PURPOSE else [metric]


def _read(path: Path, head: RunHead | StoreError, cell: str, keys: Sequence[Key]) -> Reading | str | None:
    """Return what a run has; why it is left out; None: it has no such cell."""
    if isinstance(head, StoreError):
        return _UNREADABLE
    if all(one.name != cell for one in head.cells):
        return None
    if tell_status(path, head) is ListedStatus.RUNNING:
        return "they are still running"
    try:
        side = read_cells(path, cell)[cell].side
        environment = _find_environment(path, side)
    except (StoreError, OSError):
        return _UNREADABLE
    values = _find_values(side.launches, keys)
    return _say_doubt(side, values, is_profiled=BY_NAME[keys[0][0]].is_profiled) or Reading(
        run=path,
        run_id=head.run_id,
        started_unix_ns=head.started_unix_ns,
        values=values,
        left_out=len(side.left_out) + len(side.launches) - len(values),
        is_settled=not any(note.startswith(UNSETTLED) for note in side.notes),
        environment=environment,
        settings=side.settings,
        marks=frozenset(one.first_start_ns for one in side.launches if one.first_start_ns is not None),
    )


def _say_doubt(side: MeasuredSide, values: Sequence[float], *, is_profiled: bool) -> str:
    """Say why a number of a run must not be counted; empty: nothing speaks against it."""
    if not side.launches:
        return "no launch of theirs is to be trusted"
    if side.unlike:
        return "their own launches ran in unlike environments"
    if side.doubts and is_profiled:
        return "their PROFILED steps may not stand for others"
    return "" if values else "they do not tell this number"


def _find_values(launches: Sequence[MeasuredLaunch], keys: Sequence[Key]) -> tuple[float, ...]:
    """Return a number of each launch that tells it; of an owner that a run does not mention, none."""
    numbers, (_, subject) = SideNumbers(launches, launches), keys[0]
    key = next((key for key in keys if key in numbers.keys), None)
    if key is None and subject and subject not in set(Purpose):
        return ()
    return tuple(value for value in numbers.values(key or keys[0]) if math.isfinite(value))


def _find_environment(path: Path, side: MeasuredSide) -> Environment | None:
    """Return where a run ran, as its launches tell; the commit, where they do not, as the run does."""
    of_run = read_environment(path) if RunFolder(path).environment.exists() else None
    environment = of_run if side.environment is None else side.environment
    if environment is None or of_run is None or environment.commit is not None:
        return environment
    return environment.model_copy(update={"commit": of_run.commit})


def leave_out_unlike(readings: Readings) -> None:
    """Leave out what is not like the newest, and what is a copy of an older one."""
    if not readings.counted:
        return
    newest, seen = readings.counted[-1], set[int]()
    kept = []
    for one in readings.counted:
        is_copy = not seen.isdisjoint(one.marks)
        why = "they are copies of others" if is_copy else _say_unlike(one, newest)
        seen |= one.marks
        if why:
            readings.left_out.setdefault(why, []).append(one.run_id)
        else:
            kept.append(one)
    readings.counted = kept


def _say_unlike(one: Reading, newest: Reading) -> str:
    """Say in what a run is unlike the newest one; empty: in nothing."""
    if treatment := find_treatment(one.settings, newest.settings):
        return _say("another scenario", [(change.field, change.baseline, change.candidate) for change in treatment])
    if one.environment is None and newest.environment is not None:
        return "it is not known on which machine they ran"
    changes = [change for change in find_changes(one, newest) if change.what in _OF_MACHINE and not change.is_of_class]
    return _say("another machine", [(change.what, change.baseline, change.candidate) for change in changes])


def _say(what: str, changes: Sequence[tuple[str, str, str]]) -> str:
    if not changes:
        return ""
    named = [f"{name} {before}, now {after}" for name, before, after in changes[:_MOST_NAMED]]
    more = [f"{len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
    return f"{what}: {'; '.join([*named, *more])}"


def find_changes(one: Reading, other: Reading) -> tuple[EnvironmentChange, ...]:
    """Return in what machine and software of two runs differ, as far as both tell."""
    return find_environment_changes(one.environment, other.environment, settings=(one.settings, other.settings))

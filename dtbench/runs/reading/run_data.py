"""Read what a run wrote: each file once, steps that others disturbed taken out of every table once, and counted.

Everything that tells a number of a launch reads it here.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import pandas as pd

from dtbench.base.errors import StoreError
from dtbench.base.units import is_or_are, name_ranks
from dtbench.runs.reading.cell_data import STEPS_NAME, CellData, LaunchData, RunData
from dtbench.runs.reading.copies import leave_out_copies
from dtbench.runs.reading.gains import read_gains, write_gains
from dtbench.runs.reading.undisturbed import LeftOut, find_left_out, leave_out, pick_left_out
from dtbench.store.finish import STEPS
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import (
    is_incomplete,
    read_environment,
    read_launch,
    read_launch_environment,
    read_nodes,
    read_rank_records,
    read_run,
    read_steps,
)
from dtbench.store.records.outline import find_unlisted
from dtbench.store.records.place import Place
from dtbench.store.records.run import CellRecord, Environment, OwnLoopCell, RunRecord, RunStatus
from dtbench.traces.rows.launch_tables import LaunchTables, read_tables
from dtbench.traces.rows.table_bounds import find_impossible

Made = Mapping[tuple[str, int], LaunchTables]
"""Tables that were made of the traces just now and need not be read, by cell and launch."""


def read_run_data(path: Path, *, cell: str | None = None, made: Made | None = None) -> RunData:
    """Read everything that a run wrote, each launch once; derived tables are made where they are missing.

    Args:
        path: folder of the run.
        cell: read only this one; None: all.
        made: tables not to read again.

    Raises:
        StoreError: this is no run, its own record is broken or of another version, or it has no such cell.
    """
    record = read_run(path)
    chosen = [one for one in record.cells if cell in (None, one.name)]
    if cell is not None and not chosen:
        raise StoreError(f"{path}: the run has no cell `{cell}`")
    before = takewhile(lambda one: one is not chosen[0], record.cells)
    unlisted = find_unlisted(path, {one.name: one.launches for one in record.cells})
    passed = [RunFolder(path).launch(one.name, index) for one in before for index in one.launches]
    return RunData(
        path=path,
        record=record,
        environment=read_run_environment(path),
        cells=tuple(leave_out_copies([read_cell(path, record, one, made) for one in chosen], passed)),
        unlisted=tuple(one for one in unlisted if cell in (None, one.path.parent.name)),
    )


def read_cell(path: Path, run: RunRecord, cell: CellRecord | OwnLoopCell, made: Made | None = None) -> CellData:
    """Read everything that one cell of a run wrote.

    Launches with a file that is broken, of another version or of another launch are left out, and ``unreadable`` says
    which file; so are those of a complete run whose files are gone.
    """
    launches: dict[int, LaunchData] = {}
    unreadable: dict[int, str] = {}
    for index in cell.launches:
        place, folder = Place(run.run_id, cell.name, index), RunFolder(path).launch(cell.name, index)
        if run.status is RunStatus.COMPLETE and not folder.has_files:
            unreadable[index] = f"{folder.path}: has no files, though {run.run_id} had this launch; were they deleted?"
            continue
        try:
            launches[index] = read_launch_data(place, folder, cell.plan.ranks, (made or {}).get((cell.name, index)))
        except StoreError as error:
            unreadable[index] = str(error)
        except OSError as error:  # a folder of somebody else, a folder where a file should be
            unreadable[index] = f"{error.filename or path}: cannot be read ({error.strerror or error})"
    return CellData(
        cell=cell.model_copy(update={"launches": tuple(launches)}),
        run_is_incomplete=is_incomplete(run),
        launches=tuple(launches.values()),
        unreadable=unreadable,
    )


def read_launch_data(place: Place, folder: LaunchFolder, ranks: int, made: LaunchTables | None = None) -> LaunchData:
    """Read one launch.

    Args:
        place: whose it is.
        folder: of the launch.
        ranks: that it should have.
        made: its tables, where they need not be read.

    Raises:
        StoreError: a file of it is broken or of another version, or lacks steps that a complete launch has.
    """
    record = read_launch(folder) if folder.launch.exists() else None
    timed = read_timed_steps(folder, ranks if record is not None and record.status is RunStatus.COMPLETE else None)
    tables = read_tables(folder, write_gains) if made is None else made
    _refuse_strange_ranks(folder, tables, ranks)
    tables = _doubt_lost_ranks(tables, ranks)
    rows = {name: pick_left_out(table, timed.left_out) for name, table in tables.tables.items()}
    kept = {name: leave_out(table, timed.left_out) for name, table in tables.tables.items()}
    return LaunchData(
        place=place,
        folder=folder,
        record=record,
        environment=read_launch_environment(folder.environment) if folder.environment.exists() else None,
        ranks=read_rank_records(folder),
        steps=timed.kept,
        tables=replace(tables, tables=kept),
        left_out=timed.left_out,
        left_out_rows={STEPS_NAME: timed.disturbed, **rows} if timed.left_out else {},
        gains=read_gains(folder),
    )


def _refuse_strange_ranks(folder: LaunchFolder, tables: LaunchTables, ranks: int) -> None:
    """Refuse a table that names ranks which the launch has not: tables up to version 0.1.0 do not say whose they are.

    Raises:
        StoreError: says which table, and which ranks.
    """
    for name, table in tables.tables.items():
        named = {*table["rank"], *(table["last_rank"].dropna() if "last_rank" in table else ())}
        strange = sorted(int(rank) for rank in named if not 0 <= rank < ranks)
        if strange:
            told = f"holds {name_ranks(strange)}, and the launch has {ranks} ranks"
            raise StoreError(f"{folder.derived_table(name)}: {told}; was it copied from another?")


def _doubt_lost_ranks(tables: LaunchTables, ranks: int) -> LaunchTables:
    """Say which ranks the tables have nothing of, where what made them did not: tables up to 0.1.0 do not tell."""
    lost = sorted(set(range(ranks)) - {int(rank) for rank in tables.overlap["rank"]})
    if not lost or not len(tables.overlap) or tables.rank_doubts:
        return tables
    doubt = f"{name_ranks(lost)} {is_or_are(len(lost))} in no derived table"
    return replace(tables, rank_doubts=(doubt,), notes=(*tables.notes, doubt))


@dataclass(frozen=True)
class TimedSteps:
    """The timed steps of a launch, columns as in ``steps``: those to go by, and those that others disturbed."""

    kept: pd.DataFrame
    disturbed: pd.DataFrame
    left_out: LeftOut


def read_timed_steps(folder: LaunchFolder, ranks: int | None) -> TimedSteps:
    """Read the timings of every step of a launch; without rows where none was timed.

    Args:
        folder: of the launch.
        ranks: of a complete launch, all of which must have the same steps; None: it is not complete.

    Raises:
        StoreError: the table is broken, or lacks steps.
    """
    steps = _read_steps(folder)
    refuse_impossible_steps(folder, steps)
    if ranks is not None:
        refuse_lost_steps(folder, steps, ranks)
    return part_steps(steps)


def part_steps(steps: pd.DataFrame) -> TimedSteps:
    """Part the steps of one launch into those to go by and those that others disturbed."""
    left_out = find_left_out(steps)
    return TimedSteps(leave_out(steps, left_out), pick_left_out(steps, left_out), left_out)


def _read_steps(folder: LaunchFolder) -> pd.DataFrame:
    try:
        return read_steps(folder)
    except StoreError:
        if folder.steps.exists():
            raise
        return STEPS.tabulate(())


def refuse_impossible_steps(folder: LaunchFolder, steps: pd.DataFrame) -> None:
    """Refuse a table of steps with a value that cannot be.

    Raises:
        StoreError: says which.
    """
    if (impossible := find_impossible(STEPS_NAME, steps)) is not None:
        raise StoreError(f"{folder.steps}: {impossible}; was it edited?")


def refuse_lost_steps(folder: LaunchFolder, steps: pd.DataFrame, ranks: int) -> None:
    """Refuse a complete launch whose ranks do not all have the same steps, each once.

    Raises:
        StoreError: says which rank lacks steps, and where those of other nodes lie.
    """
    counts = steps.groupby("rank")["step"].nunique()
    lacking = [rank for rank in range(ranks) if counts.get(rank, 0) < counts.max()]
    if lacking or not len(steps):
        told = f"rank {lacking[0]} has {counts.get(lacking[0], 0)} of {counts.max()}" if lacking else "there are none"
        nodes = None if any(counts.get(rank, 0) for rank in lacking) else read_nodes(RunFolder(folder.path.parents[2]))
        if nodes is not None and nodes.elsewhere:
            where = ", ".join(f"{one.host}:{one.folder}" for one in nodes.elsewhere)
            raise StoreError(f"{folder.steps}: {told}; other nodes have theirs in {where}: `dtbench merge` joins them")
        raise StoreError(f"{folder.steps}: steps of a complete launch are lost: {told}; was it cut short or edited?")
    strange = [int(rank) for rank in counts.index if rank >= ranks]
    if strange:
        told = f"holds steps of {name_ranks(strange)}, and the launch has {ranks} ranks"
        raise StoreError(f"{folder.steps}: {told}; was it copied from another?")
    if len(steps) > counts.sum():
        raise StoreError(f"{folder.steps}: has steps twice; was it edited?")


def read_run_environment(path: Path) -> Environment | None:
    """Read the environment of a run, or of the first launch that has one where its copy is not there or broken.

    None: no launch has one that can be read.
    """
    with suppress(StoreError):  # it is a copy of what a launch wrote
        return read_environment(path)
    for written in sorted(path.glob("cells/*/launch*/ranks/env.json")):
        with suppress(StoreError):
            return read_launch_environment(written)
    return None

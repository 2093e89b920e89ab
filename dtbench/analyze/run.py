"""From a run folder to its answer: tables of every launch, one summary of everything."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dtbench.analyze.bounded import bound_cell
from dtbench.analyze.cell_data import CellData, LaunchData
from dtbench.analyze.judge_checks import judge_checklist
from dtbench.analyze.launch_tables import (
    LaunchTables,
    analyze_launch,
    describe_absent,
    find_launch_traces,
    read_tables,
)
from dtbench.analyze.summarize_cell import summarize_cell
from dtbench.analyze.summary import CellSummary, RunSummary
from dtbench.analyze.tables import STEPS
from dtbench.analyze.undisturbed import find_left_out, leave_out
from dtbench.errors import StoreError, TraceError
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import (
    is_incomplete,
    read_environment,
    read_launch,
    read_launch_environment,
    read_rank_records,
    read_run,
    read_steps,
)
from dtbench.store.records import CellRecord, Environment, OwnLoopCell, RunRecord, RunStatus

INCOMPLETE = "incomplete: it still runs, or it was killed before it could say how it ended"


def summarize_run(path: Path) -> RunSummary:
    """Give the answer of a run from whatever it has written; numbers that it has not are NaN.

    Derived tables are read where they are, else made from the traces. A launch with a file that is broken is left out,
    its cell is then *failed*.

    Raises:
        StoreError: this is no run, its own record is broken or of another version, or no launch of it can be read.
    """
    run = read_run(path)
    environment = read_run_environment(path)
    device = name_device(environment, run)
    found = [read_cell(path, run, cell) for cell in run.cells]
    if not any(data.launches for data in found):
        raise StoreError(next(sentence for data in found for sentence in data.unreadable.values()))
    cells = tuple(_summarize(data, device, environment) for data in found)
    status, reason = _status(run, cells)
    return RunSummary(
        name=run.name,
        run_id=run.run_id,
        question=run.question,
        path=str(path),
        status=status,
        reason=reason,
        overrides=run.overrides,
        torch=environment.torch if environment else "unknown",
        host=environment.host if environment else "unknown",
        device=device,
        cells=cells,
        resumed_unix_ns=run.resumed_unix_ns,
        repeat_end=run.repeat_end,
        checks=judge_checklist(run.checklist, cells, run.overrides),
    )


def summarize_one_cell(path: Path, name: str) -> CellSummary:
    """Give one cell's part of ``summarize_run``, without reading the others.

    Raises:
        StoreError: the run has no such cell, or no launch of it can be read.
    """
    run = read_run(path)
    environment = read_run_environment(path)
    cell = next((cell for cell in run.cells if cell.name == name), None)
    if cell is None:
        raise StoreError(f"{path}: the run has no cell `{name}`")
    data = read_cell(path, run, cell)
    if not data.launches:
        raise StoreError(next(iter(data.unreadable.values())))
    return _summarize(data, name_device(environment, run), environment)


def _summarize(data: CellData, device: str, environment: Environment | None) -> CellSummary:
    """Give the numbers of a cell, and what hangs on the machine that it ran on."""
    cell = summarize_cell(data, device)
    prediction = bound_cell(cell, None if environment is None else environment.cores)
    return cell.model_copy(update={"prediction": prediction, "notes": (*cell.notes, *_name_torch(data, environment))})


def _name_torch(data: CellData, environment: Environment | None) -> Iterator[str]:
    """Say when a cell's ranks had another torch than the run says, as ``python:`` in a scenario asks."""
    versions = {launch.environment.torch for launch in data.launches if launch.environment is not None}
    others = sorted(versions - {environment.torch if environment else ""})
    if others:
        yield f"the ranks of this cell ran torch {', '.join(others)}"


def _status(run: RunRecord, cells: tuple[CellSummary, ...]) -> tuple[RunStatus, str | None]:
    """Give how a run ended; one that never said so is complete when every launch is (torchrun ran them)."""
    unreadable = [f"{cell.name} launch{index}" for cell in cells for index in cell.unreadable]
    if unreadable and run.status is not RunStatus.FAILED:
        more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
        return RunStatus.FAILED, f"{unreadable[0]}{more} cannot be read: left out"
    if not is_incomplete(run):
        return run.status, run.reason
    if cells and all(cell.status is RunStatus.COMPLETE for cell in cells):
        return RunStatus.COMPLETE, None
    return run.status, INCOMPLETE


def analyze_run(path: Path, *, workers: int | None = None) -> dict[tuple[str, int], LaunchTables]:
    """Make the derived tables of every launch of a run again and replace the old ones; by cell and launch.

    A launch without traces keeps the tables that it has; so does one whose records are broken, which ``summarize_run``
    says.

    Args:
        path: folder of the run.
        workers: processes to use at most; None: as ``many.analyze_files`` decides.

    Raises:
        StoreError: this is no run, its folder cannot be written, or the records of all that was traced are broken.
        TraceError: the run has no traces at all, or none of them can be read; its tables stay as they were.
    """
    launches = {
        (cell.name, index): RunFolder(path).launch(cell.name, index)
        for cell in read_run(path).cells
        for index in cell.launches
    }
    traced = {key: folder for key, folder in launches.items() if folder.find_traces()}
    faults = {key: _find_fault(folder) for key, folder in traced.items()}
    made = {key: analyze_launch(folder, workers=workers) for key, folder in traced.items() if faults[key] is None}
    if traced and not made:
        raise StoreError(f"{path}: no launch of this run can be used: {'; '.join(map(str, faults.values()))}")
    if not made:
        raise TraceError(f"{path}: there are no traces to make tables from; the tables stay as they are")
    if not any(len(tables.overlap) for tables in made.values()):
        notes = "; ".join(note for tables in made.values() for note in tables.notes)
        raise TraceError(f"{path}: no trace of this run can be used, its tables stay as they are: {notes}")
    return made


def _find_fault(folder: LaunchFolder) -> str | None:
    """Say which record that its tables need is broken; None: none is."""
    try:
        find_launch_traces(folder)
        describe_absent(folder)
    except StoreError as error:
        return str(error)
    return None


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


def name_device(environment: Environment | None, run: RunRecord) -> str:
    """Name what a run computed on, for its reports and for the peak of its devices."""
    if environment is None:
        return "unknown"
    if environment.devices and any(cell.plan.device == "cuda" for cell in run.cells):
        return f"{len(environment.devices)} x {environment.devices[0].name}"
    return f"{environment.processor}, {environment.cores} cores"


def read_cell(path: Path, run: RunRecord, cell: CellRecord | OwnLoopCell) -> CellData:
    """Read everything that one cell of a run wrote; derived tables are made where they are missing.

    Launches with a file that is broken or of another version are left out, and ``unreadable`` says which file.
    """
    launches: dict[int, LaunchData] = {}
    unreadable: dict[int, str] = {}
    for index in cell.launches:
        try:
            launches[index] = _read_launch_data(RunFolder(path).launch(cell.name, index), cell.plan.ranks)
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


def _read_launch_data(folder: LaunchFolder, ranks: int) -> LaunchData:
    """Read one launch.

    Args:
        folder: the launch.
        ranks: that it should have.

    Raises:
        StoreError: a file of it is broken or of another version, or lacks steps that a complete launch has.
    """
    record = read_launch(folder) if folder.launch.exists() else None
    steps, tables = read_step_times(folder), read_tables(folder)
    if record is not None and record.status is RunStatus.COMPLETE:
        _refuse_lost_steps(folder, steps, ranks)
    left_out = find_left_out(steps)
    return LaunchData(
        folder=folder,
        record=record,
        environment=read_launch_environment(folder.environment) if folder.environment.exists() else None,
        ranks=read_rank_records(folder),
        steps=leave_out(steps, left_out),
        tables=replace(tables, tables={name: leave_out(table, left_out) for name, table in tables.tables.items()}),
        left_out=left_out,
    )


def _refuse_lost_steps(folder: LaunchFolder, steps: pd.DataFrame, ranks: int) -> None:
    """Refuse a complete launch whose ranks do not all have the same steps, each once.

    Raises:
        StoreError: says which rank lacks steps.
    """
    counts = steps.groupby("rank")["step"].nunique()
    lacking = [rank for rank in range(ranks) if counts.get(rank, 0) < counts.max()]
    if lacking or not len(steps):
        told = f"rank {lacking[0]} has {counts.get(lacking[0], 0)} of {counts.max()}" if lacking else "there are none"
        raise StoreError(f"{folder.steps}: steps of a complete launch are lost: {told}; was it cut short or edited?")
    if len(steps) > counts.sum():
        raise StoreError(f"{folder.steps}: has steps twice; was it edited?")


def read_step_times(folder: LaunchFolder) -> pd.DataFrame:
    """Read the timings of every step of a launch, columns as in ``tables.STEPS``; without rows where none was timed.

    Raises:
        StoreError: the table is broken.
    """
    try:
        return read_steps(folder)
    except StoreError:
        if folder.steps.exists():
            raise
        return pd.DataFrame(columns=list(STEPS)).astype(STEPS)

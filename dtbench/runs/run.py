"""From a run folder to its answer: tables of every launch, one summary of everything."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dtbench.base.errors import StoreError, TraceError
from dtbench.base.units import count_launches, count_things
from dtbench.runs.cell.summarize_cell import summarize_cell
from dtbench.runs.cell.summarize_gains import summarize_gains
from dtbench.runs.check_prediction import bound_cell, leave_unjudged_prediction
from dtbench.runs.environments import find_unlike_cells
from dtbench.runs.exposure.unjudged import leave_unjudged
from dtbench.runs.judge_checks import judge_checklist
from dtbench.runs.reading.cell_data import CellData, RunData
from dtbench.runs.reading.gains import write_gains
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.settings.base import why_not_measured
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.schema.repeat import AutoRepeat
from dtbench.store.cleaned import read_cleaned
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import is_incomplete, read_run
from dtbench.store.records.outline import say_unlisted
from dtbench.store.records.run import Environment, RunRecord, RunStatus
from dtbench.traces.rows.launch_tables import (
    LaunchTables,
    analyze_launch,
    find_absent_traces,
    find_launch_traces,
)

INCOMPLETE = "incomplete: it still runs, or it was killed before it could say how it ended"


def summarize_run(path: Path) -> RunSummary:
    """Return the answer of a run from whatever it has written; raises as ``read_run_data`` and ``summarize_data``."""
    return summarize_data(read_run_data(path))


def summarize_data(data: RunData) -> RunSummary:
    """Return the answer of a run from what was read of it; numbers that it has not are NaN.

    A launch that cannot be read is left out, its cell is then *failed*.

    Raises:
        StoreError: no launch of it can be read.
    """
    data.refuse_nothing()
    run, environment = data.record, data.environment
    unlike = find_unlike_cells(data.cells)
    cells = tuple(_summarize(one, data.device, environment, unlike[one.cell.name]) for one in data.cells)
    status, reason = _status(run, cells)
    return RunSummary(
        name=run.name,
        run_id=run.run_id,
        question=run.question,
        path=str(data.path),
        status=status,
        reason=reason,
        overrides=run.overrides,
        only=run.only,
        torch=environment.torch if environment else "unknown",
        torch_git=environment.torch_git if environment else None,
        commit=environment.commit if environment else None,
        host=environment.host if environment else "unknown",
        device=data.device,
        cells=cells,
        resumed_unix_ns=run.resumed_unix_ns,
        repeat_end=run.repeat_end,
        environment_notes=environment.notes if environment else (),
        neighbours=run.neighbours,
        unlisted=say_unlisted(data.path, data.unlisted),
        cleaned=say_cleaned(launch.folder for launch in data.launches),
        checks=judge_checklist(run.checklist, cells, run.overrides),
    )


def summarize_only_cell(data: RunData) -> CellSummary:
    """Return the numbers of a run of which one cell was read.

    Raises:
        StoreError: no launch of it can be read.
    """
    data.refuse_nothing()
    (cell,) = data.cells
    return _summarize(cell, data.device, data.environment, {})


def _summarize(data: CellData, device: str, environment: Environment | None, unlike: Mapping[str, str]) -> CellSummary:
    """Return the numbers of a cell, and what depends on the machine that it ran on.

    Args:
        data: what it wrote.
        device: name of its accelerator.
        environment: of the run.
        unlike: as in ``CellSummary``.
    """
    cell = summarize_cell(data, device)
    cores = None if environment is None else environment.cores
    prediction = leave_unjudged_prediction(cell, bound_cell(cell, cores))
    notes = (*cell.notes, *_name_elsewhere(data, environment))
    exposure = leave_unjudged(cell)
    told = {"prediction": prediction, "notes": notes, "exposure": exposure, "cores": cores, "unlike": dict(unlike)}
    whole = cell.model_copy(update=told)
    gains = summarize_gains(data.launches, why_not_measured(whole))
    return whole.model_copy(update={"gains": gains})


def _name_elsewhere(data: CellData, environment: Environment | None) -> Iterator[str]:
    """Say which launches ran another torch than the run says, as ``python:`` asks, or on another machine.

    With what a reader must know of that torch.
    """
    named: dict[str, list[str]] = {}
    for launch in data.launches:
        differing = "" if launch.environment is None else _spell_other(launch.environment, environment)
        if differing:
            named.setdefault(differing, []).append(launch.folder.path.name)
    for differing, names in named.items():
        who = "this cell" if len(names) == len(data.launches) else ", ".join(names)
        yield f"the ranks of {who} ran {differing}"
    known = () if environment is None else environment.notes
    own = [note for launch in data.launches if launch.environment is not None for note in launch.environment.notes]
    yield from dict.fromkeys(note for note in own if note not in known)


def _spell_other(own: Environment, whole: Environment | None) -> str:
    """Spell in what a launch ran, as far as it is not what the run says; empty: in nothing else."""
    torch = [] if whole is not None and own.torch == whole.torch else [f"torch {own.torch}"]
    machine = _spell_machine(own)
    return " ".join([*torch, *([] if whole is None or machine == _spell_machine(whole) else [f"on {machine}"])])


def _spell_machine(environment: Environment) -> str:
    devices = [f"{count} x {name}" for name, count in Counter(one.name for one in environment.devices).items()]
    return ", ".join([environment.processor, count_things(environment.cores, "core"), *devices])


def _status(run: RunRecord, cells: tuple[CellSummary, ...]) -> tuple[RunStatus, str | None]:
    """Return how a run ended; one that never said so is complete when every launch it asked for is (by torchrun)."""
    left_out = [
        (f"{cell.name} launch{index}", sentence) for cell in cells for index, sentence in cell.unreadable.items()
    ]
    if left_out and run.status is not RunStatus.FAILED:
        more = f" and {len(left_out) - 1} more are" if len(left_out) > 1 else " is"
        return RunStatus.FAILED, f"{left_out[0][0]}{more} left out: {left_out[0][1]}"
    if not is_incomplete(run):
        return run.status, run.reason
    if cells and all(cell.status is RunStatus.COMPLETE and _has_all_launches(run, cell) for cell in cells):
        return RunStatus.COMPLETE, None
    return run.status, INCOMPLETE


def _has_all_launches(run: RunRecord, cell: CellSummary) -> bool:
    """Tell whether a cell was launched as often as its scenario asks; an own loop asks for nothing."""
    if cell.scenario is None:
        return True
    repeat = cell.scenario.repeat
    return run.repeat_end is not None if isinstance(repeat, AutoRepeat) else len(cell.launches) >= repeat


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
    made = {
        key: analyze_launch(folder, workers=workers, further=write_gains)
        for key, folder in traced.items()
        if faults[key] is None
    }
    if traced and not made:
        raise StoreError(f"{path}: no launch of this run can be used: {'; '.join(map(str, faults.values()))}")
    if not made:
        cleaned = say_cleaned(launches.values())
        why = f"; {cleaned[0]}" if cleaned else ""
        raise TraceError(f"{path}: there are no traces to make tables from; the tables stay as they are{why}")
    if not any(len(tables.overlap) for tables in made.values()):
        notes = "; ".join(note for tables in made.values() for note in tables.notes)
        raise TraceError(f"{path}: no trace of this run can be used, its tables stay as they are: {notes}")
    return made


def say_cleaned(folders: Iterable[LaunchFolder]) -> tuple[str, ...]:
    """Say of how many launches `dtbench clean` removed the traces, and when; nothing where of none."""
    found = Counter(cleaned.date for folder in folders if (cleaned := read_cleaned(folder)) is not None)
    return tuple(
        f"`dtbench clean` removed those of {count_launches(count)} on {date}; what was read of them is kept"
        for date, count in sorted(found.items())
    )


def _find_fault(folder: LaunchFolder) -> str | None:
    """Say which record that its tables need is broken; None: none is."""
    try:
        find_launch_traces(folder)
        find_absent_traces(folder)
    except StoreError as error:
        return str(error)
    return None

"""Many runs with everything that they wrote: what tables over runs are made of, read as one run is.

What ``load_run_steps`` leaves out is left out here, too: launches that did not end well or computed something wrong,
copies, and what cannot be read; steps that others disturbed are apart in every table already.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dtbench.base.errors import StoreError
from dtbench.runs.reading.cell_data import CellData, LaunchData, RunData
from dtbench.runs.reading.copies import find_copies, mark, say_copy
from dtbench.runs.reading.knobs import KnobCell
from dtbench.runs.reading.many_runs import list_runs, refuse_untrusted
from dtbench.runs.reading.run_data import read_run_data
from dtbench.scenario.flat_fields import NOT_MEASURED, flatten_fields
from dtbench.store.records.run import OwnLoopCell


@dataclass(frozen=True)
class ManyRuns:
    """Runs with the launches of each that count.

    Attributes:
        runs: in order of their folders; those of which something counts.
        notes: what is left out, a sentence each.
    """

    runs: tuple[RunData, ...]
    notes: tuple[str, ...]


def read_many_runs(results: Path) -> ManyRuns:
    """Read all runs below a folder.

    Raises:
        StoreError: there is no run.
    """
    notes: list[str] = []
    found: list[RunData] = []
    for folder in list_runs(results):
        try:
            data = read_run_data(folder)
        except StoreError as error:
            notes.append(str(error))
            continue
        notes += [sentence for cell in data.cells for sentence in cell.unreadable.values()]
        found.append(replace(data, cells=tuple(_keep_trusted(data.path, cell, notes) for cell in data.cells)))
    copies = _find_copies(found, notes)
    kept = [replace(data, cells=tuple(_drop(cell, copies) for cell in data.cells)) for data in found]
    return ManyRuns(tuple(data for data in kept if data.launches), tuple(notes))


def _keep_trusted(run: Path, cell: CellData, notes: list[str]) -> CellData:
    """Leave out launches that did not end well, or computed something wrong; ``notes`` gets why."""
    refused: set[Path] = set()
    for launch in cell.launches:
        try:
            refuse_untrusted(run, cell.cell.name, launch.folder, cell.cell.plan.ranks)
        except StoreError as error:
            refused.add(launch.folder.path)
            notes.append(str(error))
    return _drop(cell, refused)


def _find_copies(runs: list[RunData], notes: list[str]) -> set[Path]:
    launches = [launch for data in runs for launch in data.launches]
    copies = find_copies(mark(launch.first_start_ns) for launch in launches)
    notes += [say_copy(launches[copy].folder, launches[original].folder) for copy, original in copies.items()]
    return {launches[copy].folder.path for copy in copies}


def _drop(cell: CellData, folders: set[Path]) -> CellData:
    pairs = zip(cell.cell.launches, cell.launches, strict=True)
    kept = [(index, launch) for index, launch in pairs if launch.folder.path not in folders]
    indices = tuple(index for index, _ in kept)
    return replace(
        cell,
        cell=cell.cell.model_copy(update={"launches": indices}),
        launches=tuple(launch for _, launch in kept),
    )


def list_launches(many: ManyRuns) -> Iterator[tuple[RunData, CellData, LaunchData]]:
    """Yield every launch that counts, with its run and its cell."""
    for data in many.runs:
        for cell in data.cells:
            yield from ((data, cell, launch) for launch in cell.launches)


def as_knob_cell(data: RunData, cell: CellData) -> KnobCell:
    """Return what tells a cell from those of other runs."""
    record = cell.cell
    if isinstance(record, OwnLoopCell):
        return KnobCell(data.record.name, record.name, record.coordinates)
    fields = flatten_fields(record.scenario.model_dump(mode="json", exclude=set(NOT_MEASURED)))
    return KnobCell(data.record.name, record.name, record.coordinates, fields)

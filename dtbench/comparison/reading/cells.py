"""The cells of a run as they are compared: from what is kept beside them while that holds, else from their tables."""

from collections.abc import Mapping
from pathlib import Path

from dtbench.base.errors import ComparisonError
from dtbench.comparison.reading.kept import describe_cells, keep, read_kept
from dtbench.comparison.reading.measure import measure_launch, spell_doubts, summarize_side
from dtbench.comparison.reading.side_notes import name_lacking, say_resumed, say_together, say_warmup
from dtbench.runs.environments import name_unlike
from dtbench.runs.plan_notes import planned_notes
from dtbench.runs.reading.cell_data import CellData, RunData
from dtbench.runs.reading.run_data import read_run_data
from dtbench.scenario.sweeps.sweep import point_to
from dtbench.store.read import read_run
from dtbench.store.records.baseline import MeasuredCell, MeasuredSide, Origin
from dtbench.store.records.outline import say_unlisted
from dtbench.store.records.run import RunRecord, tell_reason_in_a_line


def read_cells(path: Path, wanted: str | None = None) -> dict[str, MeasuredCell]:
    """Read one cell of a run, or all, by name.

    What is not kept, or was made of other files, is made again, and kept where the folder can be written.

    Raises:
        ComparisonError: it has no such cell.
        StoreError: this is no run, or its own record is broken or of another version.
    """
    record = read_run(path)
    names = [cell.name for cell in record.cells]
    if wanted is not None and wanted not in names:
        raise ComparisonError(f"{path}: the run has no cell `{wanted}`; {point_to(wanted, names)}")
    made_of = describe_cells(path, record, wanted)
    kept = {name: read_kept(path, name, made_of.get(name)) for name in (names if wanted is None else [wanted])}
    known = {name: one for name, one in kept.items() if one is not None}
    if len(known) < len(kept):
        known = measure_cells(read_run_data(path, cell=wanted), made_of)
    return {name: _give_names(path, record, name, one) for name, one in known.items()}


def measure_cells(data: RunData, made_of: Mapping[str, str]) -> dict[str, MeasuredCell]:
    """Return the numbers of cells that were read, by name, and keep them.

    Args:
        data: what was read of a run.
        made_of: as ``describe_cells`` gave it before that was read.
    """
    found = {one.cell.name: _measure_cell(data, one, made_of.get(one.cell.name, "")) for one in data.cells}
    keep(data.path, data.record, found)
    return found


def _give_names(path: Path, record: RunRecord, cell: str, found: MeasuredCell) -> MeasuredCell:
    """Return the numbers of a cell under the names by which it is found now: a run may be moved."""
    only = len(record.cells) == 1
    labels = (
        record.name if only else cell,
        record.name if only else f"{record.name}:{cell}",
        record.run_id if only else f"{record.run_id}:{cell}",
        str(path) if only else f"{path}:{cell}",
    )
    paths = (str(path.resolve() / "cells" / cell),)
    return found.model_copy(update={"side": found.side.model_copy(update={"labels": labels, "paths": paths})})


def _measure_cell(run: RunData, data: CellData, made_of: str) -> MeasuredCell:
    record, cell = run.record, data.cell
    whole = summarize_side(data, run.device)
    measured = [
        measure_launch(data, place, run.device, is_doubted=bool(whole.doubts)) for place in range(len(data.launches))
    ]
    counted = [launch for launch, (_, doubt) in zip(data.launches, measured, strict=True) if doubt is None]
    written = {one.folder.path.name: one.environment for one in counted if one.environment is not None}
    silent = [one.folder.path.name for one in counted if one.environment is None]
    said = {words for one, doubt in measured if doubt for words in (doubt, f"{one.name}: {doubt}")}
    side = MeasuredSide(
        labels=(cell.name,),
        paths=(),
        settings=data.settings,
        doubts=spell_doubts(whole.doubts),
        plan_notes=tuple(planned_notes(whole)),
        environment=next(iter(written.values()), None),
        silent=tuple(silent),
        origins=(Origin(scenario=record.name, run_id=record.run_id, started_unix_ns=record.started_unix_ns),),
        unlike=tuple(name_unlike(written, data.settings)),
        launches=tuple(launch for launch, doubt in measured if doubt is None),
        left_out=(
            *(f"launch{index}" for index in data.unreadable),
            *(launch.name for launch, doubt in measured if doubt is not None),
        ),
        unseen=sum(one.tables.unseen_collectives for one in counted),
        notes=(
            *(
                f"{cell.name} launch{index} of {record.run_id} is left out: {sentence}"
                for index, sentence in data.unreadable.items()
            ),
            *(
                f"{cell.name} {launch.name} of {record.run_id} is left out: {tell_reason_in_a_line(doubt)}"
                for launch, doubt in measured
                if doubt is not None
            ),
            *say_unlisted(run.path, [one for one in run.unlisted if one.path.parent.name == cell.name]),
            *name_lacking(data),
            *say_resumed(record.resumed_unix_ns),
            *say_warmup(whole.warmup),
            *say_together([note for note in whole.notes if note not in said]),
        ),
    )
    return MeasuredCell(
        made_of=made_of,
        step_ns=whole.step_time.median,
        exposed_fraction=whole.exposed_step_fraction,
        side=side,
    )

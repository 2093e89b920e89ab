"""What a person names, as sides: a run, a cell, runs that match a pattern, a saved baseline, or traces.

::

    quickstart                         latest run of a scenario, or its path, or a run's id
    quickstart:ddp                     one cell of it, or the path .../<run id>/cells/ddp
    'quickstart/2026112*:ddp'          launches of all runs that match, as one side
    main  main.json                    a saved baseline, by its name or as a file
    traces/  rank0.json.gz             anyone's traces of one job: one launch
"""

from collections.abc import Iterator, Mapping, Sequence
from glob import has_magic
from itertools import chain, combinations
from pathlib import Path
from typing import Final

from dtbench.base.errors import ComparisonError, StoreError
from dtbench.base.units import name_ranks
from dtbench.comparison.machines import find_machine_changes, read_machines
from dtbench.comparison.metrics import STEP_TIME
from dtbench.comparison.reading.cells import read_cells
from dtbench.comparison.reading.measure import count_steps, measure_traces
from dtbench.comparison.reading.rounds import find_copy
from dtbench.comparison.reading.settings import find_treatment
from dtbench.runs.environments import find_environment_changes, find_unlike
from dtbench.scenario.mistakes import find_nearest
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.find_run import find_run, is_run
from dtbench.store.layout import baseline_file, can_name_runs
from dtbench.store.read import find_baselines, is_baseline_file, read_baseline, read_baseline_file
from dtbench.store.records.baseline import MeasuredSide
from dtbench.traces.job.foreign import analyze_traces, are_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.job import LacksSteps
from dtbench.traces.notes.lacking import CommunicationUntold
from dtbench.traces.notes.note import pick_notes, say_notes

ONLY: Final = ""
"""Stands for the cell of what has no cells: a saved baseline, traces."""

_MOST_DIFFERENCES: Final = 6

Sides = Mapping[str, MeasuredSide]
"""What one name stands for: a side for each cell."""


def read_sides(named: str, results: Path, *, force: bool = False) -> Sides:
    """Read what a person names; one side for each cell of a run.

    Args:
        named: see above.
        results: folder of all runs and baselines.
        force: pool runs of unlike environments, too.

    Raises:
        ComparisonError: runs that match a pattern are not of one thing, or there is no such cell.
        StoreError: nothing is called so, or a file of it cannot be read, is broken or of another version.
        TraceError: these are traces, and none can be read.
    """
    try:
        return _read_named(named, results, force=force)
    except OSError as error:  # a name too long for the file system, a folder of somebody else
        raise StoreError(f"{error.filename or named}: cannot be read ({error.strerror or error})") from error


def _read_named(named: str, results: Path, *, force: bool) -> Sides:
    if Path(named).exists() or not has_magic(named):
        return _read_one(named, results)
    pattern, cell = _split(named)
    runs = _match(pattern, results)
    cells: dict[str, list[MeasuredSide]] = {}
    for run in runs:
        for name, side in _read_cells(run, cell).items():
            cells.setdefault(name, []).append(side)
    only = len(cells) == 1 and cell is None
    return {name: _pool(sides, pattern if only else f"{pattern}:{name}", force=force) for name, sides in cells.items()}


def is_saved(side: MeasuredSide) -> bool:
    """Tell whether a side is a saved baseline, by the labels that ``save_baseline`` gives it."""
    return side.labels[-1].startswith(f"{side.labels[0]} (")


def _read_one(named: str, results: Path) -> Sides:
    path = Path(named)
    if is_baseline_file(path):
        return {ONLY: read_baseline_file(path)}
    if is_run(path.parent.parent) and path.parent.name == "cells":
        return _read_cells(path.parent.parent, path.name)
    if not path.exists() and can_name_runs(named) and baseline_file(results, named).exists():
        return {ONLY: read_baseline(results, named)}
    if are_traces(path):
        traces = analyze_traces([path])
        return {ONLY: _side_of_traces(path, traces)}
    try:
        return _read_cells(find_run(named, results), None)
    except StoreError as error:
        run, cell = _split(named)
        if cell is None or path.exists():
            raise StoreError(f"{error}{_mention_baselines(named, results)}") from error
    return _read_cells(find_run(run, results), cell)


def _split(named: str) -> tuple[str, str | None]:
    """Cut ``<run>:<cell>``."""
    run, colon, cell = named.rpartition(":")
    return (run, cell) if colon else (named, None)


def _mention_baselines(named: str, results: Path) -> str:
    saved = find_baselines(results)
    near = find_nearest(named, saved)
    if near is not None:
        return f" The baseline `{near}` has a name like it."
    if saved:
        return f" Saved baselines: {name_some(saved)}."
    return " No baseline is saved either: `dtbench baseline save NAME RUN` saves one." if can_name_runs(named) else ""


def _match(pattern: str, results: Path) -> list[Path]:
    """Return all runs that a pattern matches, from here or from the folder of all runs; oldest first.

    Raises:
        StoreError: it matches none, or is none.
    """
    root = Path(Path(pattern).anchor) if Path(pattern).is_absolute() else Path()
    relative = str(Path(pattern).relative_to(root)) if Path(pattern).is_absolute() else pattern
    try:
        inside = [] if Path(pattern).is_absolute() else [results.glob(pattern), results.glob(f"*/{pattern}")]
        found = {path.resolve(): path for path in chain(root.glob(relative), *inside) if is_run(path)}
    except ValueError as error:
        raise StoreError(f"`{pattern}` is no pattern of folders: {error}") from error
    if not found:
        raise StoreError(
            f"No run matches `{pattern}`, neither from here nor in {results}; the pattern names run folders"
        )
    return sorted(found.values(), key=lambda path: (path.name, str(path)))


def _read_cells(run: Path, wanted: str | None) -> Sides:
    return {name: one.side for name, one in read_cells(run, wanted).items()}


def _side_of_traces(path: Path, traces: TraceSet) -> MeasuredSide:
    launch, left_out, doubts = measure_traces(traces, path.name)
    whole = path.resolve()
    return MeasuredSide(
        steps=count_steps(traces.analyses),
        labels=(path.name or whole.name, *("/".join(whole.parts[-count:]) for count in (2, 3)), str(whole)),
        paths=(str(whole),),
        settings=None,
        environment=None,
        machine=read_machines(traces),
        launches=(launch,),
        notes=say_notes(note for note in traces.notes if not (left_out and isinstance(note, LacksSteps))),
        ranks=tuple(one.rank for one in traces.analyses),
        world_size=traces.world_size,
        is_one_job=traces.over_ranks.is_one_job,
        has_steps=any(one.metric == STEP_TIME for one in launch.measurements),
        unseen=sum(one.unseen for one in traces.analyses),
        doubts=(*left_out, *doubts, *_say_untold_communication(traces)),
    )


def _say_untold_communication(traces: TraceSet) -> Iterator[str]:
    """Say of which ranks of several no communication is seen: what they compute may be it, or it was not recorded."""
    for note in pick_notes(traces.notes, CommunicationUntold):
        seen = f"no communication is seen of {name_ranks(note.ranks)}, though the job has {note.of_ranks} ranks"
        yield f"PERHAPS NOT REPRESENTATIVE: {seen}, so that what was exposed there is not known"


def _refuse_copies(sides: Sequence[MeasuredSide], label: str) -> None:
    for one, other in combinations(sides, 2):
        if (shared := find_copy(one.launches, other.launches)) is not None:
            copy, original = shared
            again = f"{copy.round} of {other.labels[-1]} is a copy of {original.round} of {one.labels[-1]}"
            raise ComparisonError(f"`{label}` matches copies of one measurement: {again}")


def _pool(sides: Sequence[MeasuredSide], label: str, *, force: bool) -> MeasuredSide:
    """Put the launches of one cell of several runs together.

    Raises:
        ComparisonError: they are copies, of different settings or, unless forced, of unlike environments.
    """
    _refuse_copies(sides, label)
    first = sides[0]
    known = next((side for side in sides if side.environment is not None), first)
    differences = []
    for side in sides[1:]:
        treatment = find_treatment(first.settings, side.settings)
        settings = (first.settings, side.settings)
        changes = find_environment_changes(known.environment, side.environment, settings=settings)
        unlike = find_unlike((*changes, *find_machine_changes(first.machine, side.machine)))
        differing = [
            *(f"{change.field} {change.baseline} and {change.candidate}" for change in treatment),
            *(f"{change.what} {change.baseline} and {change.candidate}" for change in unlike),
        ]
        other = first if treatment else known
        told = f"{other.labels[-2]} and {side.labels[-2]} differ: {'; '.join(differing[:_MOST_DIFFERENCES])}" + (
            f" and {len(differing) - _MOST_DIFFERENCES} more" if len(differing) > _MOST_DIFFERENCES else ""
        )
        if treatment:
            raise ComparisonError(f"`{label}` does not match runs of one thing: {told}; compare them with each other")
        if unlike and not force:
            raise ComparisonError(
                f"`{label}` matches runs of unlike environments: {told}; --force pools them all the same"
            )
        differences += [told] if unlike else []
    named = (
        launch.model_copy(update={"name": f"{side.labels[-2]} {launch.name}"})
        for side in sides
        for launch in side.launches
    )
    return MeasuredSide(
        labels=(label,),
        paths=tuple(path for side in sides for path in side.paths),
        settings=first.settings,
        environment=known.environment,
        origins=tuple(origin for side in sides for origin in side.origins),
        machine=first.machine,
        launches=tuple(named),
        left_out=tuple(f"{side.labels[-2]} {name}" for side in sides for name in side.left_out),
        unseen=sum(side.unseen for side in sides),
        notes=tuple(note for side in sides for note in side.notes),
        silent=tuple(name for side in sides for name in _name_silent(side)),
        plan_notes=first.plan_notes,
        doubts=tuple(f"{side.labels[-2]}: {doubt}" for side in sides for doubt in side.doubts),
        unlike=(*(f"{side.labels[-2]}: {words}" for side in sides for words in side.unlike), *differences),
    )


def _name_silent(side: MeasuredSide) -> list[str]:
    """Name the launches of a run among others of which it is not known where they ran; the run where it is none."""
    run = side.labels[-2]
    return [run] if side.environment is None else [f"{run} {launch}" for launch in side.silent]

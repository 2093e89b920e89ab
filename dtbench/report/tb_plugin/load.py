"""What the tabs read of a run, read again only when a file of it has changed."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from dtbench.base.errors import DtbenchError
from dtbench.report.tb_plugin.kept import Kept
from dtbench.report.tb_plugin.refusal import ABSENT, BROKEN, NOT_ASKED_WELL, NOT_FOUND, NOT_YET, Refusal
from dtbench.report.tb_plugin.runs import FoundRun, LogDirectory

if TYPE_CHECKING:
    import pandas as pd

    from dtbench.runs.reading.cell_data import LaunchData, RunData
    from dtbench.runs.summary import CellSummary, RunSummary

_MOST_DIGITS: Final = 16
"""Of a number in a request."""
_MOST_SUMMARIES: Final = 64
_MOST_LAUNCHES: Final = 16
_MOST_COMPARISONS: Final = 16
_MOST_TIMELINES: Final = 2
"""What stays in memory of each; drawings take tens of megabytes."""


@dataclass(frozen=True)
class Side:
    """One cell of a run."""

    run: FoundRun
    cell: str


@dataclass(frozen=True)
class Loader:
    """Reads runs below a log directory."""

    directory: LogDirectory
    _summaries: Kept = field(default_factory=lambda: Kept(_MOST_SUMMARIES))
    _launches: Kept = field(default_factory=lambda: Kept(_MOST_LAUNCHES))
    _comparisons: Kept = field(default_factory=lambda: Kept(_MOST_COMPARISONS))
    _timelines: Kept = field(default_factory=lambda: Kept(_MOST_TIMELINES))

    def summarize(self, run: FoundRun, state: str) -> "RunSummary":
        """Return the run's answer, as ``dtbench report`` does.

        Raises:
            Refusal: the run is broken, or leads out of the log directory.
        """
        return self._summaries.get((run.name, state), lambda: self._read(run, state))

    def _read(self, run: FoundRun, state: str) -> "RunSummary":
        """Read a run and keep what was read of its launches for the tabs that show them."""
        data, summary = _read_run(run)
        for launch in data.launches:
            self._launches.get((run.name, state, launch.place.cell, launch.place.launch), partial(_give, launch))
        return summary

    def read_launch(self, run: FoundRun, state: str, cell: str, launch: int) -> "LaunchData":
        """Return what one launch wrote.

        Raises:
            Refusal: there is no such launch, or its tables are broken.
        """
        summary = self.summarize(run, state)
        check_launch(find_cell(summary, cell), launch)
        return self._launches.get((run.name, state, cell, launch), lambda: _read_launch(run, summary, cell, launch))

    def stack(self, run: FoundRun, state: str, cell: str, launches: tuple[int, ...], name: str) -> "pd.DataFrame":
        """Return one table of some launches of a cell below each other; run, cell and launch are the first columns.

        Raises:
            Refusal: there is no such launch, or a table is broken.
        """
        from dtbench.runs.reading.cell_data import stack

        return stack([self.read_launch(run, state, cell, one) for one in launches], name)

    def compare(self, baseline: Side, candidate: Side, state: str, *, force: bool) -> object:
        """Return the comparison of two cells.

        Raises:
            Refusal: they cannot be compared.
        """
        key = (baseline.run.name, baseline.cell, candidate.run.name, candidate.cell, state, force)
        return self._comparisons.get(key, lambda: _compare(self.directory, baseline, candidate, force=force))

    def draw_timeline(self, run: FoundRun, state: str, cell: str, launch: int, step: int | None) -> bytes:
        """Return the timeline's document of one launch as JSON; of as many steps as fit where none is named.

        Args:
            run: the run.
            state: of the launch's files.
            cell: it has this launch.
            launch: its index.
            step: a step of its traces.

        Raises:
            Refusal: there is no such step, or the traces are gone.
        """
        return self._timelines.get((run.name, state, cell, launch, step), lambda: _draw(run, cell, launch, step))


def find_cell(summary: "RunSummary", cell: str) -> "CellSummary":
    """Return one cell of a run.

    Raises:
        Refusal: there is none of this name.
    """
    found = next((one for one in summary.cells if one.name == cell), None)
    if found is None:
        raise Refusal(NOT_FOUND, f"The run has no cell `{cell}`.")
    return found


def check_launch(cell: "CellSummary", launch: int) -> None:
    """Refuse a launch that a cell does not have.

    Raises:
        Refusal: it has no such launch, or that is left out.
    """
    if launch in cell.unreadable:
        raise Refusal(BROKEN, f"Launch {launch} of {cell.name} is left out. {cell.unreadable[launch]}")
    if launch not in cell.launches:
        there_are = ", ".join(map(str, cell.launches))
        raise Refusal(NOT_FOUND, f"The cell `{cell.name}` has no launch {launch}; there are {there_are or 'none'}.")


def choose_launches(cell: "CellSummary", launch: str) -> tuple[int, ...]:
    """Return the launches that a request means: ``all``, or one by its index.

    Raises:
        Refusal: it is neither, or all are left out.
    """
    if launch == "all":
        if cell.unreadable and not cell.launches:
            raise Refusal(BROKEN, f"Every launch of {cell.name} is left out. {next(iter(cell.unreadable.values()))}")
        return cell.launches
    if not (launch.isascii() and launch.isdecimal() and len(launch) < _MOST_DIGITS):
        raise Refusal(NOT_ASKED_WELL, f"`launch={launch}` is neither `all` nor a number.")
    return (int(launch),)


def _give(launch: "LaunchData") -> "LaunchData":
    return launch


def _read_run(run: FoundRun) -> "tuple[RunData, RunSummary]":
    from dtbench.report.tb_plugin.derive import derive_missing
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data

    try:
        _refuse_while_writing(run)
        derive_missing(run.folder)
        data = read_run_data(run.folder.path)
        return data, summarize_data(data)
    except DtbenchError as error:
        raise Refusal(BROKEN, f"This run cannot be read. {error}") from error
    except (OSError, ValueError, KeyError) as error:  # files that other programs wrote
        raise Refusal(BROKEN, f"This run cannot be read: {run.folder.path}: {type(error).__name__}: {error}") from error


def _refuse_while_writing(run: FoundRun) -> None:
    """Let ranks that write their traces now come to their end: half of the traces would be half of the answer."""
    from dtbench.report.tb_plugin.progress import is_alive
    from dtbench.store.read import is_incomplete, read_run

    record = read_run(run.folder.path)
    if not is_incomplete(record):
        return
    for cell in record.cells:
        for folder in (run.folder.launch(cell.name, index) for index in cell.launches):
            if not folder.launch.exists() and folder.find_traces() and is_alive(folder, cell.plan.ranks):
                raise Refusal(NOT_YET, f"{cell.name}, {folder.path.name}: its ranks are writing their traces.")


def _read_launch(run: FoundRun, summary: "RunSummary", cell: str, launch: int) -> "LaunchData":
    from dtbench.runs.reading.run_data import read_launch_data
    from dtbench.store.records.place import Place

    place, ranks = Place(summary.run_id, cell, launch), find_cell(summary, cell).plan.ranks
    try:
        return read_launch_data(place, run.folder.launch(cell, launch), ranks)
    except DtbenchError as error:
        raise Refusal(BROKEN, f"The tables of {cell}, launch {launch} cannot be read. {error}") from error


def _draw(run: FoundRun, cell: str, launch: int, step: int | None) -> bytes:
    from dtbench.report.timeline import open_launch_timeline

    try:
        title = f"{run.name}, {cell}, launch {launch}"
        return open_launch_timeline(run.folder.launch(cell, launch), steps=step, title=title).to_json()
    except DtbenchError as error:
        raise Refusal(ABSENT, str(error)) from error


def _compare(directory: LogDirectory, baseline: Side, candidate: Side, *, force: bool) -> object:
    from dtbench.report.tb_plugin.compared import compare_cells

    first, second = (side.run.folder.path / "cells" / side.cell for side in (baseline, candidate))
    return compare_cells(first, second, results=directory.root, force=force)

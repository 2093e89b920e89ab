"""What a notebook gets of a run, or of many: DataFrames. Columns, dtypes, units are in ``dtbench.analyze.tables``."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dtbench.analyze.launch_tables import read_launch_traces, read_tables
from dtbench.analyze.many_runs import NOTES, load_run_steps
from dtbench.analyze.run import read_step_times, summarize_run
from dtbench.analyze.summary import RunSummary
from dtbench.analyze.tabulate import (
    TABLES,
)
from dtbench.errors import StoreError
from dtbench.report import run_words
from dtbench.report.estimates import tabulate_estimates
from dtbench.report.html import report_html
from dtbench.report.owner_table import tabulate_run_owners
from dtbench.report.trace_report import plot_step_of
from dtbench.store.find_run import find_run
from dtbench.store.layout import LaunchFolder, RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dtbench.report.timeline.open import Steps, Timeline

RESULTS: Final = Path("results")
"""Where runs are when only a scenario is named."""


@dataclass(frozen=True, repr=False)
class RunReport:
    """What a run found; ``print`` it for the answer in words.

    Every table has the columns ``cell`` and ``launch`` before those of ``dtbench.analyze.tables``.

    Attributes:
        summary: what ``dtbench report`` shows.
        steps: every timed step of every rank, one row each: ``tables.STEPS``.
        overlap: where each PROFILED step's time went: ``tables.OVERLAP``.
        purposes: what communication was for, by rank, step and purpose: ``tables.PURPOSES``.
        collectives: one row per rank and collective: ``tables.COLLECTIVES``.
        tables: these three and every other table of the traces by name: ``lanes``, ``groups``, ``gaps``,
            ``comm_waits``, ``overlap_tax``, ``probes``.
    """

    summary: RunSummary
    steps: pd.DataFrame
    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]

    @cached_property
    def owners(self) -> pd.DataFrame:
        """Whose communication was exposed and why: ``cell``, then ``tables.OWNERS``."""
        return tabulate_run_owners(self.summary)

    @cached_property
    def estimates(self) -> pd.DataFrame:
        """Exposed communication estimated several ways: ``cell``, then ``tables.ESTIMATES``; empty if nobody asked."""
        return tabulate_estimates(self.summary)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, with the cells that it is about."""
        return run_words.note_words(self.summary)

    def plot_breakdown(self) -> "Figure":
        """Draw where each rank's PROFILED step went."""
        from dtbench.report.plots import plot_step_breakdown

        return plot_step_breakdown(self.summary)

    def plot_owners(self) -> "Figure":
        """Draw whose communication was exposed, split by cause, for each cell."""
        from dtbench.report.plots import plot_exposed_owners

        return plot_exposed_owners(self.owners)

    def plot_overlap(self) -> "Figure":
        """Draw how much communication each PROFILED step hid and left exposed, for each cell."""
        from dtbench.report.plots import plot_overlap

        return plot_overlap(self.overlap)

    def plot_step_distribution(self) -> "Figure":
        """Draw how the MEASURED steps of each launch are spread."""
        from dtbench.report.plots import plot_step_distribution

        return plot_step_distribution(self.steps)

    def plot_sweep(self) -> "Figure":
        """Draw the cells against each other."""
        from dtbench.report.plots import plot_sweep

        return plot_sweep(self.summary)

    def plot_timeline(self, step: int | None = None, *, cell: str | None = None, launch: int | None = None) -> "Figure":
        """Draw what ran on each lane in one step of a launch; left out: the first that has traces, a typical step.

        Raises:
            StoreError: there is no such cell or launch, or its traces are gone.
        """
        return plot_step_of(read_launch_traces(_choose_launch(self.summary, cell, launch)), step)

    def timeline(self, steps: "Steps" = None, *, cell: str | None = None, launch: int | None = None) -> "Timeline":
        """Give what every rank of a launch did, to zoom and pan in: ``steps`` is one, (first, last), or all that fit.

        Raises:
            StoreError: there is no such cell or launch, or its traces are gone.
            TraceError: there is no such step.
        """
        from dtbench.report.timeline import open_run_timeline

        return open_run_timeline(Path(self.summary.path), cell=cell, launch=launch, steps=steps)

    def __str__(self) -> str:
        head = run_words.head_words(self.summary)
        return "\n".join([head, *run_words.answer_words(self.summary), *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        cells = ", ".join(cell.name for cell in self.summary.cells)
        return f"{self.summary.name} {self.summary.run_id}, {self.summary.status}; cells: {cells}"

    def _repr_html_(self) -> str:
        head, answer = run_words.head_words(self.summary), run_words.answer_words(self.summary)
        return report_html(head, answer, run_words.tables(self.summary), self.notes)


def load_run(path: Path) -> RunReport:
    """Read a run's tables; derived ones are made from the traces where they are missing.

    Args:
        path: folder of a run, or of several, the latest of which is taken; or a scenario's name.

    Raises:
        StoreError: this is no run, or a file of it is broken or of another version.
    """
    folder = find_run(str(path), RESULTS)
    summary = summarize_run(folder)
    launches = [(cell.name, index) for cell in summary.cells for index in cell.launches]
    folders = {launch: RunFolder(folder).launch(*launch) for launch in launches}
    made = {launch: read_tables(folder) for launch, folder in folders.items()}
    tables = {
        table.name: _stack({launch: tables.tables[table.name] for launch, tables in made.items()}) for table in TABLES
    }
    return RunReport(
        summary=summary,
        steps=_stack({launch: read_step_times(folder) for launch, folder in folders.items()}),
        overlap=tables["overlap"],
        purposes=tables["purposes"],
        collectives=tables["collectives"],
        tables=tables,
    )


def load_runs(results: Path) -> pd.DataFrame:
    """Read every step of every complete launch below a folder; warns where something is left out.

    Raises:
        StoreError: there is no run.
    """
    steps = load_run_steps(results)
    notes = steps.attrs[NOTES]
    if notes:
        more = f" and {len(notes) - 1} more, see .attrs[{NOTES!r}]" if len(notes) > 1 else ""
        warnings.warn(f"left out: {notes[0]}{more}", stacklevel=3)
    return steps


def _choose_launch(summary: RunSummary, cell: str | None, launch: int | None) -> LaunchFolder:
    """Give the first launch with traces of those that are meant, else the first."""
    launches = [(one.name, index) for one in summary.cells for index in one.launches]
    meant = [one for one in launches if cell in (None, one[0]) and launch in (None, one[1])]
    if not meant:
        there = ", ".join(f"{name} launch {index}" for name, index in launches) or "none"
        raise StoreError(f"{summary.path}: there is no such cell or launch in this run; there are: {there}")
    folders = [RunFolder(Path(summary.path)).launch(*one) for one in meant]
    return next((folder for folder in folders if folder.find_traces()), folders[0])


def _stack(tables: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """Put one table of every launch below each other, its cell and launch in the first two columns."""
    parts = []
    for (cell, launch), table in tables.items():
        placed = table.assign(cell=cell, launch=launch)
        parts.append(placed[["cell", "launch", *table.columns]])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["cell", "launch"])

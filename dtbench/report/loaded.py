"""What a notebook gets: traces or a run as DataFrames. Columns, dtypes and units are in ``dtbench.analyze.tables``."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dtbench.analyze.causes.exposed_owners import ExposedOwner
from dtbench.analyze.launch_tables import read_tables
from dtbench.analyze.many_runs import NOTES, load_run_steps
from dtbench.analyze.means import average
from dtbench.analyze.run import read_step_times, summarize_run
from dtbench.analyze.summary import OwnerSummary, RunSummary
from dtbench.analyze.tables import OWNERS
from dtbench.analyze.tabulate import (
    COMM_WAIT_TABLE,
    GAP_TABLE,
    GROUP_TABLE,
    LANE_TABLE,
    OVERLAP_TAX_TABLE,
    TABLES,
    tabulate_collectives,
    tabulate_overlap,
    tabulate_purposes,
    tabulate_whole,
)
from dtbench.analyze.trace_set import TraceSet
from dtbench.report import run_words
from dtbench.report.html import report_html
from dtbench.report.trace_sections import owner_section, time_section
from dtbench.report.trace_words import answer_lines, remark_lines
from dtbench.store.layout import RunFolder
from dtbench.store.outline import find_runs_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class TraceReport:
    """What the traces of one job say; ``print`` it for the answer in words.

    Attributes:
        traces: the values behind the tables: one ``TraceAnalysis`` per rank.
    """

    traces: TraceSet

    @cached_property
    def overlap(self) -> pd.DataFrame:
        """Where each step's time went, one row per rank and step: ``tables.OVERLAP``; no row for a trace without."""
        return tabulate_overlap(self.traces.analyses)

    @cached_property
    def whole(self) -> pd.DataFrame:
        """Where each whole trace's time went, one row per rank: ``tables.WHOLE``."""
        return tabulate_whole(self.traces.analyses)

    @cached_property
    def purposes(self) -> pd.DataFrame:
        """What communication was for, one row per rank, step and purpose: ``tables.PURPOSES``."""
        return tabulate_purposes(self.traces.analyses)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per rank and collective: ``tables.COLLECTIVES``."""
        return tabulate_collectives(self.traces.analyses)

    @cached_property
    def lanes(self) -> pd.DataFrame:
        """What each stream or thread did, one row per rank, step and lane: ``tables.LANES``."""
        return LANE_TABLE.tabulate(self.traces.analyses)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Communication by process group, one row per rank, step and group: ``tables.GROUPS``."""
        return GROUP_TABLE.tabulate(self.traces.analyses)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Why the main compute stream stood still, one row per rank and step: ``tables.GAPS``."""
        return GAP_TABLE.tabulate(self.traces.analyses)

    @cached_property
    def comm_waits(self) -> pd.DataFrame:
        """What it waited for, one row per rank, step and collective: ``tables.COMM_WAITS``."""
        return COMM_WAIT_TABLE.tabulate(self.traces.analyses)

    @cached_property
    def overlap_tax(self) -> pd.DataFrame:
        """How much slower kernels ran under communication, one row per rank and kernel: ``tables.OVERLAP_TAX``."""
        return OVERLAP_TAX_TABLE.tabulate(self.traces.analyses)

    @cached_property
    def owners(self) -> pd.DataFrame:
        """Whose communication was exposed and why, over all ranks: ``tables.OWNERS``."""
        windows = average(self.traces.analyses).windows if self.traces.analyses else 1
        return _tabulate_owners(self.traces.owners, windows)

    def plot_owners(self) -> "Figure":
        """Draw whose communication was exposed, split by cause."""
        from dtbench.report.plots import plot_exposed_owners

        return plot_exposed_owners(self.owners)

    def plot_overlap(self) -> "Figure":
        """Draw how much communication each step hid and left exposed."""
        from dtbench.report.plots import plot_overlap

        return plot_overlap(self.overlap)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, may be counted wrongly, or was left out."""
        return remark_lines(self.traces)

    def __str__(self) -> str:
        return "\n".join([*answer_lines(self.traces), *(f"Note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sections = [section for section in (owner_section(self.traces), time_section(self.traces)) if section.rows]
        return report_html("", answer_lines(self.traces), sections, self.notes)


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
            ``comm_waits``, ``overlap_tax``.
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
        of_cells = [_tabulate_owners(cell.owners, 1).assign(cell=cell.name) for cell in self.summary.cells]
        stacked = pd.concat(of_cells, ignore_index=True) if of_cells else _tabulate_owners((), 1).assign(cell="")
        return stacked[["cell", *OWNERS]]

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

    def __str__(self) -> str:
        head = run_words.head_words(self.summary)
        return "\n".join([head, *run_words.answer_words(self.summary), *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        cells = ", ".join(cell.name for cell in self.summary.cells)
        return f"{self.summary.name} {self.summary.run_id}, {self.summary.status}; cells: {cells}"

    def _repr_html_(self) -> str:
        head, answer = run_words.head_words(self.summary), run_words.answer_words(self.summary)
        return report_html(head, answer, [run_words.cells_section(self.summary)], self.notes)


def load_run(path: Path) -> RunReport:
    """Read a run's tables; derived ones are made from the traces where they are missing.

    Args:
        path: folder of a run, or of a scenario's runs: the latest of these.

    Raises:
        StoreError: this is no run, or a file of it is broken or of another version.
    """
    folder = max(find_runs_below(path), key=lambda run: run.name, default=path)
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


def _tabulate_owners(rows: Sequence[ExposedOwner | OwnerSummary], windows: int) -> pd.DataFrame:
    """Make ``tables.OWNERS`` of rows whose times are sums over so many windows."""
    made = [
        {
            "owner": row.owner or "",
            "operation": str(row.operation or ""),
            "purpose": str(row.purpose),
            "cause": str(row.cause),
            "exposed_ns": row.exposed_ns / windows,
            "owner_exposed_ns": row.owner_exposed_ns / windows,
            "waited_for": row.waited_for,
        }
        for row in rows
    ]
    return pd.DataFrame(made, columns=list(OWNERS), dtype=object).astype(OWNERS)


def _stack(tables: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """Put one table of every launch below each other, its cell and launch in the first two columns."""
    parts = []
    for (cell, launch), table in tables.items():
        placed = table.assign(cell=cell, launch=launch)
        parts.append(placed[["cell", "launch", *table.columns]])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["cell", "launch"])

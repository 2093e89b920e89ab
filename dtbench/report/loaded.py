"""What a notebook gets: traces or a run as DataFrames. Columns, dtypes and units are in ``dtbench.analyze.tables``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from dtbench.analyze.launch_tables import read_tables
from dtbench.analyze.run import read_step_times, summarize_run
from dtbench.analyze.summary import RunSummary
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
from dtbench.report.trace_words import answer_lines, remark_lines
from dtbench.store.layout import RunFolder


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

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, may be counted wrongly, or was left out."""
        return remark_lines(self.traces)

    def __str__(self) -> str:
        return "\n".join([*answer_lines(self.traces), *(f"Note: {note}" for note in self.notes)])

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class RunReport:
    """What a run found. Every table has the columns ``cell`` and ``launch`` before those of ``dtbench.analyze.tables``.

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

    def __repr__(self) -> str:
        cells = ", ".join(cell.name for cell in self.summary.cells)
        return f"{self.summary.name} {self.summary.run_id}, {self.summary.status}; cells: {cells}"


def load_run(path: Path) -> RunReport:
    """Read a run's tables; derived ones are made from the traces where they are missing.

    Raises:
        StoreError: this is no run, or a file of it is broken or of another version.
    """
    summary = summarize_run(path)
    launches = [(cell.name, index) for cell in summary.cells for index in cell.launches]
    folders = {launch: RunFolder(path).launch(*launch) for launch in launches}
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


def _stack(tables: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """Put one table of every launch below each other, its cell and launch in the first two columns."""
    parts = []
    for (cell, launch), table in tables.items():
        placed = table.assign(cell=cell, launch=launch)
        parts.append(placed[["cell", "launch", *table.columns]])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["cell", "launch"])

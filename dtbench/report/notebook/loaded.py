"""What a notebook gets of a run, or of many: DataFrames. Columns, dtypes, units are in ``docs/reference/tables.md``."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dtbench.base.errors import StoreError
from dtbench.report.notebook.trace_report import plot_step_of
from dtbench.report.page import run_page
from dtbench.report.page.cell_tables import tabulate_cells, tabulate_launches
from dtbench.report.page.run_tables import ESTIMATES, tabulate_run_owners
from dtbench.report.render.html import page_html
from dtbench.report.words.sentences import doubts_of_cells, mistrusted
from dtbench.report.words.visible import spell_controls
from dtbench.runs.reading.cell_data import STEPS_NAME, RunData, stack, stack_left_out
from dtbench.runs.reading.gains import GAINS
from dtbench.runs.reading.many_runs import NOTES, load_run_steps
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.reading.undisturbed import IS_LEFT_OUT
from dtbench.runs.run import summarize_data
from dtbench.runs.summary import RunSummary
from dtbench.store.find_run import find_run
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.traces.rows.launch_tables import read_launch_traces
from dtbench.traces.rows.tables import TABLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dtbench.report.timeline.open import Ranks, Timeline
    from dtbench.traces.job.chosen_steps import Steps

RESULTS: Final = Path("results")
"""Where runs are when only a scenario is named."""


@dataclass(frozen=True, repr=False)
class RunReport:
    """What a run found; ``print`` it for the answer in words.

    Every table has the columns ``run``, ``cell`` and ``launch`` before those of ``docs/reference/tables.md``. None has
    anything of the steps that others disturbed, as no number of ``summary`` has; these are in ``left_out``.

    Attributes:
        summary: what ``dtbench report`` shows.
        steps: every timed step of every rank, one row each: the table ``steps``.
        overlap: where each PROFILED step's time went: the table ``overlap``.
        purposes: what communication was for, by rank, step and purpose: the table ``purposes``.
        collectives: one row per rank and collective: the table ``collectives``.
        tables: these three and every other table of the traces by name: ``lanes``, ``groups``, ``gaps``,
            ``comm_waits``, ``overlap_tax``, ``probes``.
        left_out: by the same names, ``steps`` among them, the rows of steps that are in no table, with their columns;
            ``summary`` counts the steps, and a note says why.
    """

    summary: RunSummary
    steps: pd.DataFrame
    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    left_out: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @cached_property
    def owners(self) -> pd.DataFrame:
        """Whose communication was exposed and why: ``run``, ``cell``, then the table ``owners``."""
        return tabulate_run_owners(self.summary)

    @cached_property
    def estimates(self) -> pd.DataFrame:
        """Exposed communication estimated several ways: ``run``, ``cell``, then the table ``estimates``."""
        return ESTIMATES.tabulate(self.summary)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Every launch that counts, one row each, with a column for each knob that varies: the table ``launches``."""
        return tabulate_launches(self.summary, self.overlap)

    def metrics(self, unit: str = "ns") -> pd.DataFrame:
        """Return every cell, one row each, with a column for each knob that varies: the table ``cells``. ::

            run.metrics(unit="ms")[["cell", "step_time_ms", "exposed_comm_ms"]]

        Args:
            unit: of times: ns, us, ms or s; the names of columns end in it.

        Raises:
            ValueError: there is no such unit.
        """
        return tabulate_cells(self.summary, unit)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, with the cells that it is about."""
        return run_page.note_words(self.summary)

    @property
    def _cells(self) -> tuple[str, ...]:
        return tuple(cell.name for cell in self.summary.cells)

    def _every_row(self, name: str, kept: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the steps that are left out, which a picture counts."""
        others = self.left_out.get(name, kept[:0])
        tables = [kept.assign(**{IS_LEFT_OUT: False}), others.assign(**{IS_LEFT_OUT: True})]
        return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)

    def plot_breakdown(self) -> "Figure":
        """Draw where each rank's PROFILED step went."""
        from dtbench.report.plots.names import plot_step_breakdown

        return plot_step_breakdown(self.summary)

    def plot_exposed(self) -> "Figure":
        """Draw what communication was exposed, by purpose and cause, for each cell."""
        from dtbench.report.plots.pictures import plot_run_exposed

        return plot_run_exposed(self.summary)

    def plot_owners(self) -> "Figure":
        """Draw whose communication was exposed, split by cause, for each cell."""
        from dtbench.report.plots.pictures import plot_run_owners

        return plot_run_owners(self.summary)

    def plot_overlap(self) -> "Figure":
        """Draw how much communication each PROFILED step hid and left exposed, for each cell."""
        from dtbench.report.plots.names import plot_overlap, wholes_of

        overlap, cells = self._every_row("overlap", self.overlap), self.summary.cells
        return plot_overlap(overlap, doubts_of_cells(cells), self._cells, wholes_of(cells))

    def plot_ranks(self) -> "Figure":
        """Draw maps of ranks and PROFILED steps, for each cell: what was exposed, and how long others waited for it."""
        from dtbench.report.plots.names import plot_ranks, wholes_of

        overlap, cells = self._every_row("overlap", self.overlap), self.summary.cells
        return plot_ranks(overlap, self.collectives, doubts_of_cells(cells), self._cells, wholes_of(cells))

    def plot_causes(self) -> "Figure":
        """Draw maps of ranks and causes, for each cell: how much each rank left exposed for which cause."""
        from dtbench.report.plots.names import plot_causes

        overlap, cells = self._every_row("overlap", self.overlap), self.summary.cells
        return plot_causes(overlap, self.collectives, doubts_of_cells(cells), self._cells)

    def plot_step_distribution(self) -> "Figure":
        """Draw how the MEASURED steps of each launch are spread."""
        from dtbench.report.plots.names import plot_step_distribution

        return plot_step_distribution(
            self._every_row(STEPS_NAME, self.steps), mistrusted(self.summary.cells), self._cells
        )

    def plot_sweep(self) -> "Figure":
        """Draw the cells against each other."""
        from dtbench.report.plots.names import plot_sweep

        return plot_sweep(self.summary)

    def plot_timeline(self, step: int | None = None, *, cell: str | None = None, launch: int | None = None) -> "Figure":
        """Draw what ran on each lane in one step of a launch; left out: the first that has traces, a typical step.

        Raises:
            StoreError: there is no such cell or launch, or its traces are gone.
        """
        chosen, folder, untold = _choose_launch(self.summary, cell, launch)
        return plot_step_of(read_launch_traces(folder), step, of=chosen, untold=untold)

    def what_if(self, *changes: str, cell: str | None = None) -> pd.DataFrame:
        """Replay the profiled steps with something changed, and return what each change would save.

        Args:
            changes: ``hidden: bucket 3``, ``link: x2`` and so on, as ``dtbench whatif --change`` takes them; none: what
                may apply.
            cell: of the run; None: all of which something can be said.

        Returns:
            The table ``what_if``, over the launches that have traces; its ``attrs["left_out"]`` says of what it has no
            row, and why.

        Raises:
            PredictionError: of no cell can anything be said, or a change does not apply.
            StoreError: there is no such cell.
        """
        from dtbench.report.notebook.what_if import ask_run, tabulate

        return tabulate(ask_run(Path(self.summary.path), changes, cell))

    def plot_what_if(self, *changes: str, cell: str | None = None) -> "Figure":
        """Draw what each change would save; as ``what_if``."""
        from dtbench.report.plots.names import plot_what_if

        return plot_what_if(self.what_if(*changes, cell=cell))

    def predict(
        self,
        *worlds: int,
        link: str | None = None,
        between: str | None = None,
        nodes_of: int | None = None,
        cell: str | None = None,
    ) -> pd.DataFrame:
        """Predict the step at other numbers of ranks, by the closed form and the host's time that this run had. ::

            run.predict(8, 64, 1024, link="nvlink4", between="400G", nodes_of=8)

        Args:
            worlds: numbers of ranks; none: 8, 16 ... 4,096.
            link: another one, as ``dtbench predict --link`` takes it.
            between: the same of the link between machines.
            nodes_of: how many ranks share a machine.
            cell: of the run; None: all of which something can be said.

        Returns:
            The table ``predicted``.

        Raises:
            PredictionError: of no cell can anything be said, or it is no link.
            StoreError: there is no such cell.
        """
        from dtbench.report.notebook.predict import PREDICTED, ask_worlds, make_cluster, read_subjects
        from dtbench.runs.scaling.curve import DEFAULT_WORLDS

        subjects = read_subjects(Path(self.summary.path), cell)
        cluster = make_cluster(link, between, nodes_of)
        return PREDICTED.tabulate(ask_worlds({self.summary.path: subjects}, worlds or DEFAULT_WORLDS, cluster))

    def plot_predicted(
        self,
        *worlds: int,
        link: str | None = None,
        between: str | None = None,
        nodes_of: int | None = None,
        cell: str | None = None,
    ) -> "Figure":
        """Draw the step against the number of ranks; as ``predict``."""
        from dtbench.report.plots.names import plot_predicted

        table = self.predict(*worlds, link=link, between=between, nodes_of=nodes_of, cell=cell)
        return plot_predicted(table)

    def timeline(
        self, steps: "Steps" = None, *, ranks: "Ranks" = None, cell: str | None = None, launch: int | None = None
    ) -> "Timeline":
        """Return what ranks of a launch did, to zoom and pan in.

        Args:
            steps: one, (first, last), or None: as many as fit.
            ranks: one, several (``[0, 4]``, ``range(8)``), or None: all that have traces.
            cell: of the run; None: the first that has traces.
            launch: of the cell; None: the first that has traces.

        Raises:
            StoreError: there is no such cell or launch, or its traces are gone.
            TraceError: there is no such rank or step.
        """
        from dtbench.report.timeline import open_run_timeline

        return open_run_timeline(Path(self.summary.path), cell=cell, launch=launch, ranks=ranks, steps=steps)

    def __str__(self) -> str:
        head = run_page.head_words(self.summary)
        notes = (f"Note: {note}" for note in self.notes)
        return spell_controls("\n".join([head, *run_page.answer_words(self.summary), *notes]))

    def __repr__(self) -> str:
        cells = ", ".join(cell.name for cell in self.summary.cells)
        return spell_controls(f"{self.summary.name} {self.summary.run_id}, {self.summary.status}; cells: {cells}")

    def _repr_html_(self) -> str:
        return page_html(run_page.run_page(self.summary), ("checks", "cells"))


def load_run(path: Path) -> RunReport:
    """Read a run's tables; derived ones are made from the traces where they are missing.

    Args:
        path: folder of a run, or of several, the latest of which is taken; or a scenario's name.

    Raises:
        StoreError: this is no run, or a file of it is broken or of another version.
    """
    return tabulate_run(read_run_data(find_run(str(path), RESULTS)))


def tabulate_run(data: RunData) -> RunReport:
    """Return what was read of a run as tables, with its answer.

    Raises:
        StoreError: no launch of it can be read.
    """
    launches, names = data.launches, [*(table.name for table in TABLES), GAINS.name]
    tables = {name: stack(launches, name) for name in names}
    return RunReport(
        summary=summarize_data(data),
        steps=stack(launches, STEPS_NAME),
        overlap=tables["overlap"],
        purposes=tables["purposes"],
        collectives=tables["collectives"],
        tables=tables,
        left_out={name: stack_left_out(launches, name) for name in (STEPS_NAME, *names)},
    )


def load_runs(results: Path, *, all_steps: bool = False) -> pd.DataFrame:
    """Read the steps of every complete launch below a folder; warns where something is left out.

    Raises:
        StoreError: there is no run.
    """
    steps = load_run_steps(results, all_steps=all_steps)
    notes = steps.attrs[NOTES]
    if notes:
        more = f" and {len(notes) - 1} more, see .attrs[{NOTES!r}]" if len(notes) > 1 else ""
        warnings.warn(spell_controls(f"left out: {notes[0]}{more}"), stacklevel=3)
    return steps


def _choose_launch(
    summary: RunSummary, cell: str | None, launch: int | None
) -> tuple[str, LaunchFolder, tuple[str, ...]]:
    """Return the first launch with traces of those that are meant, else the first: its name, and where it is.

    Then the names of those before it that are passed over, as their traces are gone.
    """
    launches = [(one.name, index) for one in summary.cells for index in one.launches]
    meant = [one for one in launches if cell in (None, one[0]) and launch in (None, one[1])]
    if not meant:
        there = ", ".join(f"{name} launch {index}" for name, index in launches) or "none"
        raise StoreError(f"{summary.path}: there is no such cell or launch in this run; there are: {there}")
    folders = [RunFolder(Path(summary.path)).launch(*one) for one in meant]
    at = next((at for at, folder in enumerate(folders) if folder.find_traces()), 0)
    names = [f"{name} launch{index}" for name, index in meant]
    return names[at], folders[at], tuple(names[:at])

"""What a notebook gets of anyone's traces, as DataFrames: their columns are in ``docs/reference/tables.md``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from dtbench.base.errors import TraceError
from dtbench.report.page.run_tables import OWNERS, OwnedRows
from dtbench.report.page.trace_page import traces_page
from dtbench.report.render.html import page_html
from dtbench.report.words.trace_words import answer_lines, answer_notes, remark_lines, why_not_judged
from dtbench.report.words.visible import spell_controls
from dtbench.runs.cell.summarize_overlap import keep_known
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import COMM_WAITS, GAPS, GROUPS, LANES, OVERLAP, OVERLAP_TAX, PROBES, PURPOSES, WHOLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dtbench.report.plots.names import Wholes
    from dtbench.report.timeline.open import Ranks, Timeline
    from dtbench.traces.job.chosen_steps import Steps


@dataclass(frozen=True, repr=False)
class TraceReport:
    """What the traces of one job say; ``print`` it for the answer in words.

    Attributes:
        traces: the values behind the tables: one ``TraceAnalysis`` per rank.
    """

    traces: TraceSet

    @cached_property
    def overlap(self) -> pd.DataFrame:
        """Where each step's time went, one row per rank and step: the table ``overlap``; no row for a trace without."""
        return OVERLAP.tabulate(self.traces.analyses)

    @cached_property
    def whole(self) -> pd.DataFrame:
        """Where each whole trace's time went, one row per rank: the table ``whole``."""
        return WHOLE.tabulate(self.traces.analyses)

    @cached_property
    def purposes(self) -> pd.DataFrame:
        """What communication was for, one row per rank, step and purpose: the table ``purposes``."""
        return PURPOSES.tabulate(self.traces.analyses)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per rank and collective: the table ``collectives``."""
        return COLLECTIVES.tabulate(self.traces.analyses)

    @cached_property
    def lanes(self) -> pd.DataFrame:
        """What each stream or thread did, one row per rank, step and lane: the table ``lanes``."""
        return LANES.tabulate(self.traces.analyses)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Communication by process group, one row per rank, step and group: the table ``groups``."""
        return GROUPS.tabulate(self.traces.analyses)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Why the main compute stream stalled, one row per rank and step: the table ``gaps``."""
        return GAPS.tabulate(self.traces.analyses)

    @cached_property
    def comm_waits(self) -> pd.DataFrame:
        """What it waited for, one row per rank, step and collective: the table ``comm_waits``."""
        return COMM_WAITS.tabulate(self.traces.analyses)

    @cached_property
    def overlap_tax(self) -> pd.DataFrame:
        """How much slower kernels ran under communication, one row per rank and kernel: the table ``overlap_tax``."""
        return OVERLAP_TAX.tabulate(self.traces.analyses)

    @cached_property
    def probes(self) -> pd.DataFrame:
        """How long functions under study ran, one row per rank, step and function: the table ``probes``."""
        return PROBES.tabulate(self.traces.analyses)

    @cached_property
    def owners(self) -> pd.DataFrame:
        """Whose communication was exposed and why, over all ranks: the table ``owners``."""
        if not self.traces.analyses:
            return OWNERS.tabulate(OwnedRows(self.traces.owners))
        mean = average(self.traces.analyses)
        return OWNERS.tabulate(OwnedRows(self.traces.owners, mean.windows, mean.part))

    def plot_exposed(self) -> "Figure":
        """Draw what communication was exposed, by purpose and cause."""
        from dtbench.report.plots.names import plot_exposed

        return plot_exposed(self.owners, self._doubts())

    def plot_owners(self) -> "Figure":
        """Draw whose communication was exposed, split by cause."""
        from dtbench.report.plots.names import plot_exposed_owners

        return plot_exposed_owners(self.owners, self._doubts())

    def plot_overlap(self) -> "Figure":
        """Draw how much communication each step hid and left exposed."""
        from dtbench.report.plots.names import plot_overlap

        return plot_overlap(self.overlap, self._doubts(), wholes=self._wholes())

    def plot_ranks(self) -> "Figure":
        """Draw maps of ranks and steps: what each left exposed, and how long others waited for it."""
        from dtbench.report.plots.names import plot_ranks

        return plot_ranks(self.overlap, self.collectives, self._doubts(), wholes=self._wholes())

    def plot_causes(self) -> "Figure":
        """Draw a map of ranks and causes: how much each rank left exposed for which cause."""
        from dtbench.report.plots.names import plot_causes

        hosts = {} if self.traces.hosts is None else self.traces.hosts.label_of
        return plot_causes(self.overlap, self.collectives, self._doubts(), hosts=hosts)

    def _wholes(self) -> "Wholes":
        from dtbench.report.plots.names import Whole

        return {"": Whole(self.traces.every_rank)}

    def _doubts(self) -> dict[str, str]:
        """Say why no owner is told to have most of it, as pictures ask for it; empty: nothing speaks against it."""
        said = why_not_judged(self.traces)
        return {} if said is None else {"": said}

    def plot_timeline(self, step: int | None = None) -> "Figure":
        """Draw what ran on each lane in one step; left out: the one whose exposed communication is the median."""
        return plot_step_of(self.traces, step)

    def timeline(self, steps: "Steps" = None, *, ranks: "Ranks" = None) -> "Timeline":
        """Return what ranks did, to zoom and pan in.

        Args:
            steps: one, (first, last), or None: as many as fit.
            ranks: one, several (``[0, 4]``, ``range(8)``), or None: all that have traces.

        Raises:
            TraceError: a trace is gone, or there is no such rank or step.
        """
        from dtbench.report.timeline import make_timeline

        return make_timeline(self.traces, ranks=ranks, steps=steps)

    def what_if(self, *changes: str) -> pd.DataFrame:
        """Replay the steps with something changed, and return what each change would save: the table ``what_if``.

        Its ``attrs["left_out"]`` says what the traces leave out.

        Args:
            changes: ``hidden: bucket 3``, ``link: x2`` and so on, as ``dtbench whatif --change`` takes them; none: what
                may apply.

        Raises:
            PredictionError: the unchanged replay does not give the steps, or a change does not apply.
        """
        from dtbench.report.notebook.what_if import ask_traces, tabulate

        return tabulate(ask_traces(self.traces, changes))

    def plot_what_if(self, *changes: str) -> "Figure":
        """Draw what each change would save; as ``what_if``."""
        from dtbench.report.plots.names import plot_what_if

        return plot_what_if(self.what_if(*changes))

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, may be counted wrongly, or was left out, and what one rank alone does not tell."""
        return (*answer_notes(self.traces), *remark_lines(self.traces))

    def __str__(self) -> str:
        return spell_controls(
            "\n".join([*answer_lines(self.traces), *(f"Note: {note}" for note in remark_lines(self.traces))])
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page_html(traces_page(self.traces), ("owners",), headless=True)


def plot_step_of(traces: TraceSet, step: int | None, *, of: str = "", untold: Sequence[str] = ()) -> "Figure":
    """Draw one step of traces; None: a typical one.

    Args:
        traces: as analysed.
        step: its number.
        of: cell and launch of a run; empty: of traces alone.
        untold: launches before it that are not drawn, as their traces are gone.

    Raises:
        TraceError: a trace is gone, or there is no such step.
    """
    from dtbench.report.plots.names import Limits, plot_timeline
    from dtbench.traces.job.chosen_steps import StepRange
    from dtbench.traces.spans import EXPOSED, SPANS, STAGE_WORK, collect_spans

    shown = _typical_step(OVERLAP.tabulate(traces.analyses)) if step is None else step
    spans = collect_spans(traces, StepRange(shown, shown))
    return plot_timeline(
        SPANS.tabulate(spans),
        EXPOSED.tabulate(spans),
        shown,
        STAGE_WORK.tabulate(spans),
        Limits(
            apart={one.rank for one in spans.ranks if not one.place.is_aligned},
            every=traces.every_rank,
            unseen=spans.unseen,
            is_one_job=traces.over_ranks.is_one_job,
            of=of,
            untold=untold,
        ),
    )


def _typical_step(overlap: pd.DataFrame) -> int:
    """Return the step whose exposed communication is the median over steps, the lower of two.

    Raises:
        TraceError: no step is marked.
    """
    if overlap.empty:
        raise TraceError("these traces have no steps, so there is none to draw; timeline() draws all of them")
    known = keep_known(overlap)
    exposed = (overlap if known.empty else known).groupby("step")["exposed_comm_ns"].mean().sort_values(kind="stable")
    return int(exposed.index[(len(exposed) - 1) // 2])

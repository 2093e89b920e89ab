"""The pictures of a whole run, drawn once for its folder and for TensorBoard."""

from collections.abc import Callable

from matplotlib.figure import Figure

from dtbench.base.vocabulary import Phase
from dtbench.report.page.run_tables import tabulate_run_owners
from dtbench.report.plots.names import (
    MOST_CELLS,
    figure_png,
    plot_exposed,
    plot_exposed_owners,
    plot_stage_memory,
    plot_stages,
    plot_step_breakdown,
)
from dtbench.report.plots.sweep import plot_sweep
from dtbench.report.words.sentences import count_left_out, doubts_of_owners
from dtbench.runs.summary import RunSummary

MOST_STAGE_CELLS = 5
"""Cells whose stages are drawn in one picture; the report has the tables of more."""


def plot_run_owners(summary: RunSummary) -> Figure:
    """Draw whose communication the cells of a run left exposed."""
    return _plot_exposed(summary, plot_exposed_owners)


def plot_run_exposed(summary: RunSummary) -> Figure:
    """Draw what communication the cells of a run left exposed, by purpose and cause."""
    return _plot_exposed(summary, plot_exposed)


def _plot_exposed(summary: RunSummary, plot: Callable[..., Figure]) -> Figure:
    names, left_out = [cell.name for cell in summary.cells], count_left_out(summary.cells, Phase.PROFILED)
    return plot(tabulate_run_owners(summary), doubts_of_owners(summary.cells), names, left_out)


def draw_pictures(summary: RunSummary) -> dict[str, bytes]:
    """Return PNG files by their tag in TensorBoard, in the order in which they are shown."""
    figures = {"step_breakdown": plot_step_breakdown(summary)}
    if len(summary.cells) <= MOST_CELLS and any(cell.owners for cell in summary.cells):
        figures["exposed"] = plot_run_exposed(summary)
        figures["exposed_owners"] = plot_run_owners(summary)
    if len(summary.cells) > 1:
        figures["sweep"] = plot_sweep(summary)
    if 0 < sum(bool(cell.stages) for cell in summary.cells) <= MOST_STAGE_CELLS:
        figures["stages"] = plot_stages(summary.cells)
        figures["stage_memory"] = plot_stage_memory(summary.cells)
    return {tag: figure_png(figure) for tag, figure in figures.items()}

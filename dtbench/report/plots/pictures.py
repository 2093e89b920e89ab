"""The pictures of a whole run, drawn once for its folder and for TensorBoard."""

from dtbench.report.page.run_tables import tabulate_run_owners
from dtbench.report.plots.names import (
    MOST_CELLS,
    figure_png,
    plot_exposed_owners,
    plot_stage_memory,
    plot_stages,
    plot_step_breakdown,
)
from dtbench.report.plots.sweep import plot_sweep
from dtbench.report.words.sentences import doubts_of_cells
from dtbench.runs.summary import RunSummary

MOST_STAGE_CELLS = 5
"""Cells whose stages are drawn in one picture; the report has the tables of more."""


def draw_pictures(summary: RunSummary) -> dict[str, bytes]:
    """Return PNG files by their tag in TensorBoard, in the order in which they are shown."""
    figures = {"step_breakdown": plot_step_breakdown(summary)}
    if len(summary.cells) <= MOST_CELLS and any(cell.owners for cell in summary.cells):
        figures["exposed_owners"] = plot_exposed_owners(
            tabulate_run_owners(summary), doubts_of_cells(summary.cells), [cell.name for cell in summary.cells]
        )
    if len(summary.cells) > 1:
        figures["sweep"] = plot_sweep(summary)
    if 0 < sum(bool(cell.stages) for cell in summary.cells) <= MOST_STAGE_CELLS:
        figures["stages"] = plot_stages(summary.cells)
        figures["stage_memory"] = plot_stage_memory(summary.cells)
    return {tag: figure_png(figure) for tag, figure in figures.items()}

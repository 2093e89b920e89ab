"""The plots of an answer, for a page that shows them; they are drawn when the page is written."""

from collections.abc import Callable, Iterator

import pandas as pd
from matplotlib.figure import Figure

from dtbench.report.page import sweep
from dtbench.report.page.page import Picture
from dtbench.report.plots.drawing import literal
from dtbench.report.plots.names import (
    MOST_CELLS,
    plot_causes,
    plot_overlap,
    plot_ranks,
    plot_stage_memory,
    plot_stages,
    plot_step_breakdown,
    plot_step_distribution,
    plot_sweep,
    wholes_of,
)
from dtbench.report.plots.pictures import MOST_STAGE_CELLS, plot_run_exposed, plot_run_owners
from dtbench.report.plots.vector import draw_svg
from dtbench.report.words.sentences import doubts_of_cells, mistrusted
from dtbench.runs.summary import RunSummary


def picture_of(key: str, name: str, title: str, make: Callable[[], Figure]) -> Picture:
    """Return a plot as a picture of a page.

    Args:
        key: of the part that it stands in.
        name: of the plot among those of the page.
        title: what it shows.
        make: draws it.
    """
    return Picture(title=title, words=title, draw=lambda: draw_svg(make, name), key=key)


def untitle(figure: Figure, words: str) -> Figure:
    """Return a figure without the title that the page's answer says already."""
    if figure.get_suptitle() == literal(words):
        figure.suptitle("")
    for axes in figure.axes:
        if axes.get_title(loc="left") == literal(words):
            axes.set_title("", loc="left")
    return figure


def run_pictures(
    summary: RunSummary, steps: pd.DataFrame, overlap: pd.DataFrame, collectives: pd.DataFrame
) -> Iterator[Picture]:
    """Return the plots of a run: cells against each other, then the steps, then whose time was exposed.

    Args:
        summary: the run.
        steps: of its cells, columns as in ``dtbench.store.finish.STEPS``, and ``is_left_out``.
        overlap: of its cells, columns as in ``dtbench.traces.rows.tables.OVERLAP``, and ``is_left_out``.
        collectives: of its cells, columns as in ``dtbench.traces.rows.collective_table.COLLECTIVES``.
    """
    names = [cell.name for cell in summary.cells]
    doubts, wholes = doubts_of_cells(summary.cells), wholes_of(summary.cells)
    if len(names) > 1:
        finding = sweep.finding(summary)
        yield picture_of("cells", "sweep", "Cells against each other", lambda: untitle(plot_sweep(summary), finding))
    if sweep.MOST_CELLS < len(names) <= MOST_CELLS:  # of fewer, each has a chart of its own
        yield picture_of("plots", "breakdown", "Where profiled steps went", lambda: plot_step_breakdown(summary))
    if any(cell.owners for cell in summary.cells) and len(names) <= MOST_CELLS:
        title = "What communication is exposed, by purpose and cause"
        yield picture_of("plots", "exposed", title, lambda: plot_run_exposed(summary))
        title = "Whose communication is exposed, and why"
        yield picture_of("plots", "owners", title, lambda: plot_run_owners(summary))
    if not overlap.empty and len(names) <= MOST_CELLS:
        title = "What each profiled step hides and leaves exposed"
        yield picture_of("plots", "overlap", title, lambda: plot_overlap(overlap, doubts, names, wholes))
        if overlap["rank"].nunique() > 1:
            title = "Each rank in each profiled step"
            yield picture_of("plots", "ranks", title, lambda: plot_ranks(overlap, collectives, doubts, names, wholes))
            title = "Each rank's exposed communication by cause"
            yield picture_of("plots", "causes", title, lambda: plot_causes(overlap, collectives, doubts, names))
    if not steps.empty:
        title, untrusted = "How measured steps are spread", mistrusted(summary.cells)
        yield picture_of("plots", "spread", title, lambda: plot_step_distribution(steps, untrusted, names))
    if 0 < sum(bool(cell.stages) for cell in summary.cells) <= MOST_STAGE_CELLS:
        yield picture_of("plots", "stages", "Stages of the training state", lambda: plot_stages(summary.cells))
        yield picture_of("plots", "memory", "Memory of its stages", lambda: plot_stage_memory(summary.cells))

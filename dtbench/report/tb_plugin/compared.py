"""The tab Compare: one cell against another, in the words and tables of ``dtbench compare``, with its picture."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dtbench.base.errors import ComparisonError, DtbenchError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.run import compare_paths
from dtbench.report.page.brief.comparison import sides_chart
from dtbench.report.page.comparison_page import comparison_page
from dtbench.report.page.page import Chart, Page, Part
from dtbench.report.plots.names import plot_comparison
from dtbench.report.plots.page_pictures import untitle
from dtbench.report.plots.vector import draw_svg
from dtbench.report.tb_plugin.refusal import BROKEN, CONFLICT, Refusal


@dataclass(frozen=True)
class ComparedDocument:
    """A comparison.

    Attributes:
        page: what is said of it.
        picture: each metric's change with its interval, an ``<svg>`` element, or ``<img>`` where that would be large.
        picture_words: what there is to see.
    """

    page: Page
    picture: str
    picture_words: str


def compare_cells(baseline: Path, candidate: Path, *, results: Path, force: bool) -> ComparedDocument:
    """Compare two folders of cells.

    Args:
        baseline: ``<run>/cells/<cell>``.
        candidate: likewise.
        results: the log directory.
        force: compare although they ran in unlike environments.

    Raises:
        Refusal: they cannot be compared; of unlike environments, with the status ``CONFLICT``.
    """
    try:
        comparison = compare_paths(str(baseline), str(candidate), results=results, force=force)
    except ComparisonError as error:
        raise Refusal(CONFLICT, str(error)) from error
    except DtbenchError as error:
        raise Refusal(BROKEN, str(error)) from error
    picture = draw_svg(lambda: untitle(plot_comparison(comparison), comparison.sentence), "changes")
    return ComparedDocument(_make_page(comparison), picture, "Each metric's change with its interval")


def _make_page(comparison: Comparison) -> Page:
    """Return the page of a comparison: its sentence a clause a line, then a bar of each side."""
    page = comparison_page(comparison)
    chart = sides_chart(comparison)
    parts = sorted(page.parts, key=lambda part: part.key not in _COST)
    return replace(page, parts=(*_sides_part(chart), *parts))


_COST: Final = ("metrics", "collectives")
"""What comes before what was asked for and done, which may be long."""


def _sides_part(chart: Chart | None) -> Iterator[Part]:
    if chart is not None:
        yield Part("sides", "", (chart,))

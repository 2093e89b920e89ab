"""The tab Compare: one cell against another, in the words and tables of ``dtbench compare``, with its picture."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dtbench.base.errors import ComparisonError, DtbenchError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.run import compare_paths
from dtbench.report.page.brief.comparison import sides_chart
from dtbench.report.page.comparison_page import basis_lines, comparison_page
from dtbench.report.page.page import Chart, Line, Page, Part, Tone, lines
from dtbench.report.plots.names import plot_comparison
from dtbench.report.plots.page_pictures import untitle
from dtbench.report.plots.vector import draw_svg
from dtbench.report.tb_plugin.refusal import BROKEN, CONFLICT, Refusal

_CLAUSES: Final = re.compile(r"; (?![^(]*\))")
"""Between two clauses of a sentence; what stands in brackets is one."""


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
    first, *others = split_clauses(comparison.sentence)
    answer = (Line(first, Tone.STRONG), *lines(others), *lines(basis_lines(comparison), Tone.QUIET))
    parts = sorted(page.parts, key=lambda part: part.key not in _COST)
    return replace(page, answer=answer, parts=(*_sides_part(chart), *parts))


_COST: Final = ("metrics", "collectives")
"""What comes before what was asked for and done, which may be long."""


def _sides_part(chart: Chart | None) -> Iterator[Part]:
    if chart is not None:
        yield Part("sides", "", (chart,))


def split_clauses(sentence: str) -> list[str]:
    """Return the clauses of a long sentence, each to be read by itself.

    >>> split_clauses("too few (1; 4 are needed): 2 ms; 1 ms more exposed")
    ['too few (1; 4 are needed): 2 ms', '1 ms more exposed']
    """
    return _CLAUSES.split(sentence)

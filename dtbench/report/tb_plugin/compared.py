"""The tab Compare: one cell against another, in the words and tables of ``dtbench compare``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtbench.base.errors import ComparisonError, DtbenchError
from dtbench.comparison.run import compare_paths
from dtbench.report.page.comparison_text import basis_lines, comparison_sections, remark_lines
from dtbench.report.page.section import Section
from dtbench.report.tb_plugin.refusal import BROKEN, CONFLICT, Refusal
from dtbench.report.tb_plugin.shapes import Column, Fact, Table


@dataclass(frozen=True)
class ComparisonDocument:
    """What ``dtbench compare`` says of two cells; ``sentence`` leads."""

    sentence: str
    basis: tuple[str, ...]
    tables: tuple[Table, ...]
    notes: tuple[Fact, ...]


def compare_cells(baseline: Path, candidate: Path, *, results: Path, force: bool) -> ComparisonDocument:
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
    return ComparisonDocument(
        sentence=comparison.sentence,
        basis=basis_lines(comparison),
        tables=tuple(_spell(section) for section in comparison_sections(comparison)),
        notes=tuple(Fact("note", note) for note in remark_lines(comparison)),
    )


def _spell(section: Section) -> Table:
    return Table(
        title=section.title,
        columns=tuple(Column(column.title, is_number=column.is_number) for column in section.columns),
        rows=tuple(_row(row) for row in section.rows),
        note=" ".join(section.notes),
    )


def _row(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(words)

"""The tab Compare: one cell against another, in the words and tables of ``dtbench compare``."""

from pathlib import Path

from dtbench.base.errors import ComparisonError, DtbenchError
from dtbench.comparison.run import compare_paths
from dtbench.report.page.comparison_page import comparison_page
from dtbench.report.page.page import Page
from dtbench.report.tb_plugin.refusal import BROKEN, CONFLICT, Refusal


def compare_cells(baseline: Path, candidate: Path, *, results: Path, force: bool) -> Page:
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
    return comparison_page(comparison)

"""The tab Overview: the page of a run, as the terminal has it."""

from dataclasses import dataclass

from dtbench.report.page.page import Page
from dtbench.report.page.run_page import run_page
from dtbench.report.page.sweep import MOST_CELLS
from dtbench.runs.summary import RunSummary


@dataclass(frozen=True)
class OverviewDocument:
    """A run.

    Attributes:
        page: what is said of it.
        status: how it ended.
        chosen: the cell that is told in full, where a person chooses one; empty: all are.
    """

    page: Page
    status: str
    chosen: str


def make_overview(summary: RunSummary, cell: str | None) -> OverviewDocument:
    """Return the overview; of more cells than a person reads, ``cell`` says which is told in full."""
    names = [one.name for one in summary.cells]
    chosen = "" if len(names) <= MOST_CELLS else cell if cell in names else names[0]
    return OverviewDocument(run_page(summary, chosen or None), summary.status.value, chosen or "")

"""The tab Overview: the short answer of a run with all that must be doubted, then its page, as the terminal has it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from dtbench.report.page.brief.run import doubt_facts, run_brief
from dtbench.report.page.page import Block, Facts, Page, Part, Prose
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
    brief = run_brief(summary)
    page = replace(brief, parts=tuple(_parts(summary, brief, run_page(summary, chosen or None))))
    return OverviewDocument(page, summary.status.value, chosen or "")


_WHOLE = ("doubts", "checks", "notes")
"""What the short answer, and the page of many cells, have of what is told here once and in full."""


def _parts(summary: RunSummary, brief: Page, whole: Page) -> Iterator[Part]:
    shown = tuple(block for part in brief.parts for block in part.blocks if block.key not in _WHOLE)
    if shown:
        yield Part("brief", "", shown)
    told = {line.words for line in brief.answer}
    yield from (_leave_out(part, told) for part in whole.parts if part.key == "checks")
    doubts = tuple(doubt_facts(summary))
    if doubts:
        yield Part("doubts", "What must be doubted", (Facts(doubts, key="doubts"),))
    yield from (part for part in whole.parts if part.key not in _WHOLE)


def _leave_out(part: Part, told: Collection[str]) -> Part:
    """Return a part without sentences that the answer has."""
    blocks: list[Block] = []
    for block in part.blocks:
        if not isinstance(block, Prose):
            blocks.append(block)
        elif lines := tuple(line for line in block.lines if line.words not in told):
            blocks.append(replace(block, lines=lines))
    return replace(part, blocks=tuple(blocks))

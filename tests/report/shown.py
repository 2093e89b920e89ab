"""What each medium shows of a run, as its renderers give it; and where a block of its page is."""

from rich.console import RenderableType
from rich.text import Text

from dtbench.report.page.cell_page import cell_part
from dtbench.report.page.page import Block, Chart, Fact, Facts, Part, Prose, Table
from dtbench.report.page.places import find_places
from dtbench.report.page.run_page import run_page
from dtbench.report.page.sweep import cells_part, cells_table
from dtbench.report.render.markdown import block_markdown, page_markdown
from dtbench.report.render.terminal import render_page, render_part, render_places
from dtbench.report.tb_plugin.overview import make_overview
from dtbench.runs.summary import CellSummary, RunSummary


def terminal_run(summary: RunSummary) -> RenderableType:
    return render_page(run_page(summary))


def terminal_cell(cell: CellSummary) -> RenderableType:
    return render_part(cell_part(cell))


def terminal_sweep(summary: RunSummary) -> RenderableType:
    return render_part(cells_part(summary))


def terminal_places(summary: RunSummary) -> Text:
    return render_places(find_places(summary))


def markdown_run(summary: RunSummary) -> str:
    return page_markdown(run_page(summary))


def markdown_sweep(summary: RunSummary) -> str:
    return block_markdown(cells_table(summary))


def markdown_block(cell: CellSummary, key: str) -> str:
    return block_markdown(cell_part(cell).find(key))


def board_cell(summary: RunSummary, name: str | None = None) -> Part:
    """Return the card of a cell in the tab Overview: of the first, where none is named."""
    parts = [part for part in make_overview(summary, name).page.parts if part.key.startswith("cell:")]
    return next(part for part in parts if name in (None, part.title))


def table_of(part: Part, key: str) -> Table:
    """Return a table of a part, or of a chart of it."""
    block = part.find(key)
    found = block.table if isinstance(block, Chart) else block
    assert isinstance(found, Table), f"{part.title} has no table {key}"
    return found


def facts_of(part: Part, key: str) -> tuple[Fact, ...]:
    block = part.find(key)
    assert isinstance(block, Facts), f"{part.title} has no facts {key}"
    return block.facts


def words_of_block(block: Block | None) -> str:
    """Return every word of a block, to look for some."""
    match block:
        case Prose():
            return "\n".join(line.words for line in block.lines)
        case Facts():
            return "\n".join(f"{fact.label}: {fact.words}" for fact in block.facts)
        case None:
            return ""
        case _:
            return repr(block)

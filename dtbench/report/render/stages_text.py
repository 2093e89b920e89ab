"""What became of the training state, in the terminal: a row for each stage of each part, and sentences below."""

from collections.abc import Iterator

from rich.console import Group, RenderableType

from dtbench.base.vocabulary import StageOutcome
from dtbench.report.page.stages import (
    outcome_sentences,
    saved_sentence,
    stages_section,
    step_sentences,
    traffic_sentence,
)
from dtbench.report.render.plain_text import Plain
from dtbench.report.render.sweep_table import headed_table
from dtbench.runs.summary import CellSummary

_BAD = "bold red"
_STYLES = {
    StageOutcome.EQUAL: "green",
    **dict.fromkeys((StageOutcome.BROKEN, StageOutcome.NOT_COMPARED), "yellow"),
    **dict.fromkeys((StageOutcome.WRONG, StageOutcome.RAISED, StageOutcome.MENDED), _BAD),
}


def render_stages(cell: CellSummary) -> RenderableType:
    """Give stages in the order in which they ran, below them what came out wrong and what a load and a save cost."""
    section = stages_section(cell)
    table = headed_table(section.title, tuple(column.title for column in section.columns))
    for row, words in zip(cell.stages, section.rows, strict=True):
        table.add_row(*(Plain(word) for word in words[:-1]), Plain(words[-1], style=_STYLES[row.outcome]))
    return Group(table, *_lines(cell))


def _lines(cell: CellSummary) -> Iterator[Plain]:
    for row in cell.stages:
        yield from (Plain(sentence, style=_STYLES[row.outcome]) for sentence in outcome_sentences(row))
        yield from (Plain(sentence, style=_BAD) for sentence in (traffic_sentence(row),) if sentence is not None)
    yield from (Plain(sentence) for sentence in step_sentences(cell.state_steps))
    yield from (Plain(sentence, style=_BAD) for sentence in (saved_sentence(cell.state_steps),) if sentence is not None)

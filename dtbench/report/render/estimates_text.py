"""The terminal's table of estimates of exposed communication, and below it what does not agree."""

from rich.console import Group, RenderableType

from dtbench.report.page.estimates import dispute_sentences, estimates_section
from dtbench.report.render.plain_text import Plain
from dtbench.report.render.sweep_table import headed_table
from dtbench.runs.summary import ExposureSummary


def render_estimates(exposure: ExposureSummary) -> RenderableType:
    """Give all estimates with their errors, each dispute in a sentence, and what must be known of them."""
    section = estimates_section(exposure)
    table = headed_table("", tuple(column.title for column in section.columns))
    table.columns[-1].justify = "left"
    for row in section.rows:
        table.add_row(*(Plain(words, style="yellow" if words == "disputed" else "") for words in row))
    return Group(
        Plain(section.title, style="bold"),  # a table's own title breaks at the width of the table
        table,
        *(Plain(sentence, style="yellow") for sentence in dispute_sentences(exposure)),
        *(Plain(note, style="dim") for note in section.notes),
    )

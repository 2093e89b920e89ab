"""The checks of a scenario on a terminal."""

from rich.console import Group, RenderableType

from dtbench.report.page.checklist import answer_line, checks_section
from dtbench.report.render.plain_text import Plain
from dtbench.report.render.sweep_table import headed_table
from dtbench.store.records.checks import CheckOutcome, ChecksSummary

_STYLES = {CheckOutcome.PASSED: "green", CheckOutcome.FAILED: "bold red", CheckOutcome.NOT_JUDGED: "yellow"}


def render_checklist(checks: ChecksSummary) -> RenderableType:
    """Give the answer, then every check with its outcome and figure."""
    section = checks_section(checks)
    table = headed_table(section.title, tuple(column.title for column in section.columns))
    for column in table.columns:
        column.justify = "left"
        column.vertical = "top"
    for row, result in zip(section.rows, checks.results, strict=True):
        mark, *words = row
        table.add_row(Plain(mark, style=_STYLES[result.outcome]), *(Plain(word) for word in words))
    answer = Plain(answer_line(checks), style="bold" if checks.outcome is CheckOutcome.PASSED else "bold red")
    return Group(answer, Plain(), table, *(Plain(note, style="dim") for note in section.notes), Plain())

"""A comparison as Markdown for a pull request: the answer, what it cost, and the rest folded away."""

from collections.abc import Sequence
from typing import Final

from dtbench.comparison.comparison import Comparison
from dtbench.report.page.comparison_text import basis_lines, comparison_sections, remark_lines, summary_section
from dtbench.report.page.section import Section
from dtbench.report.render.html import escape_html
from dtbench.report.render.markdown import escape_markdown, markdown_table

_OPEN: Final = "What it cost"
"""The table that is not folded away."""


def comparisons_markdown(comparisons: Sequence[Comparison]) -> str:
    """Give one comparison, or several below a table of their step times; names read as they are written."""
    blocks = [f"> WARNING: left out: {escape_markdown(words)}" for words in comparisons[0].left_out]
    blocks += [_table(summary_section(comparisons))] if len(comparisons) > 1 else []
    return "\n\n".join([*blocks, *(_comparison_block(comparison) for comparison in comparisons)]) + "\n"


def _comparison_block(comparison: Comparison) -> str:
    sections = comparison_sections(comparison)
    warnings = [note for note in comparison.notes if note.startswith("WARNING")]
    lines = [*basis_lines(comparison), *(note for note in remark_lines(comparison) if note not in warnings)]
    blocks = [
        f"**{escape_markdown(comparison.sentence)}**",
        *(f"> {escape_markdown(warning)}" for warning in warnings),
        *(_table(section) for section in sections if section.title == _OPEN),
        *(_fold(section) for section in sections if section.title != _OPEN),
        "\n".join(f"- {escape_markdown(line)}" for line in lines),
    ]
    return "\n\n".join(blocks)


def _table(section: Section) -> str:
    table = markdown_table([escape_markdown(column.title) for column in section.columns], section.rows)
    return "\n\n".join([table, *(escape_markdown(note) for note in section.notes)])


def _fold(section: Section) -> str:
    return f"<details><summary>{escape_html(section.title)}</summary>\n\n{_table(section)}\n\n</details>"

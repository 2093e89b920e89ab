"""Sentences and a small table as HTML for a notebook: every name as text, no script, no colour of its own.

A notebook's page decides on letters and colours, so both its dark and its light theme fit.
"""

import html
from collections.abc import Sequence

from dtbench.report.page.section import Section
from dtbench.report.page.visible import spell_controls

MOST_NOTES = 12
"""Notes that are listed; ``notes`` of the value has all."""

_MUTED = "opacity:.75"


def report_html(
    head: str,
    sentences: Sequence[str],
    sections: Sequence[Section],
    notes: Sequence[str] = (),
    *,
    folded: Sequence[Section] = (),
) -> str:
    """Give what a notebook shows of a report.

    Args:
        head: what it is of, small above the answer; may be empty.
        sentences: the answer, then what belongs to it.
        sections: tables below them.
        notes: what a reader must know, folded away.
        folded: tables that are folded away.
    """
    parts = [f'<div style="{_MUTED};font-size:90%">{escape_html(head)}</div>'] if head else []
    parts += [f"<div><strong>{escape_html(sentence)}</strong></div>" for sentence in sentences[:1]]
    parts += [f"<div>{escape_html(sentence)}</div>" for sentence in sentences[1:]]
    parts += [_table(section) for section in sections]
    parts += [_fold(section.title, _table(section)) for section in folded]
    if notes:
        parts.append(_fold(f"{len(notes)} note{'' if len(notes) == 1 else 's'}", _list(notes)))
    return f'<div class="dtbench">{"".join(parts)}</div>'


def escape_html(words: str) -> str:
    """Return words that HTML shows as they are.

    >>> escape_html("<b>")
    '&lt;b&gt;'
    """
    return html.escape(spell_controls(words))


def _table(section: Section) -> str:
    aligned = ["right" if column.is_number else "left" for column in section.columns]
    head = "".join(
        f'<th style="text-align:{align}">{_lines(column.title)}</th>'
        for align, column in zip(aligned, section.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{align}">{_lines(cell)}</td>' for align, cell in zip(aligned, row, strict=True)
        )
        + "</tr>"
        for row in section.rows
    )
    notes = "".join(f'<div style="{_MUTED};font-size:90%">{escape_html(note)}</div>' for note in section.notes)
    caption = f'<caption style="text-align:left;caption-side:top;{_MUTED}">{escape_html(section.title)}</caption>'
    return (
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:.6em 0">{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}"
    )


def _lines(words: str) -> str:
    return escape_html(words).replace("\n", "<br>")


def _list(notes: Sequence[str]) -> str:
    more = [f"and {len(notes) - MOST_NOTES} more"] if len(notes) > MOST_NOTES else []
    return "<ul>" + "".join(f"<li>{escape_html(note)}</li>" for note in [*notes[:MOST_NOTES], *more]) + "</ul>"


def _fold(title: str, inside: str) -> str:
    return f"<details><summary>{escape_html(title)}</summary>{inside}</details>"

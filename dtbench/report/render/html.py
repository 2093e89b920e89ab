"""A page as HTML for a notebook: every name as text, no script, no colour of its own.

A notebook's page decides on letters and colours, so both its dark and its light theme fit.
"""

import html
from collections.abc import Collection, Iterator, Sequence

from dtbench.report.page.page import (
    Block,
    Chart,
    Facts,
    Line,
    Page,
    Part,
    Picture,
    Prose,
    Table,
    Tiles,
    Tone,
    as_line,
    words_of,
)
from dtbench.report.words.visible import spell_controls

MOST_NOTES = 12
"""Notes that are listed; ``notes`` of the value has all."""

MOST_ROWS = 24
"""Rows of a table; the value's DataFrames have all."""

_MUTED = "opacity:.75"


def page_html(page: Page, shown: Collection[str] = (), *, headless: bool = False) -> str:
    """Return what a notebook shows of a page.

    Args:
        page: the answer leads it.
        shown: the parts that are shown at once, where the page has any of them; the others are folded away. None
            named: each part knows by itself.
        headless: without the title, which the answer says.
    """
    parts = [] if headless else [f'<div style="{_MUTED};font-size:90%">{escape_html(_name(page))}</div>']
    parts += [_line(Line(fact.words, fact.tone)) for fact in page.facts]
    for at, line in enumerate(page.answer):
        words = escape_html(line.words)
        parts.append(f"<div>{words if at else f'<strong>{words}</strong>'}</div>")
    has_shown = any(part.key in shown for part in page.parts)
    folded = []
    for part in page.parts:
        is_open = part.key in shown if has_shown else not part.is_folded
        if is_open:
            parts.append(_part(part))
        else:
            folded.append(_fold(part.heading or part.key, _part(part)))
    notes = [line.words for line in page.notes]
    if notes:
        folded.append(_fold(f"{len(notes)} note{'' if len(notes) == 1 else 's'}", _list(notes)))
    return f'<div class="dtbench">{"".join([*parts, *folded])}</div>'


def _name(page: Page) -> str:
    name = " ".join(word for word in (page.title, page.aside) if word)
    return f"{name}: {page.question}" if page.question else name


def _part(part: Part) -> str:
    return "".join(html for block in part.blocks for html in _block(block))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield _table(block)
        case Chart():
            yield "" if block.table is None else _table(block.table)
        case Prose():
            yield from map(_line, block.lines)
        case Facts():
            yield from (_line(Line(one.sentence)) for one in block.facts)
        case Tiles() | Picture():
            return


def _line(line: Line) -> str:
    style = f' style="{_MUTED};font-size:90%"' if line.tone is Tone.QUIET else ""
    return f"<div{style}>{escape_html(line.words)}</div>"


def escape_html(words: str) -> str:
    """Return words that HTML shows as they are.

    >>> escape_html("<b>")
    '&lt;b&gt;'
    """
    return html.escape(spell_controls(words))


def _table(table: Table) -> str:
    aligned = ["right" if column.is_number else "left" for column in table.columns]
    head = "".join(
        f'<th style="text-align:{align}">{_lines(column.title)}</th>'
        for align, column in zip(aligned, table.columns, strict=True)
    )
    rows = table.first_rows[:MOST_ROWS]
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{align}">{_lines(words_of(cell))}</td>'
            for align, cell in zip(aligned, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    rest = len(table.first_rows) - len(rows)
    more = [Line(f"and {rest} more rows", Tone.QUIET)] if rest else []
    notes = "".join(_line(as_line(note)) for note in (*more, *table.first_notes))
    caption = f'<caption style="text-align:left;caption-side:top;{_MUTED}">{escape_html(table.title)}</caption>'
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

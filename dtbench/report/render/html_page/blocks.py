"""Blocks of a page as HTML: what a script may sort and filter is marked, and every number carries its exact value."""

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dtbench.report.page.page import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Line,
    Picture,
    Prose,
    Table,
    Tile,
    Tiles,
    Tone,
    as_line,
)
from dtbench.report.render.html import escape_html
from dtbench.report.render.html_page.chart import chart_html
from dtbench.report.render.html_page.glossary import Links

SIGNS: Final = {Tone.GOOD: "✓", Tone.WARNING: "!", Tone.BAD: "✕"}
"""What marks a tone besides its colour, as in TensorBoard's tab."""

NOT_AVAILABLE: Final = "n/a"


@dataclass(frozen=True)
class Writer:
    """Writes blocks.

    Attributes:
        links: to the glossary.
        told: sentences that stand in the page already, and are not said again.
    """

    links: Links
    told: Collection[str] = ()

    def block(self, block: Block, *, titled: bool = True) -> str:
        """Return one block; empty for sentences that were all said before."""
        inside = "".join(self._inside(block))
        if not inside:
            return ""
        title = "" if isinstance(block, Prose | Tiles) or not titled else block.title
        head = f"<h3>{self.links.sentence(title)}</h3>" if title else ""
        key = f' data-block="{escape_html(block.key)}"' if block.key else ""
        return f'<section class="block of-{block.kind}"{key}>{head}{inside}</section>'

    def _inside(self, block: Block) -> Iterator[str]:
        match block:
            case Prose():
                yield from (self.line(line, "sentence") for line in block.lines if line.words not in self.told)
            case Facts():
                yield self.facts(block.facts)
            case Table():
                yield self._table(block)
            case Tiles():
                yield f'<div class="tiles">{"".join(map(self._tile, block.tiles))}</div>'
            case Chart():
                yield from self._chart(block)
            case Picture():
                yield f'<figure role="img" aria-label="{escape_html(block.words)}">{block.draw()}</figure>'

    def line(self, line: Line, kind: str = "sentence", tag: str = "p") -> str:
        """Return a sentence; how it is meant is marked by a sign, not by colour alone."""
        return (
            f'<{tag} class="{f"{kind} tone-{line.tone}".strip()}">{_sign(line.tone)}{self._words(line.words)}</{tag}>'
        )

    def facts(self, facts: Collection[Fact]) -> str:
        """Return labels and sentences."""
        rows = (
            f"<dt>{self.links.label(one.label)}</dt>{self.line(Line(one.words, one.tone), '', tag='dd')}"
            for one in facts
        )
        return f'<dl class="facts">{"".join(rows)}</dl>'

    def _words(self, words: str) -> str:
        return self.links.sentence(words).replace("\n", "<br>")

    def _tile(self, tile: Tile) -> str:
        value = "" if tile.value is None else f' data-value="{exact(tile.value)}"'
        return (
            f'<div class="tile"><div class="tile-label">{self.links.label(tile.label)}</div>'
            f'<div class="tile-words"{value}>{escape_html(tile.words)}</div>'
            f'<div class="tile-detail">{escape_html(tile.detail)}</div></div>'
        )

    def _chart(self, chart: Chart) -> Iterator[str]:
        yield chart_html(chart)
        if chart.table is None:
            yield self.line(Line(chart.note, Tone.QUIET), "note") if chart.note else ""
        else:
            table = self._table(replace(chart.table, notes=()))
            yield f'<details class="numbers"><summary>the same as a table</summary>{table}</details>'
            yield from (self.line(as_line(note), "note") for note in chart.table.notes)

    def _table(self, table: Table) -> str:
        head = "".join(map(self._head, table.columns))
        rows = "".join(
            f"<tr>{''.join(self._cell(cell, column) for cell, column in zip(row, table.columns, strict=True))}</tr>"
            for row in table.rows
        )
        first = "" if table.first is None or table.first >= len(table.rows) else f' data-first="{table.first}"'
        notes = "".join(self.line(as_line(note), "note") for note in table.notes)
        return (
            f'<div class="scroller"><table{first}><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{notes}"
        )

    def _head(self, column: Column) -> str:
        kind = "number" if column.is_number else "text"
        title = column.title.replace("-\n", "\u00ad")
        words = escape_html(title).replace("\n", "<br>")
        return f'<th scope="col" class="{kind}"><span>{words}</span>{self.links.aside(column.plain_title)}</th>'

    def _cell(self, cell: str | Cell, column: Column) -> str:
        one = Cell(cell) if isinstance(cell, str) else cell
        kind = f"{'number' if column.is_number else 'text'}{'' if one.tone is Tone.PLAIN else f' tone-{one.tone}'}"
        value = math.nan if one.value is None and column.is_number and one.words == NOT_AVAILABLE else one.value
        shown = "" if value is None else f' data-value="{exact(value)}"'
        first, *more = one.words.split("\n")
        below = "".join(f'<br><span class="below">{self.links.sentence(line.strip())}</span>' for line in more)
        return f'<td class="{kind}"{shown}>{self.links.sentence(first)}{below}</td>'


def _sign(tone: Tone) -> str:
    return f'<span class="sign" aria-hidden="true">{SIGNS[tone]}</span>' if tone in SIGNS else ""


def exact(value: float) -> str:
    """Spell a number as ``--json`` does: all its digits, and ``NaN`` where it is not known.

    >>> exact(1.5), exact(float("nan"))
    ('1.5', 'NaN')
    """
    return json.dumps(value if isinstance(value, int) else float(value))

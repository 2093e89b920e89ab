"""A page on a terminal: rich renderables, laid out for 80 columns and better with more. It never prints.

Every name from outside (cells, knobs, kernels, paths) travels as ``Plain``, so ``[bold]`` in a name stays ``[bold]`` on
the screen.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.rule import Rule
from rich.table import Table as RichTable

from dtbench.report.page.looks import STEP_LOOKS
from dtbench.report.page.page import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
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
)
from dtbench.report.render.plain_text import Plain
from dtbench.report.words.kernel_names import shorten_apart

STYLES: Final = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.QUIET: "dim",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.BAD: "bold red",
}
_AGAINST: Final = (Tone.WARNING, Tone.BAD)
_LABEL_WIDTH: Final = len("gradient wait")
_NARROW: Final = dict.fromkeys(("doubts", "verified", "changed"), len("asked for"))
"""Width of labels in blocks of one screen, which are short."""
_JOINED: Final = {"problem", "doubts"}
"""Blocks that what follows stands right below of."""
_ANY_WIDTH: Final = 10_000
_MOST_BAR: Final = 60
_GOOD_BAR: Final = 28
_LEAST_BAR: Final = 12
_LEAST_LABEL: Final = 16
_FIRST_FIGURES: Final = 4
"""Figures behind a bar that are worth a shorter bar."""
_GLYPHS: Final = {"compute_ns": "\u2588", "exposed_comm_ns": "\u2571", "exposed_copy_ns": "\u2592", "idle_ns": "\u00b7"}
_ASCII: Final = {"compute_ns": "#", "exposed_comm_ns": "/", "exposed_copy_ns": ":", "idle_ns": "."}
_COLOURS: Final = {
    **{key: look.colour for key, look in STEP_LOOKS.items() if not look.in_the_dark},
    **{key: "dim" for key, look in STEP_LOOKS.items() if look.in_the_dark},
}
"""What is pale on paper is dim here: a terminal does not say whether it is dark."""


def render_page(page: Page) -> RenderableType:
    """Return a page whose parts say its answer, each at its place, as those of a run do: its head, then its parts."""
    return Group(*_head(page), Plain(), *(render_part(part) for part in page.parts))


def render_brief(page: Page) -> RenderableType:
    """Return a page of one screen: its head, its answer, then its parts."""
    return Group(_BriefHead(page), Plain(), *map(render_part, page.parts))


@dataclass(frozen=True)
class _BriefHead:
    """The head of one screen, with its answer; where it was stands beside its name if there is room."""

    page: Page

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the name, the question, what speaks against it, the answer, then what it is of."""
        (name, *before), after = _split_head(self.page)
        place = Plain(f"  {self.page.place}", style=STYLES[Tone.QUIET])
        is_beside = bool(self.page.place) and name.cell_len + place.cell_len <= options.max_width
        yield Plain.assemble(name, place) if is_beside else name
        yield from (*before, Plain(), *map(render_line, self.page.answer), *after[1 if is_beside else 0 :])


def _head(page: Page) -> Iterator[Plain]:
    before, after = _split_head(page)
    yield from (*before, *after)


def _split_head(page: Page) -> tuple[list[Plain], list[Plain]]:
    """Return what comes before an answer (its name, its question, what speaks against it), and what else it is of."""
    before = [Plain.assemble((page.title, "bold"), f" {page.aside}" if page.aside else "")]
    before += [Plain(page.question, style="italic")] if page.question else []
    before += [Plain(fact.words, style=STYLES[fact.tone]) for fact in page.facts if fact.tone in _AGAINST]
    before += [] if page.problem is None else [Plain(page.problem.words, style=STYLES[page.problem.tone])]
    after = [Plain(page.place, style=STYLES[Tone.QUIET])] if page.place else []
    after += [Plain(fact.words, style=STYLES[fact.tone]) for fact in page.facts if fact.tone not in _AGAINST]
    return before, after


def render_part(part: Part) -> RenderableType:
    """Return one part: a rule with its title where it has one, then its blocks with a line between them."""
    made: list[RenderableType] = []
    if part.title:
        title = Plain.assemble((part.title, "bold"), f"  {part.aside}")
        made.append(Rule(title, align="left", style="dim"))
    shown = [block for block in part.blocks if not isinstance(block, Tiles | Picture)]
    for block, after in zip(shown, [*shown[1:], None], strict=True):
        made.append(render_block(block))
        is_joined = isinstance(block, Table | Prose) and isinstance(after, Prose)
        if after is None or not (is_joined or block.key in _JOINED):
            made.append(Plain())
    return Group(*made)


def render_block(block: Block) -> RenderableType:
    """Return one block; of a chart its table, of what only larger media show nothing."""
    match block:
        case Prose():
            return Group(*map(render_line, block.lines))
        case Facts():
            tone = Tone.STRONG if block.is_numbered else Tone.QUIET
            width = 0 if block.is_numbered else _NARROW.get(block.key, _LABEL_WIDTH)
            return Group(*([render_line(Line(block.title, tone))] if block.title else []), _grid(block.facts, width))
        case Table():
            title = Line(block.title, Tone.STRONG)  # a table's own title breaks at the width of the table
            notes = map(as_line, block.first_notes)
            return Group(render_line(title), FittingTable(block), *map(render_line, notes))
        case Chart():
            return Bars(block) if block.table is None else render_block(block.table)
        case Tiles() | Picture():
            return Group()


@dataclass(frozen=True)
class Bars:
    """Stacked bars of letters on one scale, as long as the console is wide."""

    chart: Chart

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title, what each letter means, the bars with their figures, and the note."""
        chart, glyphs = self.chart, _GLYPHS if options.encoding.startswith("utf") else _ASCII
        looks = [_Look(glyphs[part.key], _COLOURS[part.key]) for part in chart.parts]
        label = max(len(bar.label) for bar in chart.bars) + 2
        rows = [chart.figures, *(bar.figures for bar in chart.bars)]
        widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
        while len(widths) > chart.kept:
            least = _GOOD_BAR if len(widths) > _FIRST_FIGURES else _LEAST_BAR
            if options.max_width - label - sum(widths) >= least:
                break
            widths.pop()
        labels = _shorten(chart, options.max_width - sum(widths) - _LEAST_BAR - 2)
        label = max(map(len, labels.values())) + 2
        room = min(_MOST_BAR, max(_LEAST_BAR, options.max_width - label - sum(widths)))
        longest_ns = max(1, *(bar.whole_ns for bar in chart.bars))
        hidden = _name_hidden(chart, len(widths))
        is_beside = len(f"{chart.title}; {hidden}") <= options.max_width
        aside = (f"; {hidden}", STYLES[Tone.QUIET]) if hidden and is_beside else ""
        yield Plain.assemble((chart.title, STYLES[Tone.STRONG]), aside)
        used = [at for at in range(len(looks)) if any(bar.lengths_ns[at] for bar in chart.bars)]
        keys = [piece for at in used for piece in ((looks[at].glyph, looks[at].colour), f" {chart.parts[at].name}  ")]
        legend = Plain.assemble(*keys)
        gap = label + room - legend.cell_len
        if gap < 0:
            yield legend
            legend, gap = Plain(), label + room
        yield Plain.assemble(legend, " " * gap, (_align(chart.figures, widths), STYLES[Tone.QUIET]))
        for bar in chart.bars:
            drawn = _share_out(bar.lengths_ns, longest_ns, room)
            pieces = [(look.glyph * count, look.colour) for look, count in zip(looks, drawn, strict=True)]
            figures = f"{' ' * (room - sum(drawn))}{_align(bar.figures, widths)}"
            yield Plain.assemble(f"{labels[bar.label]:<{label}}", *pieces, figures)
        unknown = {bar.label: words for bar in chart.bars if (words := bar.name_unknown(chart.parts))}
        for words in dict.fromkeys(unknown.values()):
            names = ", ".join(label for label, one in unknown.items() if one == words)
            yield render_line(Line(f"{words}, and not drawn: {names}", Tone.WARNING))
        if hidden and not is_beside:
            yield render_line(Line(hidden, Tone.QUIET))
        if chart.note:
            yield render_line(Line(chart.note, Tone.QUIET))


def _shorten(chart: Chart, most: int) -> dict[str, str]:
    """Return for each bar a label of so many letters, where one is longer, cut where it tells no two of them apart."""
    labels = [bar.label for bar in chart.bars]
    if max(map(len, labels)) <= most:
        return {one: one for one in labels}
    return shorten_apart(labels, max(_LEAST_LABEL, most))


def _name_hidden(chart: Chart, room: int) -> str:
    """Name the figures for which there is no room, as only so many have some; empty: for all that say anything."""
    hidden = [
        figure
        for at, figure in enumerate(chart.figures)
        if at >= room and any(b.figures[at] != "none" for b in chart.bars)
    ]
    return f"no room for: {', '.join(hidden)}" if hidden else ""


def _align(figures: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"{words:>{width}}" for words, width in zip(figures, widths, strict=False))


@dataclass(frozen=True)
class _Look:
    glyph: str
    colour: str


def _share_out(lengths_ns: Sequence[int | None], longest_ns: int, room: int) -> list[int]:
    """Return the letters of each part: ends are rounded, not lengths, so that bars end where they should."""
    ends = [round(room * end_ns / longest_ns) for end_ns in accumulate(length_ns or 0 for length_ns in lengths_ns)]
    return [after - before for before, after in zip([0, *ends], ends, strict=False)]


def render_line(line: Line) -> Plain:
    """Return a sentence."""
    return Plain(line.words, style=STYLES[line.tone])


def _grid(facts: Sequence[Fact], width: int) -> RichTable:
    """Return labels of at least so many letters, and words: aligned alike in every part of a page."""
    grid = RichTable.grid(padding=(0, 2 if width else 1))
    grid.add_column(no_wrap=True, style="dim", min_width=width)
    grid.add_column(overflow="fold")
    for fact in facts:
        style = STYLES[fact.tone]
        grid.add_row(Plain(fact.label, style=style if fact.tone is Tone.STRONG else ""), Plain(fact.words, style=style))
    return grid


@dataclass(frozen=True)
class FittingTable:
    """A table; where the console is too narrow for all columns, those of a group go into one below."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one table or two."""
        group = next((column.group for column in self.table.columns if column.group), "")
        whole = make_table(self.table)
        wide = options.update(width=_ANY_WIDTH)
        if not group or Measurement.get(console, wide, whole).maximum <= options.max_width:
            yield whole
            return
        yield make_table(_choose_columns(self.table, [not column.group for column in self.table.columns]))
        yield Plain()
        yield render_line(Line(group, Tone.STRONG))
        yield make_table(_choose_columns(self.table, [bool(column.group) for column in self.table.columns]))


def _choose_columns(table: Table, chosen: Sequence[bool]) -> Table:
    places = [place for place, one in enumerate(chosen) if one or _leads(table.columns, place)]
    return replace(
        table,
        columns=[table.columns[place] for place in places],
        rows=[[row[place] for place in places] for row in table.first_rows],
        first=None,
    )


def _leads(columns: Sequence[Column], place: int) -> bool:
    """Tell whether a column says what its row is about: it is one of the words before the first number."""
    return not any(column.is_number for column in columns[: place + 1])


def make_table(table: Table, *, is_roomy: bool = False) -> RichTable:
    """Return a table without its title: words to the left, numbers to the right, headers broken as they say.

    Roomy: two spaces between columns; ten columns fit into 80 without.
    """
    made = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 1, 0, 0) if is_roomy else 0,
        header_style="dim",
    )
    for column in table.columns:
        made.add_column(
            Plain(column.title), justify="right" if column.is_number else "left", overflow="fold", vertical="top"
        )
    for row in table.first_rows:
        made.add_row(*map(_render_cell, row))
    return made


def _render_cell(cell: str | Cell) -> Plain:
    return Plain(cell) if isinstance(cell, str) else Plain(cell.words, style=STYLES[cell.tone])


def render_places(places: Iterable[Fact]) -> Plain:
    """Return where more is to be found.

    Print it with ``soft_wrap=True``: a path that is broken or cropped cannot be copied.
    """
    told = (Plain(f"  {place.label:<12} {place.words}") for place in places)
    return Plain("\n").join([Plain("Look further", style=STYLES[Tone.STRONG]), *told])


def render_commands(title: str, commands: Iterable[str]) -> Plain:
    """Return commands below what they are for; print it with ``soft_wrap=True``, likewise."""
    return Plain("\n").join([Plain(title, style=STYLES[Tone.QUIET]), *(Plain(f"  {one}") for one in commands)])

"""What a person is shown, as one value: words and numbers spelled once, and how each is meant.

An answer (of a run, of traces, of a comparison, of a catalogue, of a selftest) becomes a ``Page``; a renderer
(terminal, Markdown, HTML, a notebook, TensorBoard) gives its blocks a look and decides nothing about them. Words come
from outside and stay plain text here: who shows them escapes what his medium would read as markup.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from dtbench.base.columns import Unit


class Tone(StrEnum):
    """How words are meant; no renderer marks it by colour alone."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Line:
    """A sentence."""

    words: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Fact:
    """A sentence with a label; an empty one belongs to the fact before."""

    label: str
    words: str
    tone: Tone = Tone.PLAIN

    @property
    def sentence(self) -> str:
        """Both in one."""
        return f"{self.label}: {self.words}" if self.label else self.words


@dataclass(frozen=True)
class Cell:
    """Words in a table that mean more than themselves.

    Attributes:
        value: the number behind the words, to sort by: ns, bytes, a count or a fraction; None: the words are all.
    """

    words: str
    tone: Tone = Tone.PLAIN
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: a line break is where a narrow medium may break it.
        is_number: aligned to the right.
        group: columns of one group may go to a table of their own, below this title, where all find no room.
        unit: of the numbers behind its cells; None: they have none, or there are none.
    """

    title: str
    is_number: bool = False
    group: str = ""
    unit: Unit | None = None

    @property
    def plain_title(self) -> str:
        """The title in one line."""
        return self.title.replace("-\n", "").replace("\n", " ")


Row: TypeAlias = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A titled table.

    Attributes:
        notes: sentences below it.
        key: its name among the blocks of its part.
        first: how many rows a narrow medium shows; None: all.
        rest: the row that stands for the others there.
        more: what is said there of the others, where they have no row.
        row_keys: what each row is about; empty: nothing can be chosen by it.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: tuple[str | Line, ...] = ()
    key: str = ""
    first: int | None = None
    rest: Row | None = None
    more: str = ""
    row_keys: tuple[str, ...] = ()
    kind: str = "table"

    @property
    def words(self) -> list[tuple[str, ...]]:
        """The words of all rows."""
        return [tuple(map(words_of, row)) for row in self.rows]

    @property
    def said(self) -> tuple[str, ...]:
        """The words below it."""
        return tuple(as_line(note).words for note in self.notes)

    @property
    def first_rows(self) -> Sequence[Row]:
        """What a narrow medium shows."""
        if self.first is None or len(self.rows) <= self.first:
            return self.rows
        return [*self.rows[: self.first], *([] if self.rest is None else [self.rest])]

    @property
    def first_notes(self) -> tuple[str | Line, ...]:
        """What a narrow medium says below it."""
        is_cut = self.first is not None and len(self.rows) > self.first
        return (*([Line(self.more, Tone.QUIET)] if is_cut and self.more else []), *self.notes)


@dataclass(frozen=True)
class Prose:
    """Sentences."""

    lines: tuple[Line, ...]
    key: str = ""
    kind: str = "prose"


@dataclass(frozen=True)
class Facts:
    """Labelled sentences; ``is_numbered``: labels are numbers of a list, which need little room."""

    facts: tuple[Fact, ...]
    key: str = ""
    title: str = ""
    is_numbered: bool = False
    kind: str = "facts"


@dataclass(frozen=True)
class Tile:
    """One number that a person looks for first, and what it needs beside it; the facts of the part say it again.

    Attributes:
        value: the number behind the words, as a cell has one.
    """

    label: str
    words: str
    detail: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Tiles:
    """Numbers for a medium that has room for large ones."""

    tiles: tuple[Tile, ...]
    key: str = "tiles"
    kind: str = "tiles"


@dataclass(frozen=True)
class BarPart:
    """One part of a stacked bar.

    Attributes:
        key: for tests and scripts, and for ``look.css`` where ``colour`` is empty.
        name: as a person reads it.
        colour: ``#RRGGBB``; empty: that of ``look.css``.
        pattern: name of the hatch over it; empty: none.
        is_dark: words on it are white.
    """

    key: str
    name: str
    colour: str = ""
    pattern: str = ""
    is_dark: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        lengths_ns: of each part, in order; None: not known, and so not drawn.
        words: the same as a person reads them.
        below_ns: of the thin bar below, drawn beside the first part; None: there is none.
        end: said behind the bar.
        figures: the same in columns, for who has a fixed width.
    """

    label: str
    lengths_ns: tuple[int | None, ...]
    words: tuple[str, ...]
    below_ns: int | None = None
    below_words: str = ""
    end: str = ""
    figures: tuple[str, ...] = ()

    @property
    def whole_ns(self) -> int:
        """Length of what is drawn."""
        return sum(length_ns or 0 for length_ns in self.lengths_ns)

    def name_unknown(self, parts: Sequence[BarPart]) -> str:
        """Name the parts that are not known: ``exposed copy and idle n/a``; empty: all are."""
        names = [part.name for part, length_ns in zip(parts, self.lengths_ns, strict=True) if length_ns is None]
        return f"{' and '.join(names)} n/a" if names else ""


@dataclass(frozen=True)
class Chart:
    """Stacked bars on one scale.

    Attributes:
        below: what the thin bars are.
        table: the same for who cannot draw.
        figures: titles of what every bar has; where there is little room, the last of them are left out.
        kept: of these how many never are.
    """

    title: str
    parts: tuple[BarPart, ...]
    bars: tuple[Bar, ...]
    table: Table | None = None
    below: BarPart | None = None
    note: str = ""
    figures: tuple[str, ...] = ()
    kept: int = 3
    key: str = ""
    kind: str = "chart"


@dataclass(frozen=True)
class Picture:
    """A plot, for who shows pictures: ``draw`` gives SVG; ``words`` say what there is to see."""

    title: str
    words: str
    draw: Callable[[], str] = field(repr=False)
    key: str = ""
    kind: str = "picture"


Block: TypeAlias = Prose | Facts | Table | Tiles | Chart | Picture


@dataclass(frozen=True)
class Part:
    """A part of a page.

    Attributes:
        key: its name in the page: ``checks``, ``cells``, ``cell:ddp``.
        title: empty where its block has one that says the same.
        aside: what belongs to its title.
        check: whether its numbers are to be trusted; None: nobody asks.
        is_folded: a medium that can fold shows its title only, until a person asks for more.
    """

    key: str
    title: str
    blocks: tuple[Block, ...]
    aside: str = ""
    check: Fact | None = None
    is_folded: bool = False

    @property
    def heading(self) -> str:
        """What it is called: its title, or that of its first block which has one; empty: none has."""
        titles = (block.title for block in self.blocks if isinstance(block, Table | Chart | Facts))
        return self.title or next((title for title in titles if title), "")

    def find(self, key: str) -> Block | None:
        """Return the block of a name; None: the part has none."""
        return next((block for block in self.blocks if block.key == key), None)


@dataclass(frozen=True)
class Page:
    """An answer with all that belongs to it.

    Attributes:
        title: what it is of.
        aside: which of them: a run's id.
        question: that it answers; may be empty.
        place: where it ran; may be empty.
        facts: what must be known before any number.
        problem: how it ended, where it did not end well.
        answer: for who reads nothing else. The parts of a run say it again at their place, those of traces and
            comparisons do not.
        notes: what must be known of the numbers.
    """

    title: str
    answer: tuple[Line, ...]
    parts: tuple[Part, ...]
    aside: str = ""
    question: str = ""
    place: str = ""
    facts: tuple[Fact, ...] = ()
    problem: Line | None = None
    notes: tuple[Line, ...] = ()

    def find(self, key: str) -> Part | None:
        """Return the part of a name; None: the page has none."""
        return next((part for part in self.parts if part.key == key), None)


def numbers(unit: Unit | None, *titles: str) -> tuple[Column, ...]:
    """Return columns of numbers of one unit."""
    return tuple(Column(title, is_number=True, unit=unit) for title in titles)


def show_all(page: Page) -> Page:
    """Return a page whose tables show every row in a narrow medium, too."""

    def whole(part: Part) -> Part:
        blocks = (replace(block, first=None) if isinstance(block, Table) else block for block in part.blocks)
        return replace(part, blocks=tuple(blocks))

    return replace(page, parts=tuple(map(whole, page.parts)))


def words_of(cell: str | Cell) -> str:
    """Return the words of what stands in a table."""
    return cell if isinstance(cell, str) else cell.words


def as_line(note: str | Line) -> Line:
    """Return a note as a line: quiet where nothing else is said."""
    return Line(note, Tone.QUIET) if isinstance(note, str) else note


def lines(said: Iterable[str], tone: Tone = Tone.PLAIN) -> tuple[Line, ...]:
    """Return sentences of one tone."""
    return tuple(Line(words, tone) for words in said)

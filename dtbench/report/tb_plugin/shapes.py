"""What the page draws: words, tables and stacked bars. Numbers arrive as a person reads them; bars carry both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dtbench.base.units import format_fraction, format_ns
from dtbench.report.page import sentences


class Tone(StrEnum):
    """How a line is meant; the page marks it by a sign and a word besides the colour."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Fact:
    """A label and what is to be said."""

    label: str
    words: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Tile:
    """One number that a person looks for first, and what it needs beside it."""

    label: str
    words: str
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """One column of a table; ``is_number``: right aligned."""

    header: str
    is_number: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of words under headers.

    Attributes:
        keys: what a click on each row means; empty: nothing.
        note: what must be known of them, said below.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Part:
    """One part of a stacked bar: ``key`` chooses colour and hatch."""

    key: str
    name: str


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        lengths_ns: of each part, in order.
        words: the same as a person reads them.
        below_ns: of the thin bar below, drawn beside the first part; None: there is none.
        end: said behind the bar.
    """

    label: str
    lengths_ns: tuple[int, ...]
    words: tuple[str, ...]
    below_ns: int | None = None
    below_words: str = ""
    end: str = ""


@dataclass(frozen=True)
class Chart:
    """Stacked bars on one scale; ``below``: what the thin bars are."""

    title: str
    parts: tuple[Part, ...]
    bars: tuple[Bar, ...]
    below: Part | None = None
    note: str = ""


HIDDEN: Final = Part("hidden_comm_ns", "hidden comm (beside compute)")


def step_parts(idle: str) -> tuple[Part, ...]:
    """Give the parts of a step, in the order of every plot; ``idle`` is what the last is called here."""
    return (
        Part("compute_ns", "compute"),
        Part("exposed_comm_ns", "exposed comm"),
        Part("exposed_copy_ns", "exposed copy"),
        Part("idle_ns", idle),
    )


def step_bar(label: str, row: Mapping[str, int], parts: Sequence[Part]) -> Bar:
    """Give the bar of one mean step; ``row`` has the columns of the table ``overlap``."""
    exposed = format_fraction(sentences.fraction_of(row["exposed_comm_ns"], row["step_ns"]))
    hidden = format_fraction(sentences.fraction_of(row["hidden_comm_ns"], row["comm_ns"]))
    return Bar(
        label=label,
        lengths_ns=tuple(row[part.key] for part in parts),
        words=tuple(format_ns(row[part.key]) for part in parts),
        below_ns=row["hidden_comm_ns"],
        below_words=format_ns(row["hidden_comm_ns"]),
        end=f"exposed {exposed} of step, hidden {hidden} of comm",
    )


def headers(names: Iterable[str], *, text: int = 1) -> tuple[Column, ...]:
    """Give columns of numbers, the first ``text`` of them of words."""
    return tuple(Column(name, is_number=place >= text) for place, name in enumerate(names))

"""A part of a report that is one table: words and numbers spelled, ready for any command to print."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a table; ``is_number`` aligns it to the right."""

    title: str
    is_number: bool = False


@dataclass(frozen=True)
class Section:
    """A titled table; ``notes`` stand below it, a sentence each."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()

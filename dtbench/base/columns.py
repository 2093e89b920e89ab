"""A table is one list of columns: each says what it holds, in which unit, what it means, and how a row gets its value.

A column cannot be declared without the function that produces it. DataFrames, Parquet files, JSON documents, boards,
comparisons and the reference in ``docs/reference/tables.md`` read that one list.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, object]
"""A row of any table: values by column; None where a number is not known."""

S = TypeVar("S")
K = TypeVar("K")
R = TypeVar("R")


class Unit(StrEnum):
    """What the numbers of a metric are."""

    NS = "ns"
    BYTES = "bytes"
    PER_SECOND = "per second"
    FRACTION = "fraction"
    COUNT = "count"


class Better(StrEnum):
    """The direction in which a metric is better; ``NEITHER``: it only says what was done."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Bounds(NamedTuple):
    """The least and the most that a column can hold; infinite: it has no such bound."""

    least: float
    most: float = math.inf


ANY: Final = -math.inf
"""The least of a number that has none."""


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column of a table.

    Attributes:
        name: the unit ends it where it has one: ``exposed_ns``, ``size_bytes``, ``stolen_fraction``.
        dtype: as pandas calls it; one that begins with a capital, ``boolean`` and floats may be NA.
        unit: None for words, and for numbers that say which one, as a rank does.
        doc: what it means, and what NA or an empty word says.
        value: what a row has of it; None: not known.
        clock: a point in time on this clock, and no length; None: it is none.
        least: where it is not what the unit says: 0 for amounts; numbers without a unit must have one.
        better: in which direction, where a comparison asks.
        check: refuses, with a ValueError, a word that the column cannot hold.
        is_needed: every version wrote it, and without it it is not known what a row is of.
        may_be_na: of words: NA says that there is nothing; else a word that nobody knows is empty.
    """

    name: str
    dtype: str
    unit: Unit | None
    doc: str
    value: Callable[[R], object]
    clock: str | None = None
    least: float | None = None
    better: Better = Better.NEITHER
    check: Callable[[str], object] | None = None
    is_needed: bool = False
    may_be_na: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers: not words, and not yes or no."""
        return self.dtype.lower().startswith(("int", "float"))

    @property
    def bounds(self) -> Bounds | None:
        """What it can hold; None: nobody decided it, or it holds no numbers."""
        if not self.is_number:
            return None
        if self.clock is not None:
            return Bounds(ANY)
        if self.unit is Unit.FRACTION:
            return Bounds(0, 1)
        least = 0 if self.least is None and self.unit is not None else self.least
        return None if least is None else Bounds(least)


@dataclass(frozen=True)
class Table(Generic[S, K, R]):
    """One table: ``keys`` say which row it is, ``columns`` what it holds.

    Attributes:
        name: also of its file, with ``.parquet``, where it has one.
        doc: what a row is of, and what holds for several columns.
        keys: the first columns, of what ``find`` gives first.
        columns: the others, of what it gives second.
        find: the rows of what the table is made from, in their order.
        unique: columns in which no two rows are alike; empty: no two are alike in everything.
    """

    name: str
    doc: str
    keys: tuple[Column[K], ...]
    columns: tuple[Column[R], ...]
    find: Callable[[S], Iterable[tuple[K, R]]]
    unique: tuple[str, ...] = ()

    @cached_property
    def all_columns(self) -> tuple[Column[Any], ...]:
        """Every column in order."""
        return (*self.keys, *self.columns)

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The dtype of every column, in order."""
        return {column.name: column.dtype for column in self.all_columns}

    def __getitem__(self, name: str) -> Column[Any]:
        """Return the column of this name.

        Raises:
            KeyError: there is none.
        """
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Column[Any]]:
        return {column.name: column for column in self.all_columns}

    def describe(self, row: R) -> dict[str, object]:
        """Return what one row holds, without its keys."""
        return {column.name: column.value(row) for column in self.columns}

    def list_rows(self, source: S) -> Iterator[Row]:
        """Yield the rows with every column, for JSON."""
        for key, row in self.find(source):
            yield {**{column.name: column.value(key) for column in self.keys}, **self.describe(row)}

    def tabulate(self, source: S) -> "pd.DataFrame":
        """Return the table; unknown numbers are NA.

        Columns are of objects at first: left to itself, a DataFrame takes integers beside a None for floats,
        and a float keeps the time of day only to some hundred nanoseconds.
        """
        import pandas as pd

        found = list(self.find(source))
        values = {column.name: [column.value(key) for key, _ in found] for column in self.keys}
        values |= {column.name: [column.value(row) for _, row in found] for column in self.columns}
        return pd.DataFrame(values, columns=list(self.dtypes), dtype=object).astype(self.dtypes)

    def fit(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return a table that another version wrote with these columns and types; what it lacks is NA, a word empty.

        Raises:
            TypeError, ValueError: a column holds what cannot be of its type, or is one that no row can be without.
        """
        if absent := [one.name for one in self.all_columns if one.is_needed and one.name not in frame]:
            raise ValueError(f"it has no column `{absent[0]}`")
        fitted = frame.reindex(columns=list(self.dtypes))
        dtypes = {name: dtype if name in frame else _allow_na(dtype) for name, dtype in self.dtypes.items()}
        fitted = fitted.astype({name: dtype for name, dtype in dtypes.items() if fitted[name].dtype != dtype})
        for one in self.all_columns:
            if one.dtype == "string" and not one.may_be_na and fitted[one.name].hasnans:
                fitted[one.name] = fitted[one.name].fillna("")
        fitted.attrs = dict(frame.attrs)
        return fitted


def _allow_na(dtype: str) -> str:
    return dtype.replace("int", "Int").replace("float", "Float")

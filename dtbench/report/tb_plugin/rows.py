"""Rows of a table as plain values: what is not known is None or an empty word, whatever the column's type calls it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pandas as pd

from dtbench.base.vocabulary import Cause, Operation
from dtbench.report.words import causes


@dataclass(frozen=True)
class Row:
    """One row and its place in the table, with the words for what several tabs say of a collective."""

    place: int
    values: Mapping[Hashable, object]

    def text(self, name: str) -> str:
        """Return a word; empty: not known."""
        value = self.values[name]
        return "" if value is None else str(value)

    def number(self, name: str) -> float | None:
        """Return a number; None: not known."""
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) else None

    def whole(self, name: str) -> int | None:
        """Return a whole number; None: not known. Never through a float, which has no room for a time of day in ns."""
        value = self.values.get(name)
        return int(value) if isinstance(value, int | float) else None

    @property
    def operation(self) -> Operation | None:
        """What kind of collective it is."""
        return Operation(self.text("operation")) if self.text("operation") else None

    @property
    def owner_words(self) -> str:
        """Whose it is."""
        return causes.spell_owner(self.text("owner")) if self.text("owner") else causes.UNATTRIBUTED

    @property
    def cause(self) -> Cause | None:
        """The largest cause; None: nothing is exposed."""
        return Cause(self.text("cause")) if self.text("cause") else None

    @property
    def cause_words(self) -> str:
        """The largest cause in words; empty: nothing is exposed."""
        return "" if self.cause is None else causes.describe_cause(self.cause, waited_for=self.whole("last_rank"))


def plain_rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, their index as their place."""
    plain = table.astype(object).where(table.notna(), None)
    records = plain.to_dict("records")
    return [Row(place, values) for place, values in zip(table.index.tolist(), records, strict=True)]

"""Whether the values of a launch's tables can be: within their bounds, and their parts add up to their wholes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pandas as pd

_CLOCK: Final = ("start_ns", "end_ns", "issue_ns", "first_wait_ns")
"""Points on some clock; every other time is a length."""
_AMOUNTS: Final = ("_ns", "_bytes")
_COUNTS: Final = ("count", "unsized", "calls")
_ABOVE_ZERO: Final[Mapping[str, Sequence[str]]] = {"steps": ("duration_ns",), "overlap": ("step_ns",)}
_FRACTIONS: Final = ("stolen_fraction", "taken_fraction")
_PARTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "overlap": {
        "comm_ns": ("hidden_comm_ns", "exposed_comm_ns"),
        "step_ns": ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"),
    },
    "purposes": {"comm_ns": ("hidden_ns", "exposed_ns")},
    "groups": {"comm_ns": ("hidden_ns", "exposed_ns")},
}
"""By table, columns that the sum of others is."""
_AT_MOST: Final[Mapping[str, Mapping[str, str]]] = {"collectives": {"exposed_skew_ns": "skew_wait_ns"}}
"""By table, columns that are no more than another."""


def find_impossible(name: str, table: pd.DataFrame) -> str | None:
    """Return what a table says that cannot be, of the first such row; None: all of it can be, or is not known.

    Args:
        name: of the table, as ``tables.py`` has it in small letters.
        table: with whichever of its columns.
    """
    for column, is_odd, why in _find_odd(name, table):
        odd = table[is_odd.fillna(value=False).astype("bool")]
        if len(odd):
            return _tell(odd.iloc[0], column, why)
    return None


def _find_odd(name: str, table: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[bool]", str]]:
    """Give columns, which of their rows cannot be, NA where that is not known, and why, if more than the value is."""
    for column in map(str, table):
        if (least := _find_least(name, column)) is not None:
            yield column, table[column] < least, ""
        if column in _FRACTIONS:
            yield column, ~table[column].fillna(0.0).between(0.0, 1.0), ""
    for whole, parts in _PARTS.get(name, {}).items():
        yield (
            whole,
            table[whole] != table[list(parts)].sum(axis=1, skipna=False),
            f", and {' + '.join(parts)} is another",
        )
    for column, most in _AT_MOST.get(name, {}).items():
        yield column, table[column] > table[most], f", more than its {most}"


def _find_least(name: str, column: str) -> int | None:
    """Return the least value that a column can have; None: it has no bound."""
    if column in _ABOVE_ZERO.get(name, ()):
        return 1
    is_amount = column.endswith(_AMOUNTS) and column not in _CLOCK
    return 0 if is_amount or column in _COUNTS else None


def _tell(row: "pd.Series[int]", column: str, why: str) -> str:
    step = f"step {row['step']} of " if "step" in row else ""
    return f"{column} of {step}rank {row['rank']} is {row[column]}{why}, which cannot be"

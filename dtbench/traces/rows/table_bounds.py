"""Whether the values of a launch's tables can be: within their bounds, and their parts add up to their wholes.

The bounds of a column are those of its unit, unless it says others; sums and orders of columns are below.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pandas as pd

from dtbench.base.columns import ANY, Bounds
from dtbench.base.vocabulary import Cause
from dtbench.store.finish import STEPS
from dtbench.store.use_file import USES
from dtbench.traces.rows.tables import TABLES

_PARTS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "overlap": {
        "comm_ns": ("hidden_comm_ns", "exposed_comm_ns"),
        "step_ns": ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"),
    },
    "purposes": {"comm_ns": ("hidden_ns", "exposed_ns")},
    "groups": {"comm_ns": ("hidden_ns", "exposed_ns")},
    "collectives": {"exposed_ns": tuple(f"exposed_{cause}_ns" for cause in Cause)},
    "gaps": {
        "gap_ns": ("comm_wait_ns", "host_wait_ns", "launch_gap_ns", "other_ns"),
        "other_ns": (
            *("beside_compute_ns", "beside_comm_ns", "beside_copy_ns"),
            *("launch_unknown_ns", "trace_end_ns", "unexplained_ns"),
        ),
    },
}
"""By table, columns that the sum of others is."""
_AT_MOST: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "collectives": (("exposed_skew_ns", "skew_wait_ns"), ("start_ns", "end_ns")),
    "comm_waits": (("start_ns", "end_ns"),),
    "probes": (("exposed_ns", "total_ns"),),
    "gaps": (("host_sync_ns", "host_wait_ns"),),
    "lanes": (("compute_ns", "busy_ns"), ("comm_ns", "busy_ns"), ("copy_ns", "busy_ns")),
    "purposes": (("unsized", "count"),),
    "groups": (("unsized", "count"),),
}
"""By table, columns that are no more than another, which is not before it."""
_OF_SPAN: Final[Mapping[str, Sequence[str]]] = {"collectives": ("skew_wait_ns", "transfer_ns")}
"""By table, columns whose sum is the time from ``start_ns`` to ``end_ns``, so that none is more."""
_COLUMNS: Final = {table.name: table.all_columns for table in TABLES} | {STEPS.name: (*STEPS.columns, *USES)}


def find_bounds(name: str, column: str) -> Bounds | None:
    """Return what a column of numbers can hold; None: it holds none, or no table has it.

    Args:
        name: of the table.
        column: of it.
    """
    found = [one for one in _COLUMNS.get(name, ()) if one.name == column]
    return found[0].bounds if found else None


def find_impossible(name: str, table: pd.DataFrame) -> str | None:
    """Return what a table says that cannot be, of the first such row; None: all of it can be, or is not known.

    Args:
        name: of the table.
        table: with whichever of its columns.
    """
    for column, is_odd, why in _find_odd(name, table):
        if is_odd.any():  # skips what is not known
            return _tell(table[is_odd.fillna(value=False).astype("bool")].iloc[0], column, why)
    return None


def _find_odd(name: str, table: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[bool]", str]]:
    """Yield columns, which of their rows cannot be, NA where that is not known, and why, if more than the value is."""
    for column in map(str, table):
        least, most = find_bounds(name, column) or Bounds(ANY)
        if math.isfinite(least):
            yield column, table[column] < least, ""
        if math.isfinite(most):
            yield column, table[column] > most, ""
    for whole, parts in _PARTS.get(name, {}).items():
        if {whole, *parts} <= {*table}:
            is_another = table[whole] != table[list(parts)].sum(axis=1, skipna=False)
            yield whole, is_another, f", and {' + '.join(parts)} is another"
    for column, most_column in _AT_MOST.get(name, ()):
        if {column, most_column} <= {*table}:
            yield column, table[column] > table[most_column], f", more than its {most_column}"
    yield from _find_odd_spans(name, table)


def _find_odd_spans(name: str, table: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[bool]", str]]:
    """Yield the same of what parts a row's span."""
    parts = [column for column in _OF_SPAN.get(name, ()) if {column, "start_ns", "end_ns"} <= {*table}]
    for column in parts:
        yield column, table[column] > table["end_ns"] - table["start_ns"], ", more than from its start_ns to its end_ns"
    if len(parts) > 1:
        is_another = table[parts].sum(axis=1, skipna=False) != table["end_ns"] - table["start_ns"]
        yield parts[0], is_another, f", and {' + '.join(parts)} is not from its start_ns to its end_ns"


def _tell(row: "pd.Series[int]", column: str, why: str) -> str:
    step = f"step {row['step']} of " if "step" in row else ""
    return f"{column} of {step}rank {int(row['rank'])} is {row[column]}{why}, which cannot be"

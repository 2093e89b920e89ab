"""The tab Collectives: the table of collectives filtered, sorted and paged here, since a launch may have 100,000."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, format_bandwidth, format_bytes, format_ns
from dtbench.base.vocabulary import Cause
from dtbench.report.tb_plugin.refusal import NOT_ASKED_WELL, Refusal
from dtbench.report.tb_plugin.rows import Row, plain_rows
from dtbench.report.words import causes
from dtbench.traces.rows.collective_table import COLLECTIVES

PAGE: Final = 100

FILTERS: Final = ("purpose", "operation", "region", "cause", "rank", "step")
"""Columns of which a person may choose one value."""

_SUMMED: Final = ("duration_ns", "exposed_ns", "hidden_ns")
"""What is summed where collectives are taken together."""

NONE: Final = "(none)"
"""How an empty value is called where it can be chosen."""


@dataclass(frozen=True)
class SortableColumn:
    """One column; ``key`` is what a request sorts by."""

    key: str
    header: str
    is_number: bool


@dataclass(frozen=True)
class CollectiveRow:
    """One row as words; ``row`` is its place in the launch's table, None for several collectives together."""

    row: int | None
    words: tuple[str, ...]
    owner: str


@dataclass(frozen=True)
class CollectivesDocument:
    """One page.

    Attributes:
        total: rows that the filters let through.
        choices: for each filter the values that occur.
    """

    sentence: str
    columns: tuple[SortableColumn, ...]
    rows: tuple[CollectiveRow, ...]
    total: int
    offset: int
    page: int
    sort: str
    descending: bool
    choices: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Query:
    """What a person asked of the table.

    Attributes:
        text: is looked for in owners and parameters.
        doubt: why the table may not be all that there was; empty: nothing speaks against it.
        lost: by rank, how many were launched and not seen to run, and are in no row.
    """

    chosen: Mapping[str, str]
    text: str
    owner: str | None
    sort: str
    descending: bool
    offset: int
    doubt: str = ""
    lost: Mapping[int, int] = field(default_factory=dict)


_DURATION: Final = "duration_ns"
"""The only column that is no column of the launch's table: from `start_ns` to `end_ns`."""


def _unit_of(key: str) -> Unit | None:
    if key == _DURATION:
        return Unit.NS
    return COLLECTIVES[key].unit if key in COLLECTIVES.dtypes else Unit.COUNT  # of a group


def _column(key: str, header: str) -> SortableColumn:
    is_number = key not in COLLECTIVES.dtypes or COLLECTIVES[key].is_number
    return SortableColumn(key, header, is_number)


# By use: what a narrow page has room for comes first.
_SINGLE: Final = (
    _column("exposed_ns", "exposed"),
    _column("cause", "cause"),
    _column("owner", "owner"),
    _column("operation", "collective"),
    _column("purpose", "purpose"),
    _column("rank", "rank"),
    _column("step", "step"),
    _column("region", "region"),
    _column("duration_ns", "time"),
    _column("hidden_ns", "hidden"),
    _column("size_bytes", "size"),
    _column("busbw", "busbw"),
)
_GROUPED: Final = (
    _column("exposed_ns", "exposed, sum"),
    _column("cause", "largest cause"),
    _column("owner", "owner"),
    _column("operation", "collective"),
    _column("purpose", "purpose"),
    _column("count", "count"),
    _column("duration_ns", "time, sum"),
    _column("hidden_ns", "hidden, sum"),
    _column("size_bytes", "size of one"),
    _column("busbw", "busbw, median"),
)


def list_collectives(table: pd.DataFrame, query: Query) -> CollectivesDocument:
    """Return a page of single collectives; those of no profiled step only where a person asks for them.

    Args:
        table: the table ``collectives`` of one launch.
        query: what to show.

    Raises:
        Refusal: it sorts by a column that is not there.
    """
    known = _with_duration(table)
    kept = _filter(known, query)
    page = _sort(kept, query, _SINGLE).iloc[query.offset : query.offset + PAGE]
    rows = tuple(
        CollectiveRow(row.place, tuple(_spell(row, column.key) for column in _SINGLE), row.text("owner"))
        for row in plain_rows(page)
    )
    return _document(known, kept, rows, query, _SINGLE, total=len(kept))


def group_collectives(table: pd.DataFrame, query: Query) -> CollectivesDocument:
    """Return a page of collectives taken together by owner, operation and purpose; sums over the profiled steps.

    A sum of which some part is not known is "at least" the rest.

    Raises:
        Refusal: it sorts by a column that is not there.
    """
    known = _with_duration(table)
    kept = _filter(known, query)
    causes_of = [f"exposed_{cause}_ns" for cause in Cause]
    grouped = kept.groupby(["owner", "operation", "purpose"], dropna=False)
    sums = grouped[[*_SUMMED, *causes_of]].sum(min_count=1)
    known_counts = grouped[list(_SUMMED)].count()
    sums["count"] = grouped.size()
    sums["size_bytes"] = grouped["size_bytes"].median()
    sums["busbw"] = grouped["busbw"].median()
    for name in _SUMMED:
        sums[f"is_whole_{name}"] = known_counts[name] == sums["count"]
    sums["cause"] = [_largest_cause(row) for row in plain_rows(sums[causes_of])]
    groups = sums.reset_index()
    page = _sort(groups, query, _GROUPED).iloc[query.offset : query.offset + PAGE]
    rows = tuple(
        CollectiveRow(None, tuple(_spell(row, column.key) for column in _GROUPED), row.text("owner"))
        for row in plain_rows(page)
    )
    return _document(known, kept, rows, query, _GROUPED, total=len(groups))


def _largest_cause(row: Row) -> str:
    times = {cause: row.number(f"exposed_{cause}_ns") or 0 for cause in Cause}
    largest = max(times, key=times.__getitem__)
    return largest.value if times[largest] else ""


def _document(
    known: pd.DataFrame,
    kept: pd.DataFrame,
    rows: tuple[CollectiveRow, ...],
    query: Query,
    columns: tuple[SortableColumn, ...],
    *,
    total: int,
) -> CollectivesDocument:
    whose = "owner's" if total == 1 else "owners'"
    what = count_things(total, "collective") if columns is _SINGLE else f"{total} {whose} collectives"
    lost = f"not all is here ({query.doubt}): " if query.doubt else ""
    shares = _spell_shares(known, kept, query)
    return CollectivesDocument(
        sentence=f"{lost}{what}; {shares}" if len(known) else "No collective was seen in this launch's traces.",
        columns=columns,
        rows=rows,
        total=total,
        offset=query.offset,
        page=PAGE,
        sort=query.sort,
        descending=query.descending,
        choices={name: _values(_words(known[name]).unique().tolist()) for name in FILTERS},
    )


def _spell_shares(known: pd.DataFrame, kept: pd.DataFrame, query: Query) -> str:
    """Say how much of the exposed time is shown, and what is left out since it is of no profiled step."""
    counted = _counted(known, query)
    left_out = len(known) - len(counted)
    lost = {str(rank): count for rank, count in query.lost.items() if count}
    chosen = query.chosen.get("rank")
    of_kept = sum(lost.values()) if chosen is None else lost.get(chosen, 0)
    shown = _spell_exposed(kept["exposed_ns"], counted["exposed_ns"], of_kept=of_kept, of_all=sum(lost.values()))
    if query.chosen.get("step") == NONE:
        return f"{shown} outside the profiled steps, over all ranks"
    aside = f"; {left_out} more are of no profiled step, choose step {NONE} to see them" if left_out else ""
    gone = f"; {of_kept} more {'was' if of_kept == 1 else 'were'} launched and not seen to run"
    return f"{shown} over all ranks and steps{gone if of_kept else ''}{aside}"


def _spell_exposed(kept_ns: "pd.Series[int]", counted_ns: "pd.Series[int]", *, of_kept: int, of_all: int) -> str:
    """Say how much of all exposed time the shown collectives have, and of how many it is not known.

    Args:
        kept_ns: of those that are shown.
        counted_ns: of those that are counted.
        of_kept: how many more were not seen to run that may be among those that are shown.
        of_all: likewise among those that are counted.
    """
    exposed, total = kept_ns.dropna(), counted_ns.dropna()
    unknown = len(counted_ns) - len(total)
    if unknown and not len(total):
        return "how much of it was exposed is not known,"
    least = "at least " if unknown or of_all else ""
    least_of_kept = "at least " if len(exposed) < len(kept_ns) or of_kept else ""
    words = f"{least_of_kept}{format_ns(int(exposed.sum()))} exposed of {least}{format_ns(int(total.sum()))}"
    return f"{words} (not known of {unknown} of {len(counted_ns)} collectives)" if unknown else words


def _counted(table: pd.DataFrame, query: Query) -> pd.DataFrame:
    """Leave out what no profiled step issued, as every account does, unless it is asked for or there are no steps."""
    in_step = table["step"].notna()
    if query.chosen.get("step") == NONE:
        return table[~in_step]
    return table[in_step] if in_step.any() else table


def _values(words: list[str]) -> tuple[str, ...]:
    """Return the values of a column: numbers by size, words by the alphabet, what is empty last."""
    found = set(words) - {""}
    numbers = sorted(int(word) for word in found if word.isdecimal())
    rest = sorted(word for word in found if not word.isdecimal())
    return (*map(str, numbers), *rest, *([NONE] if "" in words else []))


def _words(column: "pd.Series[Any]") -> "pd.Series[str]":
    return column.astype("string").fillna("")


def _with_duration(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(duration_ns=table["end_ns"] - table["start_ns"])


def _filter(table: pd.DataFrame, query: Query) -> pd.DataFrame:
    kept = _counted(table, query)
    for name, value in query.chosen.items():
        kept = kept[_words(kept[name]) == ("" if value == NONE else value)]
    if query.owner is not None:
        kept = kept[_words(kept["owner"]) == query.owner]
    if query.text:
        shown = _words(kept["owner"]).replace("", causes.UNATTRIBUTED)
        is_there = shown.str.contains(query.text, case=False, regex=False)
        of_parameters = _words(kept["parameters"]).str.contains(query.text, case=False, regex=False)
        kept = kept[is_there | of_parameters]
    return kept


def _sort(table: pd.DataFrame, query: Query, columns: tuple[SortableColumn, ...]) -> pd.DataFrame:
    if query.sort not in {column.key for column in columns}:
        there_are = ", ".join(column.key for column in columns)
        raise Refusal(NOT_ASKED_WELL, f"`sort={query.sort}` is no column; there are {there_are}.")
    return table.sort_values(query.sort, ascending=not query.descending, kind="stable", na_position="last")


def _spell(row: Row, key: str) -> str:
    match key:
        case "owner":
            return row.owner_words
        case "operation":
            return causes.name_operation(row.operation)
        case "cause":
            return row.cause_words or ("n/a" if row.number("exposed_ns") is None else "")
        case _:
            return _spell_by_unit(row, key)


def _spell_by_unit(row: Row, key: str) -> str:
    match _unit_of(key):
        case Unit.BYTES:
            return spell_number(row.number(key), format_bytes)
        case Unit.PER_SECOND:
            return spell_number(row.number(key), format_bandwidth)
        case Unit.NS:
            return _spell_time(row, key)
        case _:
            return row.text(key) or "n/a"


def _spell_time(row: Row, key: str) -> str:
    is_part = row.number(key) is not None and row.values.get(f"is_whole_{key}") is False
    return f"{'at least ' if is_part else ''}{spell_number(row.number(key), format_ns)}"


def spell_number(value: float | None, spell: Callable[[float], str]) -> str:
    """Spell a number; ``n/a`` where it is not known."""
    return "n/a" if value is None else spell(value)

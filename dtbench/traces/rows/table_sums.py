"""Whether the tables of a launch are of one analysis: what they say twice must be equal, to the nanosecond.

Tables of versions up to 0.1.0 do not say of which launch they are. One that was copied from another cell has the same
columns and ranks, and other sums.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from dtbench.base.units import format_bytes, format_ns, name_ranks

_LISTS: Final = ("purposes", "collectives", "groups")
"""Tables that have rows of every rank that communicated."""

_OF_EVERY_STEP: Final = {
    "lanes": (("compute_ns", "comm_ns"), "computed or communicated"),
    "gaps": (("idle_ns",), "was idle"),
}
"""Tables that have rows of every rank and step in which there was time of any of these columns of ``overlap``."""


@dataclass(frozen=True)
class _Sum:
    """A column of one table that adds up, over the rows of a step, to a column of another; ``what`` they say."""

    table: str
    column: str
    other: str
    other_column: str
    what: str


_SUMS: Final = (
    _Sum("purposes", "exposed_ns", "overlap", "exposed_comm_ns", "exposed"),
    _Sum("groups", "exposed_ns", "overlap", "exposed_comm_ns", "exposed"),
    _Sum("comm_waits", "wait_ns", "gaps", "comm_wait_ns", "of waiting"),
)


def find_strangers(tables: Mapping[str, pd.DataFrame], lacking: Collection[str] = ()) -> Iterator[str]:
    """Say of which ranks tables contradict each other, a sentence for each pair; what is not known contradicts nothing.

    Args:
        tables: by name, as in ``tables.py``.
        lacking: names of those that are empty for want of a file: they say nothing.
    """
    for name in _LISTS:
        if name in lacking:
            continue
        yield from _say(list(_find_unlisted(tables[name], tables["overlap"], name)))
    for name in _OF_EVERY_STEP:
        if name not in lacking:
            yield from _say(list(_find_absent_steps(tables[name], tables["overlap"], name)))
    for one in _SUMS:
        yield from _say(list(_compare(tables[one.table], tables[one.other], one)))
    yield from _say(list(_compare_counts(tables["collectives"], tables["purposes"])))
    yield from _say(list(_compare_sizes(tables["collectives"], tables["purposes"])))
    yield from _say(list(_compare_totals(tables["collectives"], tables["overlap"])))
    yield from _say(list(_compare_waits(_keep_of_hosts(tables["collectives"], tables["gaps"]), tables["purposes"])))
    yield from _say(list(_compare_lengths(tables["purposes"], tables["overlap"])))


def _find_unlisted(table: pd.DataFrame, overlap: pd.DataFrame, name: str) -> Iterator[tuple[int, str]]:
    """Yield each rank that communicated and of which a table of what communicates has nothing."""
    comm_ns = overlap.groupby("rank")["comm_ns"].sum()
    for rank in sorted(set(overlap["rank"]) - set(table["rank"])):
        if comm_ns[rank] > 0:
            yield int(rank), f"{name} has nothing of what communicated for {format_ns(comm_ns[rank])}"


def _find_absent_steps(table: pd.DataFrame, overlap: pd.DataFrame, name: str) -> Iterator[tuple[int, str]]:
    """Yield each rank and step of which a table has nothing, though there was what it tells of."""
    columns, what = _OF_EVERY_STEP[name]
    listed = {*zip(table["rank"], table["step"], strict=True)}
    longest_ns = overlap[list(columns)].max(axis=1).fillna(0)
    for rank, step, time_ns in zip(overlap["rank"], overlap["step"], longest_ns, strict=True):
        if time_ns > 0 and (rank, step) not in listed:
            yield int(rank), f"{name} has nothing of step {step}, which {what} for {format_ns(time_ns)}"


def _say(odd: list[tuple[int, str]]) -> list[str]:
    if not odd:
        return []
    return [f"tables of {name_ranks(rank for rank, _ in odd)} do not belong together: {odd[0][1]}"]


def _compare(table: pd.DataFrame, other: pd.DataFrame, one: _Sum) -> Iterator[tuple[int, str]]:
    """Yield each rank and step where the sum is another, and what both say."""
    mine, theirs = _sum_steps(table, one.column), _sum_steps(other, one.other_column)
    common = set(table["rank"]) & set(other["rank"])
    for rank, step in sorted({*mine, *theirs}):
        if rank not in common:
            continue
        if (rank, step) not in theirs:
            yield rank, f"{one.table} has step {step}, and {one.other} has not"
            continue
        told, known = mine.get((rank, step), 0), theirs[rank, step]
        if told is not None and known is not None and told != known:
            said = f"{one.table} says {format_ns(told)} {one.what} in step {step}"
            yield rank, f"{said}, and {one.other} {format_ns(known)}"


def _sum_steps(table: pd.DataFrame, column: str) -> dict[tuple[int, int], int | None]:
    """Sum a column by rank and step; None: not all of it is known."""
    found: dict[tuple[int, int], int | None] = {}
    for rank, step, value in zip(table["rank"], table["step"], table[column], strict=True):
        before = found.get((int(rank), int(step)), 0)
        found[int(rank), int(step)] = None if before is None or pd.isna(value) else before + int(value)
    return found


def _compare_counts(collectives: pd.DataFrame, purposes: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield each rank and step in which other collectives are listed than purposes count."""
    issued = collectives.dropna(subset=["step"])
    listed = Counter(_count_keys(issued, [1] * len(issued)))
    counted = Counter(_count_keys(purposes, purposes["count"]))
    common = set(collectives["rank"]) & set(purposes["rank"])
    for rank, step, purpose in sorted({*listed, *counted}):
        mine, theirs = listed[rank, step, purpose], counted[rank, step, purpose]
        if rank in common and mine != theirs:
            yield rank, f"collectives lists {mine} of {purpose} in step {step}, and purposes counts {theirs}"


def _compare_sizes(collectives: pd.DataFrame, purposes: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield each rank and step in which purposes carry other bytes than as many collectives, where all are sized."""
    key = ["rank", "step", "purpose"]
    issued = collectives.dropna(subset=["step"]).astype({"step": purposes["step"].dtype})
    sizes = issued.groupby(key)["size_bytes"]
    listed = sizes.sum().to_frame("listed").assign(sized=sizes.count())
    both = purposes.merge(listed.reset_index(), on=key)
    is_other = (both["size_bytes"] != both["listed"]) & (both["count"] == both["sized"])
    for row in both[is_other.fillna(value=False).astype("bool")].to_dict("records"):
        mine, theirs = format_bytes(row["listed"]), format_bytes(row["size_bytes"])
        said = f"collectives lists {mine} of {row['purpose']} in step {row['step']}"
        yield int(row["rank"]), f"{said}, and purposes says {theirs}"


def _count_keys(table: pd.DataFrame, counts: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    rows = zip(table["rank"], table["step"], table["purpose"], counts, strict=True)
    for rank, step, purpose, count in rows:
        yield from [(int(rank), int(step), str(purpose))] * int(count)


def _compare_totals(collectives: pd.DataFrame, overlap: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield each rank whose steps have more exposed time than all its collectives, which may be exposed outside too."""
    for rank in sorted(set(collectives["rank"]) & set(overlap["rank"])):
        mine = collectives["exposed_ns"][collectives["rank"] == rank].sum(skipna=False)
        theirs = overlap["exposed_comm_ns"][overlap["rank"] == rank].sum()
        if not pd.isna(mine) and mine < theirs:
            said = f"all its collectives were exposed for {format_ns(mine)}"
            yield int(rank), f"{said}, and its steps for {format_ns(theirs)}"


def _keep_of_hosts(collectives: pd.DataFrame, gaps: pd.DataFrame) -> pd.DataFrame:
    """Return those of ranks without a device: on one, a step's window may begin after what is waited for in it."""
    return collectives[collectives["rank"].isin(gaps["rank"][gaps["lane"].isna()])]


def _compare_waits(collectives: pd.DataFrame, purposes: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield each rank of which purposes say less waiting than their collectives caused, the one of each step that most.

    A consumer that stood still while a collective ran computed for no longer than something hid it::

        collective    ├──────────────┤       20 long, 12 of them exposed: 8 were hidden
        consumer            ├─────────┤      stood still for 15, of which it computed for 8 at most
    """
    issued = collectives[collectives[["step", "first_wait_ns", "wait_ns"]].notna().all(axis=1)]
    if not len(issued):
        return
    told = purposes.groupby(["rank", "purpose"])["wait_ns"].agg(lambda waits: waits.sum(skipna=False)).dropna()
    waits = pd.DataFrame(
        {
            "start_ns": issued[["start_ns", "first_wait_ns"]].max(axis=1, skipna=False),
            "end_ns": issued[["end_ns"]]
            .assign(on=issued["first_wait_ns"] + issued["wait_ns"])
            .min(axis=1, skipna=False),
            "hidden_ns": issued["end_ns"] - issued["start_ns"] - issued["exposed_ns"],
        }
    )
    waits = waits.dropna().astype("int64").join(issued[["rank", "purpose", "step"]])
    waits["least_ns"] = waits["end_ns"] - waits["start_ns"] - waits["hidden_ns"]
    longest = waits.sort_values("least_ns").drop_duplicates(["rank", "purpose", "step"], keep="last")
    for (_, purpose), mine in longest[longest["least_ns"] > 0].groupby(["rank", "purpose"]):
        rank = int(mine["rank"].iloc[0])
        least_ns, known_ns = _sum_apart(mine), told.get((rank, purpose))
        if known_ns is not None and known_ns < least_ns:
            said = f"purposes says {format_ns(known_ns)} of waiting for {purpose} in all steps"
            yield rank, f"{said}, and collectives tells of {format_ns(least_ns)} or more"


def _sum_apart(waits: pd.DataFrame) -> int:
    """Sum the least waits of those that do not overlap one before them."""
    total_ns, until_ns = 0, -math.inf
    ordered = waits.sort_values("start_ns")
    for start_ns, end_ns, least_ns in zip(ordered["start_ns"], ordered["end_ns"], ordered["least_ns"], strict=True):
        if start_ns >= until_ns:
            total_ns, until_ns = total_ns + int(least_ns), end_ns
    return total_ns


def _compare_lengths(purposes: pd.DataFrame, overlap: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Yield each rank and step in which a purpose is waited for, or runs, for longer than the step."""
    key = ["rank", "step"]
    both = purposes.merge(overlap[[*key, "step_ns"]], on=key)
    for column, what in (("wait_ns", "of waiting"), ("comm_ns", "of communication")):
        longer = both[(both[column] > both["step_ns"]).fillna(value=False).astype("bool")]
        for row in longer.to_dict("records"):
            said = f"purposes says {format_ns(row[column])} {what} for {row['purpose']} in step {row['step']}"
            yield int(row["rank"]), f"{said}, which took {format_ns(row['step_ns'])}"

"""Whose communication a cell's PROFILED steps left exposed, and why: from the tables of collectives of its launches."""

from typing import Final, TypedDict

import pandas as pd

from dtbench.analyze.causes.outsized import find_outsized
from dtbench.analyze.summarize_overlap import keep_of_steps
from dtbench.analyze.summary import OwnerSummary
from dtbench.vocabulary import Cause, Operation, Purpose

_COLUMNS: Final = {f"exposed_{cause}_ns": cause for cause in Cause}
_KEY: Final = ["owner", "operation", "purpose"]


def summarize_owners(collectives: pd.DataFrame, steps: pd.DataFrame) -> tuple[OwnerSummary, ...]:
    """Give one row per owner, operation, purpose and cause: the owner with most exposed time first, then its causes.

    Args:
        collectives: ``tables.COLLECTIVES`` of all launches; what none of the steps issued is left out.
        steps: those of ``tables.OVERLAP`` whose account is known, over which means are taken; no rows give none.
    """
    windows, issued = len(steps), keep_of_steps(collectives, steps)
    if not len(issued) or issued[list(_COLUMNS)].isna().to_numpy().all():
        return ()
    sums = issued.groupby(_KEY, dropna=False)[list(_COLUMNS)].sum()
    totals = sums.sum(axis=1)
    rows = []
    for key in totals.sort_values(ascending=False, kind="stable").index:
        owner, operation, purpose = key
        mine = issued[(issued["owner"] == owner) & (issued["operation"] == operation) & (issued["purpose"] == purpose)]
        parts = {cause: int(sums.loc[key, column]) for column, cause in _COLUMNS.items()}
        carried = _sum_carried(mine, windows)
        rows += [
            OwnerSummary(
                owner=str(owner),
                operation=Operation(operation) if operation else None,
                purpose=Purpose(purpose),
                cause=cause,
                exposed_ns=exposed_ns // windows,
                owner_exposed_ns=int(totals[key]) // windows,
                waited_for=_waited_for(mine, cause) if cause in (Cause.SKEW, Cause.BUBBLE) else None,
                **carried,
            )
            for cause, exposed_ns in sorted(parts.items(), key=lambda item: -item[1])
            if exposed_ns
        ]
    return tuple(rows)


class _Carried(TypedDict):
    transfer_ns: int | None
    skew_wait_ns: int | None
    size_bytes: int | None
    outsized_bytes: int | None
    dtype: str
    parameters: tuple[str, ...]


def _sum_carried(mine: pd.DataFrame, windows: int) -> _Carried:
    """Give what an owner's collectives took and carried, hidden ones too."""
    spans_ns = (mine["end_ns"] - mine["start_ns"]).dropna()
    waits_ns = mine["skew_wait_ns"].dropna()
    sizes = mine["size_bytes"].fillna(0).astype("int64").to_numpy()
    largest = mine.iloc[int(sizes.argmax())]
    parameters = str(largest["parameters"])
    return _Carried(
        transfer_ns=(int(spans_ns.sum()) - int(waits_ns.sum())) // windows if len(spans_ns) else None,
        skew_wait_ns=int(waits_ns.sum()) // windows if len(waits_ns) else None,
        size_bytes=int(sizes.max()) or None,
        outsized_bytes=_find_outsized(mine),
        dtype=str(largest["dtype"]),
        parameters=tuple(parameters.split(", ")) if parameters else (),
    )


def _find_outsized(mine: pd.DataFrame) -> int | None:
    """Give the size of the largest where it is of another order than the others."""
    took_ns = (mine["end_ns"] - mine["start_ns"]).fillna(0).astype("int64")
    sizes = [None if pd.isna(size) else int(size) for size in mine["size_bytes"]]
    return find_outsized(sizes, took_ns.tolist())


def _waited_for(mine: pd.DataFrame, cause: Cause) -> int | None:
    """Give the rank that most of the time that a cause exposed waited for."""
    waits = mine[mine["last_rank"].notna()].groupby("last_rank")[f"exposed_{cause}_ns"].sum()
    longest = max(waits.items(), key=lambda item: item[1], default=None)
    return int(str(longest[0])) if longest is not None and longest[1] else None

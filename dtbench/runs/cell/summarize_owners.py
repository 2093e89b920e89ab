"""Whose communication a cell's PROFILED steps left exposed, and why: from the tables of collectives of its launches."""

from collections.abc import Iterable, Iterator
from typing import Final, TypedDict

import pandas as pd

from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.runs.cell.summarize_overlap import are_among, find_part, keep_known, keep_of_steps
from dtbench.runs.summary import OtherSummary, OwnerSummary
from dtbench.traces.causes.exposed_owners import find_awaited_rank, find_most, sum_longest
from dtbench.traces.causes.outsized import find_outsized
from dtbench.traces.time.intervals import unite

_COLUMNS: Final = {f"exposed_{cause}_ns": cause for cause in Cause}
_KEY: Final = ["owner", "operation", "purpose"]
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_WORTH_SAYING: Final = 0.01
"""Part of what is exposed from which the sum of owners differs visibly."""

_NUMBERS_BYTES: Final = 16
"""A pair of the widest numbers: all that surely is no gradient or parameter of a model worth the ranks."""

_OF_ALL_RANKS: Final = (
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.ALL_TO_ALL,
    Operation.GATHER,
    Operation.SCATTER,
)
"""Whose size is that of every rank's part together."""

_NOT_TOLD: Final = -1
"""In place of a rank."""


def summarize_owners(collectives: pd.DataFrame, overlap: pd.DataFrame) -> tuple[OwnerSummary, ...]:
    """Return one row per owner, operation, purpose and cause: the owner with most exposed time first, then its causes.

    Args:
        collectives: the table ``collectives`` of all launches; what none of the steps issued is left out.
        overlap: the table ``overlap`` of them; means are over the steps whose account is known. None give no rows, nor
            does a rank that communicated and of whose collectives none is listed.
    """
    steps = keep_known(overlap)
    if not _are_listed(steps, collectives):
        return ()
    windows, issued = len(steps), keep_of_steps(collectives, steps)
    rows = []
    for key, mine in issued.groupby(_KEY, dropna=False):
        owner, named, purpose = (str(part) for part in key)
        operation = Operation(named) if named else None
        known, known_windows = _leave_out_unknown(mine, windows)
        part = find_part(_leave_out_steps(mine, steps), overlap)
        sums = _sum_causes(known)
        if not known_windows or not any(sums.values()):
            continue
        carried = _sum_carried(mine, steps, operation)
        rows += [
            OwnerSummary(
                owner=owner,
                operation=operation,
                purpose=Purpose(purpose),
                cause=cause,
                exposed_ns=exposed_ns // known_windows,
                owner_exposed_ns=sum(sums.values()) // known_windows,
                waited_for=_waited_for(mine, cause) if cause in (Cause.SKEW, Cause.BUBBLE) else None,
                part=part,
                **carried,
            )
            for cause, exposed_ns in sorted(sums.items(), key=lambda item: -item[1])
            if exposed_ns
        ]
    return tuple(sorted(rows, key=lambda row: -row.owner_exposed_ns))


def count_unknown_owners(collectives: pd.DataFrame, overlap: pd.DataFrame) -> int:
    """Return how many owners, by operation and purpose, have no row for want of what is known; arguments as above.

    Of a rank whose collectives are not listed no owner is known, and none is counted.
    """
    steps = keep_known(overlap)
    issued = keep_of_steps(collectives, steps)
    if not issued["exposed_ns"].hasnans or not _are_listed(steps, collectives):
        return 0
    groups = (mine for _, mine in issued.groupby(_KEY, dropna=False) if mine["exposed_ns"].hasnans)
    return sum(not any(_sum_causes(_leave_out_unknown(mine, len(steps))[0]).values()) for mine in groups)


def say_unowned(owners: Iterable[OwnerSummary], collectives: pd.DataFrame, overlap: pd.DataFrame) -> Iterator[str]:
    """Say how much of what is exposed in the steps no owner has, or owners have of what lies beyond them.

    A step's exposed time is of whatever ran in it; owners have all that the steps issued, wherever it ran. Nothing is
    said where of some collective it is not known how long it was exposed: then owners are of fewer steps, and say so.

    Args:
        owners: of ``summarize_owners``.
        collectives: as given to it.
        overlap: likewise.
    """
    steps = keep_known(overlap)
    issued = keep_of_steps(collectives, steps)
    if not _are_listed(steps, collectives) or issued["exposed_ns"].isna().any():
        return
    count = max(1, len(steps))
    exposed_ns = int(steps["exposed_comm_ns"].sum()) // count
    owned = f"owners' times add up to {format_ns(sum(row.exposed_ns for row in owners))}"
    said = f"{owned}, and {format_ns(exposed_ns)} of a step is exposed"
    before_ns, beyond_ns = (total_ns // count for total_ns in _sum_carried_over(issued, steps))
    others_ns = int(collectives["exposed_ns"].drop(issued.index).sum()) // count
    if beyond_ns > _WORTH_SAYING * exposed_ns:
        yield f"{said}: {format_ns(beyond_ns)} lies beyond the steps that issued it"
    if before_ns > _WORTH_SAYING * exposed_ns:
        is_told = others_ns >= before_ns
        what = format_ns(before_ns)
        told = f"{what} is of collectives that were issued before these steps"
        yield f"{said}: {told if is_told else f'whose {what} is, is not known'}"


def _sum_carried_over(issued: pd.DataFrame, steps: pd.DataFrame) -> tuple[int, int]:
    """Return how much of what steps exposed no owner has, and how much owners have beyond the steps, at least.

    What a step issued may be exposed in the next, which adds up as long as that is counted, too. So of steps in
    a row what owners have more is carried on, and cannot be less than nothing.
    """
    key = [name for name in ("launch", "rank") if name in issued and name in steps]
    owned = issued.groupby([*key, "step"])["exposed_ns"].sum()
    before_ns = beyond_ns = 0
    for _, mine in steps.sort_values("step").groupby(key):
        carried_ns, last = 0, None
        for row in mine[[*key, "step", "exposed_comm_ns"]].astype("int64").itertuples(index=False):
            *of, step, exposed_ns = row
            if last is not None and step != last + 1:
                beyond_ns, carried_ns = beyond_ns + carried_ns, 0
            carried_ns += int(owned.get((*of, step), 0)) - exposed_ns
            before_ns, carried_ns = before_ns + max(0, -carried_ns), max(0, carried_ns)
            last = step
        beyond_ns += carried_ns
    return before_ns, beyond_ns


def summarize_others(collectives: pd.DataFrame, overlap: pd.DataFrame) -> tuple[OtherSummary, ...]:
    """Return rows of purpose other by operation, numbers apart: what these were for their operations may rule out.

    Args:
        collectives: as for ``summarize_owners``.
        overlap: likewise; none give no rows, nor does a rank that communicated and of whose collectives none is listed.
    """
    if not len(overlap) or not _are_listed(overlap, collectives):
        return ()
    issued = keep_of_steps(collectives, overlap)
    issued = issued[issued["purpose"] == Purpose.OTHER]
    rows = []
    for (named, are_numbers), mine in issued.groupby(["operation", _are_numbers(issued)], dropna=False):
        window = [mine[name] for name in ("launch", "rank", "step") if name in mine]
        sizes = None if mine["size_bytes"].isna().any() else mine.groupby(window)["size_bytes"].sum()
        rows.append(
            OtherSummary(
                operation=_OPERATIONS.get(str(named)),
                are_numbers=bool(are_numbers),
                count=int(mine.groupby(window).size().max()),
                size_bytes=None if sizes is None else int(sizes.max()),
            )
        )
    return tuple(rows)


def _are_numbers(issued: pd.DataFrame) -> "pd.Series[bool]":
    """Tell of each collective whether what it has of a rank is a number or two; of one without a size nobody knows."""
    parts = issued["group_size"].where(issued["operation"].isin(_OF_ALL_RANKS), 1).fillna(1)
    return issued["size_bytes"].le(parts * _NUMBERS_BYTES).fillna(value=False).astype("bool")


def _are_listed(steps: pd.DataFrame, collectives: pd.DataFrame) -> bool:
    """Tell whether the collectives of all ranks are listed; one that communicated nothing has none to list."""
    key = [name for name in ("launch", "rank") if name in collectives and name in steps]
    return bool((are_among(steps[key], collectives[key]) | steps["comm_ns"].eq(0).fillna(value=False)).all())


def _leave_out_unknown(mine: pd.DataFrame, windows: int) -> tuple[pd.DataFrame, int]:
    """Return an owner's collectives in steps in which all their exposed time is known, and how many steps are left.

    Args:
        mine: of one owner.
        windows: steps of all ranks.
    """
    key = [name for name in ("launch", "rank", "step") if name in mine]
    unknown = mine.loc[mine["exposed_ns"].isna(), key].drop_duplicates()
    return mine[~are_among(mine[key], unknown)], windows - len(unknown)


def _leave_out_steps(mine: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps but those in which some exposed time of an owner is not known."""
    key = [name for name in ("launch", "rank", "step") if name in mine and name in steps]
    return steps[~are_among(steps[key], mine.loc[mine["exposed_ns"].isna(), key])]


def _sum_causes(known: pd.DataFrame) -> dict[Cause, int]:
    """Return exposed time by cause; where a table of an earlier version tells of no such cause, the rest is unknown."""
    sums = {cause: int(known[column].sum()) for column, cause in _COLUMNS.items()}
    sums[Cause.UNKNOWN] += max(0, int(known["exposed_ns"].sum()) - sum(sums.values()))
    return sums


class _Carried(TypedDict):
    at_most_ns: int | None
    waited_at_most_ns: int | None
    taken_at_most_ns: int | None
    transfer_ns: int | None
    skew_wait_ns: int | None
    size_bytes: int | None
    outsized_bytes: int | None
    dtype: str
    parameters: tuple[str, ...]


def _sum_carried(mine: pd.DataFrame, steps: pd.DataFrame, operation: Operation | None) -> _Carried:
    """Return what an owner's collectives took and carried, hidden ones too; ``steps``: those that means go over."""
    windows = len(steps)
    most = max(len(own) for _, own in steps.groupby("rank"))
    windows_of = {int(str(rank)): len(own) for rank, own in steps.groupby("rank")}
    is_seen, are_waits_known = mine["end_ns"].notna().all(), mine["skew_wait_ns"].notna().all()
    transfer_ns, skew_wait_ns = _sum_known(mine["transfer_ns"]), _sum_known(mine["skew_wait_ns"])
    sizes = mine["size_bytes"].fillna(0).astype("int64").to_numpy()
    largest = mine.iloc[int(sizes.argmax())]
    parameters = str(largest["parameters"])
    return _Carried(
        at_most_ns=find_most(_sum_under_way(mine), windows_of, operation) if is_seen else None,
        waited_at_most_ns=_sum_longest(mine, mine["skew_wait_ns"], most) if are_waits_known else None,
        taken_at_most_ns=_sum_longest(mine, mine["end_ns"] - mine["start_ns"], most) if is_seen else None,
        transfer_ns=None if transfer_ns is None else transfer_ns // windows,
        skew_wait_ns=None if skew_wait_ns is None else skew_wait_ns // windows,
        size_bytes=None if mine["size_bytes"].isna().any() else int(sizes.max()) or None,
        outsized_bytes=_find_outsized(mine),
        dtype=str(largest["dtype"]),
        parameters=tuple(parameters.split(", ")) if parameters else (),
    )


def _sum_longest(mine: pd.DataFrame, times_ns: "pd.Series[int]", steps: int) -> int:
    """Sum what each took on the rank where that is longest: the same place in the same step is the same collective."""
    key = [name for name in ("launch", "step") if name in mine]
    places = mine.groupby([*key, "rank"]).cumcount()
    return sum_longest(
        zip(zip(*(mine[name] for name in key), places, strict=True), times_ns.astype("int64"), strict=True), steps
    )


def _sum_under_way(mine: pd.DataFrame) -> dict[int, int]:
    """Sum for each rank when one was under way and its last rank had begun, as far as that is known."""
    begun = (mine["start_ns"] + mine["skew_wait_ns"].fillna(0)).clip(upper=mine["end_ns"])
    spans = pd.DataFrame({"begun_ns": begun, "end_ns": mine["end_ns"]}).astype("int64")
    sums: dict[int, int] = {}
    of_launches = [mine["launch"]] if "launch" in mine else []
    for key, own in spans.groupby([mine["rank"], *of_launches]):
        rank = int(str(key[0]))
        sums[rank] = sums.get(rank, 0) + unite(own["begun_ns"].to_numpy(), own["end_ns"].to_numpy()).length_ns
    return sums


def _sum_known(times_ns: "pd.Series[int]") -> int | None:
    """Return the sum; None where one is not known."""
    return None if times_ns.isna().any() else int(times_ns.sum())


def _find_outsized(mine: pd.DataFrame) -> int | None:
    """Return the size of the largest where it is of another order than the others."""
    took_ns = (mine["end_ns"] - mine["start_ns"]).fillna(0).astype("int64")
    sizes = [None if pd.isna(size) else int(size) for size in mine["size_bytes"]]
    return find_outsized(sizes, took_ns.tolist())


def _waited_for(mine: pd.DataFrame, cause: Cause) -> int | None:
    """Return the rank that nearly all of the time that a cause exposed waited for."""
    waits = mine.groupby(mine["last_rank"].fillna(_NOT_TOLD))[f"exposed_{cause}_ns"].sum()
    times_ns = {int(str(rank)): int(time_ns) for rank, time_ns in waits.items()}
    return find_awaited_rank({None if rank == _NOT_TOLD else rank: time_ns for rank, time_ns in times_ns.items()})

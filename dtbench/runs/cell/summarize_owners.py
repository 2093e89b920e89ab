"""Whose communication a cell's PROFILED steps left exposed, and why: from the tables of collectives of its launches."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.runs.cell.summarize_overlap import STEP, are_among, find_part, give_keys, keep_known, keep_of_steps
from dtbench.runs.summary import OtherSummary, OwnerSummary
from dtbench.traces.causes.exposed_owners import find_awaited_rank, find_most, sum_longest
from dtbench.traces.causes.outsized import find_outsized
from dtbench.traces.rows.collective_table import read_missing
from dtbench.traces.time.intervals import unite

_COLUMNS: Final = {f"exposed_{cause}_ns": cause for cause in Cause}
_KEY: Final = ["owner", "operation", "purpose"]
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_NUMBERS: Final = (
    "start_ns",
    "end_ns",
    "exposed_ns",
    "skew_wait_ns",
    "transfer_ns",
    "size_bytes",
    "last_rank",
)
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


class _Collective(NamedTuple):
    """A collective that a step issued, as its rank saw it; None: not known."""

    step: tuple[int, ...]
    """Launch, where there are several, rank and step."""
    place: int
    """Among those of its owner in that step of that rank."""
    start_ns: int | None
    end_ns: int | None
    exposed_ns: int | None
    skew_wait_ns: int | None
    transfer_ns: int | None
    size_bytes: int | None
    last_rank: int | None
    dtype: str
    parameters: str
    missing: str
    causes_ns: tuple[int, ...]
    """Exposed time by cause, in the order of ``Cause``."""

    @property
    def issued_in(self) -> tuple[Hashable, ...]:
        """What all ranks' parts of one collective have in common, and no other collective of the owner has."""
        *launch, _, step = self.step
        return (*launch, step, self.place)

    @property
    def rank(self) -> int:
        """Whose part of it this is."""
        return self.step[-2]

    @property
    def took_ns(self) -> int | None:
        """How long it was under way."""
        return None if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns


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
    windows = len(steps)
    windows_of = {int(str(rank)): len(own) for rank, own in steps.groupby("rank")}
    whole_part = find_part(steps, overlap)
    rows = []
    for (owner, named, purpose), mine in _by_owner(keep_of_steps(collectives, steps)):
        operation = Operation(named) if named else None
        unknown = _find_unknown(mine)
        known_windows = windows - len(unknown)
        sums = _sum_causes([one for one in mine if one.step not in unknown])
        if not known_windows or not any(sums.values()):
            continue
        part = find_part(_leave_out(steps, unknown), overlap) if unknown else whole_part
        carried = _sum_carried(mine, windows_of, operation)
        rows += [
            OwnerSummary(
                owner=owner,
                operation=operation,
                purpose=Purpose(purpose),
                cause=cause,
                exposed_ns=exposed_ns // known_windows,
                owner_exposed_ns=sum(sums.values()) // known_windows,
                waited_for=_waited_for(mine, cause) if cause in (Cause.SKEW, Cause.BUBBLE) else None,
                missing=_find_missing(mine) if cause is Cause.UNKNOWN else (),
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
    of_owners = ((mine, _find_unknown(mine)) for _, mine in _by_owner(issued))
    return sum(
        not any(_sum_causes([one for one in mine if one.step not in unknown]).values())
        for mine, unknown in of_owners
        if unknown
    )


def _by_owner(issued: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], list[_Collective]]]:
    """Give the collectives of each owner, operation and purpose, in the order of these names."""
    steps = [name for name in STEP if name in issued]
    places = issued.groupby([*_KEY, *steps], dropna=False).cumcount()
    causes = zip(*(_to_whole(issued[column].fillna(0)) for column in _COLUMNS), strict=True)
    numbers = (_to_whole(issued[name]) for name in _NUMBERS)
    texts = (issued[name].astype(str).tolist() for name in ("dtype", "parameters", "missing"))
    columns = zip(
        zip(*(_to_whole(issued[name]) for name in steps), strict=True), places, *numbers, *texts, causes, strict=True
    )
    keys = zip(*(issued[name].astype(str).tolist() for name in _KEY), strict=True)
    found: dict[tuple[str, str, str], list[_Collective]] = {}
    for (owner, operation, purpose), fields in zip(keys, columns, strict=True):
        found.setdefault((owner, operation, purpose), []).append(_Collective(*fields))
    yield from sorted(found.items())


def _to_whole(column: "pd.Series[int]") -> list[int | None]:
    return [None if pd.isna(number) else int(number) for number in column.tolist()]


def _find_unknown(mine: Sequence[_Collective]) -> set[tuple[int, ...]]:
    """Return the steps in which some exposed time of an owner is not known."""
    return {one.step for one in mine if one.exposed_ns is None}


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


def _leave_out(steps: pd.DataFrame, unknown: Collection[tuple[int, ...]]) -> pd.DataFrame:
    """Return the steps but those in which some exposed time of an owner is not known."""
    return steps[[key not in unknown for key in give_keys(steps[[name for name in STEP if name in steps]])]]


def _sum_causes(known: Sequence[_Collective]) -> dict[Cause, int]:
    """Return exposed time by cause; where a table of an earlier version tells of no such cause, the rest is unknown."""
    sums = {cause: sum(one.causes_ns[place] for one in known) for place, cause in enumerate(_COLUMNS.values())}
    sums[Cause.UNKNOWN] += max(0, sum(one.exposed_ns or 0 for one in known) - sum(sums.values()))
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


def _sum_carried(mine: Sequence[_Collective], windows_of: Mapping[int, int], operation: Operation | None) -> _Carried:
    """Return what an owner's collectives took and carried, hidden ones too; ``windows_of``: steps of each rank."""
    windows, most = sum(windows_of.values()), max(windows_of.values())
    took_ns, waits_ns = [one.took_ns for one in mine], [one.skew_wait_ns for one in mine]
    sizes = [one.size_bytes for one in mine]
    transfer_ns, skew_wait_ns = _sum_known(one.transfer_ns for one in mine), _sum_known(waits_ns)
    is_seen = None not in took_ns
    largest = max(mine, key=lambda one: one.size_bytes or 0)
    return _Carried(
        at_most_ns=find_most(_sum_under_way(mine), windows_of, operation) if is_seen else None,
        waited_at_most_ns=_sum_longest(mine, waits_ns, most),
        taken_at_most_ns=_sum_longest(mine, took_ns, most),
        transfer_ns=None if transfer_ns is None else transfer_ns // windows,
        skew_wait_ns=None if skew_wait_ns is None else skew_wait_ns // windows,
        size_bytes=None if None in sizes else largest.size_bytes or None,
        outsized_bytes=find_outsized(sizes, [time_ns or 0 for time_ns in took_ns]),
        dtype=largest.dtype,
        parameters=tuple(largest.parameters.split(", ")) if largest.parameters else (),
    )


def _sum_longest(mine: Sequence[_Collective], times_ns: Sequence[int | None], steps: int) -> int | None:
    """Sum what each took on the rank where that is longest; None where one is not known."""
    known = [(one.issued_in, time_ns) for one, time_ns in zip(mine, times_ns, strict=True) if time_ns is not None]
    return sum_longest(known, steps) if len(known) == len(mine) else None


def _sum_under_way(mine: Sequence[_Collective]) -> dict[int, int]:
    """Sum for each rank when one was under way and its last rank had begun, as far as that is known."""
    spans: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for one in mine:
        if one.start_ns is not None and one.end_ns is not None:
            begun_ns = min(one.start_ns + _find_wait(one, one.end_ns - one.start_ns), one.end_ns)
            spans.setdefault((one.rank, *one.step[:-2]), []).append((begun_ns, one.end_ns))
    sums: dict[int, int] = {}
    for (rank, *_), own in spans.items():
        begun, ends = np.array(own, np.int64).T
        sums[rank] = sums.get(rank, 0) + unite(begun, ends).length_ns
    return sums


def _find_wait(one: _Collective, span_ns: int) -> int:
    """Return how long one waited for its last rank: what is not transfer where that alone is known; 0: neither is."""
    if one.skew_wait_ns is not None:
        return one.skew_wait_ns
    return 0 if one.transfer_ns is None else span_ns - one.transfer_ns


def _sum_known(times_ns: Iterable[int | None]) -> int | None:
    """Return the sum; None where one is not known."""
    total_ns = 0
    for time_ns in times_ns:
        if time_ns is None:
            return None
        total_ns += time_ns
    return total_ns


def _find_missing(mine: Sequence[_Collective]) -> tuple[MissingInput, ...]:
    """Return what would tell the unknown cause of some: what those lack first that it left exposed for longest.

    Of one that lacks several, the table does not say how much of it lacks each.
    """
    place, lacking_ns = list(Cause).index(Cause.UNKNOWN), Counter[str]()
    for one in mine:
        lacking_ns[one.missing] += one.causes_ns[place]
    told = [missing for words, _ in lacking_ns.most_common() for missing in read_missing(words)]
    return tuple(dict.fromkeys(told))


def _waited_for(mine: Sequence[_Collective], cause: Cause) -> int | None:
    """Return the rank that nearly all of the time that a cause exposed waited for."""
    place, waits_ns = list(Cause).index(cause), Counter[int | None]()
    for one in mine:
        waits_ns[one.last_rank] += one.causes_ns[place]
    return find_awaited_rank(waits_ns)

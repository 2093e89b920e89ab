"""Owners that only have other names on the other side: a model that was wrapped or moved issues the same collectives.

Taken for renamed where both sides issued, one by one, the same collectives but for their owners' names, each name for
one other, and no new name was there before. Else a name that is gone would be time saved, and a new one time lost.

Where that is not sure, a name that one side lacks is no zero there as long as other names stand in its place: as many
collectives of the kind, and as many bytes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dtbench.base.units import count_things
from dtbench.comparison.metrics import EXPOSED_BY_OWNER
from dtbench.comparison.reading.orders import pair_lowest, pair_others
from dtbench.comparison.reading.seen import Kind
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import Issued, MeasuredLaunch, MeasuredSide, OwnedTime

Owned = tuple[str, *Kind]
"""An owner, and the kind of its collectives."""

_ByKind = Mapping[Kind, Mapping[str, OwnedTime]]
"""What a launch tells of owners, by name, of each kind of collectives."""

_MOST_NAMED: Final = 4
_DIGITS: Final = 6
"""Of a count per step and rank: means are not exact."""


def find_renamed(baseline: MeasuredSide, candidate: MeasuredSide) -> dict[str, str]:
    """Return the baseline's name of each owner that the candidate calls otherwise; empty: none, or it is not sure."""
    if not baseline.launches or not candidate.launches:
        return {}
    before, after = baseline.launches[0], candidate.launches[0]
    if (lowest := pair_lowest(before, after)) is None:
        return {}
    orders = [lowest, *((old, new) for _, old, new in pair_others(before, after))]
    if any([_without_owner(one) for one in old] != [_without_owner(one) for one in new] for old, new in orders):
        return {}
    issued = [pair for old, new in orders for pair in zip(old, new, strict=True)]
    pairs = {(one.owner, other.owner) for one, other in issued}
    olds, news = {old for old, _ in pairs}, {new for _, new in pairs}
    renamed = {new: old for old, new in pairs if new != old}
    is_told = all(one.size_bytes is not None for one, _ in issued) and "" not in (*renamed, *renamed.values())
    is_one_to_one = len(pairs) == len(olds) == len(news)
    known = olds | {row.owner for launch in baseline.launches for row in launch.owned}
    return renamed if is_told and is_one_to_one and known.isdisjoint(renamed) else {}


def _without_owner(one: Issued) -> Issued:
    return one.model_copy(update={"owner": ""})


def rename_owners(side: MeasuredSide, names: Mapping[str, str]) -> MeasuredSide:
    """Return a side whose owners bear these names."""
    return side.model_copy(update={"launches": tuple(_rename(launch, names) for launch in side.launches)})


def _rename(launch: MeasuredLaunch, names: Mapping[str, str]) -> MeasuredLaunch:
    def order(issued: Sequence[Issued] | None) -> tuple[Issued, ...] | None:
        if issued is None:
            return None
        return tuple(one.model_copy(update={"owner": names.get(one.owner, one.owner)}) for one in issued)

    return launch.model_copy(
        update={
            "measurements": tuple(
                one.model_copy(update={"subject": names.get(one.subject, one.subject)})
                if one.metric == EXPOSED_BY_OWNER
                else one
                for one in launch.measurements
            ),
            "owned": tuple(one.model_copy(update={"owner": names.get(one.owner, one.owner)}) for one in launch.owned),
            "order": order(launch.order),
            "other_orders": tuple(some.model_copy(update={"order": order(some.order)}) for some in launch.other_orders),
            "unlike_steps": tuple(some.model_copy(update={"order": order(some.order)}) for some in launch.unlike_steps),
        }
    )


def find_misnamed(launches: Sequence[MeasuredLaunch], others: Iterable[MeasuredLaunch]) -> list[frozenset[Owned]]:
    """Return of each launch the owners of which it may have more under other names: fewer than another, as many in all.

    Only where the names differ, and the bytes of the kind do not as far as both are told. Launches that communicated
    alike are compared once, however many they are.
    """
    apart = {_tell_apart(other): other for other in others}
    theirs = [_list_by_kind(other) for other in apart.values()]
    found: dict[_Told, frozenset[Owned]] = {}
    for launch in launches:
        if (told := _tell_apart(launch)) not in found:
            mine = _list_by_kind(launch)
            found[told] = frozenset(owned for other in theirs for owned in _find_misnamed(mine, other))
    return [found[_tell_apart(launch)] for launch in launches]


_Told = tuple[tuple[str, Kind, float, float | None], ...]


def _tell_apart(launch: MeasuredLaunch) -> _Told:
    """Return what is equal for launches whose owners communicated alike; times are not looked at."""
    return tuple(
        (row.owner, (row.operation, row.purpose), row.count, None if math.isnan(row.size_bytes) else row.size_bytes)
        for row in launch.owned
    )


def _find_misnamed(mine: _ByKind, theirs: _ByKind) -> Iterator[Owned]:
    for kind, rows in theirs.items():
        if kind in mine and _are_other_names(mine[kind], rows):
            yield from (
                (owner, *kind) for owner, row in rows.items() if owner and _count(mine[kind].get(owner)) < _count(row)
            )


def _list_by_kind(launch: MeasuredLaunch) -> _ByKind:
    found: dict[Kind, dict[str, OwnedTime]] = {}
    for row in launch.owned:
        found.setdefault((row.operation, row.purpose), {})[row.owner] = row
    return found


def _are_other_names(one: Mapping[str, OwnedTime], other: Mapping[str, OwnedTime]) -> bool:
    """Tell whether owners of one kind are others, and what they communicated is not, as far as it is told."""
    counts = [round(sum(row.count for row in rows.values()), _DIGITS) for rows in (one, other)]
    sizes = [sum(row.size_bytes for row in rows.values()) for rows in (one, other)]
    is_size_told = not any(map(math.isnan, sizes))
    return one.keys() != other.keys() and counts[0] == counts[1] and (not is_size_told or math.isclose(*sizes))


def _count(row: OwnedTime | None) -> float:
    return 0.0 if row is None else round(row.count, _DIGITS)


def say_misnamed(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> Iterator[str]:
    """Say which owners are not compared, as a side may have what was theirs under other names, a clause a side."""
    launches = [launch for side in sides for launch in side.launches]
    for side, label in zip(sides, labels, strict=True):
        owners = sorted({owner for found in find_misnamed(side.launches, launches) for owner, *_ in found})
        if owners:
            more = [f"{len(owners) - _MOST_NAMED} more"] if len(owners) > _MOST_NAMED else []
            which = join_words([*(f"`{owner}`" for owner in owners[:_MOST_NAMED]), *more], last="and")
            yield (
                f"how much {label} has of {which} is not known: it issued as many collectives in all, under other "
                "names, and more of these may be among them"
            )


def say_renamed(names: Mapping[str, str], labels: Sequence[str]) -> list[str]:
    """Say which owners are compared under the baseline's names; nothing where all have them."""
    if not names:
        return []
    new, old = next(iter(sorted(names.items())))
    more = f", and so for {count_things(len(names) - 1, 'more owner')}" if len(names) > 1 else ""
    return [f"`{new}` of {labels[1]} issued what `{old}` of {labels[0]} did, and is compared as `{old}`{more}"]

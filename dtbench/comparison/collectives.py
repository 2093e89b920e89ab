"""Whose collectives took longer, or were exposed for longer, than on the other side."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from dtbench.comparison.comparison import CollectiveChange
from dtbench.comparison.metrics import EXPOSED
from dtbench.store.baseline import MeasuredLaunch, OwnedTime, PlacedTime
from dtbench.vocabulary import Operation, Purpose

Kind = tuple[Operation | None, Purpose]
_Key = tuple[str, Operation | None, Purpose]
_Owned = Mapping[_Key, Sequence[OwnedTime]]

_TELLING: Final = 0.5
"""Part of a change from which one collective among several is named for it."""


def find_collective_changes(
    baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]
) -> tuple[CollectiveChange, ...]:
    """Give one row per owner, operation and purpose, medians over launches; the largest change of exposed time first.

    An owner that a side does not have counts as zero there, unless that side has collectives of the kind whose owner it
    does not know: then the owner's time there is not known, nor is what became of those. No rows where what was exposed
    is not known on a side.
    """
    baseline, candidate = _keep_known(baseline), _keep_known(candidate)
    if not baseline or not candidate:
        return ()
    before, after = _by_owner(baseline), _by_owner(candidate)
    rows = [
        _compare(key, _find(before, key, after), _find(after, key, before), (len(baseline), len(candidate)))
        for key in dict.fromkeys((*before, *after))
    ]
    named = [row if row.owner else _with_place(row, baseline, candidate) for row in rows]
    return tuple(sorted(named, key=lambda row: (-_size(exposed_change(row)), -_size(duration_change(row)))))


def find_kinds(launches: Iterable[MeasuredLaunch]) -> dict[str, frozenset[Kind]]:
    """Give the kinds of collectives of each owner, over all of these launches."""
    found: dict[str, set[Kind]] = {}
    for launch in launches:
        for row in launch.owned:
            found.setdefault(row.owner, set()).add((row.operation, row.purpose))
    return {owner: frozenset(kinds) for owner, kinds in found.items()}


def has_unowned(launch: MeasuredLaunch, kinds: Collection[Kind]) -> bool:
    """Tell whether a launch has collectives of any of these kinds whose owner it does not know."""
    return any(not row.owner and (row.operation, row.purpose) in kinds for row in launch.owned)


def _keep_known(launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    """Leave out launches of which it is not known what was exposed: whose it is, is not known either."""
    return [launch for launch in launches if any(one.metric == EXPOSED for one in launch.measurements)]


def _size(change_ns: float) -> float:
    """Give how large a change is; one that is not known comes last."""
    return -1.0 if math.isnan(change_ns) else abs(change_ns)


def exposed_change(row: CollectiveChange) -> float:
    """Give by how much more of it is exposed, ns per step and rank; NaN: not known on a side."""
    return row.exposed_ns[1] - row.exposed_ns[0]


def duration_change(row: CollectiveChange) -> float:
    """Give by how much longer it takes, ns per step and rank; NaN: not known on a side."""
    return row.duration_ns[1] - row.duration_ns[0]


def _by_owner(launches: Sequence[MeasuredLaunch]) -> _Owned:
    found: dict[_Key, list[OwnedTime]] = {}
    for launch in launches:
        for row in launch.owned:
            found.setdefault((row.owner, row.operation, row.purpose), []).append(row)
    return found


def _find(side: _Owned, key: _Key, other: _Owned) -> Sequence[OwnedTime] | None:
    """Give a side's rows of an owner; empty: it has no such collectives; None: they may be among others of its own.

    Where one side does not know owners that the other knows, only whose they are has changed, as far as is seen.
    """
    if key in side:
        return side[key]
    owner, *kind = key
    if owner:
        return None if ("", *kind) in side else ()
    return None if any(named and rest == kind and one not in other for one in side for named, *rest in [one]) else ()


def _compare(
    key: _Key, before: Sequence[OwnedTime] | None, after: Sequence[OwnedTime] | None, launches: tuple[int, int]
) -> CollectiveChange:
    def middle(name: str) -> tuple[float, float]:
        first, second = (
            math.nan if rows is None else _median([getattr(row, name) for row in rows], count)
            for rows, count in zip((before, after), launches, strict=True)
        )
        return first, second

    owner, operation, purpose = key
    known = (row for row in after or () if not math.isnan(row.exposed_ns))
    most = max(known, key=lambda row: row.exposed_ns, default=None)
    return CollectiveChange(
        owner=owner,
        operation=operation,
        purpose=purpose,
        duration_ns=middle("duration_ns"),
        exposed_ns=middle("exposed_ns"),
        cause=most.cause if most is not None else None,
        count=middle("count"),
    )


def _median(values: Sequence[float], launches: int) -> float:
    """Give the median over launches; one that has no such row counts as zero, one that does not know it not at all."""
    known = [value for value in values if not math.isnan(value)]
    counted = [*known, *[0.0] * (launches - len(values))]
    return median(counted) if counted else math.nan


def _with_place(
    row: CollectiveChange, baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]
) -> CollectiveChange:
    """Say which of several collectives without an owner changed, where it is mostly one."""
    before, after = (_by_place(launches, row) for launches in (baseline, candidate))
    changes_ns = {
        place: (_change_ns(before, after, place, "exposed_ns"), _change_ns(before, after, place, "duration_ns"))
        for place in dict.fromkeys((*before, *after))
    }
    for part, whole_ns in enumerate((exposed_change(row), duration_change(row))):
        most = max(changes_ns, key=lambda place: abs(changes_ns[place][part]), default=None)
        if most is not None and whole_ns and changes_ns[most][part] / whole_ns > _TELLING:
            known = (after.get(most) or before[most])[0]
            return row.model_copy(update={"place": _spell_place(known)})
    return row


def _by_place(
    launches: Sequence[MeasuredLaunch], row: CollectiveChange
) -> Mapping[tuple[str, int], Sequence[PlacedTime]]:
    found: dict[tuple[str, int], list[PlacedTime]] = {}
    for launch in launches:
        for one in launch.placed:
            if (one.operation, one.purpose) == (row.operation, row.purpose):
                found.setdefault((one.group, one.number), []).append(one)
    return found


def _change_ns(
    before: Mapping[tuple[str, int], Sequence[PlacedTime]],
    after: Mapping[tuple[str, int], Sequence[PlacedTime]],
    place: tuple[str, int],
    name: str,
) -> float:
    old, new = ([getattr(one, name) for one in side.get(place, ())] for side in (before, after))
    return (median(new) if new else 0.0) - (median(old) if old else 0.0)


def _spell_place(one: PlacedTime) -> str:
    group = f" of group {one.group}" if one.group else ""
    seq = "" if one.seq is None else f" (seq {one.seq})"
    return f"number {one.number}{group}{seq}"

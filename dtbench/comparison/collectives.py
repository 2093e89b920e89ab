"""Whose collectives took longer, or were exposed for longer, than on the other side."""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Final

from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.comparison.comparison import CollectiveChange
from dtbench.comparison.metrics import EXPOSED_BY_OWNER
from dtbench.comparison.reading.renamed import find_misnamed
from dtbench.comparison.reading.seen import Kind, find_open_kinds, has_named_otherwise, knows_subjects
from dtbench.comparison.reading.untold import find_untold
from dtbench.store.records.baseline import MeasuredLaunch, OwnedTime, PlacedTime

_Key = tuple[str, Operation | None, Purpose]
_Rows = Mapping[_Key, OwnedTime]
"""Of one launch."""

_TELLING: Final = 0.5
"""Part of a change from which one collective among several, or one cause, is named for it."""


def find_collective_changes(
    baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]
) -> tuple[CollectiveChange, ...]:
    """Return one row per owner, operation and purpose, medians over launches; the largest change of exposed time first.

    An owner that a launch does not have counts as zero there, unless the launch has collectives of the kind whose owner
    it does not know: then the owner's time there is not known, nor is what became of those. Of purposes that a launch
    does not tell (``untold.py``), and of owners that may have other names (``renamed.py``), nothing is known there. No
    rows where whose time was exposed is not known on a side.
    """
    baseline, candidate = _keep_known(baseline), _keep_known(candidate)
    if not baseline or not candidate:
        return ()
    launches = [*baseline, *candidate]
    sides = _by_owner(baseline), _by_owner(candidate)
    before, after = ({key for rows in side for key in rows} for side in sides)
    keys = dict.fromkeys(key for side in sides for rows in side for key in rows)
    open_kinds = find_open_kinds(launches)
    untold = [_find_not_told(side, launches, keys) for side in (baseline, candidate)]
    changes = [_compare(key, sides, (before, after), open_kinds, untold) for key in keys]
    named = [row if row.owner else _with_place(row, baseline, candidate) for row in changes]
    return tuple(sorted(named, key=lambda row: (-_size(exposed_change(row)), -_size(duration_change(row)))))


def _find_not_told(
    side: Sequence[MeasuredLaunch], launches: Sequence[MeasuredLaunch], keys: Collection[_Key]
) -> list[frozenset[_Key]]:
    """Return of what each launch may have more, or less, than it tells: by purpose, or under other owners' names."""
    found = zip(find_untold(side, launches), find_misnamed(side, launches), strict=True)
    return [frozenset(key for key in keys if key[1:] in kinds or key in misnamed) for kinds, misnamed in found]


def _keep_known(launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    """Leave out launches of which it is not known whose time was exposed."""
    return [launch for launch in launches if knows_subjects(launch, EXPOSED_BY_OWNER)]


def _size(change_ns: float) -> float:
    """Return how large a change is; one that is not known comes last."""
    return -1.0 if math.isnan(change_ns) else abs(change_ns)


def exposed_change(row: CollectiveChange) -> float:
    """Return by how much more of it is exposed, ns per step and rank; NaN: not known on a side."""
    return row.exposed_ns[1] - row.exposed_ns[0]


def duration_change(row: CollectiveChange) -> float:
    """Return by how much longer it takes, ns per step and rank; NaN: not known on a side."""
    return row.duration_ns[1] - row.duration_ns[0]


def _by_owner(launches: Sequence[MeasuredLaunch]) -> list[_Rows]:
    return [{(row.owner, row.operation, row.purpose): row for row in launch.owned} for launch in launches]


def _compare(
    key: _Key,
    sides: tuple[Sequence[_Rows], Sequence[_Rows]],
    known: tuple[Collection[_Key], Collection[_Key]],
    open_kinds: Collection[Kind],
    untold: Sequence[Sequence[Collection[_Key]]],
) -> CollectiveChange:
    """Compare one owner; ``known``: all that either side has in any launch, ``untold``: what each does not tell."""
    owner, operation, purpose = key

    def middle(name: str) -> tuple[float, float]:
        first, second = (
            _median(
                [
                    math.nan if key in lacking else _number(rows, key, others, open_kinds, name)
                    for rows, lacking in zip(side, untold_of_side, strict=True)
                ]
            )
            for side, others, untold_of_side in zip(sides, known[::-1], untold, strict=True)
        )
        return first, second

    exposed_ns = middle("exposed_ns")
    return CollectiveChange(
        owner=owner,
        operation=operation,
        purpose=purpose,
        duration_ns=middle("duration_ns"),
        exposed_ns=exposed_ns,
        cause=_find_cause(key, sides, exposed_ns[1] - exposed_ns[0]),
        count=middle("count"),
    )


def _find_cause(key: _Key, sides: tuple[Sequence[_Rows], Sequence[_Rows]], change_ns: float) -> Cause | None:
    """Return the cause that makes up most of a change of exposed time, whatever the part of unknown cause was.

    None: none does, nothing changed, or a launch does not tell.
    """
    is_silent = any(row.exposed_ns > 0 and not row.by_cause for side in sides for one in side for row in one.values())
    if is_silent or not change_ns or math.isnan(change_ns):
        return None
    parts = [[one[key].by_cause for one in side if key in one and one[key].exposed_ns > 0] for side in sides]
    less, more = parts if change_ns > 0 else parts[::-1]

    def middle(side: Sequence[Mapping[Cause, float]], cause: Cause) -> float:
        return median([one.get(cause, 0.0) for one in side] or [0.0])

    for cause in Cause:
        may_have_been = 0.0 if cause is Cause.UNKNOWN else middle(less, Cause.UNKNOWN)
        if middle(more, cause) - middle(less, cause) - may_have_been > _TELLING * abs(change_ns):
            return cause
    return None


def _number(rows: _Rows, key: _Key, others: Collection[_Key], open_kinds: Collection[Kind], name: str) -> float:
    """Return a number of an owner in one launch; NaN: it may be among others of its kind.

    Where the other side does not know owners that this launch knows, only whose they are has changed, as far as is
    seen.
    """
    owner, *kind = key
    may_be_more = owner and tuple(kind) in open_kinds and ("", *kind) in rows
    if key in rows and not may_be_more:
        return float(getattr(rows[key], name))
    if any(purpose is kind[1] and (operation is None) is not (kind[0] is None) for _, operation, purpose in rows):
        is_open = True  # which operations they are is told on one side alone
    elif owner:
        is_open = ("", *kind) in rows or has_named_otherwise(rows, owner, (key[1], key[2]))
    elif tuple(kind) in open_kinds:
        is_open = any(named and rest == kind for named, *rest in rows)
    else:
        is_open = any(named and rest == kind and (named, *rest) not in others for named, *rest in rows)
    return math.nan if is_open else 0.0


def _median(values: Sequence[float]) -> float:
    """Return the median over launches that know it."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


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
        most = max(changes_ns, key=lambda place: _size(changes_ns[place][part]), default=None)
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
    return (_median(new) if new else 0.0) - (_median(old) if old else 0.0)


def _spell_place(one: PlacedTime) -> str:
    group = f" of group {one.group}" if one.group else ""
    seq = "" if one.seq is None else f" (seq {one.seq})"
    return f"number {one.number}{group}{seq}"

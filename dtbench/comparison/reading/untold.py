"""Purposes that a launch does not tell: what another launch has more of may be among its collectives of ``other``.

Purposes rest on evidence: ranges of FSDP, DDP's hooks, dtbench's own ranges. Where that was not recorded, the same
collectives are ``other``, and a purpose that is not there is no zero. It is one where nothing stands in its place: DDP
has no gathers of parameters, and no other gathers either.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from dtbench.base.vocabulary import REDUCTIONS, Operation, Purpose
from dtbench.comparison.reading.seen import Kind
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import Issued, MeasuredLaunch, MeasuredSide

_ENOUGH: Final = 1 / 16
"""Part of what a launch lacks of a purpose from which what it has more of ``other`` may be that.

So small, as a smaller model has fewer gradients; the norms of clipping and losses are smaller still, and are none.
"""


@dataclass(frozen=True)
class Amount:
    """How much was communicated per step; ``size_bytes`` is NaN where that is not told of all."""

    count: float = 0.0
    size_bytes: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        """Return both together."""
        return Amount(self.count + other.count, self.size_bytes + other.size_bytes)


def find_untold(launches: Sequence[MeasuredLaunch], others: Iterable[MeasuredLaunch]) -> list[frozenset[Kind]]:
    """Return of each launch the kinds of which it may have more, or less, than it tells, as others show.

    Launches of one scenario mostly communicate alike: what differs is compared once, however many do so.
    """
    amounts = [_sum_owned(launch) for launch in launches]
    apart = {_tell_apart(one): one for one in map(_sum_owned, others)}
    found: dict[frozenset[_Told], frozenset[Kind]] = {}
    for mine in amounts:
        if (told := _tell_apart(mine)) not in found:
            found[told] = frozenset(kind for other in apart.values() for kind in _compare(mine, other))
    return [found[_tell_apart(mine)] for mine in amounts]


_Told = tuple[Kind, float, float | None]
"""A kind with its amount; None: the size is not told of all, which no number tells from itself."""


def _tell_apart(amounts: Mapping[Kind, Amount]) -> frozenset[_Told]:
    """Return what is equal for amounts that are."""
    return frozenset(
        (kind, one.count, None if math.isnan(one.size_bytes) else one.size_bytes) for kind, one in amounts.items()
    )


def have_untold_issued(orders: Iterable[Sequence[Issued]]) -> bool:
    """Tell whether one of several steps may have issued more, or less, than it tells, as another shows."""
    apart = {_tell_apart(one): one for one in map(_sum_issued, dict.fromkeys(map(tuple, orders)))}
    return any(any(_compare(one, other)) or any(_compare(other, one)) for one, other in combinations(apart.values(), 2))


def find_untold_issued(before: Sequence[Issued], after: Sequence[Issued]) -> frozenset[Kind]:
    """Return the kinds of which one of two steps may have issued more, or less, than it tells, as the other shows."""
    amounts = _sum_issued(before), _sum_issued(after)
    return frozenset((*_compare(*amounts), *_compare(*amounts[::-1])))


def say_untold(side: MeasuredSide, sides: Iterable[MeasuredSide]) -> Iterator[str]:
    """Say of which purposes a side, one of these, may have more than it tells, a clause each."""
    launches = [launch for one in sides for launch in one.launches]
    named: dict[tuple[str, ...], list[str]] = {}
    for launch, kinds in zip(side.launches, find_untold(side.launches, launches), strict=True):
        purposes = {str(purpose) for _, purpose in kinds} - {str(Purpose.OTHER)}
        if purposes:
            named.setdefault(tuple(sorted(purposes)), []).append(launch.name)
    for purposes_of, names in named.items():
        of = f" of {', '.join(names)}" if len(side.launches) > 1 else ""
        yield (
            f"how many collectives{of} are {join_words(purposes_of, last='and')} is not known: fewer are than "
            "elsewhere, and more are of purpose other, which may be these (were the ranges that tell recorded?)"
        )


def _sum_owned(launch: MeasuredLaunch) -> dict[Kind, Amount]:
    return _sum(((row.operation, row.purpose), Amount(row.count, row.size_bytes)) for row in launch.owned)


def _sum_issued(order: Sequence[Issued]) -> dict[Kind, Amount]:
    return _sum(
        ((one.operation, one.purpose), Amount(1, math.nan if one.size_bytes is None else one.size_bytes))
        for one in order
        if one.purpose is not None
    )


def _sum(amounts: Iterable[tuple[Kind, Amount]]) -> dict[Kind, Amount]:
    found: dict[Kind, Amount] = {}
    for kind, amount in amounts:
        found[kind] = found.get(kind, Amount()) + amount
    return found


def _compare(mine: Mapping[Kind, Amount], others: Mapping[Kind, Amount]) -> Iterator[Kind]:
    """Yield the kinds of which ``mine`` may have more, or less, than it tells."""
    kinds = {*mine, *others}
    for purpose in {purpose for _, purpose in others} - {Purpose.OTHER}:
        own = {kind for kind in kinds if kind[1] is purpose}
        for operations in _group_operations({operation for operation, _ in own}):
            asked = [kind for kind in own if kind[0] in operations]
            may_be = [kind for kind in kinds if kind[1] is Purpose.OTHER and kind[0] in (None, *operations)]
            if _may_hold(_subtract(mine, others, may_be), _subtract(others, mine, asked)):
                yield from (*own, *may_be)


def _group_operations(told: Collection[Operation | None]) -> Iterator[tuple[Operation | None, ...]]:
    """Yield operations that may stand for each other: each for itself, all sums, and any for one that is not told."""
    if None in told:
        yield (None, *Operation)
        return
    yield from ((operation,) for operation in told)
    if any(operation in REDUCTIONS for operation in told):
        yield REDUCTIONS


def _may_hold(more: Amount, lacking: Amount) -> bool:
    are_sized = not math.isnan(lacking.size_bytes + more.size_bytes)
    needed, there = (lacking.size_bytes, more.size_bytes) if are_sized else (lacking.count, more.count)
    return needed > 0 and there >= _ENOUGH * needed


def _subtract(one: Mapping[Kind, Amount], other: Mapping[Kind, Amount], kinds: Iterable[Kind]) -> Amount:
    """Return by how much more one has of these kinds, rounded, as means are not exact."""
    difference = Amount()
    for kind in kinds:
        more, less = one.get(kind, Amount()), other.get(kind, Amount())
        difference += Amount(more.count - less.count, more.size_bytes - less.size_bytes)
    return Amount(round(difference.count, 6), round(difference.size_bytes, 0))

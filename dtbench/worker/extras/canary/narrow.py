"""Which collectives were read too early: ever smaller groups of them are poisoned alone."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.store.records.canary import MissedWait
from dtbench.worker.network.deferred import CollectiveKey

MOST_TRIED: Final = 24
"""Groups of one level, each of which costs a step; where there are more the search ends at the level above."""

Group = tuple[CollectiveKey, ...]


def _purpose(key: CollectiveKey) -> Hashable:
    return key.purpose


def _kind(key: CollectiveKey) -> Hashable:
    return (key.purpose, key.operation, key.region, key.owner)


def _itself(key: CollectiveKey) -> Hashable:
    return key


_LEVELS: Final[tuple[Callable[[CollectiveKey], Hashable], ...]] = (_purpose, _kind, _itself)


def find_smallest(
    keys: Group, fails: Callable[[Group], bool], levels: Sequence[Callable[[CollectiveKey], Hashable]] = _LEVELS
) -> list[Group]:
    """Return the smallest groups that fail when they alone are poisoned.

    Args:
        keys: that fail together.
        fails: tries a group; the same answer on every rank.
        levels: how to divide them, coarsest first.
    """
    if not levels:
        return [keys]
    parts: dict[Hashable, list[CollectiveKey]] = {}
    for key in keys:
        parts.setdefault(levels[0](key), []).append(key)
    groups = [tuple(part) for part in parts.values()]
    if len(groups) > MOST_TRIED:
        return [keys]
    failing = groups if len(groups) == 1 else [group for group in groups if fails(group)]
    smallest = [smaller for group in failing for smaller in find_smallest(group, fails, levels[1:])]
    return smallest or [keys]


def describe_group(group: Group, forgotten: frozenset[CollectiveKey]) -> MissedWait:
    """Return what all of a group have in common; ``forgotten`` are those that nobody ever waited for."""
    first = group[0]
    purpose: Purpose | None = first.purpose if len({one.purpose for one in group}) == 1 else None
    operation: Operation | None = first.operation if len({one.operation for one in group}) == 1 else None
    region: Region | None = first.region if len({one.region for one in group}) == 1 else None
    owner = first.owner if len({one.owner for one in group}) == 1 else ""
    return MissedWait(
        purpose=purpose,
        operation=operation,
        region=region,
        owner=owner or None,
        place=first.place if len(group) == 1 and not first.owner else None,
        count=len(group),
        was_awaited=forgotten.isdisjoint(group),
    )

"""Which collectives were read too early: ever smaller groups of them are poisoned alone."""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.store.records.canary import MissedWait
from dtbench.worker.network.withheld import Suspect

MOST_TRIED: Final = 24
"""Groups of one level, each of which costs a step; where there are more the search ends at the level above."""

Group = tuple[Suspect, ...]


def _purpose(suspect: Suspect) -> Hashable:
    return suspect.purpose


def _kind(suspect: Suspect) -> Hashable:
    return (suspect.purpose, suspect.operation, suspect.region, suspect.owner)


def _itself(suspect: Suspect) -> Hashable:
    return suspect


_LEVELS: Final[tuple[Callable[[Suspect], Hashable], ...]] = (_purpose, _kind, _itself)


def find_smallest(
    suspects: Group, fails: Callable[[Group], bool], levels: Sequence[Callable[[Suspect], Hashable]] = _LEVELS
) -> list[Group]:
    """Give the smallest groups that fail when they alone are poisoned.

    Args:
        suspects: that fail together.
        fails: tries a group; the same answer on every rank.
        levels: how to divide them, coarsest first.
    """
    if not levels:
        return [suspects]
    parts: dict[Hashable, list[Suspect]] = {}
    for suspect in suspects:
        parts.setdefault(levels[0](suspect), []).append(suspect)
    groups = [tuple(part) for part in parts.values()]
    if len(groups) > MOST_TRIED:
        return [suspects]
    failing = groups if len(groups) == 1 else [group for group in groups if fails(group)]
    smallest = [smaller for group in failing for smaller in find_smallest(group, fails, levels[1:])]
    return smallest or [suspects]


def describe_group(group: Group, forgotten: frozenset[Suspect]) -> MissedWait:
    """Give what all of a group have in common; ``forgotten`` are those that nobody ever waited for."""
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

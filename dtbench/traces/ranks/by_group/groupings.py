"""Which ranks belong together: those of one host, and those of one place along an axis of the mesh."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Final

from dtbench.base.vocabulary import Axis
from dtbench.traces.timeline import RankTimeline

HOST: Final = "host"
PLACES: Final = {
    Axis.REPLICATE: "replica",
    Axis.SHARD: "shard",
    Axis.TENSOR: "tensor-parallel rank",
    Axis.CONTEXT: "context-parallel rank",
    Axis.EXPERT: "expert-parallel rank",
    Axis.PIPELINE: "pipeline stage",
    Axis.DATA: "data-parallel rank",
}
"""What a place along an axis is called."""


@dataclass(frozen=True)
class Grouping:
    """Ranks divided by what they have in common.

    Attributes:
        name: what that is: ``host``, ``pipeline stage``.
        label_of: by rank, which: a host's name, a number; ranks of which it is not known are left out.
    """

    name: str
    label_of: Mapping[int, str]

    def members(self) -> dict[str, tuple[int, ...]]:
        """Return the ranks of each label, rising, in the order of their first ranks."""
        found: dict[str, list[int]] = {}
        for rank in sorted(self.label_of):
            found.setdefault(self.label_of[rank], []).append(rank)
        return {label: tuple(ranks) for label, ranks in found.items()}


def group_by_host(timelines: Sequence[RankTimeline], machines: Sequence[Set[int]]) -> Grouping | None:
    """Divide ranks by the host that their traces name; None: fewer than two hosts, or none has several ranks.

    Left out are ranks without one, and those of a name that several machines bear, as containers may.

    Args:
        timelines: of the ranks.
        machines: ranks that share a clock.
    """
    place_of = {rank: place for place, members in enumerate(machines) for rank in members}
    places: dict[str, set[int]] = {}
    for one in timelines:
        if one.host is not None:
            places.setdefault(one.host, set()).add(place_of.get(one.rank, -1 - one.rank))
    known = {one.rank: one.host for one in timelines if one.host is not None and len(places[one.host]) == 1}
    return _keep_useful(Grouping(HOST, known))


def group_by_mesh(timelines: Sequence[RankTimeline]) -> list[Grouping]:
    """Divide ranks by their place in the groups of each axis, where traces name axes and ranks of groups.

    A rank has no place along an axis of which it has groups of unlike ranks; nor has any where groups differ in size.
    """
    groups: dict[Axis, dict[int, set[tuple[int, ...]]]] = {}
    for timeline in timelines:
        named = {(one.axis, one.group): one.group_ranks for one in timeline.collectives if one.group_ranks}
        for (axis, _), members in named.items():
            if axis is not None and timeline.rank in members:
                groups.setdefault(axis, {}).setdefault(timeline.rank, set()).add(members)
    found = []
    for axis, name in PLACES.items():
        own = {rank: next(iter(several)) for rank, several in groups.get(axis, {}).items() if len(several) == 1}
        if len({len(members) for members in own.values()}) == 1:
            places = {rank: str(members.index(rank)) for rank, members in own.items()}
            found.append(_keep_useful(Grouping(name, places)))
    return [one for one in found if one is not None]


def group_by_plan(sizes: Mapping[Axis, int]) -> list[Grouping]:
    """Divide all ranks of a mesh by their place along each axis.

    Args:
        sizes: of the axes, outermost first.
    """
    found, inside, ranks = [], prod(sizes.values()), range(prod(sizes.values()))
    for axis, size in sizes.items():
        inside //= size
        found.append(_keep_useful(Grouping(PLACES[axis], {rank: str(rank // inside % size) for rank in ranks})))
    return [one for one in found if one is not None]


def _keep_useful(grouping: Grouping) -> Grouping | None:
    """Return a grouping; None where it tells no ranks apart, or has no two together."""
    labels = set(grouping.label_of.values())
    return grouping if 1 < len(labels) < len(grouping.label_of) else None

"""The graph of some steps: what each rank's host did one after the other, and what it gave to which lane.

No moment of a trace is in it but those at which it begins. All lengths are ns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final

import numpy as np

from dtbench.traces.time.intervals import Ints
from dtbench.traces.who.collectives import Collective

NO_COLLECTIVE: Final = -1


class Edge(Enum):
    """Why something does not begin, or go on, before something else; a replay without one shows what it explains."""

    LAUNCH = "launch"
    """What runs on a lane begins after the host gave it."""
    STREAM = "stream order"
    """A lane of a device does its work one after the other."""
    WAIT = "wait"
    """A lane waits for another lane's work, or a host for a lane's."""
    QUEUE = "queue"
    """A communicator serves one collective after the other."""


ALL_EDGES: Final = frozenset(Edge)


class Point(IntEnum):
    """What a host comes to."""

    GIVE = 0
    """It launches or issues an item."""
    SIT = 1
    """It stands still until some items have ended."""
    BEGIN = 2
    """A step begins."""
    END = 3
    """The host has done with a step."""


@dataclass(frozen=True)
class Host:
    """What the host comes to, in order; arrays have shape ``(p,)``.

    Attributes:
        point: of ``Point``.
        which: the item that it gives; index into ``sat_for``; index into the steps.
        before_ns: how long it takes from the point before, without standing still.
        sat_for: for each time that it stands still, the items.
    """

    point: Ints
    which: Ints
    before_ns: Ints
    sat_for: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Items:
    """What the host gives to lanes, in order of giving: kernels, copies, collectives; arrays have shape ``(n,)``.

    Attributes:
        lanes: names of lanes.
        lane: index into ``lanes``.
        busy_ns: how long each takes by itself; of collectives not asked, see ``Service``.
        alone_ns: the same with no communication beside it, as far as that is known; else ``busy_ns``.
        next_ns: from the end of the lane's work before to its start, where it stands launched.
        collective: index into the rank's collectives; ``NO_COLLECTIVE``.
        name: index into ``names``; of collectives -1.
        names: of kernels and copies.
        after: by item, those of other lanes that end before it begins.
    """

    lanes: tuple[str, ...]
    lane: Ints
    busy_ns: Ints
    alone_ns: Ints
    next_ns: Ints
    collective: Ints
    name: Ints
    names: tuple[str, ...]
    after: Mapping[int, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.lane)

    @property
    def collectives(self) -> list[int]:
        """Those items that are collectives."""
        return [int(item) for item in np.flatnonzero(self.collective != NO_COLLECTIVE)]


@dataclass(frozen=True)
class Service:
    """How a collective is served on one rank.

    Attributes:
        key: what names it on all its ranks.
        ranks: that have it; one alone where the others' traces are not there, or not in step.
        service_ns: from when the last of them is there, to its end on this rank.
        held_ns: how much of that its lane is held; less where a link is free again before its backend has ended.
        waits: for the ranks that come later; False: a root, or a sender whose data is buffered.
        on_link: on an emulated link, where ranks meet when they have issued it.
    """

    key: str
    ranks: tuple[int, ...]
    service_ns: int
    held_ns: int
    waits: bool = True
    on_link: bool = False


@dataclass(frozen=True)
class Latencies:
    """How long what follows takes to begin, where nothing keeps it waiting; means of a rank.

    Attributes:
        launch_ns: from a launch to its start on a free lane.
        return_ns: from the end of what a host stands still for, to its going on.
    """

    launch_ns: int = 0
    return_ns: int = 0


@dataclass(frozen=True)
class GraphStep:
    """A step of a graph.

    Attributes:
        number: as in ``ProfilerStep#12``.
        first: the item with whose start it begins; None: it begins and ends with its host, and what that issued.
    """

    number: int
    first: int | None


@dataclass(frozen=True)
class RankGraph:
    """What one rank did in consecutive steps.

    Attributes:
        begins_ns: when its host begins, after the first of all ranks.
        busy_until_ns: by lane, until when it works for what was given before, after the same moment.
        services: by item, how each collective is served.
        collectives: of the rank's analysis, which say whose they are.
    """

    rank: int
    is_device: bool
    steps: tuple[GraphStep, ...]
    host: Host
    items: Items
    services: Mapping[int, Service]
    latencies: Latencies
    begins_ns: int
    busy_until_ns: Mapping[str, int]
    collectives: tuple[Collective, ...] = field(repr=False)


JobGraph = Mapping[int, RankGraph]
"""Graphs by rank."""


def scale_hosts(graph: JobGraph, times: float) -> JobGraph:
    """Return the graph with hosts that take so many times as long between what they come to."""

    def scale(one: RankGraph) -> RankGraph:
        return replace(one, host=replace(one.host, before_ns=np.rint(one.host.before_ns * times).astype(np.int64)))

    return {rank: scale(one) for rank, one in graph.items()}

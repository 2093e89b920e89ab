"""Graphs written by hand, and at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.replay.graph import (
    NO_COLLECTIVE,
    GraphStep,
    Host,
    Items,
    JobGraph,
    Latencies,
    Point,
    RankGraph,
    Service,
)
from dtbench.traces.time.intervals import unite
from dtbench.traces.who.collectives import Collective


def collective(owner: str) -> Collective:
    """Return one of which only the owner matters."""
    return Collective(
        group="g",
        axis=Axis.DATA,
        seq=None,
        operation=Operation.ALL_REDUCE,
        purpose=Purpose.GRAD_REDUCE,
        owner=owner,
        size_bytes=8,
        issue_ns=0,
        issue_end_ns=0,
        span=unite([0], [1]),
        above=(),
    )


@dataclass
class Written:
    """One rank, written down in the order in which its host does it; lengths in ns."""

    rank: int = 0
    ranks: tuple[int, ...] = (0,)
    begins_ns: int = 0
    points: list[tuple[Point, int, int]] = field(default_factory=list)
    items: list[tuple[str, int, int]] = field(default_factory=list)  # lane, busy, collective
    alone_ns: dict[int, int] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    services: dict[int, Service] = field(default_factory=dict)
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sat_for: list[tuple[int, ...]] = field(default_factory=list)
    spent_ns: int = 0
    steps: int = 0

    def spend(self, time_ns: int) -> "Written":
        """Keep the host busy."""
        self.spent_ns += time_ns
        return self

    def begin(self) -> "Written":
        """Begin a step."""
        self._come_to(Point.BEGIN, self.steps)
        return self

    def end(self) -> "Written":
        """End it."""
        self._come_to(Point.END, self.steps)
        self.steps += 1
        return self

    def launch(
        self, busy_ns: int, lane: str = "main", after: Sequence[int] = (), alone_ns: int | None = None
    ) -> "Written":
        """Launch a kernel, which may be known to take another time alone."""
        if alone_ns is not None:
            self.alone_ns[len(self.items)] = alone_ns
        self._give(lane, busy_ns, NO_COLLECTIVE, after)
        return self

    def issue(
        self, owner: str, service_ns: int, key: str = "", lane: str = "comm", after: Sequence[int] = ()
    ) -> "Written":
        """Issue a collective."""
        named = key or f"{self.rank}.{len(self.items)}"
        self.services[len(self.items)] = Service(named, self.ranks, service_ns, service_ns)
        self.collectives.append(collective(owner))
        self._give(lane, service_ns, len(self.collectives) - 1, after)
        return self

    def sit(self, *items: int) -> "Written":
        """Stand still until some items have ended."""
        self.sat_for.append(items)
        self._come_to(Point.SIT, len(self.sat_for) - 1)
        return self

    def finish(self, *, is_device: bool = False) -> RankGraph:
        """Return the graph."""
        lanes = tuple(dict.fromkeys(lane for lane, _, _ in self.items))
        points = np.array(self.points, dtype=np.int64).reshape(-1, 3)
        count = len(self.items)
        firsts = [0, *(None,) * self.steps] if is_device else [None] * self.steps
        return RankGraph(
            rank=self.rank,
            is_device=is_device,
            steps=tuple(GraphStep(number, firsts[number]) for number in range(self.steps)),
            host=Host(points[:, 0], points[:, 1], points[:, 2], tuple(self.sat_for)),
            items=Items(
                lanes=lanes,
                lane=np.array([lanes.index(lane) for lane, _, _ in self.items], dtype=np.int64),
                busy_ns=np.array([busy for _, busy, _ in self.items], dtype=np.int64),
                alone_ns=np.array(
                    [self.alone_ns.get(place, busy) for place, (_, busy, _) in enumerate(self.items)], dtype=np.int64
                ),
                next_ns=np.zeros(count, dtype=np.int64),
                collective=np.array([of for _, _, of in self.items], dtype=np.int64),
                name=np.array([0 if of == NO_COLLECTIVE else -1 for _, _, of in self.items], dtype=np.int64),
                names=("gemm",),
                after=self.after,
            ),
            services=self.services,
            latencies=Latencies(),
            begins_ns=self.begins_ns,
            busy_until_ns={},
            collectives=tuple(self.collectives),
        )

    def _give(self, lane: str, busy_ns: int, of: int, after: Sequence[int]) -> None:
        if after:
            self.after[len(self.items)] = tuple(after)
        self._come_to(Point.GIVE, len(self.items))
        self.items.append((lane, busy_ns, of))

    def _come_to(self, point: Point, which: int) -> None:
        self.points.append((point, which, self.spent_ns))
        self.spent_ns = 0


def make_random(seed: int) -> JobGraph:
    """Make ranks that issue the same collectives in one order, with kernels, waits and steps between."""
    dice = random.Random(seed)
    ranks = tuple(range(dice.randint(1, 3)))
    story = [dice.choice(("issue", "launch", "launch", "sit", "spend")) for _ in range(dice.randint(6, 30))]
    owners = [dice.choice("abc") for _ in story]
    aims = [dice.random() for _ in story]
    graph = {}
    for rank in ranks:
        written = Written(rank, ranks, begins_ns=dice.randint(0, 20) * (rank > 0)).begin()
        for place, what in enumerate(story):
            count = len(written.items)
            aim = int(aims[place] * count)
            match what:
                case "issue":
                    written.issue(owners[place], dice.randint(1, 30), f"{place}", after=(aim,) if count else ())
                case "launch":
                    written.launch(dice.randint(1, 20), after=(aim,) if count and aims[place] < 0.4 else ())
                case "sit" if count:
                    written.sit(aim)
                case _:
                    written.spend(dice.randint(1, 15))
        graph[rank] = written.end().finish()
    return graph

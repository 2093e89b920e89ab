"""What every change is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.replay.graph import JobGraph, RankGraph
from dtbench.traces.who.collectives import Collective


class ChangeKind(StrEnum):
    """Kinds of changes, as ``--change`` calls them."""

    HIDDEN = "hidden"
    LINK = "link"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    APART = "apart"
    STRAGGLER = "no straggler"
    OVERLAP_TAX = "no overlap tax"
    HOST = "host"
    KERNEL = "kernel"


@dataclass(frozen=True)
class Owner:
    """Whose collectives; as reports name them.

    Attributes:
        name: as its collectives say; None: the trace does not say whose they are.
    """

    name: str | None
    purpose: Purpose
    operation: Operation | None

    @property
    def label(self) -> str:
        """As ``--change`` takes it."""
        return f"{self.name or 'unattributed'}, {self.purpose}"

    @classmethod
    def of(cls, one: Collective) -> "Owner":
        """Return whose a collective is."""
        return cls(one.owner or None, one.purpose, one.operation)


class Change(ABC):
    """One change of a job's graph."""

    kind: ChangeKind

    @property
    @abstractmethod
    def name(self) -> str:
        """As ``--change`` takes it."""

    @abstractmethod
    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: it does not apply to this graph.
        """


def list_collectives(graph: RankGraph) -> Iterator[tuple[int, Collective]]:
    """Yield each item that is a collective, and which."""
    for item in graph.services:
        yield item, graph.collectives[int(graph.items.collective[item])]


def choose_items(graph: JobGraph, fits: Callable[[Collective], bool]) -> dict[int, list[int]]:
    """Return by rank the items that are collectives that fit, or one with a collective of another rank that does.

    What ranks do together is changed on all of them, and what one sends to another at both ends.
    """
    keys = {one.services[item].key for one in graph.values() for item, each in list_collectives(one) if fits(each)}
    return {
        rank: [item for item, service in one.services.items() if service.key in keys] for rank, one in graph.items()
    }

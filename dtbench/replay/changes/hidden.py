"""Communication takes no time: the bound of any remedy for an owner, and without all of them the bound of all.

Ranks still wait for each other, and what depends on it still comes after it. That is no more than what it takes, and
not its exposed time: a collective that is hidden itself may keep others waiting.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from dtbench.replay.changes.change import Change, ChangeKind, Owner, choose_items
from dtbench.replay.graph import JobGraph, RankGraph

ALL: Final = "all"


@dataclass(frozen=True)
class Hidden(Change):
    """Collectives of some owners take no time.

    Attributes:
        owners: whose; None: all.
        label: as a person calls them.
    """

    owners: tuple[Owner, ...] | None = None
    label: str = ALL
    kind = ChangeKind.HIDDEN

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"{self.kind}: {self.label}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph."""
        chosen = choose_items(graph, lambda one: self.owners is None or Owner.of(one) in self.owners)
        return {rank: _hide(one, chosen[rank]) for rank, one in graph.items()}


def _hide(graph: RankGraph, items: Iterable[int]) -> RankGraph:
    hidden = {item: replace(graph.services[item], service_ns=0, held_ns=0) for item in items}
    return replace(graph, services={**graph.services, **hidden})

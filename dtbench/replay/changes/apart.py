"""Collectives of some owners have a queue of their own: a process group that nobody else uses.

They no longer stand behind others, nor others behind them. Links are not wider for it: collectives that then run beside
each other share them, which no replay knows. So what it saves is a bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind, Owner, choose_items
from dtbench.replay.graph import NO_COLLECTIVE, JobGraph, RankGraph


@dataclass(frozen=True)
class Apart(Change):
    """Collectives of some owners have a lane of their own.

    Attributes:
        owners: whose.
        label: as a person calls them.
    """

    owners: tuple[Owner, ...]
    label: str
    kind = ChangeKind.APART

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"{self.kind}: {self.label}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: no other collective stands in their queues, or compute stands there, too.
        """
        chosen = choose_items(graph, lambda one: Owner.of(one) in self.owners)
        changed = {rank: _move(one, chosen[rank]) for rank, one in graph.items()}
        if all(changed[rank] is one for rank, one in graph.items()):
            raise PredictionError(f"no other collective stands in a queue of its own kind with those of {self.label}")
        return changed


def _move(graph: RankGraph, mine: Sequence[int]) -> RankGraph:
    items = graph.items
    is_mine = np.isin(np.arange(len(items)), mine)
    others = items.lane[(items.collective != NO_COLLECTIVE) & ~is_mine]
    computing = items.lane[items.collective == NO_COLLECTIVE]  # there the order of the lane is also who needs whom
    moved = np.flatnonzero(is_mine & np.isin(items.lane, others) & ~np.isin(items.lane, computing))
    if not len(moved):
        return graph
    lanes = np.array(items.lane)
    lanes[moved] += len(items.lanes)
    names = (*items.lanes, *(f"{lane} apart" for lane in items.lanes))
    return replace(graph, items=replace(items, lanes=names, lane=lanes))

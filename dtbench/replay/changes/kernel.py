"""Kernels of some names are some times as fast."""

from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import NO_COLLECTIVE, JobGraph, RankGraph


@dataclass(frozen=True)
class Kernel(Change):
    """Kernels and copies whose names hold this text take so many times less."""

    text: str
    times: float
    kind = ChangeKind.KERNEL

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"kernel: {self.text} x{self.times:g}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: no kernel is called so.
        """
        changed = {rank: self._change(one) for rank, one in graph.items()}
        if all(changed[rank] is one for rank, one in graph.items()):
            raise PredictionError(
                f"no kernel that computes has `{self.text}` in its name; communication is `hidden: OWNER`, `link: x2`"
            )
        return changed

    def _change(self, graph: RankGraph) -> RankGraph:
        items = graph.items
        fits = np.array([self.text in name for name in (*items.names, "")], dtype=np.bool_)
        chosen = fits[items.name] & (items.collective == NO_COLLECTIVE)
        if not chosen.any():
            return graph
        busy_ns = np.where(chosen, np.rint(items.busy_ns / self.times).astype(np.int64), items.busy_ns)
        return replace(graph, items=replace(items, busy_ns=busy_ns))

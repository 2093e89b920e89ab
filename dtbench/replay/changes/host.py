"""A device's host takes some part of its time: what CUDA graphs, or a compiled model, could give at most."""

from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import JobGraph


@dataclass(frozen=True)
class HostTime(Change):
    """Hosts take so many times as long between launches, issues and waits."""

    times: float
    kind = ChangeKind.HOST

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"host: x{self.times:g}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: hosts compute themselves.
        """
        if not all(one.is_device for one in graph.values()):
            raise PredictionError("on CPUs the host is what computes: its time is no change of its own")
        return {
            rank: replace(
                one, host=replace(one.host, before_ns=np.rint(one.host.before_ns * self.times).astype(np.int64))
            )
            for rank, one in graph.items()
        }

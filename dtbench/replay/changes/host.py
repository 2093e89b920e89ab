"""A device's host takes some part of its time: what CUDA graphs, or a compiled model, could give at most."""

from dataclasses import dataclass

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import JobGraph, scale_hosts


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
        return scale_hosts(graph, self.times)

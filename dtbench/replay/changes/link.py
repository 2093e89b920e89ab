"""All links are some times as fast: what every collective takes once all its ranks are there is divided by that."""

from dataclasses import dataclass, replace

from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import JobGraph


@dataclass(frozen=True)
class Link(Change):
    """Collectives are served so many times as fast."""

    times: float
    kind = ChangeKind.LINK

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"link: x{self.times:g}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph."""
        return {
            rank: replace(
                one,
                services={
                    item: replace(
                        service,
                        service_ns=round(service.service_ns / self.times),
                        held_ns=round(service.held_ns / self.times),
                    )
                    for item, service in one.services.items()
                },
            )
            for rank, one in graph.items()
        }

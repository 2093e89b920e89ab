"""A link of another latency, or of another bandwidth: what is fitted of each changes, what is left stays as it was."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_fraction
from dtbench.replay.changes.change import Change, ChangeKind, list_collectives
from dtbench.replay.graph import JobGraph, RankGraph, Service
from dtbench.replay.link_fit import LinkFit, find_key, fit_links, measure_share

_LEAST_HELD: Final = 0.8
"""Of what collectives take: of so much a fit must tell latency from bandwidth."""


@dataclass(frozen=True)
class _LinkPart(Change):
    times: float

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return f"{self.kind}: x{self.times:g}"

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: what collectives take does not tell the one from the other.
        """
        fits = {key: fit for key, fit in fit_links(graph).items() if fit is not None and fit.holds}
        held = measure_share(graph, fits)
        if held < _LEAST_HELD:
            raise PredictionError(
                f"of {format_fraction(1 - held)} of what collectives take it is not known what is latency and what is "
                "bandwidth: their sizes are alike, not known, or do not explain it; `link: x2` changes both"
            )
        saved_ns = {
            one.services[item].key: self._find_saved(fit, collective.size_bytes or 0)
            for one in graph.values()
            for item, collective in list_collectives(one)
            if (fit := fits.get(find_key(collective))) is not None
        }
        return {rank: _change(one, saved_ns) for rank, one in graph.items()}

    @abstractmethod
    def _find_saved(self, fit: LinkFit, _size_bytes: int) -> float:
        """Return by how much a collective of this size is shorter, ns."""


@dataclass(frozen=True)
class Latency(_LinkPart):
    """The latency of all links is so many times as long."""

    kind = ChangeKind.LATENCY

    def _find_saved(self, fit: LinkFit, _size_bytes: int) -> float:
        return fit.latency_ns * (1 - self.times)


@dataclass(frozen=True)
class Bandwidth(_LinkPart):
    """The bandwidth of all links is so many times as high."""

    kind = ChangeKind.BANDWIDTH

    def _find_saved(self, fit: LinkFit, _size_bytes: int) -> float:
        return fit.ns_per_byte * _size_bytes * (1 - 1 / self.times)


def _change(graph: RankGraph, saved_ns: Mapping[str, float]) -> RankGraph:
    changed = {
        item: _shorten(service, saved_ns[service.key])
        for item, service in graph.services.items()
        if service.key in saved_ns
    }
    return replace(graph, services={**graph.services, **changed})


def _shorten(service: Service, saved_ns: float) -> Service:
    service_ns = max(0, round(service.service_ns - saved_ns))
    held_ns = max(0, round(service.held_ns - saved_ns))
    return replace(service, service_ns=service_ns, held_ns=min(held_ns, service_ns))

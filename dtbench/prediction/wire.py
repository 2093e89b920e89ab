"""What carries a request on one rank: its process group, the lane that serves it, and for how long."""

from dataclasses import dataclass

from dtbench.base.vocabulary import Axis
from dtbench.plan.plan import MeshAxis
from dtbench.plan.traffic.link import find_tier, service_ns
from dtbench.prediction.program import Collective, Request
from dtbench.scenario.schema.network import EmulatedNetwork

_SHARED = ""
"""Name of the one lane that all groups share, as in the emulated link."""


@dataclass(frozen=True)
class Wire:
    """The link of known cost as one rank sees it.

    Attributes:
        network: what it costs.
        mesh: of the plan, outermost axis first.
        rank: this one.
        jitter_share: how much of the link's jitter each collective takes: 0 none, 1 all, 0.5 the mean. Which one takes
            how much depends on torch's names of process groups, which no plan knows.
    """

    network: EmulatedNetwork
    mesh: tuple[MeshAxis, ...]
    rank: int
    jitter_share: float

    def resolve(self, request: Request) -> Collective | None:
        """Return the collective of a request; None among fewer than two ranks."""
        ranks = group_along(self.mesh, request.axis, self.rank)
        if request.within is not None:
            first = ranks.index(self.rank) // request.within * request.within
            ranks = ranks[first : first + request.within]
        if len(ranks) < 2:
            return None
        group = " ".join(word for word in (request.axis.value, request.apart) if word)
        return Collective(
            request=request,
            group=group,
            ranks=ranks,
            lane=_SHARED if self.network.lanes == "shared" else group,
            service_ns=self._service_ns(request, ranks),
        )

    def _service_ns(self, request: Request, ranks: tuple[int, ...]) -> int:
        even = self.network.model_copy(update={"jitter": None})
        even_ns = service_ns(even, request.operation, request.size_bytes, ranks, ("", 0))
        jitter = self.network.jitter
        return even_ns if jitter is None else round(even_ns * (1 + jitter.fraction * self.jitter_share))


def group_along(mesh: tuple[MeshAxis, ...], axis: Axis, rank: int) -> tuple[int, ...]:
    """Return the global ranks of a rank's group along an axis; the rank alone where the mesh has no such axis.

    The innermost axis counts fastest, as in torch's ``init_device_mesh``.
    """
    stride = 1
    for one in reversed(mesh):
        if one.name is axis:
            first = rank - rank // stride % one.size * stride
            return tuple(first + place * stride for place in range(one.size))
        stride *= one.size
    return (rank,)


def is_even(network: EmulatedNetwork, mesh: tuple[MeshAxis, ...], ranks: int) -> bool:
    """Tell whether every rank's collectives of an axis cost the same."""
    if network.slow_rank is not None:
        return False
    tiers = {(one.name, find_tier(network, group_along(mesh, one.name, rank))) for one in mesh for rank in range(ranks)}
    return len(tiers) == len(mesh)

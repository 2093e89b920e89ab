"""What carries a request on one rank: its process group, the lane that serves it, and for how long."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

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


@lru_cache(maxsize=64)
def group_along(mesh: tuple[MeshAxis, ...], axis: Axis, rank: int) -> tuple[int, ...]:
    """Return the global ranks of a rank's group along an axis; the rank alone where the mesh has no such axis.

    The innermost axis counts fastest, as in torch's ``init_device_mesh``. A program asks for the same few groups again
    and again, and each may be of thousands of ranks.
    """
    stride = 1
    for one in reversed(mesh):
        if one.name is axis:
            first = rank - rank // stride % one.size * stride
            return tuple(first + place * stride for place in range(one.size))
        stride *= one.size
    return (rank,)


def has_even_tiers(network: EmulatedNetwork, mesh: tuple[MeshAxis, ...], within: int | None = None) -> bool:
    """Tell whether all groups along an axis use the same tier of the link.

    Args:
        network: the link.
        mesh: outermost axis first.
        within: consecutive ranks of the shard axis that have groups of their own, too; None: none have.
    """
    if network.between_nodes is None:
        return True
    parts = [(one.name, one.size) for one in mesh]
    parts += [(one.name, within) for one in mesh if one.name is Axis.SHARD and within is not None]
    return all(
        len({find_tier(network, ends) for ends in _list_ends(mesh, axis, size)}) == 1
        for axis, size in parts
        if size > 1
    )


def _list_ends(mesh: tuple[MeshAxis, ...], axis: Axis, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last rank of every so many consecutive ranks along an axis: who lies between is between.

    ``size`` divides that of the axis.
    """
    ranks, stride = prod(one.size for one in mesh), 1
    for one in reversed(mesh):
        if one.name is axis:
            break
        stride *= one.size
    for outer in range(0, ranks, stride * size):
        yield from ((outer + inner, outer + inner + (size - 1) * stride) for inner in range(stride))

"""Which ranks of a mesh do different things: of thousands that do the same, a few stand for all, exactly.

::

    shard  0  1  2 ... 511      rank 5 is slow, all others are alike:
    rank   .  .  .  X  .  .     5 and 0 are simulated; 0 stands for 511 ranks that issue when it does

Exchange two places of an axis, neither of which has a rank of its own kind, and the job is the same job: groups become
groups, and programs stay where they are. So all ranks whose places can be exchanged have the same times. Of each axis
the places of unusual ranks are kept, and one for all others; a collective begins with its last rank, and whoever is
left out came when its likeness did.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from dtbench.base.vocabulary import Axis
from dtbench.plan.plan import MeshAxis
from dtbench.prediction.costs import RankCosts
from dtbench.prediction.wire import has_even_tiers
from dtbench.scenario.schema.network import EmulatedNetwork


def find_representatives(
    costs: RankCosts, network: EmulatedNetwork, mesh: tuple[MeshAxis, ...], within: int | None = None
) -> Sequence[int]:
    """Return global ranks, in order, that stand for all.

    All of them where groups of one axis use different tiers of the link.

    Args:
        costs: of every rank.
        network: the link.
        mesh: outermost axis first.
        within: consecutive ranks of the shard axis that have groups of their own, too; None: none have.
    """
    everyone = range(len(costs))
    if not has_even_tiers(network, mesh, within):
        return everyone
    unusual = _find_unusual(costs)
    if network.slow_rank is not None:
        unusual.add(network.slow_rank.rank)
    places = [[0] for _ in mesh]
    for at, axis in enumerate(mesh):
        stride = _stride(mesh, at)
        kept = {rank // stride % axis.size for rank in unusual}
        block = within if axis.name is Axis.SHARD and within is not None else axis.size
        places[at] = list(_choose_places(kept, axis.size, block))
    strides = [_stride(mesh, at) for at in range(len(mesh))]
    chosen = (sum(map(int.__mul__, where, strides)) for where in product(*places))
    return sorted(chosen)


def _find_unusual(costs: RankCosts) -> set[int]:
    """Return the ranks that do not cost what most do."""
    by_identity = {id(one): one for one in costs.values()}
    if len(set(by_identity.values())) == 1:
        return set()
    ((usual, _),) = Counter(costs.values()).most_common(1)
    return {rank for rank, one in costs.items() if one != usual}


def _stride(mesh: tuple[MeshAxis, ...], at: int) -> int:
    stride = 1
    for axis in mesh[at + 1 :]:
        stride *= axis.size
    return stride


def _choose_places(kept: Iterable[int], size: int, block: int) -> Iterator[int]:
    """Yield places along an axis: those to keep, one more of each of their blocks, and one of a block without any."""
    kept = set(kept)
    yield from sorted(kept)
    for first in sorted({place // block * block for place in kept}):
        yield from _first_other(range(first, first + block), kept)
    empty = [first for first in range(0, size, block) if kept.isdisjoint(range(first, first + block))]
    yield from empty[:1]


def _first_other(places: Iterable[int], kept: set[int]) -> Iterator[int]:
    other = next((place for place in places if place not in kept), None)
    if other is not None:
        yield other

"""Owners of several models that bear one name: FSDP's units and DDP's buckets, each called by its place in its model.

A unit gathers the same parameters whenever it does, and a bucket carries the same gradients in each backward of a step.
Where sizes of one name, type and group differ, several bear it, and what is summed by owner is of all of them. Those of
equal size cannot be told apart.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from dtbench.base.ranges import REDUCES_PREFIX
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.notes.lacking import BucketsShareName, UnitsShareName
from dtbench.traces.who.buckets import is_reducers
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.purposes import find_unit

_CLEARLY: Final = 1.5
"""Times another's size: what pads a unit's parameters is less."""
_BUCKET: Final = "bucket "

_Sizes = dict[tuple[str, Hashable], set[int]]
"""By the name of an owner, and by what else tells its collectives apart."""


def find_shared_owners(
    rank: int, collectives: Sequence[Collective], step_of: Sequence[int | None]
) -> Iterator[UnitsShareName | BucketsShareName]:
    """Yield which names of units and of buckets several bear, and how large these are.

    Args:
        rank: whose trace it is.
        collectives: of it.
        step_of: index of the step that issued each; None: none did.
    """
    units = {name: own for (name, _), own in _size_units(collectives).items() if max(own) > _CLEARLY * min(own)}
    if units:
        yield UnitsShareName((rank,), _sort(units))
    buckets = {name: own for (name, _), own in _size_buckets(collectives, step_of).items() if len(own) > 1}
    if buckets:
        yield BucketsShareName((rank,), _sort(buckets))


def _sort(sizes: Mapping[str, set[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(sorted(own))) for name, own in sizes.items())


def _size_units(collectives: Sequence[Collective]) -> _Sizes:
    sizes: _Sizes = {}
    for one in collectives:
        is_gather = one.purpose is Purpose.UNSHARD and one.operation is Operation.ALL_GATHER
        unit = find_unit(one.above) if is_gather else ""
        if unit and one.size_bytes:
            sizes.setdefault((unit, (one.group, one.dtype)), set()).add(one.size_bytes)
    return sizes


def _size_buckets(collectives: Sequence[Collective], step_of: Sequence[int | None]) -> _Sizes:
    """Return sizes by step, since DDP makes its buckets anew after the first; a hook may send one in several parts."""
    sizes: _Sizes = {}
    for one, step in zip(collectives, step_of, strict=True):
        is_bucket = one.owner.startswith(_BUCKET) and is_reducers(one)
        is_part = any(name.startswith(REDUCES_PREFIX) for name in one.above)
        if is_bucket and not is_part and one.size_bytes and step is not None:
            sizes.setdefault((one.owner, (one.group, one.dtype, step)), set()).add(one.size_bytes)
    return sizes

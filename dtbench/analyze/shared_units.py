"""FSDP units of several models that bear one name: torch names a unit by its place in its own model.

A unit gathers the same parameters whenever it does. Where gathers of one name, type and group are of clearly different
sizes, several units bear it, and what is summed by owner is of all of them. Units of equal size cannot be told apart.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.analyze.collectives import Collective
from dtbench.analyze.purposes import find_unit
from dtbench.units import format_bytes
from dtbench.vocabulary import Operation, Purpose

_CLEARLY: Final = 1.5
"""Times another's size: what pads a unit's parameters is less."""
_MOST_NAMED: Final = 4


def describe_shared_units(collectives: Sequence[Collective]) -> Iterator[str]:
    """Say which names of units several units bear, and how large these are."""
    shared = list(_find_shared(collectives))
    if not shared:
        return
    named = "; ".join(f"{name}: {' and '.join(map(format_bytes, sizes))}" for name, sizes in shared[:_MOST_NAMED])
    more = f"; and {len(shared) - _MOST_NAMED} more names" if len(shared) > _MOST_NAMED else ""
    yield (
        f"several FSDP units bear one name, as the sizes of their gathers show ({named}{more}): what is said of such an"
        " owner is of all of them; are there several models, each sharded for itself?"
    )


def _find_shared(collectives: Sequence[Collective]) -> Iterator[tuple[str, list[int]]]:
    sizes: dict[tuple[str, str, str | None], set[int]] = {}
    for one in collectives:
        is_gather = one.purpose is Purpose.UNSHARD and one.operation is Operation.ALL_GATHER
        unit = find_unit(one.above) if is_gather else ""
        if unit and one.size_bytes:
            sizes.setdefault((unit, one.group, one.dtype), set()).add(one.size_bytes)
    found = {unit: own for (unit, _, _), own in sizes.items() if max(own) > _CLEARLY * min(own)}
    yield from ((unit, sorted(own)) for unit, own in found.items())

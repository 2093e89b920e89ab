"""Sides of traces that are parts of what ran: some ranks of a job, or collectives that were launched and not seen.

Means over other ranks are other numbers, an owner of a rank that is not there is not zero, and what was not seen to run
did not take no time. So of what traces tell nothing is compared then.
"""

from collections.abc import Iterator, Sequence

from dtbench.store.baseline import MeasuredSide
from dtbench.units import count_things, name_ranks


def name_parts(sides: Sequence[MeasuredSide], labels: Sequence[str]) -> tuple[str, ...]:
    """Say why what the traces of two sides tell cannot be compared, a clause each; none: it can."""
    first, second = sides
    unlike = []
    if first.ranks != second.ranks and any(map(_is_part, sides)):
        each = (f"{label} has {_spell_ranks(side)}" for side, label in zip(sides, labels, strict=True))
        unlike = [", ".join(each)]
    unseen = (_spell_unseen(side, label) for side, label in zip(sides, labels, strict=True) if side.unseen)
    return (*unlike, *unseen)


def say_ranks(side: MeasuredSide) -> Iterator[str]:
    """Say of which ranks a side is, where these are not all of its job."""
    if _is_part(side) and side.world_size is not None:
        yield f"there are {_spell_ranks(side)} alone"


def _spell_unseen(side: MeasuredSide, label: str) -> str:
    count = count_things(side.unseen, "collective")
    return f"{count} of {label} {'was' if side.unseen == 1 else 'were'} launched and not seen to run"


def _is_part(side: MeasuredSide) -> bool:
    return side.ranks is not None and (side.world_size is None or len(side.ranks) < side.world_size)


def _spell_ranks(side: MeasuredSide) -> str:
    if side.ranks is None:
        return "all ranks"
    return f"traces of {name_ranks(side.ranks)}{'' if side.world_size is None else f' of {side.world_size}'}"

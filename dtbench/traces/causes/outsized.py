"""A collective that is of another order than its owner's others: the gather of logits among those of activations."""

from collections.abc import Sequence
from typing import Final

_ORDER: Final = 10
"""So many times its owner's median it must carry."""
_MOST: Final = 0.5
"""And those of its size must take more than so much of the owner's time."""


def find_outsized(sizes_bytes: Sequence[int | None], times_ns: Sequence[int]) -> int | None:
    """Return the size of an owner's largest where it is ten times the median, and those of that size take most time.

    Args:
        sizes_bytes: of the owner's collectives; None: not told.
        times_ns: that each took.

    >>> find_outsized([4096, 4096, 32 << 20], [10, 10, 900])
    33554432
    >>> find_outsized([4096, 4096, 8192], [10, 10, 20]), find_outsized([4096, 4096, 32 << 20], [500, 500, 900])
    (None, None)
    """
    told = sorted(size for size in sizes_bytes if size is not None)
    if not told or told[-1] < _ORDER * max(1, told[(len(told) - 1) // 2]):
        return None
    large_ns = sum(ns for size, ns in zip(sizes_bytes, times_ns, strict=True) if size == told[-1])
    return told[-1] if large_ns > _MOST * sum(times_ns) else None

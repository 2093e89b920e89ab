"""Which steps to go by on a machine that others use: those that they left alone.

A virtual machine whose cores are given to others for a while stands still without knowing it; Linux counts that time as
``steal``. On a machine of two cores where others took much, the length of steps of 280 ms went with what was stolen in
them (correlation 0.99): 278 ms where nothing was, 295 where 50 ms were, 350 and more where 120 were. A process that
keeps one of these two cores busy does the same: steps of two ranks took 870 ms instead of 470. Such a step says nothing
of what is measured.
"""

import math
from collections.abc import Sequence
from typing import Final

DISTURBED: Final = 0.02
"""The share of a machine's cores that others may have without a word; a quiet shared machine was seen to lose 0.003."""

LEAST_STEPS: Final = 3
"""So many steps are kept to be shown where others left too few of a phase or a block alone: those with the least."""

LEAST_SHARE: Final = 0.5
"""The share of a phase's steps that others must have left alone for anything to be judged by them."""


def find_undisturbed(taken_fractions: Sequence[float]) -> list[bool]:
    """Say of each step whether it is kept: those that others left alone; where these are too few, the three with least.

    Args:
        taken_fractions: what others had of the machine's cores in each; NaN: not known, and kept, which is to be said.

    >>> find_undisturbed([0.0, 0.5, 0.01, float("nan")])
    [True, False, True, True]
    >>> find_undisturbed([0.0, 0.9, 0.0])
    [True, False, True]
    >>> find_undisturbed([0.3, 0.5, 0.0, 0.4])
    [True, False, True, True]
    """
    known = [fraction if fraction > 0 else 0.0 for fraction in taken_fractions]  # NaN is not above zero
    left_alone = [fraction < DISTURBED for fraction in known]
    if is_enough(sum(left_alone), len(known)):
        return left_alone
    least = sorted(known)[:LEAST_STEPS][-1]
    return [fraction < DISTURBED or fraction <= least for fraction in known]


def is_enough(left_alone: int, steps: int) -> bool:
    """Tell whether others left so many steps alone that the phase can be judged by them.

    >>> is_enough(4, 8), is_enough(1, 3), is_enough(0, 0)
    (True, False, True)
    """
    return left_alone >= LEAST_SHARE * steps


def add_lost(stolen_fractions: Sequence[float], taken_fractions: Sequence[float]) -> list[float]:
    """Return what others had in each step in all: as other guests, and as processes of the machine; NaN: not known.

    >>> add_lost([0.25, 0.75, float("nan")], [0.5, 0.5, float("nan")])
    [0.75, 1.0, nan]
    """
    pairs = zip(stolen_fractions, taken_fractions, strict=True)
    known = [[one for one in pair if not math.isnan(one)] for pair in pairs]
    return [min(1.0, sum(pair)) if pair else math.nan for pair in known]

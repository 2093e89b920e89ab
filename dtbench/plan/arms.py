"""Steps after PROFILED that estimate exposed communication once more: which arms there are, and how many steps of each.

A rank runs them by this, and what it lost of them is missed by this.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from dtbench.base.vocabulary import Arm, DeviceKind

BLOCK_STEPS: Final = 3
"""Timed steps of a block."""


def choose_arms(exposure: Sequence[str], device: DeviceKind, *, waits_in_cpp: bool) -> tuple[Arm, ...]:
    """Return the arms that these estimates need, in the order in which they first take turns.

    Where DDP waits in C++, waits need arm ``removed`` too: what its copies cost when there is nothing to wait for.
    """
    if "ablation" in exposure:
        return (Arm.FULL, Arm.REMOVED, Arm.SERIAL)
    if "wait" not in exposure or device is DeviceKind.CUDA:
        return ()
    return (Arm.FULL, Arm.REMOVED) if waits_in_cpp else (Arm.FULL,)


def order_blocks(arms: Sequence[Arm], measured_steps: int) -> tuple[Arm, ...]:
    """Return the arm of each block in turn: each gets about ``measured_steps`` timed steps, in four blocks at least.

    >>> [arm.value for arm in order_blocks((Arm.FULL, Arm.REMOVED), 6)][:4]
    ['full', 'removed', 'removed', 'full']
    """
    rounds = max(2, ceil(measured_steps / (2 * BLOCK_STEPS)))
    return (*arms, *reversed(arms)) * rounds

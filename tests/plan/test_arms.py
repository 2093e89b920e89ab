"""Which steps estimate exposed communication once more, and in which order."""

import pytest

from dtbench.base.vocabulary import Arm, DeviceKind
from dtbench.plan.arms import BLOCK_STEPS, choose_arms, order_blocks

ALL = (Arm.FULL, Arm.REMOVED, Arm.SERIAL)


@pytest.mark.parametrize(("measured_steps", "blocks"), [(4, 4), (12, 4), (13, 6), (20, 8)])
def test_arms_take_turns_forth_and_back(measured_steps: int, blocks: int) -> None:
    order = order_blocks(ALL, measured_steps)
    assert order[:6] == (*ALL, *reversed(ALL))
    assert all(order.count(arm) == blocks for arm in ALL)
    assert blocks * BLOCK_STEPS >= measured_steps


def test_only_what_is_asked_for_takes_steps() -> None:
    assert choose_arms(("trace", "ablation"), DeviceKind.CPU, waits_in_cpp=False) == ALL
    assert choose_arms(("wait",), DeviceKind.CPU, waits_in_cpp=False) == (Arm.FULL,)
    assert choose_arms(("wait",), DeviceKind.CPU, waits_in_cpp=True) == (Arm.FULL, Arm.REMOVED)
    assert choose_arms(("trace", "wait"), DeviceKind.CUDA, waits_in_cpp=True) == ()
    assert choose_arms(("trace", "ablation", "wait"), DeviceKind.CUDA, waits_in_cpp=True) == ALL
    assert choose_arms(("trace",), DeviceKind.CPU, waits_in_cpp=True) == ()

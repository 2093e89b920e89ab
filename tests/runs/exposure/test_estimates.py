"""Estimates of blocks whose answer is known: what cancels, what does not, and how sure they are."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dtbench.base.vocabulary import Arm, Estimate, Purpose
from dtbench.runs.exposure.estimates import (
    average_blocks,
    combine_launches,
    estimate_ablation,
    estimate_steps,
    estimate_waits,
    find_block_disturbance,
    keep_undisturbed,
    read_blocks,
    unknown,
)
from dtbench.runs.summary import Estimated
from dtbench.store.records.arms import ArmBlock, ArmSteps

MS = 1_000_000
FULL, REMOVED, SERIAL = Arm.FULL, Arm.REMOVED, Arm.SERIAL
Make = Callable[..., ArmBlock]


def ablation_of(blocks: Sequence[ArmBlock]) -> Estimated:
    return estimate_ablation(read_blocks(ArmSteps(blocks=tuple(blocks), counts=())))


def drifting(block_of: Make, order: Sequence[Arm], base_ms: dict[Arm, float], rate_ms: float) -> list[ArmBlock]:
    return [block_of(arm, [base_ms[arm] + rate_ms * place] * 3) for place, arm in enumerate(order)]


def estimated(mean_ms: float, error_ms: float, count: int = 4) -> Estimated:
    return Estimated(estimate=Estimate.WAIT, mean_ns=mean_ms * MS, standard_error_ns=error_ms * MS, count=count)


def test_ablation_is_what_steps_lose_without_communication(block_of: Make) -> None:
    blocks = [
        block_of(FULL, [100] * 3),
        block_of(REMOVED, [80] * 3),
        block_of(REMOVED, [82] * 3),
        block_of(FULL, [103] * 3),
    ]
    found = ablation_of(blocks)
    assert (found.mean_ns, found.count) == (20.5 * MS, 2)
    assert found.standard_error_ns == pytest.approx(0.5 * MS)


def test_a_drift_of_the_machine_cancels_where_arms_take_turns_and_not_where_one_always_comes_first(
    block_of: Make,
) -> None:
    base = {FULL: 100.0, REMOVED: 80.0, SERIAL: 130.0}
    turns = ablation_of(drifting(block_of, [FULL, REMOVED, REMOVED, FULL] * 2, base, rate_ms=3))
    assert turns.mean_ns == pytest.approx(20 * MS)
    assert turns.standard_error_ns == pytest.approx(0, abs=1)
    three = [FULL, REMOVED, SERIAL, SERIAL, REMOVED, FULL] * 2
    assert ablation_of(drifting(block_of, three, base, rate_ms=3)).mean_ns == pytest.approx(20 * MS)
    same = ablation_of(drifting(block_of, [FULL, REMOVED] * 4, base, rate_ms=3))
    assert same.mean_ns == pytest.approx((20 - 3) * MS)


def test_a_turn_that_was_cut_short_still_cancels_the_drift(block_of: Make) -> None:
    base = {FULL: 100.0, REMOVED: 80.0}
    found = ablation_of(drifting(block_of, [FULL, REMOVED, REMOVED, FULL, FULL, REMOVED], base, rate_ms=3))
    assert found.mean_ns == pytest.approx(20 * MS)
    assert found.count == 3


def test_removing_communication_may_make_steps_longer_and_that_is_said(block_of: Make) -> None:
    found = ablation_of([block_of(FULL, [80] * 3), block_of(REMOVED, [81] * 3)] * 2)
    assert found.mean_ns == -1 * MS


def test_one_step_that_the_machine_held_up_moves_neither_the_ablation_nor_its_error(block_of: Make) -> None:
    steps = [100.0, 100.2, 99.8, 100.1, 99.9]
    calm = [block_of(FULL, steps), block_of(REMOVED, [one - 20 for one in steps])] * 4
    held_up = [block_of(FULL, [*steps[:4], 900.0]), *calm[1:]]
    found = ablation_of(held_up)
    assert found.mean_ns == pytest.approx(20 * MS, abs=0.05 * MS)
    assert found.standard_error_ns < 0.2 * MS


def test_the_error_of_an_ablation_is_that_of_its_pairs(block_of: Make) -> None:
    gains = [18.0, 18.0, 22.0, 22.0]
    order = [(FULL, REMOVED), (REMOVED, FULL)] * 2
    blocks = [
        block_of(arm, [100 + (gain if arm is FULL else 0)] * 3)
        for gain, pair in zip(gains, order, strict=True)
        for arm in pair
    ]
    found = ablation_of(blocks)
    assert found.mean_ns == pytest.approx(20 * MS)
    # residuals of 2 ms around the mean, no drift among them: 16 ms2 / (4 - 2) / 4
    assert found.standard_error_ns == pytest.approx(math.sqrt(2) * MS)


def test_blocks_that_happen_to_agree_are_no_surer_than_their_steps(block_of: Make) -> None:
    rough = [90.0, 110.0, 100.0, 95.0, 105.0]
    found = ablation_of([block_of(FULL, rough), block_of(REMOVED, [one - 20 for one in rough])] * 2)
    # successive steps differ by 20, 10, 5, 10: a median of 10 ms, which is 10 / 0.954 of standard deviation
    of_median = math.sqrt(math.pi / 2) * 10 / 0.9539 / math.sqrt(10)
    assert found.standard_error_ns == pytest.approx(math.sqrt(2) * of_median * MS, rel=1e-3)


def test_waits_of_blocks_that_differ_are_as_sure_as_the_blocks() -> None:
    found = estimate_waits([np.full(3, value * MS) for value in (1.0, 3.0, 1.0, 3.0)])
    assert (found.mean_ns, found.count) == (2 * MS, 4)
    assert found.standard_error_ns == pytest.approx(math.sqrt(4 / 3) / 2 * MS)  # 0.30 ms if steps were independent


def test_of_few_blocks_the_steps_are_counted() -> None:
    assert estimate_waits([np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0])]).count == 5


def test_waits_sum_over_purposes_and_the_part_for_gradients_is_known(block_of: Make) -> None:
    waits = {Purpose.GRAD_REDUCE: [3.0, 5.0], Purpose.TENSOR: [1.0, 1.0]}
    (block,) = read_blocks(ArmSteps(blocks=(block_of(FULL, [9, 9], waits),), counts=()))
    assert block.wait_ns.tolist() == [4 * MS, 6 * MS]
    assert block.gradient_wait_ns.tolist() == [3 * MS, 5 * MS]


def test_where_nobody_timed_waits_they_are_not_zero(block_of: Make) -> None:
    (block,) = read_blocks(ArmSteps(blocks=(block_of(FULL, [9, 9]),), counts=()))
    assert math.isnan(estimate_waits([block.wait_ns]).mean_ns)
    assert math.isnan(estimate_waits([block.gradient_wait_ns]).mean_ns)


def test_without_values_or_with_one_nothing_is_made_up() -> None:
    assert math.isnan(ablation_of([]).mean_ns)
    one = estimate_steps(Estimate.TRACE, np.array([7.0]))
    assert (one.mean_ns, one.count) == (7.0, 1)
    assert math.isnan(one.standard_error_ns)


def test_launches_that_differ_are_the_units() -> None:
    found = combine_launches([estimated(10, 0.1), estimated(14, 0.1)])
    assert (found.mean_ns, found.count) == (12 * MS, 2)
    assert found.standard_error_ns == pytest.approx(2 * MS)


def test_launches_that_happen_to_agree_are_no_surer_than_what_is_in_them() -> None:
    found = combine_launches([estimated(10, 3), estimated(10, 3)])
    assert found.standard_error_ns == pytest.approx(3 / math.sqrt(2) * MS)


def test_a_launch_with_more_steps_counts_for_more_and_one_without_for_nothing() -> None:
    assert combine_launches([estimated(10, 1, 6), estimated(13, 1, 3)]).mean_ns == 11 * MS
    assert combine_launches([unknown(Estimate.WAIT), estimated(10, 1)]) == estimated(10, 1)


def test_the_mean_over_ranks_is_of_steps_that_ran_together(block_of: Make) -> None:
    ranks = [read_blocks(ArmSteps(blocks=(block_of(FULL, steps),), counts=())) for steps in ([10, 30], [30, 10])]
    (block,) = average_blocks(ranks) or ()
    assert block.step_ns.tolist() == [20 * MS, 20 * MS]
    shorter = read_blocks(ArmSteps(blocks=(block_of(FULL, [10]),), counts=()))
    assert average_blocks([ranks[0], shorter]) is None


def test_steps_that_others_disturbed_on_any_rank_are_left_out_of_a_block_with_their_waits(block_of: Make) -> None:
    waits = {Purpose.GRAD_REDUCE: [1, 50, 2, 3, 60]}
    records = {
        0: block_of(FULL, [10, 90, 11, 12, 95], waits, [0, 0.3, 0, math.nan, 0]),
        1: block_of(FULL, [10, 90, 11, 12, 96], waits, [0, 0, 0, 0, 0.4]),
        2: block_of(FULL, [10, 90, 11, 12, 97], waits),
    }
    ranks = {rank: read_blocks(ArmSteps(blocks=(record,), counts=())) for rank, record in records.items()}
    kept = keep_undisturbed(ranks)
    for (block,) in kept.values():
        assert block.step_ns.tolist() == [10 * MS, 11 * MS, 12 * MS]
        assert block.wait_ns.tolist() == block.gradient_wait_ns.tolist() == [1 * MS, 2 * MS, 3 * MS]
    (untimed,) = keep_undisturbed(
        {0: read_blocks(ArmSteps(blocks=(block_of(REMOVED, [9, 99, 9, 9], None, [0, 1, 0, 0]),), counts=()))}
    )[0]
    assert (untimed.step_ns.tolist(), untimed.wait_ns.tolist()) == ([9 * MS] * 3, [])
    assert {rank: [one.stolen_fraction.tolist() for one in blocks] for rank, blocks in kept.items() if rank != 0} == {
        1: [[0, 0, 0]],
        2: [[]],
    }
    other = read_blocks(ArmSteps(blocks=(block_of(FULL, [1, 2]), block_of(FULL, [1, 2])), counts=()))
    assert keep_undisturbed({**ranks, 3: other}) == {
        **{rank: list(blocks) for rank, blocks in ranks.items()},
        3: list(other),
    }


def test_what_others_had_in_blocks_is_told_of_the_steps_that_are_kept(block_of: Make) -> None:
    stolen = ([0.0, 0.9, 0.0, 0.0], [0.3, 0.6, 0.4, 0.5])
    ranks = {
        rank: read_blocks(ArmSteps(blocks=(block_of(FULL, [1] * 4, None, shares),), counts=()))
        for rank, shares in enumerate(stolen)
    }
    assert find_block_disturbance(keep_undisturbed({0: ranks[0]})) == 0.0
    assert find_block_disturbance(keep_undisturbed({1: ranks[1]})) == 0.4
    assert math.isnan(find_block_disturbance({0: read_blocks(ArmSteps(blocks=(block_of(FULL, [1]),), counts=()))}))

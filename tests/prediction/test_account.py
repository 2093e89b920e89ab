"""Where a predicted step went: shares by hand, and parts that add up whatever is drawn."""

import random

import pytest

from dtbench.base.vocabulary import Cause, Region
from dtbench.prediction.account import PredictedStep, account_step, share_exposed
from dtbench.prediction.program import Compute, Enter, Issue, Program, Wait
from dtbench.prediction.simulate import simulate
from tests.prediction.situations import draw_programs, make_collective


def test_collectives_that_run_at_once_share_what_is_exposed() -> None:
    """::

    a          ├────────┤          0..9
    b               ├─────────┤    5..15
    compute  ███                   0..2
    """
    assert share_exposed([(0, 9), (5, 15)], [(0, 2)]) == (15, (3 + 2, 2 + 6))


def test_a_span_without_length_gets_nothing() -> None:
    assert share_exposed([(3, 3)], []) == (0, (0,))


def test_spans_that_follow_each_other_are_one_union() -> None:
    assert share_exposed([(0, 5), (5, 9)], [(2, 7)]) == (9, (2, 2))


def brute_force(spans: list[tuple[int, int]], compute: list[tuple[int, int]]) -> tuple[int, int]:
    """Return union and exposed time by looking at every nanosecond."""
    union = exposed = 0
    for now in range(100):
        runs = any(start <= now < end for start, end in spans)
        union += runs
        exposed += runs and not any(start <= now < end for start, end in compute)
    return union, exposed


@pytest.mark.parametrize("seed", range(60))
def test_shares_add_up_to_what_every_nanosecond_says(seed: int) -> None:
    chance = random.Random(seed)
    spans = [(start, start + chance.randrange(20)) for start in (chance.randrange(60) for _ in range(6))]
    cuts = sorted(chance.sample(range(80), 6))
    compute = list(zip(cuts[::2], cuts[1::2], strict=True))
    union, shares = share_exposed(spans, compute)
    assert (union, sum(shares)) == brute_force(spans, compute)


@pytest.mark.parametrize("seed", range(60))
def test_the_parts_of_every_step_add_up(seed: int) -> None:
    for rank, execution in simulate(draw_programs(random.Random(seed))).items():
        step = account_step(rank, execution)
        assert step.compute_ns + step.exposed_comm_ns + step.idle_ns == step.step_ns
        assert min(step.idle_ns, step.hidden_comm_ns) >= 0
        for one in step.collectives:
            assert sum(part for _, part in one.causes) == one.exposed_ns
            assert min(one.queued_ns, one.skew_ns) >= 0
        assert sum(one.exposed_ns for one in step.collectives) == step.exposed_comm_ns


def only(program: Program) -> PredictedStep:
    return account_step(0, simulate({0: program})[0])


def test_the_last_reduction_has_nothing_left_to_hide_behind() -> None:
    one = make_collective("a", 15)
    program: Program = (
        Enter(Region.BACKWARD),
        *(Compute(20), Issue(one, is_blocking=False), Compute(20), Issue(one, is_blocking=False)),
        *(Wait(0), Wait(1)),
    )
    first, last = only(program).collectives
    assert (first.exposed_ns, first.cause) == (0, None)
    assert (last.exposed_ns, last.cause) == (15, Cause.TAIL)


def test_what_waited_for_its_lane_is_called_queued() -> None:
    program: Program = (
        Enter(Region.BACKWARD),
        *(Compute(20), Issue(make_collective("a", 50), is_blocking=False)),
        *(Compute(20), Issue(make_collective("a", 10), is_blocking=False)),
        *(Wait(0), Wait(1)),
    )
    first, last = only(program).collectives
    assert (first.cause, first.exposed_ns) == (Cause.BANDWIDTH, 30)
    assert (last.queued_ns, last.exposed_ns, last.cause) == (30, 10, Cause.QUEUED)


def test_what_blocks_is_called_blocking() -> None:
    program: Program = (Enter(Region.BACKWARD), Compute(20), Issue(make_collective("a", 5), is_blocking=True), Wait(0))
    assert only(program).collectives[0].cause is Cause.SYNC_OP


def test_gradients_that_are_all_ready_at_the_end_are_ready_late() -> None:
    one = make_collective("a", 15)
    issues = tuple(Issue(one, is_blocking=False) for _ in range(3))
    program: Program = (Enter(Region.BACKWARD), Compute(20), Compute(20), *issues, Wait(0), Wait(1), Wait(2))
    first, second, last = only(program).collectives
    assert (first.cause, first.exposed_ns) == (Cause.LATE_READY, 15)
    assert second.cause is Cause.QUEUED
    assert last.cause is Cause.QUEUED

"""The rule: three limits, what is not known, and how often it errs."""

import math
from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pytest

from dtbench.base.vocabulary import Arm, Estimate
from dtbench.runs.exposure.agreement import Agreement, compare, find_doubts, judge
from dtbench.runs.exposure.estimates import estimate_ablation, estimate_steps, estimate_waits, read_blocks
from dtbench.runs.summary import Estimated, ExposureRow
from dtbench.store.records.arms import ArmBlock, ArmSteps
from dtbench.traces.known_part import KnownPart

MS = 1_000_000
NAN = math.nan


def estimated(mean_ms: float, error_ms: float, estimate: Estimate = Estimate.TRACE) -> Estimated:
    return Estimated(estimate=estimate, mean_ns=mean_ms * MS, standard_error_ns=error_ms * MS, count=5)


@pytest.mark.parametrize(
    ("one", "agreeing", "disputed"),
    [
        ((3.0, 0.0), (1.0, 0.0), (0.9, 0.0)),  # 2 ms, whatever else
        ((100.0, 0.1), (90.0, 0.1), (89.9, 0.1)),  # 10 % of the larger
        ((50.0, 3.0), (35.0, 4.0), (34.9, 4.0)),  # 3 x hypot(3, 4)
        ((-100.0, 0.0), (-90.0, 0.0), (-89.9, 0.0)),  # 10 % of what is larger without its sign
    ],
)
def test_estimates_agree_up_to_the_largest_of_three_limits_and_not_beyond(
    one: tuple[float, float], agreeing: tuple[float, float], disputed: tuple[float, float]
) -> None:
    for other, outcome in ((agreeing, Agreement.AGREE), (disputed, Agreement.DISPUTED)):
        assert compare(estimated(*one), estimated(*other)) is outcome
        assert compare(estimated(*other), estimated(*one)) is outcome


def test_what_is_not_known_neither_agrees_nor_disputes() -> None:
    assert compare(estimated(NAN, NAN), estimated(10, 1)) is Agreement.UNKNOWN
    assert compare(estimated(50, NAN), estimated(10, 1)) is Agreement.UNKNOWN
    assert compare(estimated(10.5, NAN), estimated(10, 1)) is Agreement.AGREE


def row(*estimates: Estimated, disputes: tuple[str, ...] = ()) -> ExposureRow:
    return ExposureRow(rank=None, estimates=estimates, disputes=disputes)


def test_a_row_agrees_only_if_every_two_do_and_all_that_were_asked_for_are_known_of_all() -> None:
    trace, ablation, wait = (
        estimated(ms, 0.1, kind) for ms, kind in ((20, Estimate.TRACE), (21, Estimate.ABLATION), (19, Estimate.WAIT))
    )
    assert judge(row(trace, ablation, wait)) is Agreement.AGREE
    assert judge(row(trace, estimated(NAN, NAN, Estimate.ABLATION), wait)) is Agreement.UNKNOWN
    of_rank_0 = KnownPart(ranks=(0,), of_ranks=2, steps=3, of_steps=3, has_every_rank=False)
    alone = [one.model_copy(update={"part": of_rank_0}) for one in (trace, ablation, wait)]
    assert judge(row(*alone)) is Agreement.UNKNOWN
    assert judge(row(trace.model_copy(update={"is_least": True}), ablation, wait)) is Agreement.UNKNOWN
    assert judge(row(trace, wait, estimated(NAN, NAN, Estimate.LOGGER))) is Agreement.AGREE
    assert judge(row(trace, ablation, wait, disputes=("so",))) is Agreement.DISPUTED
    assert judge(row(trace, estimated(60, NAN, Estimate.ABLATION), wait)) is Agreement.UNKNOWN


def test_one_estimate_agrees_with_nothing_and_ddps_logger_has_no_vote() -> None:
    trace, logger = estimated(20, 0.1), estimated(20, 0.1, Estimate.LOGGER)
    assert judge(row(trace)) is Agreement.UNKNOWN
    assert judge(row(trace, logger)) is Agreement.UNKNOWN
    assert judge(row()) is Agreement.UNKNOWN


@pytest.mark.parametrize(
    ("ablation_ms", "error_ms", "says_nothing"),
    [
        (60, 6.6, False),  # 3 x 6.6 is within the smallest unit
        (60, 6.7, True),
        (100, 8.3, False),  # and 24.9 within a quarter of 100
        (100, 30, True),
        (100, 8.4, True),
        (42, 30, False),  # as near as sure ones may be
        (100, 1, False),  # disputed is not unsure
    ],
)
def test_estimates_that_agree_only_because_they_are_unsure_say_nothing(
    ablation_ms: float, error_ms: float, says_nothing: bool
) -> None:
    near_ms = 80.0 if ablation_ms == 100 and error_ms > 1 else 41.0
    of = row(estimated(near_ms, 0), estimated(ablation_ms, error_ms, Estimate.ABLATION))
    told = find_doubts(of, sure_ns=20 * MS, sure_share=0.25)
    assert len(told) == says_nothing
    assert all(f"{ablation_ms}.0 ms" in one or f"{ablation_ms} ms" in one for one in told)


@pytest.fixture
def is_disputed(
    rng: np.random.Generator, steps_of: Callable[..., ArmSteps]
) -> Callable[[Mapping[Estimate, float]], bool]:
    """Tell whether a rank with 30 ms exposed is disputed; what is planted (ms) is added to one of its estimates.

    Steps and waits vary by 3 ms, blocks by 1 ms besides, and the machine becomes slower by 0.5 ms from block to block.
    """

    def disturb(place: int, shared_ms: float, block: ArmBlock) -> ArmBlock:
        def vary(times_ns: tuple[int, ...], by_ms: float) -> tuple[int, ...]:
            return tuple(round(time_ns + MS * (by_ms + rng.normal(0, 3))) for time_ns in times_ns)

        waits = {purpose: vary(times_ns, shared_ms) for purpose, times_ns in block.wait_ns.items()}
        return block.model_copy(update={"step_ns": vary(block.step_ns, shared_ms + 0.5 * place), "wait_ns": waits})

    def simulate(planted_ms: Mapping[Estimate, float]) -> bool:
        full_ms = 100 + planted_ms.get(Estimate.ABLATION, 0)
        steps = steps_of({Arm.FULL: full_ms, Arm.REMOVED: 70}, 30 + planted_ms.get(Estimate.WAIT, 0), steps=3)
        disturbed = [disturb(place, rng.normal(0, 1), block) for place, block in enumerate(steps.blocks)]
        blocks = read_blocks(steps.model_copy(update={"blocks": tuple(disturbed)}))
        exposed_ns = MS * (30 + planted_ms.get(Estimate.TRACE, 0) + rng.normal(0, 3, size=5))
        estimates = (
            estimate_steps(Estimate.TRACE, exposed_ns),
            estimate_ablation(blocks),
            estimate_waits([block.wait_ns for block in blocks if block.arm is Arm.FULL]),
        )
        return any(compare(*pair) is Agreement.DISPUTED for pair in combinations(estimates, 2))

    return simulate


def test_equal_but_noisy_estimates_are_rarely_disputed(
    is_disputed: Callable[[Mapping[Estimate, float]], bool],
) -> None:
    assert sum(is_disputed({}) for _ in range(1000)) <= 30


@pytest.mark.parametrize("estimate", [Estimate.TRACE, Estimate.ABLATION, Estimate.WAIT])
def test_a_difference_of_20_ms_is_disputed_whichever_estimate_is_wrong(
    is_disputed: Callable[[Mapping[Estimate, float]], bool], estimate: Estimate
) -> None:
    assert sum(is_disputed({estimate: 20.0}) for _ in range(300)) >= 285

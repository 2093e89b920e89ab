"""From steps to rows to what is said of all ranks: exact means, and the rank that the others wait for."""

import math

import numpy as np
import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.live.account import LiveStep, Place, Row, Window, sign
from dtbench.live.numbers import find_late, summarize
from dtbench.live.waits import Label, StepWaits, Wait

WEIGHTS = Label(Purpose.UNSHARD, Operation.ALL_GATHER, Region.FORWARD, "layers.0")
GRADIENTS = Label(Purpose.GRAD_REDUCE, Operation.REDUCE_SCATTER, Region.BACKWARD)


def make_step(
    *pieces: tuple[Label, float, float],
    tail_ms: float = 0,
    between_ms: float = 0,
    flight_ms: float = 0,
    unseen: int = 0,
) -> LiveStep:
    """Make a step of pieces: what is waited for, own time before it and the wait, ms."""
    waits = tuple(Wait(label, round(own * NS_PER_MS), round(wait * NS_PER_MS)) for label, own, wait in pieces)
    sums: dict[tuple[Purpose, Region | None], int] = {}
    regions = {Region.FORWARD: round(tail_ms * NS_PER_MS)}
    for one in waits:
        key = one.label.purpose, one.label.region
        sums[key] = sums.get(key, 0) + one.wait_ns
        assert one.label.region is not None
        regions[one.label.region] = regions.get(one.label.region, 0) + one.own_ns + one.wait_ns
    told = StepWaits(waits, sums, round(tail_ms * NS_PER_MS), round(flight_ms * NS_PER_MS), 0, 0)
    return LiveStep(
        number=1,
        step_ns=sum(regions.values()),
        between_ns=round(between_ms * NS_PER_MS),
        cost_ns=20_000,
        waits=told,
        regions=regions,
        unseen=unseen,
    )


def sum_up(*steps: LiveStep) -> Row:
    window = Window()
    for step in steps:
        window.add(step)
    return window.close()[0]


def test_times_are_means_over_ranks_and_steps() -> None:
    first = sum_up(
        make_step((WEIGHTS, 10, 2), (GRADIENTS, 20, 4), tail_ms=1, flight_ms=12),
        make_step((WEIGHTS, 10, 4), (GRADIENTS, 20, 8), tail_ms=1, flight_ms=12),
    )
    second = sum_up(
        make_step((WEIGHTS, 10, 0), (GRADIENTS, 20, 0), tail_ms=1, flight_ms=6),
        make_step((WEIGHTS, 10, 0), (GRADIENTS, 20, 6), tail_ms=1, flight_ms=6, between_ms=8),
    )
    numbers = summarize(np.array([first, second]))
    assert numbers["step_ms"] == pytest.approx(31 + (2 + 4 + 4 + 8 + 6) / 4)
    assert numbers["exposed_ms"] == pytest.approx(24 / 4)
    assert numbers["unshard_wait_ms"] == pytest.approx(6 / 4)
    assert numbers["gradient_wait_ms"] == pytest.approx(18 / 4)
    assert numbers["tensor_wait_ms"] == 0
    assert numbers["between_ms"] == pytest.approx(2)
    assert numbers["hidden_fraction"] == pytest.approx(1 - 24 / 36)
    assert numbers["monitor_us"] == pytest.approx(20)
    assert (numbers["steps"], numbers["ranks"], numbers["unseen"]) == (2, 2, 0)


def test_what_is_hidden_is_not_known_where_a_collective_was_not_seen_or_there_was_none() -> None:
    unseen = sum_up(make_step((WEIGHTS, 10, 2), flight_ms=12, unseen=1))
    assert math.isnan(summarize(np.array([unseen]))["hidden_fraction"])
    assert summarize(np.array([unseen]))["unseen"] == 1
    none = sum_up(make_step(tail_ms=3))
    assert math.isnan(summarize(np.array([none]))["hidden_fraction"])


def test_own_time_of_a_region_has_no_waits_in_it() -> None:
    step = make_step((WEIGHTS, 10, 2), (GRADIENTS, 20, 4), tail_ms=1)
    assert (step.own_ns(Region.FORWARD), step.own_ns(Region.BACKWARD)) == (11 * NS_PER_MS, 20 * NS_PER_MS)
    assert (step.wait_ns(), step.wait_ns(Purpose.UNSHARD)) == (6 * NS_PER_MS, 2 * NS_PER_MS)


def rows_of(*ranks: LiveStep) -> np.ndarray:
    return np.array([sum_up(rank) for rank in ranks])


def test_the_rank_that_works_longer_while_others_stand_still_is_named_with_where() -> None:
    prompt = make_step((WEIGHTS, 10, 1), (GRADIENTS, 20, 9), tail_ms=1)
    late = make_step((WEIGHTS, 10, 1), (GRADIENTS, 28, 1), tail_ms=1)
    found = find_late(rows_of(prompt, prompt, late), (WEIGHTS, GRADIENTS))
    assert found is not None
    assert (found.rank, found.late_ns, found.where_ns) == (2, 8 * NS_PER_MS, 8 * NS_PER_MS)
    assert found.where == "before wait 2 of a step, reduce_scatter (grad_reduce) in backward"
    assert str(found).startswith("rank 2 is late by 8 ms a step, 8 ms of it before wait 2")


def test_a_rank_that_fetches_its_batch_longer_is_late_between_steps() -> None:
    prompt = make_step((WEIGHTS, 10, 6), between_ms=1)
    late = make_step((WEIGHTS, 10, 1), between_ms=6)
    found = find_late(rows_of(late, prompt), (WEIGHTS,))
    assert found is not None
    assert (found.rank, found.where, found.where_ns) == (0, "between steps", 5 * NS_PER_MS)


def test_ranks_that_wait_for_other_things_are_compared_by_region() -> None:
    prompt = make_step((WEIGHTS, 10, 1), (GRADIENTS, 20, 9))
    late = make_step((GRADIENTS, 38, 1))
    found = find_late(rows_of(prompt, late), (WEIGHTS, GRADIENTS))
    assert found is not None
    assert (found.rank, found.where, found.where_ns) == (1, "in backward", 18 * NS_PER_MS)


def test_nobody_is_late_without_evidence() -> None:
    prompt = make_step((WEIGHTS, 10, 1), (GRADIENTS, 20, 9))
    longer = make_step((WEIGHTS, 10, 1), (GRADIENTS, 28, 9))
    assert find_late(rows_of(prompt, longer), (WEIGHTS, GRADIENTS)) is None, "nobody stood still for it"
    hardly = make_step((WEIGHTS, 10, 1), (GRADIENTS, 20.5, 8.5))
    assert find_late(rows_of(prompt, hardly), (WEIGHTS, GRADIENTS)) is None, "less than 2 % of a step"
    assert find_late(rows_of(prompt), (WEIGHTS, GRADIENTS)) is None, "alone"


def test_slots_are_those_of_steps_like_the_first_of_a_window() -> None:
    alike = make_step((WEIGHTS, 10, 1), (GRADIENTS, 20, 2))
    other = make_step((WEIGHTS, 10, 1))
    row = sum_up(alike, other, alike)
    assert (row[Place.STEPS], row[Place.ALIKE]) == (3, 2)
    assert row[Place.SLOT_OWN.start + 1] == 40 * NS_PER_MS
    assert row[Place.SIGNATURE] == sign((WEIGHTS, GRADIENTS))

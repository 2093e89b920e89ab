"""Bounds hold what they should, and every cost moves a step the way it must."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Arm
from dtbench.prediction.bounds import bound_step, margin_ns
from dtbench.prediction.costs import known_costs
from dtbench.prediction.predict import predict_step, time_ranks_alone, time_step
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import in_ms, link, plan_of, timed

Make = Callable[..., Scenario]
MS = 1_000_000


def draw_parallel(chance: random.Random) -> dict[str, Any]:
    """Draw a strategy with whatever decides when it communicates."""
    match chance.choice(["ddp", "fsdp1", "fsdp2"]):
        case "ddp":
            return {"kind": "ddp", "replicas": 2, "bucket_cap_mb": chance.choice([None, 0.5, 1.0, 3.0])}
        case "fsdp1":
            strategy = chance.choice(["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD"])
            return {"kind": "fsdp1", "shards": 2, "replicas": 1 + (strategy == "HYBRID_SHARD")} | {
                "sharding_strategy": strategy
            }
        case _:
            return {
                "kind": "fsdp2",
                "shards": 2,
                "replicas": chance.choice([1, 2]),
                "unshard_async_op": chance.random() < 0.7,
                "forward_prefetch": chance.randrange(3),
                "backward_prefetch": chance.choice([None, 1, 2]),
                "separate_reduce_scatter_group": chance.random() < 0.5,
            }


def draw_model(chance: random.Random) -> dict[str, Any]:
    slow = {"rank": chance.randrange(2), "factor": chance.uniform(1.1, 2)} if chance.random() < 0.3 else None
    return timed(chance.randrange(1, 7), chance.choice([0, 20, 35]), chance.choice([20, 45]), slow_rank=slow)


@pytest.mark.parametrize("seed", range(40))
def test_a_slower_link_never_makes_a_step_shorter(scenario: Make, seed: int) -> None:
    chance = random.Random(seed)
    fixed = {"model": draw_model(chance), "parallel": draw_parallel(chance)}
    lanes = chance.choice(["per_group", "shared"])

    def step_ns(latency_ms: float, ms_per_mib: float) -> int:
        asked = scenario(**fixed, network=link(latency_ms, ms_per_mib, lanes=lanes))
        return predict_step(asked, plan_of(asked), known_costs(asked, plan_of(asked))).step_ns

    times = [step_ns(latency, 5.0) for latency in (0, 3, 11, 40)]
    assert times == sorted(times)
    times = [step_ns(5.0, per_mib) for per_mib in (0.5, 3, 11, 40)]
    assert times == sorted(times)
    assert times[-1] > times[0]


@pytest.mark.parametrize("seed", range(40))
def test_bounds_lie_in_order_and_arms_between(scenario: Make, seed: int) -> None:
    chance = random.Random(seed)
    network = link(chance.uniform(0, 30), chance.uniform(1, 30), jitter={"fraction": chance.uniform(0.1, 1)})
    asked = scenario(model=draw_model(chance), parallel=draw_parallel(chance), network=network)
    plan = plan_of(asked)
    bounds = bound_step(asked, plan, host_ns=chance.randrange(30 * MS))
    assert bounds.low_ns <= bounds.expected_ns < bounds.high_ns
    assert not bounds.holds(bounds.low_ns - 1)
    assert bounds.holds(bounds.low_ns)
    assert bounds.holds(bounds.high_ns)
    assert not bounds.holds(bounds.high_ns + 1)
    assert not bounds.holds(float("nan"))
    removed, full, serial = (
        predict_step(asked, plan, known_costs(asked, plan), arm=arm).step_ns
        for arm in (Arm.REMOVED, Arm.FULL, Arm.SERIAL)
    )
    assert removed < full <= serial


def test_a_host_that_costs_nothing_leaves_the_margin_alone(scenario: Make) -> None:
    """12 blocks of 20 ms and buckets of 1 MiB: 284 ms, of which 4 % are more than 10 ms."""
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}
    asked = scenario(model=timed(12, 0, 20), parallel=parallel, network=link(12, 10))
    bounds = bound_step(asked, plan_of(asked), host_ns=0)
    assert [in_ms(bound) for bound in (bounds.low_ns, bounds.expected_ns, bounds.high_ns)] == [284, 284, 284 * 1.04]


def test_time_of_the_host_widens_the_upper_bound_only(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 12.0}
    asked = scenario(model=timed(12, 0, 20), parallel=parallel, network=link(12, 10))
    bounds = bound_step(asked, plan_of(asked), host_ns=40 * MS)
    assert in_ms(bounds.low_ns) == 372
    assert in_ms(bounds.high_ns) == pytest.approx(412 * 1.04)
    assert 372 < in_ms(bounds.expected_ns) <= 412


def test_jitter_lies_between_the_bounds(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 2.0}
    network = link(20, 0, jitter={"fraction": 0.5})
    asked = scenario(model=timed(2, 0, 20), parallel=parallel, network=network)
    bounds = bound_step(asked, plan_of(asked), host_ns=0)
    assert (in_ms(bounds.low_ns), in_ms(bounds.expected_ns), in_ms(bounds.high_ns)) == (60, 65, 80)


def test_the_margin_is_the_larger_of_ten_milliseconds_and_four_percent() -> None:
    assert [in_ms(margin_ns(time_ms * MS)) for time_ms in (100, 250, 1000)] == [10, 10, 40]


@pytest.mark.parametrize("seed", range(20))
def test_times_alone_are_those_of_the_whole_account_and_no_rank_is_faster(scenario: Make, seed: int) -> None:
    chance = random.Random(seed)
    asked = scenario(model=draw_model(chance), parallel=draw_parallel(chance), network=link(12, 10))
    plan = plan_of(asked)
    costs = known_costs(asked, plan)
    step_ns = time_step(asked, plan, costs, jitter_share=0.5)
    assert step_ns == predict_step(asked, plan, costs).step_ns
    assert time_ranks_alone(asked, plan, costs, jitter_share=0.5) == step_ns  # the slow rank waits for nobody

"""Figures that were seen on two cores and worked out by hand, and situations whose answer is a line of arithmetic."""

from collections.abc import Callable

import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Arm, Cause, Operation, Purpose
from dtbench.prediction.costs import Costs, UnitCosts, known_costs, same_costs
from dtbench.prediction.predict import predict_first_step, predict_step
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import in_ms, link, plan_of, predict_rank, timed

Make = Callable[..., Scenario]


@pytest.mark.parametrize(("cap_mib", "step_ms"), [(1, 284), (2, 272), (3, 282), (4, 292), (6, 312), (12, 372)])
def test_bucket_caps_trade_latency_against_the_tail(scenario: Make, cap_mib: int, step_ms: int) -> None:
    """Twelve blocks of 1 MiB, each ready 20 ms after the one before; 12 ms and 10 ms for each MiB."""
    asked = scenario(
        model=timed(12, 0, 20),
        parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": float(cap_mib)},
        network=link(12, 10),
    )
    step = predict_rank(asked)
    assert in_ms(step.step_ns) == step_ms
    assert in_ms(step.compute_ns) == 240
    assert len(step.collectives) == 12 // cap_mib
    assert in_ms(step.wait_ns[Purpose.GRAD_REDUCE]) == step_ms - 240
    assert in_ms(step.exposed_comm_ns) == step_ms - 240


@pytest.mark.parametrize(("cap_mib", "step_ms"), [(1, 135), (6, 210)])
def test_buckets_beat_one_bucket(scenario: Make, cap_mib: int, step_ms: int) -> None:
    """Six blocks of 20 ms; the link takes 15 ms for each MiB and nothing for a message, so that only bytes count."""
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": float(cap_mib)}
    assert (
        in_ms(predict_rank(scenario(model=timed(6, 0, 20), parallel=parallel, network=link(0, 15))).step_ns) == step_ms
    )


@pytest.mark.parametrize(
    ("options", "forward_ms"),
    [
        ({}, 160),
        ({"forward_prefetch": 1}, 160),  # gloo blocks: nothing is prefetched
        ({"unshard_async_op": True}, 160),
        ({"unshard_async_op": True, "forward_prefetch": 1}, 112),
        ({"unshard_async_op": True, "forward_prefetch": 2}, 112),
    ],
)
def test_fsdp2_hides_gathers_only_if_they_are_async_and_prefetched(
    scenario: Make, options: dict[str, object], forward_ms: int
) -> None:
    """Five blocks of 20 ms with gathers of 12 ms."""
    asked = scenario(model=timed(5, 20, 0), parallel={"kind": "fsdp2", "shards": 2, **options}, network=link(12, 0))
    assert in_ms(predict_rank(asked).forward_ns) == forward_ms


def test_prefetching_one_block_keeps_the_lane_busy_as_two_do(scenario: Make) -> None:
    """Gathers of 30 ms beside blocks of 20: whoever asks first, the lane is the limit from the first gather on."""

    def forward_ms(depth: int) -> float:
        parallel = {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": depth}
        return in_ms(predict_rank(scenario(model=timed(4, 20, 0), parallel=parallel, network=link(30, 0))).forward_ns)

    assert forward_ms(0) == 4 * (30 + 20)
    assert forward_ms(1) == 4 * 30 + 20
    assert forward_ms(2) == 4 * 30 + 20


def test_the_first_step_of_ddp_has_one_bucket(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}
    asked = scenario(model=timed(4, 0, 20), parallel=parallel, network=link(12, 10))
    plan = plan_of(asked)
    first = predict_first_step(asked, plan, known_costs(asked, plan)).of(0)
    assert [one.size_bytes for one in first.collectives] == [4 << 20]
    assert in_ms(first.step_ns) == 4 * 20 + 12 + 4 * 10
    assert len(predict_rank(asked).collectives) == 4


def test_half_the_bytes_take_half_of_what_bytes_take(scenario: Make) -> None:
    def step_ms(**options: object) -> float:
        parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 6.0, **options}
        return in_ms(predict_rank(scenario(model=timed(6, 0, 20), parallel=parallel, network=link(12, 10))).step_ns)

    assert step_ms() == 120 + 12 + 60
    assert step_ms(comm_hook={"kind": "fp16_compress"}) == 120 + 12 + 30


def test_micro_batches_that_hold_their_gradients_do_not_communicate(scenario: Make) -> None:
    def predict(sync: str) -> tuple[float, int]:
        step = predict_rank(
            scenario(
                model=timed(4, 20, 20),
                parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0},
                network=link(15, 0),
                accumulation={"micro_batches": 2, "sync": sync},
            )
        )
        return in_ms(step.step_ns), len(step.collectives)

    assert predict("last") == (2 * 160 + 15, 4)
    assert predict("every") == (2 * (160 + 15), 8)


def test_over_a_tensor_axis_gradients_are_ready_late(scenario: Make) -> None:
    """Blocks of half a MiB for each rank: four buckets of 15 ms, all issued when backward is over."""
    step = predict_rank(
        scenario(
            model=timed(4, 20, 20),
            parallel={"kind": "ddp", "replicas": 2, "tensor": 2, "bucket_cap_mb": 0.5},
            network=link(15, 0),
        )
    )
    buckets = [one for one in step.collectives if one.purpose is Purpose.GRAD_REDUCE]
    crossings = [one for one in step.collectives if one.purpose is Purpose.TENSOR]
    assert len({one.issue_ns for one in buckets}) == 1
    assert (len(crossings), len(buckets)) == (2 * 4 - 1, 4)
    assert in_ms(step.step_ns) == 160 + 7 * 15 + 4 * 15
    assert buckets[0].cause is Cause.LATE_READY
    assert {one.cause for one in crossings} == {Cause.NEEDED_AT_ONCE}


def test_reductions_of_fsdp2_block_and_queue_behind_prefetched_gathers(scenario: Make) -> None:
    """Backward of three blocks, 20 ms each; gathers and scatters of 30 ms on one lane.

    ::

        lane      gather 2      | gather 1  . . .| scatter 2      | gather 0       | scatter 1
        host      wait          | block 2        wait for both    | block 1 ...
    """

    def backward(**options: object) -> list[tuple[str, Operation, float, float]]:
        parallel = {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, **options}
        step = predict_rank(scenario(model=timed(3, 0, 20), parallel=parallel, network=link(30, 0)))
        start_ns = step.forward_ns
        return [
            (one.owner, one.operation, in_ms(one.begin_ns - start_ns), in_ms(one.end_ns - start_ns))
            for one in step.collectives
            if one.issue_ns >= start_ns
        ]

    gathers, scatters = Operation.ALL_GATHER, Operation.REDUCE_SCATTER
    assert backward() == [
        ("layers.2", gathers, 0, 30),
        ("layers.1", gathers, 30, 60),
        ("layers.2", scatters, 60, 90),
        ("layers.0", gathers, 90, 120),
        ("layers.1", scatters, 120, 150),
        ("layers.0", scatters, 170, 200),
    ]
    apart = backward(separate_reduce_scatter_group=True)
    assert apart[2] == ("layers.2", scatters, 50, 80)
    assert backward(reshard_after_forward=False) == [
        ("layers.2", scatters, 20, 50),
        ("layers.1", scatters, 70, 100),
        ("layers.0", scatters, 120, 150),
    ]


def test_a_gather_prefetched_deep_is_no_more_queued_than_the_analyser_says(scenario: Make) -> None:
    """Backward of four blocks, 100 ms each; two gathers of 70 ms ahead, scatters on a lane of their own.

    The gather of block 1 is issued before block 2 has begun, which it could have waited for: of its 20 ms beside the
    scatter of block 3 none is a queue's, as seen on two ranks with gloo.
    """
    parallel = {
        "kind": "fsdp2",
        "shards": 2,
        "unshard_async_op": True,
        "forward_prefetch": 2,
        "backward_prefetch": 2,
        "separate_reduce_scatter_group": True,
    }
    step = predict_rank(scenario(model=timed(4, 100, 100), parallel=parallel, network=link(60, 10)))
    exposed = [(one.owner, one.cause, in_ms(one.exposed_ns)) for one in step.collectives if one.exposed_ns]
    assert exposed == [
        ("layers.0", Cause.NEEDED_AT_ONCE, 70),
        ("layers.3", Cause.NEEDED_AT_ONCE, 70),
        ("layers.1", Cause.BANDWIDTH, 20),
        ("layers.3", Cause.SYNC_OP, 50),
        ("layers.2", Cause.SYNC_OP, 70),
        ("layers.1", Cause.SYNC_OP, 70),
        ("layers.0", Cause.SYNC_OP, 70),
    ]


def test_sharding_over_fewer_ranks_after_forward_gathers_on_the_faster_tier(scenario: Make) -> None:
    """Four ranks on two nodes: 40 ms between them, 5 ms inside, where the gathers of backward stay."""
    network = link(5, 0, between_nodes={"ranks_per_node": 2, "latency_us": 40_000.0, "bandwidth_gb_per_s": 1e9})
    parallel = {"kind": "fsdp2", "shards": 4, "reshard_after_forward": 2}
    step = predict_rank(scenario(model=timed(2, 0, 0), parallel=parallel, network=network))
    gathers = [in_ms(one.end_ns - one.begin_ns) for one in step.collectives if one.purpose is Purpose.UNSHARD]
    assert gathers == [40, 40, 5, 5]


@pytest.mark.parametrize(
    "parallel",
    [
        {"kind": "fsdp2", "shards": 2, "replicas": 2},
        {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"},
    ],
)
def test_hybrid_sharding_reduces_on_two_tiers(scenario: Make, parallel: dict[str, object]) -> None:
    """Shards are on one node, replicas on two: 5 ms for each gather and scatter, 40 ms for each all-reduce."""
    network = link(5, 0, between_nodes={"ranks_per_node": 2, "latency_us": 40_000.0, "bandwidth_gb_per_s": 1e9})
    step = predict_rank(scenario(model=timed(3, 10, 20), parallel=parallel, network=network))
    tiers = {(one.operation, in_ms(one.end_ns - one.begin_ns)) for one in step.collectives}
    assert tiers == {(Operation.ALL_GATHER, 5), (Operation.REDUCE_SCATTER, 5), (Operation.ALL_REDUCE, 40)}
    assert in_ms(step.step_ns) == 3 * (10 + 20) + 6 * 5 + 3 * 5 + 3 * 40  # all of it blocks


def test_groups_of_their_own_hide_nothing_on_a_shared_lane(scenario: Make) -> None:
    """Scatters of a group of their own run beside the gather that was prefetched, unless the lane is one for all."""

    def step_ms(lanes: str) -> float:
        parallel = {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "separate_reduce_scatter_group": True}
        asked = scenario(model=timed(3, 0, 20), parallel=parallel, network=link(30, 0, lanes=lanes))
        return in_ms(predict_rank(asked).backward_ns)

    assert step_ms("shared") == 200
    assert step_ms("per_group") == 180


@pytest.mark.parametrize("prefetch", ["BACKWARD_PRE", "BACKWARD_POST", None])
@pytest.mark.parametrize("forward_prefetch", [False, True])
def test_fsdp1_blocks_whatever_is_prefetched(scenario: Make, prefetch: str | None, forward_prefetch: object) -> None:
    parallel = {"kind": "fsdp1", "shards": 2, "backward_prefetch": prefetch, "forward_prefetch": forward_prefetch}
    step = predict_rank(scenario(model=timed(4, 10, 20), parallel=parallel, network=link(15, 0)))
    assert in_ms(step.step_ns) == 4 * (10 + 20) + 3 * 4 * 15
    assert in_ms(step.exposed_comm_ns) == 3 * 4 * 15


def test_fsdp1_gathers_ahead_in_the_order_that_was_asked(scenario: Make) -> None:
    def owners(prefetch: str | None) -> list[str]:
        parallel = {"kind": "fsdp1", "shards": 2, "backward_prefetch": prefetch}
        step = predict_rank(scenario(model=timed(3, 10, 20), parallel=parallel, network=link(15, 0)))
        letters = {Operation.ALL_GATHER: "g", Operation.REDUCE_SCATTER: "r"}
        return [letters[one.operation] + one.owner[-1] for one in step.collectives[3:]]

    assert owners("BACKWARD_PRE") == ["g2", "g1", "r2", "g0", "r1", "r0"]
    assert owners("BACKWARD_POST") == ["g2", "g1", "r2", "g0", "r1", "r0"]
    assert owners(None) == ["g2", "r2", "g1", "r1", "g0", "r0"]


def test_the_others_wait_for_a_slow_rank(scenario: Make) -> None:
    """Rank 1 takes twice as long; each bucket's all-reduce begins when it has issued it."""
    asked = scenario(
        model=timed(4, 0, 20, slow_rank={"rank": 1, "factor": 2.0}),
        parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0},
        network=link(15, 0),
    )
    fast, slow = predict_rank(asked, 0), predict_rank(asked, 1)
    assert (in_ms(fast.step_ns), in_ms(slow.step_ns)) == (4 * 40 + 15, 4 * 40 + 15)
    assert (in_ms(fast.compute_ns), in_ms(slow.compute_ns)) == (80, 160)
    waits = [(in_ms(one.issue_ns), in_ms(one.begin_ns), in_ms(one.queued_ns)) for one in fast.collectives]
    assert waits == [(20, 40, 0), (40, 80, 15), (60, 120, 35), (80, 160, 55)]
    assert [in_ms(one.skew_ns) for one in fast.collectives] == [20, 25, 25, 25]
    assert {one.skew_ns for one in slow.collectives} == {0}
    assert in_ms(fast.exposed_comm_ns) == 4 * 20 + 15, "its lane is never idle once it has issued its first bucket"
    assert [one.cause for one in fast.collectives[2:]] == [Cause.SKEW, Cause.SKEW]
    assert in_ms(slow.exposed_comm_ns) == 15


def test_a_slow_rank_of_the_link_slows_its_groups_only(scenario: Make) -> None:
    asked = scenario(
        model=timed(2, 0, 20),
        parallel={"kind": "fsdp2", "shards": 2, "replicas": 2},
        network=link(10, 0, slow_rank={"rank": 3, "factor": 2.0}),
    )

    def gathers(rank: int) -> set[float]:
        step = predict_rank(asked, rank)
        return {in_ms(one.end_ns - one.begin_ns) for one in step.collectives if one.purpose is Purpose.UNSHARD}

    assert (gathers(0), gathers(3)) == ({10.0}, {20.0})


def test_arms_take_communication_away_or_wait_for_all_of_it(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}
    asked = scenario(model=timed(6, 10, 20), parallel=parallel, network=link(15, 0))
    removed, full, serial = (predict_rank(asked, arm=arm) for arm in (Arm.REMOVED, Arm.FULL, Arm.SERIAL))
    assert [in_ms(step.step_ns) for step in (removed, full, serial)] == [180, 195, 180 + 6 * 15]
    assert removed.collectives == ()
    assert serial.hidden_comm_ns == 0


def test_clipping_completes_the_norm_before_the_update(scenario: Make) -> None:
    asked = scenario(
        model=timed(2, 0, 20),
        parallel={"kind": "fsdp2", "shards": 2},
        network=link(15, 0),
        gradient_clip_norm=1.0,
    )
    step = predict_rank(asked)
    assert in_ms(step.optimizer_ns) == 15
    assert step.collectives[-1].purpose is Purpose.OTHER
    assert step.collectives[-1].cause is Cause.UNKNOWN


def test_every_rank_of_a_uniform_job_is_rank_zero(scenario: Make) -> None:
    """One rank alone stands for all; made slower by nothing, several give the same."""
    parallel = {"kind": "fsdp2", "shards": 2, "replicas": 2, "unshard_async_op": True, "forward_prefetch": 1}
    asked = scenario(model=timed(3, 10, 20), parallel=parallel, network=link(15, 5))
    plan = plan_of(asked)
    costs = known_costs(asked, plan)
    alone = predict_step(asked, plan, costs)
    barely = timed(3, 10, 20, slow_rank={"rank": 3, "factor": 1.0000001})
    several = predict_step(
        scenario(model=barely, parallel=parallel, network=link(15, 5)),
        plan,
        known_costs(scenario(model=barely, parallel=parallel, network=link(15, 5)), plan),
    )
    assert (len(alone.ranks), len(several.ranks)) == (1, 4)
    assert abs(several.step_ns - alone.step_ns) <= 100
    assert alone.of(3) is alone.of(0)


@pytest.mark.parametrize(
    ("ready", "issued_ms", "step_ms"), [((), [20, 20, 40, 40], 48), ((1.0, 0.5), [10, 20, 30, 40], 44)]
)
def test_a_bucket_is_reduced_when_its_gradients_are_there_though_their_block_goes_on(
    scenario: Make, ready: tuple[float, ...], issued_ms: list[int], step_ms: int
) -> None:
    """Two blocks of 20 ms, a bucket for each of their matrices, of which the last is there after half of its block."""
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5}
    asked = scenario(model=timed(2, 0, 20), parallel=parallel, network=link(4, 0))
    plan = plan_of(asked)
    costs = same_costs(Costs((UnitCosts(0, 20 * NS_PER_MS, ready=ready),) * 2), plan)
    step = predict_step(asked, plan, costs).of(0)
    assert [in_ms(one.issue_ns) for one in step.collectives] == issued_ms
    assert in_ms(step.step_ns) == step_ms
    assert in_ms(step.compute_ns) == 40

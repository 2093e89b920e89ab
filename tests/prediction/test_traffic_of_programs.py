"""What programs issue is what plans say must cross the wire, whatever the strategy: two ways to the same numbers."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import Costs, UnitCosts, same_costs
from dtbench.prediction.predict import predict_step
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import link, plan_of, timed

Make = Callable[..., Scenario]
Lines = dict[tuple[Purpose, Axis, Operation], tuple[int, int]]

STRATEGIES: list[dict[str, Any]] = [
    {"kind": "ddp", "replicas": 2},
    {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0},
    {"kind": "ddp", "replicas": 2, "bucket_cap_mb_list": [0.5, 1.0]},
    {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "fp16_compress"}},
    {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "allreduce"}, "tensor": 2},
    {"kind": "fsdp1", "shards": 2},
    {"kind": "fsdp1", "shards": 2, "use_orig_params": True, "forward_prefetch": True},
    {"kind": "fsdp1", "shards": 2, "sharding_strategy": "SHARD_GRAD_OP", "backward_prefetch": "BACKWARD_POST"},
    {"kind": "fsdp1", "shards": 2, "sharding_strategy": "NO_SHARD"},
    {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"},
    {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "_HYBRID_SHARD_ZERO2"},
    {"kind": "fsdp1", "shards": 2, "tensor": 2},
    {"kind": "fsdp2", "shards": 2},
    {"kind": "fsdp2", "shards": 2, "reshard_after_forward": False},
    {"kind": "fsdp2", "shards": 2, "reshard_after_forward": True},
    {"kind": "fsdp2", "shards": 4, "reshard_after_forward": 2},
    {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 2, "backward_prefetch": 2},
    {"kind": "fsdp2", "shards": 2, "separate_reduce_scatter_group": True},
    {"kind": "fsdp2", "shards": 2, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}},
    {"kind": "fsdp2", "shards": 2, "replicas": 2},
    {"kind": "fsdp2", "shards": 2, "tensor": 2},
]


def planned(plan: Plan) -> Lines:
    sizes = {axis.name: axis.size for axis in plan.mesh}
    return {
        (line.purpose, line.axis, line.operation): (line.count, line.size_bytes)
        for line in plan.traffic or ()
        if sizes.get(line.axis, 1) > 1
    }


def issued(asked: Scenario, plan: Plan, blocks: int) -> Lines:
    costs = same_costs(Costs((UnitCosts(10, 20),) * blocks), plan)
    counts: Counter[tuple[Purpose, Axis, Operation]] = Counter()
    sizes: Counter[tuple[Purpose, Axis, Operation]] = Counter()
    for one in predict_step(asked, plan, costs).of(0).collectives:
        counts[one.purpose, one.axis, one.operation] += 1
        sizes[one.purpose, one.axis, one.operation] += one.size_bytes
    return {key: (count, sizes[key]) for key, count in counts.items()}


@pytest.mark.parametrize("parallel", STRATEGIES, ids=str)
def test_a_timed_model_issues_what_was_planned(scenario: Make, parallel: dict[str, Any]) -> None:
    asked = scenario(model=timed(3, 10, 20), parallel=parallel, network=link(1, 1))
    assert issued(asked, plan_of(asked), 3) == planned(plan_of(asked))


@pytest.mark.parametrize("parallel", [one for one in STRATEGIES if "tensor" not in one], ids=str)
@pytest.mark.parametrize(
    "accumulation", [{"micro_batches": 1}, {"micro_batches": 3}, {"micro_batches": 2, "sync": "every"}]
)
def test_a_root_that_holds_parameters_is_a_unit_too(
    scenario: Make, parallel: dict[str, Any], accumulation: dict[str, Any]
) -> None:
    asked = scenario(
        parallel=parallel,
        network=link(1, 1),
        accumulation=accumulation,
        data={"global_batch": 24, "sequence_length": 32},
    )
    assert issued(asked, plan_of(asked), 2) == planned(plan_of(asked))


@pytest.mark.parametrize("parallel", STRATEGIES, ids=str)
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_micro_batches_of_a_timed_model_issue_what_was_planned(
    scenario: Make, parallel: dict[str, Any], micro_batches: int
) -> None:
    asked = scenario(
        model=timed(3, 10, 20),
        parallel=parallel,
        network=link(1, 1),
        accumulation={"micro_batches": micro_batches},
        data={"global_batch": 24, "sequence_length": 32},
    )
    assert issued(asked, plan_of(asked), 3) == planned(plan_of(asked))


def test_reductions_within_shards_leave_the_replicas_to_the_last_micro_batch(scenario: Make) -> None:
    asked = scenario(
        parallel={"kind": "fsdp2", "shards": 2, "replicas": 2},
        network=link(1, 1),
        accumulation={"micro_batches": 2, "sync": "reduce_scatter"},
    )
    assert issued(asked, plan_of(asked), 2) == planned(plan_of(asked))


def test_parameters_kept_between_micro_batches_are_gathered_once_for_all_forwards(scenario: Make) -> None:
    asked = scenario(
        parallel={"kind": "fsdp2", "shards": 2, "reshard_after_backward": False},
        network=link(1, 1),
        accumulation={"micro_batches": 2},
    )
    assert issued(asked, plan_of(asked), 2) == planned(plan_of(asked))


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("knobs", [{}, {"reshard_after_forward": False}, {"unshard_async_op": True}], ids=str)
def test_what_backward_does_not_need_is_gathered_in_forward_only(
    scenario: Make, knobs: dict[str, Any], micro_batches: int
) -> None:
    """A layer of 16 x 16 numbers of 4 bytes each; the first of three is not gathered in backward."""
    asked = scenario(
        model={"kind": "mlp", "layers": 3, "dim": 16, "hidden_dim": None, "bias": False},
        parallel={"kind": "fsdp2", "shards": 2, "needless_in_backward": ["layers.0"], **knobs},
        network=link(1, 1),
        accumulation={"micro_batches": micro_batches},
        data={"global_batch": 24, "sequence_length": 32},
    )
    lines = planned(plan_of(asked))
    assert issued(asked, plan_of(asked), 3) == lines
    again = micro_batches - 1  # of the last block, for nobody
    gathers = (3 if "reshard_after_forward" in knobs else 5) * micro_batches + again
    assert lines[Purpose.UNSHARD, Axis.SHARD, Operation.ALL_GATHER] == (gathers, gathers * 16 * 16 * 4)


@pytest.mark.parametrize("parallel", [one for one in STRATEGIES if one["kind"] == "fsdp2"], ids=str)
def test_clipping_exchanges_what_was_planned(scenario: Make, parallel: dict[str, Any]) -> None:
    asked = scenario(model=timed(3, 10, 20), parallel=parallel, network=link(1, 1), gradient_clip_norm=1.0)
    assert issued(asked, plan_of(asked), 3) == planned(plan_of(asked))
    assert any(purpose is Purpose.OTHER for purpose, _, _ in planned(plan_of(asked)))


@pytest.mark.ranks
def test_ranks_gather_the_last_block_once_more_after_several_micro_batches(
    scenario: Make, launch: Callable[..., Any]
) -> None:
    mlp = {"kind": "mlp", "layers": 3, "dim": 16, "hidden_dim": 16, "bias": False}
    asked = scenario(
        model=mlp,
        parallel={"kind": "fsdp2", "shards": 2},
        accumulation={"micro_batches": 2},
        network=link(1, 0),
    )
    plan = plan_of(asked)
    lines = issued(asked, plan, 3)
    assert lines == planned(plan)
    got = {(row.purpose, row.axis, row.operation): (row.count, row.size_bytes) for row in launch(asked).rank().traffic}
    assert got == lines
    assert got[Purpose.UNSHARD, Axis.SHARD, Operation.ALL_GATHER][0] == 2 * 2 * 3 + 1

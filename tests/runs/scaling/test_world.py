"""A cell at another number of ranks: which axis grows, and which numbers a mesh does not have."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.plan.plan import Machine, make_plan
from dtbench.runs.scaling.world import count_ranks, name_work, plan_world, put_at_world
from dtbench.scenario.schema.scenario import Scenario
from tests.runs.conftest import LINK, TIMED

Make = Callable[..., Scenario]


def timed(make: Make, parallel: dict[str, Any], **sections: Any) -> Scenario:
    return make(**{"model": TIMED, "network": LINK, "parallel": parallel, **sections})


@pytest.mark.parametrize(
    ("parallel", "grown"),
    [
        ({"kind": "ddp", "replicas": 2}, {"replicas": 64}),
        ({"kind": "ddp", "replicas": 2, "tensor": 4}, {"replicas": 16, "tensor": 4}),
        ({"kind": "fsdp1", "shards": 2}, {"shards": 64, "replicas": 1}),
        ({"kind": "fsdp2", "shards": 2, "tensor": 2}, {"shards": 32, "replicas": 1, "tensor": 2}),
        ({"kind": "fsdp2", "shards": 2, "replicas": 2}, {"shards": 2, "replicas": 32}),
        ({"kind": "fsdp2", "shards": 8, "replicas": 2, "tensor": 2}, {"shards": 8, "replicas": 4, "tensor": 2}),
    ],
)
def test_replicas_grow_or_shards_and_the_rest_stays(
    scenario: Make, parallel: dict[str, Any], grown: dict[str, int]
) -> None:
    asked = timed(scenario, parallel, data={"global_batch": 48, "sequence_length": 8})
    made = put_at_world(asked, 64)
    assert count_ranks(made) == 64
    assert {name: getattr(made.parallel, name) for name in grown} == grown
    before, after = (make_plan(one, Machine(cpu_cores=2, cuda_devices=0)) for one in (asked, made))
    assert before.rows_per_rank == after.rows_per_rank
    assert after.ranks == 64
    assert put_at_world(made, count_ranks(asked)) == asked


@pytest.mark.parametrize(
    ("parallel", "world", "said"),
    [
        (
            {"kind": "ddp", "replicas": 2, "tensor": 4},
            10,
            "10 ranks do not divide into its mesh: parallel.tensor=4 needs a multiple of 4; the nearest are 8 and 12",
        ),
        ({"kind": "fsdp2", "shards": 2, "tensor": 4}, 1, "a multiple of 4; the nearest is 4"),
        (
            {"kind": "fsdp2", "shards": 8, "replicas": 2, "tensor": 2},
            40,
            r"parallel.shards=8 x parallel.tensor=2 needs a multiple of 16, at least 32; the nearest are 32 and 48",
        ),
        ({"kind": "fsdp2", "shards": 8, "replicas": 2}, 8, "at least 16; the nearest is 16"),
    ],
)
def test_a_number_that_a_mesh_has_not_names_the_nearest(
    scenario: Make, parallel: dict[str, Any], world: int, said: str
) -> None:
    asked = timed(scenario, parallel, data={"global_batch": 48, "sequence_length": 8})
    with pytest.raises(PredictionError, match=said):
        put_at_world(asked, world)


def test_what_cannot_run_anywhere_is_a_sentence(scenario: Make) -> None:
    asked = timed(scenario, {"kind": "ddp", "replicas": 2})
    slow = asked.model_copy(
        update={"model": asked.model.model_validate({**TIMED, "slow_rank": {"rank": 7, "factor": 2.0}})}
    )
    assert plan_world(put_at_world(slow, 8), None).ranks == 8
    with pytest.raises(PredictionError, match="slow_rank"):
        plan_world(put_at_world(slow, 4), None)


def test_the_same_work_has_one_name_whatever_the_number_of_ranks(scenario: Make) -> None:
    two, four = (timed(scenario, {"kind": "ddp", "replicas": count}) for count in (2, 4))
    assert name_work(two) == name_work(four)
    again = timed(scenario, {"kind": "ddp", "replicas": 2}, repeat=4, measure={"measured_steps": 9})
    assert name_work(again) == name_work(two)
    others = [
        timed(scenario, {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}),
        timed(scenario, {"kind": "ddp", "replicas": 2}, model={**TIMED, "backward_ms": 30.0}),
        timed(scenario, {"kind": "ddp", "replicas": 2}, network={**LINK, "latency_us": 1.0}),
        timed(scenario, {"kind": "fsdp2", "shards": 2}),
    ]
    assert len({name_work(one) for one in (two, *others)}) == 5
    rows = [
        timed(scenario, {"kind": "ddp", "replicas": 2, "tensor": 2}, data={"global_batch": count, "sequence_length": 8})
        for count in (4, 8)
    ]
    assert len({name_work(one) for one in rows}) == 2  # their blocks exchange them

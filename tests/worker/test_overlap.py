"""What a strategy says about whether its communication can be hidden."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.ddp import CustomHook
from dtbench.scenario.schema.scenario import Ddp, Fsdp2, Scenario
from dtbench.store.records.traffic import OverlapPossible, Traffic

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")


def gradients_overlap(*, buckets: int, count_async: int, **knobs: Any) -> tuple[bool, str]:
    from dtbench.worker.parallelize.ddp_receipts import read_ddp_overlap

    issued = Traffic(
        purpose=Purpose.GRAD_REDUCE,
        axis=Axis.REPLICATE,
        operation=Operation.ALL_REDUCE,
        count=buckets,
        size_bytes=8 * buckets,
        count_async=count_async,
    )
    rows = read_ddp_overlap(Ddp(kind="ddp", replicas=2, **knobs), (8,) * buckets, (issued,), clips=False)
    assert {row.purpose for row in rows} == {Purpose.GRAD_REDUCE} | ({Purpose.TENSOR} if "tensor" in knobs else set())
    return rows[0].possible, rows[0].reason


def test_several_asynchronous_buckets_can_be_hidden() -> None:
    assert gradients_overlap(buckets=3, count_async=3) == (True, "3 buckets, each all-reduced while backward goes on")


@pytest.mark.parametrize(
    ("buckets", "count_async", "knobs", "why"),
    [
        (3, 2, {}, "synchronously"),
        (1, 1, {}, "one bucket"),
        (3, 3, {"tensor": 2}, "only when backward is over"),
        (3, 3, {"python_reducer": True}, "waits for its all-reduce"),
    ],
)
def test_what_cannot_be_hidden_says_why(buckets: int, count_async: int, knobs: dict[str, Any], why: str) -> None:
    possible, reason = gradients_overlap(buckets=buckets, count_async=count_async, **knobs)
    assert not possible
    assert why in reason


@pytest.mark.parametrize(
    ("knobs", "operation", "possible", "why"),
    [
        ({}, Operation.BROADCAST, False, "rank 0's buffers"),
        ({"buffer_comm_hook": {"location": "pre_forward"}}, Operation.ALL_REDUCE, False, "waits for the averaged"),
        ({"buffer_comm_hook": {"location": "post_forward"}}, Operation.ALL_REDUCE, True, "beside backward"),
        ({"join": {}}, Operation.BROADCAST, False, "who still has rows"),
    ],
)
def test_what_else_ddp_sends_is_hidden_only_where_nobody_waits_for_it(
    knobs: dict[str, Any], operation: Operation, possible: bool, why: str
) -> None:
    from dtbench.worker.parallelize.ddp_receipts import read_ddp_overlap

    issued = Traffic(
        purpose=Purpose.OTHER, axis=Axis.REPLICATE, operation=operation, count=1, size_bytes=8, count_async=0
    )
    rows = read_ddp_overlap(Ddp.model_validate({"kind": "ddp", "replicas": 2, **knobs}), (8, 8), (issued,), clips=False)
    (other,) = [row for row in rows if row.purpose is Purpose.OTHER]
    assert other.possible is possible
    assert why in other.reason


def fsdp2_overlap(
    make_scenario: Callable[..., Scenario], *, asynchronous: bool, **knobs: Any
) -> dict[Purpose, tuple[bool, str]]:
    """Say what can overlap on gloo, whose reduce-scatters are never asynchronous."""
    from dtbench.worker.parallelize.fsdp2 import read_fsdp2_overlap

    parallel = Fsdp2(kind="fsdp2", shards=2, unshard_async_op=asynchronous, **knobs)
    scenario = make_scenario(parallel=parallel.model_dump(mode="json"))
    operations = {Purpose.UNSHARD: Operation.ALL_GATHER, Purpose.GRAD_REDUCE: Operation.REDUCE_SCATTER}
    issued = tuple(
        Traffic(
            purpose=purpose,
            axis=Axis.SHARD,
            operation=operation,
            count=3,
            size_bytes=24,
            count_async=3 if asynchronous and purpose is Purpose.UNSHARD else 0,
        )
        for purpose, operation in operations.items()
    )
    rows = read_fsdp2_overlap(parallel, make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0)), issued, clips=True)
    return {row.purpose: (row.possible, row.reason) for row in rows}


def test_fsdp2_as_torch_has_it_hides_nothing_on_gloo(scenario: Callable[..., Scenario]) -> None:
    found = fsdp2_overlap(scenario, asynchronous=False, forward_prefetch=1)
    blocked = (False, "gloo issues FSDP2's collectives synchronously")
    assert (found[Purpose.UNSHARD], found[Purpose.GRAD_REDUCE]) == (blocked, blocked)


@pytest.mark.parametrize(
    ("knobs", "where", "what"),
    [
        ({"forward_prefetch": 1}, "prefetched in forward and backward", "reduce-scatters"),
        ({}, "prefetched in backward only: forward has no prefetch", "reduce-scatters"),
        (
            {"forward_prefetch": 1, "replicas": 2},
            "prefetched in forward and backward",
            "reduce-scatters and all-reduces",
        ),
    ],
)
def test_fsdp2_hides_gathers_on_gloo_once_they_are_asynchronous(
    scenario: Callable[..., Scenario], knobs: dict[str, Any], where: str, what: str
) -> None:
    found = fsdp2_overlap(scenario, asynchronous=True, **knobs)
    assert found[Purpose.UNSHARD] == (True, f"async_op=True, {where}")
    assert found[Purpose.GRAD_REDUCE] == (False, f"gloo issues FSDP2's {what} synchronously")


def other(operation: Operation, axis: Axis | None, count: int = 1) -> Traffic:
    """Return collectives of purpose other, issued in one step."""
    return Traffic(
        purpose=Purpose.OTHER, axis=axis, operation=operation, count=count, size_bytes=8 * count, count_async=0
    )


def reason_of(notes: tuple[OverlapPossible, ...]) -> str | None:
    """Return what is said of purpose other; None: nothing."""
    return next((note.reason for note in notes if note.purpose is Purpose.OTHER), None)


CLIPS = "gradient clipping needs the norm before it can go on"
NORM = other(Operation.ALL_REDUCE, Axis.SHARD)


@pytest.mark.parametrize(
    ("clips", "issued", "reason"),
    [
        (True, [NORM], CLIPS),
        (True, [NORM, other(Operation.ALL_REDUCE, Axis.TENSOR)], CLIPS),
        (False, [NORM], None),
        (True, [other(Operation.ALL_REDUCE, Axis.SHARD, 2)], None),
        (True, [NORM, other(Operation.ALL_REDUCE, None)], None),
        (True, [NORM, other(Operation.ALL_GATHER, Axis.SHARD)], None),
    ],
    ids=str,
)
def test_clipping_is_the_reason_where_gradients_are_clipped_and_nothing_else_was_issued(
    scenario: Any, clips: bool, issued: list[Traffic], reason: str | None
) -> None:
    from dtbench.worker.parallelize.fsdp2 import read_fsdp2_overlap

    wanted = scenario(parallel={"kind": "fsdp2", "shards": 2})
    assert isinstance(wanted.parallel, Fsdp2)
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    assert reason_of(read_fsdp2_overlap(wanted.parallel, plan, tuple(issued), clips=clips)) == reason


HOOK = CustomHook(kind="custom", function="hooks:mine")


@pytest.mark.parametrize(
    ("knobs", "issued", "reason"),
    [
        ({}, [other(Operation.BROADCAST, Axis.REPLICATE)], "forward waits for rank 0's buffers"),
        ({}, [other(Operation.ALL_REDUCE, Axis.REPLICATE, 3)], None),
        ({"comm_hook": HOOK}, [other(Operation.ALL_REDUCE, Axis.REPLICATE, 3)], None),
        ({"comm_hook": HOOK}, [other(Operation.BROADCAST, Axis.REPLICATE)], None),
        ({"tensor": 2}, [], None),
    ],
    ids=str,
)
def test_nothing_is_said_of_what_a_hook_of_ones_own_sends_beside_gradients(
    scenario: Any, knobs: dict[str, Any], issued: list[Traffic], reason: str | None
) -> None:
    from dtbench.worker.parallelize.ddp_receipts import read_ddp_overlap

    parallel = scenario(parallel={"kind": "ddp", "replicas": 2}).parallel.model_copy(update=knobs)
    assert isinstance(parallel, Ddp)
    notes = read_ddp_overlap(parallel, (8, 8), tuple(issued), clips=False)
    assert reason_of(notes) == reason
    inline = [note.purpose for note in notes if note.purpose is Purpose.TENSOR]
    assert inline == [Purpose.TENSOR] * (parallel.tensor > 1)

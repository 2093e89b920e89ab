"""Whether what is neither weight nor gradient can be hidden: a reason only for what was surely issued for it."""

from typing import Any

import pytest

from dtbench.plan import Machine, make_plan
from dtbench.scenario.ddp import CustomHook, Ddp
from dtbench.scenario.schema import Fsdp2
from dtbench.store.traffic_records import OverlapPossible, Traffic
from dtbench.vocabulary import Axis, Operation, Purpose
from dtbench.worker.parallelize.ddp_receipts import read_ddp_overlap
from dtbench.worker.parallelize.fsdp2 import read_fsdp2_overlap

CLIPS = "gradient clipping needs the norm before it can go on"
BUFFERS = "forward waits for rank 0's buffers"


def other(operation: Operation, axis: Axis | None, count: int = 1) -> Traffic:
    """Give collectives of purpose other, issued in one step."""
    return Traffic(
        purpose=Purpose.OTHER, axis=axis, operation=operation, count=count, size_bytes=8 * count, count_async=0
    )


def reason_of(notes: tuple[OverlapPossible, ...]) -> str | None:
    """Give what is said of purpose other; None: nothing."""
    return next((note.reason for note in notes if note.purpose is Purpose.OTHER), None)


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
    wanted = scenario(parallel={"kind": "fsdp2", "shards": 2})
    assert isinstance(wanted.parallel, Fsdp2)
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    assert reason_of(read_fsdp2_overlap(wanted.parallel, plan, tuple(issued), clips=clips)) == reason


HOOK = CustomHook(kind="custom", function="hooks:mine")


@pytest.mark.parametrize(
    ("knobs", "issued", "reason"),
    [
        ({}, [other(Operation.BROADCAST, Axis.REPLICATE)], BUFFERS),
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
    parallel = scenario(parallel={"kind": "ddp", "replicas": 2}).parallel.model_copy(update=knobs)
    assert isinstance(parallel, Ddp)
    notes = read_ddp_overlap(parallel, (8, 8), tuple(issued), clips=False)
    assert reason_of(notes) == reason
    inline = [note.purpose for note in notes if note.purpose is Purpose.TENSOR]
    assert inline == [Purpose.TENSOR] * (parallel.tensor > 1)

"""What a strategy says about whether its communication can be hidden."""

from typing import Any

import pytest

from dtbench.scenario.schema import Ddp
from dtbench.store.records import Traffic
from dtbench.vocabulary import Axis, Operation, Purpose

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")


def gradients_overlap(*, buckets: int, count_async: int, **knobs: Any) -> tuple[bool, str]:
    from dtbench.worker.parallelize.ddp import read_ddp_overlap

    issued = Traffic(
        purpose=Purpose.GRAD_REDUCE,
        axis=Axis.REPLICATE,
        operation=Operation.ALL_REDUCE,
        count=buckets,
        size_bytes=8 * buckets,
        count_async=count_async,
    )
    rows = read_ddp_overlap(Ddp(kind="ddp", replicas=2, **knobs), (8,) * buckets, (issued,))
    assert {row.purpose for row in rows} == {Purpose.GRAD_REDUCE, Purpose.OTHER} | (
        {Purpose.TENSOR} if "tensor" in knobs else set()
    )
    return rows[0].possible, rows[0].reason


def test_several_asynchronous_buckets_can_be_hidden() -> None:
    assert gradients_overlap(buckets=3, count_async=3) == (True, "3 buckets, each all-reduced while backward goes on")


@pytest.mark.parametrize(
    ("buckets", "count_async", "knobs", "why"),
    [
        (3, 2, {}, "synchronously"),
        (1, 1, {}, "one bucket"),
        (3, 3, {"tensor": 2}, "only when backward is over"),
    ],
)
def test_what_cannot_be_hidden_says_why(buckets: int, count_async: int, knobs: dict[str, Any], why: str) -> None:
    possible, reason = gradients_overlap(buckets=buckets, count_async=count_async, **knobs)
    assert not possible
    assert why in reason

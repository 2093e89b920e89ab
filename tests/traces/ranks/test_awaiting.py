"""Who waits for whom where one rank gives or gets all: not every rank for the last to begin."""

from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.over_ranks import compare_ranks

STARTS_US = (0, 10, 30)
TOGETHER = (50, 50, 50)
NOBODY = (None, None, None)


@pytest.mark.parametrize("is_told", [True, False], ids=["ranks told", "all ranks are there"])
@pytest.mark.parametrize(
    ("operation", "root", "ends_us", "waits_us"),
    [
        (Operation.BROADCAST, 2, TOGETHER, (30, 20, None)),  # the root came last, and waits for none
        (Operation.BROADCAST, 0, TOGETHER, NOBODY),  # rank 1 may wait for rank 2, or not
        (Operation.BROADCAST, 0, (5, 15, 35), NOBODY),
        (Operation.BROADCAST, None, TOGETHER, NOBODY),
        (Operation.SCATTER, 2, TOGETHER, (30, 20, None)),
        (Operation.REDUCE, 0, TOGETHER, (30, None, None)),
        (Operation.REDUCE, 0, (50, 15, 35), (30, None, None)),  # who gives may go before others come
        (Operation.REDUCE, 2, TOGETHER, (None, None, 0)),
        (Operation.GATHER, 1, TOGETHER, (None, 20, None)),
        (Operation.GATHER, 7, TOGETHER, NOBODY),
    ],
)
def test_who_waits_for_the_last_to_begin_depends_on_operation_and_root(
    jobs: Any,
    operation: Operation,
    root: int | None,
    ends_us: tuple[int, ...],
    waits_us: tuple[int | None, ...],
    *,
    is_told: bool,
) -> None:
    ranks = (0, 1, 2) if is_told else ()
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(
                    start * 1000, end * 1000, operation=operation, group="0", seq=1,
                    group_ranks=ranks, group_size=3, root=root,
                )
            ],
            host="one",
            world_size=3,
        )
        for rank, (start, end) in enumerate(zip(STARTS_US, ends_us, strict=True))
    ]  # fmt: skip
    found = compare_ranks(timelines)
    waits_ns = tuple(None if wait is None else wait * 1000 for wait in waits_us)
    assert tuple(found.collectives[rank][0].skew_wait_ns for rank in range(3)) == waits_ns
    is_known = waits_us != NOBODY
    assert {found.collectives[rank][0].last_rank for rank in range(3)} == {2 if is_known else None}
    assert (found.waiting.collectives, found.waiting.unknown) == ((1, 0) if is_known else (0, 1))
    late = found.waiting.straggler
    caused_ns = sum(wait or 0 for wait in waits_ns)
    if operation is Operation.REDUCE and caused_ns:  # its root would have waited 10 us for rank 1 as well
        caused_ns -= 10_000
    assert (late and (late.rank, late.last, late.caused_wait_ns)) == ((2, 1, caused_ns) if caused_ns else None)

"""Who leaves a barrier, or a sum, long after another rank was woken late: data did not keep it."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.words.trace_words import advise_traces
from dtbench.traces.job.foreign import analyze_traces

Draw = Callable[..., Path]
SIZES = '{"Input Dims": [[4]], "Input type": ["float"]}'


def draw_ranks(draw: Draw, operation: str, *, late_us: int, first_us: int = 16, host: str = "one") -> list[Path]:
    """Draw two ranks: one enters at 2 us, the other at 12 us; the first leaves at 16 us, the other later."""
    paths = []
    for rank, (enter, leave) in enumerate(((2, first_us), (12, first_us + late_us))):
        span = " " * (enter + 1) + "=" * (leave - enter - 1)
        paths.append(
            draw(
                f"""
                step ProfilerStep#1    @1 |{"=" * 120}|
                op aten::mm            @1 |{"=" * enter}|
                op c10d::{operation} @1 |{" " * enter}=|
                range gloo:{operation.rstrip("_").replace("allr", "all_r").replace("allg", "all_g")} @2 |{span}| {SIZES}
                op aten::mm            @1 |{" " * leave}===|
                """,
                f"rank{rank}.json",
                distributedInfo={"rank": rank, "world_size": 2},
                host_name="one" if rank == 0 else host,
            )
        )
    return paths


@pytest.mark.parametrize(
    ("operation", "late_us", "first_us", "rest"),
    [
        ("barrier", 0, 16, {"sync_op": 2 * 3}),
        ("barrier", 40, 16, {"sync_op": 2 * 3, "unknown": 40}),
        ("allreduce_", 40, 16, {"sync_op": 2 * 3, "unknown": 40}),
        ("allreduce_", 23, 16, {"sync_op": 2 * 3 + 23}),  # no more than it took, and ends of all ranks lie apart
        ("allreduce_", 40, 36, {"sync_op": 2 * 23 + 40}),
        ("allgather_", 40, 16, {"sync_op": 2 * 3 + 40}),  # over a slow link to this rank alone
    ],
)
def test_what_a_rank_spends_alone_in_a_barrier_or_a_sum_is_no_transfer(
    draw: Draw, operation: str, late_us: int, first_us: int, rest: dict[str, int]
) -> None:
    traces = analyze_traces(draw_ranks(draw, operation, late_us=late_us, first_us=first_us))
    found: dict[str, int] = {}
    for row in traces.owners:
        found[str(row.cause)] = found.get(str(row.cause), 0) + row.exposed_ns // 1000
    assert found == {"skew": 10, **rest}
    missing = [row.missing for row in traces.owners if row.cause is Cause.UNKNOWN]
    assert missing == ([(MissingInput.WAKING,)] if "unknown" in rest else [])
    said = " ".join(one.words for one in advise_traces(traces))
    assert ("woken late" in said) is ("unknown" in rest)


def test_the_bandwidth_of_a_sum_that_a_thread_left_late_is_not_known_on_its_rank(draw: Draw) -> None:
    traces = analyze_traces(draw_ranks(draw, "allreduce_", late_us=40))
    found = [[(skew.transfer_ns, math.isnan(skew.algbw)) for skew in one.skews] for one in traces.analyses]
    assert found == [[(3_000, False)], [(43_000, True)]]

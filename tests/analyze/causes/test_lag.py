"""Who leaves a barrier late was woken late: a barrier carries nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.analyze.foreign import analyze_traces
from dtbench.report.trace_words import advise_traces
from dtbench.vocabulary import Cause, MissingInput

Draw = Callable[..., Path]
SIZES = '{"Input Dims": [[4]], "Input type": ["float"]}'


def draw_ranks(draw: Draw, operation: str, *, late_us: int, host: str = "one") -> list[Path]:
    """Draw two ranks: one enters at 2 us, the other at 12 us; the first leaves at 16 us, the other later."""
    paths = []
    for rank, (enter, leave) in enumerate(((2, 16), (12, 16 + late_us))):
        span = " " * (enter + 1) + "=" * (leave - enter - 1)
        paths.append(
            draw(
                f"""
                step ProfilerStep#1    @1 |{"=" * 80}|
                op aten::mm            @1 |{"=" * enter}|
                op c10d::{operation} @1 |{" " * enter}=|
                range gloo:{operation.rstrip("_").replace("allr", "all_r")} @2 |{span}| {SIZES}
                op aten::mm            @1 |{" " * leave}===|
                """,
                f"rank{rank}.json",
                distributedInfo={"rank": rank, "world_size": 2},
                host_name="one" if rank == 0 else host,
            )
        )
    return paths


@pytest.mark.parametrize(
    ("operation", "late_us", "rest"),
    [
        ("barrier", 0, {"sync_op": 2 * 3}),
        ("barrier", 40, {"sync_op": 2 * 3, "unknown": 40}),
        ("allreduce_", 40, {"sync_op": 2 * 3 + 40}),
    ],
)
def test_what_a_rank_spends_alone_in_a_barrier_is_no_transfer(
    draw: Draw, operation: str, late_us: int, rest: dict[str, int]
) -> None:
    traces = analyze_traces(draw_ranks(draw, operation, late_us=late_us))
    found: dict[str, int] = {}
    for row in traces.owners:
        found[str(row.cause)] = found.get(str(row.cause), 0) + row.exposed_ns // 1000
    assert found == {"skew": 10, **rest}
    missing = [row.missing for row in traces.owners if row.cause is Cause.UNKNOWN]
    assert missing == ([(MissingInput.WAKING,)] if "unknown" in rest else [])
    said = " ".join(one.words for one in advise_traces(traces))
    assert ("woken late" in said) is ("unknown" in rest)

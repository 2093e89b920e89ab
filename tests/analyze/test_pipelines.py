"""Sends and receives over gloo: pipelines and ring attention, recorded with torch's profiler alone."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.analyze.intervals import unite
from dtbench.analyze.overlap import Overlap
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace

SHARED = ("plain", "1f1b", "interleaved", "zero_bubble", "ring")
ACTIVATION_BYTES = 4 * 192 * 4  # of a micro-batch: 4 rows of 192 floats


@pytest.fixture
def pipelines(recorded: Path) -> Path:
    return recorded / "pipelines"


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def operators_ns(path: Path) -> tuple[int, ...]:
    """Time in each step with an operator of ATen open, read from the file itself."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    ran = [one for one in spans if one["cat"] == "cpu_op" and re.match(r"aten::|[a-z_]+$", one["name"])]
    borders = [_times_ns(one) for one in spans if one["name"].startswith("ProfilerStep")]
    starts, ends = np.array([_times_ns(one) for one in ran], dtype=np.int64).T
    return tuple(unite(starts, ends).covered_inside(np.array(sorted(borders), dtype=np.int64)))


def _times_ns(event: dict[str, Any]) -> tuple[int, int]:
    start_ns = round(event["ts"] * 1000)
    return start_ns, start_ns + round(event["dur"] * 1000)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_thread_that_sends_and_receives_still_computes(pipelines: Path, name: str, rank: int) -> None:
    path = pipelines / name / f"rank{rank}.json.gz"
    compute_ns = [step.overlap.compute_ns for step in analyze(path).steps]
    assert compute_ns == pytest.approx(operators_ns(path), abs=200)  # times of the file are to the nanosecond, rounded
    assert min(operators_ns(path)) > 300_000


@pytest.mark.parametrize("rank", [0, 1])
def test_every_activation_and_gradient_of_a_pipeline_is_counted(pipelines: Path, rank: int) -> None:
    counts = {"plain": (4, 2), "1f1b": (8, 1), "interleaved": (24, 1), "zero_bubble": (24, 1), "ring": (4, 4)}
    for name, (count, size) in counts.items():
        for step in analyze(pipelines / name / f"rank{rank}.json.gz").steps:
            (pipeline,) = step.purposes
            assert (str(pipeline.purpose), pipeline.count) == ("pipeline", count), name
            assert pipeline.size_bytes == count * size * ACTIVATION_BYTES, name


def test_what_is_sent_beside_compute_is_hidden_and_what_is_waited_for_is_exposed(draw: Callable[..., Path]) -> None:
    sent = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1      @1 |====================|
        op aten::mm              @1 |===                 |
        op c10d::send            @1 |    ==              | {sent}
        range gloo:send          @1 |     =========      | {moved}
        op aten::mm              @1 |        ===         |
        op c10d::recv_           @1 |              ==    | {sent}
        range gloo:recv          @1 |               ==== | {moved}
        """)
    )
    assert one.steps[0].overlap == Overlap(20000, 3000 + 3000, 9000 + 4000, 3000, 6000 + 4000, 0, 4000)


def test_without_steps_and_backward_the_thread_with_most_operators_computes_though_it_sends(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op aten::mm              @1 |=== ==     |
        op c10d::send            @1 |      ==   |
        range gloo:send          @1 |       === |
        range gloo:all_reduce    @2 |   ====    |
        op aten::copy_           @2 |   =       |
        """)
    )
    assert one.whole.compute_ns == 5000

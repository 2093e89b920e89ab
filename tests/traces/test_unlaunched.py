"""Operators that launch work in other steps and none in some: rows of calls lost with what they launched."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.lacking import LostCopies, LostKernels
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace

STEPS = """
step ProfilerStep#1       @1 |==========                    |
step ProfilerStep#2       @1 |          ==========          |
step ProfilerStep#3       @1 |                    ==========|
"""
MM = "op aten::mm               @1 | ==        ==        ==       |"
CALLED = "call cudaLaunchKernel     @1 | {0}         {1}         {2}        |"
RAN = "kernel gemm               @7 |   {0}         {1}         {2}      |"


def analyze(draw: Callable[..., Path], *lines: str) -> TraceAnalysis:
    return analyze_trace(read_trace(draw("\n".join((STEPS.strip(), *lines)))))


@pytest.mark.parametrize(
    ("lines", "operators", "steps"),
    [
        ((MM, CALLED.format(*"abc"), RAN.format(*"abc")), 0, []),
        ((MM, CALLED.format(*"a c"), RAN.format(*"a c")), 1, [1, 2]),
        ((MM, CALLED.format(*"a c"), RAN.format(*"abc")), 0, []),
        ((MM, MM, CALLED.format(*"abc"), RAN.format(*"abc")), 0, []),
        ((MM, "op aten::mm @1 |               ==             |", CALLED.format(*"abc"), RAN.format(*"abc")), 0, []),
        ((MM.replace("mm", "add_"), CALLED.format(*"   "), "copy Memcpy DtoH @7 |  = = = =  |"), 0, []),
        ((MM, CALLED.format(*"   "), "copy Memcpy DtoH @7 |  =         =         =     |"), 3, [1, 2, 3]),
        ((MM, CALLED.format(*"   "), RAN.format(*"==="), "copy Memcpy DtoH @7 |  =          =     |"), 0, []),
    ],
    ids=[
        "all there",
        "call and kernel of one step lost",
        "its call alone",
        "half of them work on the host, always",
        "one more, on the host",
        "nothing launched, and nothing tells that it would",
        "all lost",
        "all calls alone",
    ],
)
def test_steps_of_operators_that_lack_their_launch_have_no_account(
    draw: Callable[..., Path], lines: tuple[str, ...], operators: int, steps: list[int]
) -> None:
    one = analyze(draw, *lines)
    assert (one.lost.operators, list(one.lost.steps)) == (operators, steps)
    assert not {step.step for step in one.steps if step.overlap.step_ns} & {*steps}


def test_few_exceptions_are_no_loss(draw: Callable[..., Path]) -> None:
    """One operator of twelve lacks its launch in step 2, and then one of two."""
    lacking = (MM, CALLED.format(*"a c"), RAN.format(*"a c"))
    many = [
        line
        for number in range(11)
        if (ids := [chr(200 + 3 * number + place) for place in range(3)])
        for line in (
            f"op aten::of_{number}        @{number + 2} | =         =         =       |",
            f"call cudaLaunchKernel      @{number + 2} | {ids[0]}         {ids[1]}         {ids[2]}       |",
        )
    ]
    for number, others in ((0, many), (1, many[:2])):
        assert analyze(draw, *lacking, *others).lost.operators == number


def test_copies_that_operators_launch_in_other_steps_are_lost(draw: Callable[..., Path]) -> None:
    """Step 2 may have begun with its copy, and step 1 ended there."""
    copied = MM.replace("aten::mm", "aten::copy_")
    called = CALLED.replace("cudaLaunchKernel", "cudaMemcpyAsync")
    ran = RAN.replace("kernel gemm", "copy Memcpy DtoH")
    computed = (
        "call cudaLaunchKernel @1 |    d         e         f     |\nkernel gemm @8 |     d         e         f    |"
    )
    one = analyze(draw, copied, called.format(*"a c"), ran.format(*"a c"), computed)
    assert (one.lost.operators, one.lost.copies, one.lost.copy_steps) == (0, 1, (1, 2))
    assert [step.overlap.exposed_copy_ns is None for step in one.steps] == [True, True, False]


@pytest.fixture
def events(recorded: Path) -> dict[str, Any]:
    """Two ranks' DDP on one GPU, rank 1."""
    content: dict[str, Any] = json.loads(
        gzip.decompress((recorded / "two_ranks_one_gpu" / "ddp" / "rank1.json.gz").read_bytes())
    )
    return content


def is_compute(event: dict[str, Any]) -> bool:
    return event.get("cat") == "kernel" and not event["name"].startswith("nccl")


@pytest.mark.parametrize(
    ("are_of_one_step", "category", "unknown"),
    [(True, "kernel", [2, 3]), (False, "kernel", [2, 3, 4]), (True, "gpu_memcpy", [3])],
    ids=["of a step", "of all", "copies of a step"],
)
def test_what_a_recorded_step_lost_with_its_launches_is_no_exact_zero(
    events: dict[str, Any], tmp_path: Path, *, are_of_one_step: bool, category: str, unknown: list[int]
) -> None:
    """Step 2 ends where step 3 begins."""
    every = events["traceEvents"]
    (step,) = (one for one in every if one["name"] == "ProfilerStep#3" and one["cat"] == "user_annotation")
    ends = step["ts"], step["ts"] + step["dur"]
    called = {
        one["args"]["correlation"]
        for one in every
        if one.get("cat", "").startswith("cuda_") and (not are_of_one_step or ends[0] <= one["ts"] < ends[1])
    }
    lost = {
        one["args"]["correlation"]
        for one in every
        if (is_compute(one) if category == "kernel" else one.get("cat") == category)
        and one["args"]["correlation"] in called
    }
    events["traceEvents"] = [one for one in every if one.get("args", {}).get("correlation") not in lost]
    path = tmp_path / "rank1.json"
    path.write_text(json.dumps(events))
    traces = analyze_traces([path])
    (one,) = traces.analyses
    if category == "kernel":
        assert [step.step for step in one.steps if step.overlap.compute_ns is None] == unknown
        (note,) = pick_notes(traces.notes, LostKernels)
        assert (note.ranks, list(note.steps), note.kernels) == ((1,), unknown, 0)
        assert "operators that launch kernels the trace has neither launch nor kernel" in str(note)
    else:
        assert [step.step for step in one.steps if step.overlap.exposed_copy_ns is None] == unknown
        (copies,) = pick_notes(traces.notes, LostCopies)
        assert copies.copies == len(lost)


@pytest.mark.parametrize(
    "name", ["at_once", "compiled", "ddp", "fsdp2", "fsdp2_tp", "graph", "host", "sendrecv", "skew"]
)
def test_recorded_traces_lack_no_launch_of_an_operator(recorded: Path, name: str) -> None:
    for path in sorted((recorded / "two_ranks_one_gpu" / name).glob("rank*.json.gz")):
        one = analyze_trace(read_trace(path))
        assert (one.lost.operators, one.lost.copies) == (0, 0)

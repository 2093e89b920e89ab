"""Operators that most steps have and one lacks: what the threads, or the device, did there was not all recorded."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.chosen_steps import StepRange
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import ComputeNotRecorded, OperatorsAbsent
from dtbench.traces.notes.note import pick_notes

STEPS = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    ==========|
range gloo:all_reduce    @9 |   ===       ===       ===    |
op c10d::allreduce_      @1 |  =         =         =       |
"""
MM = "op aten::mm              @1 |==        ==        ==        |\n"
ADD = "op aten::add             @1 |     ====      {0}      ==== |\n"


def analyze(draw: Callable[..., Path], *lines: str) -> TraceSet:
    return analyze_traces([draw("".join((STEPS, *lines)).strip())])


@pytest.mark.parametrize(
    ("lines", "absent"),
    [
        ((MM, ADD.format("====")), []),
        ((MM, ADD.format("    ")), [(2, 1)]),
        ((MM, ADD.format("    "), "op aten::mul @1 |               ====           |"), []),
        ((MM, ADD.replace("====", " ").format("    ")), []),
        ((MM, ADD.replace("==== |", "     |").format("    ")), []),
    ],
    ids=["all there", "lost", "another in its place", "in none", "in one alone"],
)
def test_a_step_that_lacks_what_all_others_have_and_is_idle_for_longer_is_not_all_recorded(
    draw: Callable[..., Path], lines: tuple[str, ...], absent: list[tuple[int, int]]
) -> None:
    traces = analyze(draw, *lines)
    (one,) = traces.analyses
    assert list(one.lost.absent) == absent
    lossy = {number for number, _ in absent}
    for step in one.steps:
        assert (step.overlap.compute_ns is None) is (step.step in lossy)
        assert (step.overlap.exposed_comm_ns is None) is (step.step in lossy)
        assert step.overlap.step_ns
    assert [note.steps for note in pick_notes(traces.notes, OperatorsAbsent)] == [(2,)] * bool(absent)
    assert not pick_notes(traces.notes, ComputeNotRecorded)


def test_few_operators_less_are_no_loss(draw: Callable[..., Path]) -> None:
    """One of eleven, and then one of two."""
    others = "".join(f"op aten::of_{number} @1 |==        ==        ==        |\n" for number in range(10))
    for more, absent in ((others, []), (MM, [(2, 1)])):
        (one,) = analyze(draw, more, ADD.format("    ")).analyses
        assert list(one.lost.absent) == absent


def test_a_step_without_any_operator_is_said_to_have_none(draw: Callable[..., Path]) -> None:
    nothing = STEPS.replace("=         =         =       |", "=                   =       |")
    (path,) = [draw((nothing + MM.replace("==        ==        ==", "==                  ==")).strip())]
    traces = analyze_traces([path])
    assert [note.steps for note in pick_notes(traces.notes, ComputeNotRecorded)] == [(2,)]
    assert not pick_notes(traces.notes, OperatorsAbsent)


@pytest.mark.parametrize(
    "path", ["ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz", "pipelines/1f1b", "zero/zero3"]
)
def test_recorded_steps_are_all_recorded(recorded: Path, path: str) -> None:
    assert [one.lost.absent for one in analyze_traces([recorded / path]).analyses] in ([()], [(), ()])


@pytest.mark.parametrize(
    ("kept", "names"),
    [((0.0, 0.5), ""), ((0.5, 1.0), ""), ((0.0, 0.3), ""), ((0.0, 0.0), "aten::")],
    ids=["second half", "first half", "all but a third", "what computes alone"],
)
def test_a_recorded_step_that_lost_operators_computed_nothing_that_is_known(
    recorded: Path, tmp_path: Path, kept: tuple[float, float], names: str
) -> None:
    content: dict[str, Any] = json.loads(gzip.decompress((recorded / "ddp_2ranks_rank0.json.gz").read_bytes()))
    every = content["traceEvents"]
    step = max((one for one in every if one["name"].startswith("ProfilerStep")), key=lambda one: one["ts"])
    from_us, until_us = (step["ts"] + part * step["dur"] for part in kept)
    content["traceEvents"] = [
        one
        for one in every
        if one.get("cat") != "cpu_op"
        or not step["ts"] <= one["ts"] < step["ts"] + step["dur"]
        or from_us <= one["ts"] < until_us
        or not one["name"].startswith(names)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(content))
    traces = analyze_traces([path])
    (one,) = traces.analyses
    overlaps = [account.overlap for account in one.steps]
    assert [overlap.compute_ns is None for overlap in overlaps] == [False, False, True]
    assert [overlap.exposed_comm_ns is None for overlap in overlaps] == [False, False, True]
    assert overlaps[-1].comm_ns
    (note,) = pick_notes(traces.notes, OperatorsAbsent)
    assert str(note).startswith("rank 0: step 12 is not all recorded")


DEVICE = Path("two_ranks_one_gpu") / "ddp" / "rank1.json.gz"


def leave_out(source: Path, into: Path, lost: tuple[float, float], kept: tuple[str, ...] = ()) -> TraceSet:
    """Analyze a trace without the rows that began in a part of the host range of its second step."""
    content: dict[str, Any] = json.loads(gzip.decompress(source.read_bytes()))
    every = content["traceEvents"]
    marks = [one for one in every if one["name"].startswith("ProfilerStep") and one["cat"] == "user_annotation"]
    steps = sorted((one["ts"], one["dur"]) for one in marks)
    from_us, until_us = (steps[1][0] + part * steps[1][1] for part in lost)
    content["traceEvents"] = [
        one
        for one in every
        if one["ph"] != "X"
        or not from_us <= one["ts"] < until_us
        or one["name"].startswith("ProfilerStep")
        or one.get("cat") in kept
    ]
    path = into / "rank1.json"
    path.write_text(json.dumps(content))
    return analyze_traces([path])


@pytest.mark.parametrize(
    ("lost", "steps"),
    [((0.3, 0.7), (3,)), ((0.0, 0.5), (2, 3)), ((0.0, 1.0), (2, 3))],
    ids=["middle", "begin", "all"],
)
def test_a_step_of_a_device_that_lost_rows_of_the_host_and_of_the_device_has_no_account(
    recorded: Path, tmp_path: Path, lost: tuple[float, float], steps: tuple[int, ...]
) -> None:
    traces = leave_out(recorded / DEVICE, tmp_path, lost)
    (one,) = traces.analyses
    assert one.lost.steps == steps
    assert [step.step for step in one.steps if step.overlap.step_ns is None] == list(steps)
    assert one.whole.exposed_comm_ns is None
    (note,) = pick_notes(traces.notes, OperatorsAbsent)
    assert note.steps == (3,)


def test_rows_that_are_lost_for_no_longer_than_a_host_waits_are_told_by_the_ids_of_calls(
    recorded: Path, tmp_path: Path
) -> None:
    """The host stands still for 31 ms of each step until its device is done; all rows of 24 ms of one are lost."""
    source = recorded / "two_ranks_one_gpu" / "skew" / "rank0.json.gz"
    content = json.loads(gzip.decompress(source.read_bytes()))
    every = [one for one in content["traceEvents"] if one["ph"] == "X"]
    first_us, last_us = (pick(float(one["ts"]) for one in every) for pick in (min, max))
    from_us, until_us = (first_us + part * (last_us - first_us) for part in (0.4, 0.5))
    content["traceEvents"] = [
        one
        for one in content["traceEvents"]
        if one["ph"] != "X" or not from_us <= float(one["ts"]) < until_us or one["name"].startswith("ProfilerStep")
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(content))
    (whole,), (lossy,) = (analyze_traces([of]).analyses for of in (source, path))
    assert [number for number, _ in lossy.lost.absent] == [3]
    for before, after in zip(whole.steps, lossy.steps, strict=True):
        assert after.overlap.step_ns in (None, before.overlap.step_ns)


def test_an_answer_says_that_not_all_of_a_step_was_recorded(recorded: Path, tmp_path: Path) -> None:
    leave_out(recorded / DEVICE, tmp_path, (0.3, 0.7))
    traces = analyze_traces([tmp_path / "rank1.json"], steps=StepRange(3, 3))
    assert answer_lines(traces)[0].endswith(
        "how much of it was exposed is not known: of some steps not all was recorded"
    )


def test_a_step_of_a_device_of_which_all_that_ran_is_there_has_an_account(recorded: Path, tmp_path: Path) -> None:
    whole = analyze_traces([recorded / DEVICE])
    traces = leave_out(recorded / DEVICE, tmp_path, (0.3, 0.7), ("kernel", "gpu_memcpy", "gpu_memset"))
    (one,), (other,) = whole.analyses, traces.analyses
    assert not other.lost.absent
    assert [step.overlap.compute_ns for step in other.steps] == [step.overlap.compute_ns for step in one.steps]


@pytest.mark.parametrize("name", ["ddp", "fsdp2_tp", "host", "graph", "compiled"])
def test_recorded_steps_of_a_device_are_all_recorded(recorded: Path, name: str) -> None:
    traces = analyze_traces([recorded / "two_ranks_one_gpu" / name])
    assert [one.lost.absent for one in traces.analyses] == [(), ()]

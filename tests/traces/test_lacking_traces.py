"""Traces that lack something: a sentence, or NaN in every table, never a crash or a silent zero."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtbench
from dtbench.base.errors import TraceError
from dtbench.cli.main import main

STEP = """
step ProfilerStep#1   @1 |=====|
call cudaLaunchKernel @1 |a b  |
"""
READABLE = {
    "steps without communication": STEP + "kernel gemm @7 | aabb|",
    "neither communication nor steps": "kernel gemm @7 | ==|",
    "communication alone": "kernel ncclDevKernel_AllGather @7 | ==|",
    "communication that is all hidden": STEP + "kernel gemm @7 | aaaa |\nkernel ncclDevKernel_AllReduce @8 |  bb |",
    "one step that launched nothing": STEP + "step ProfilerStep#2 @1 |     ==|\nkernel gemm @7 | aabb|",
    "no step that launched anything": "step ProfilerStep#1 @1 |==|\nkernel gemm @7 | ==|",
    "a copy alone": "copy Memcpy_DtoD @7 |==|",
    "one operator on a CPU": "op aten::mm @1 |==|",
    "one span of gloo": "range gloo:all_reduce @2 |==|",
    "steps on a CPU without communication": "step ProfilerStep#1 @1 |====|\nop aten::mm @1 | ==|",
}
REFUSED = {
    "no event": "",
    "a step alone": "step ProfilerStep#1 @1 |==|",
    "a launch alone": "call cudaLaunchKernel @1 |a|",
    "a range alone": "range anything @1 |==|",
}
NOTHING_RUNS = "nothing in it computes, copies or communicates"
REASONS = {"a launch alone": "1 call to launch kernels, and no kernel is in it"}
LAUNCHED_NOTHING = ("one step that launched nothing", "no step that launched anything")
WITHOUT_COMMUNICATION = {name for name, drawing in READABLE.items() if "nccl" not in drawing and "gloo" not in drawing}
WITHOUT_STEPS = {name for name, drawing in READABLE.items() if "step Profiler" not in drawing}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    printed = capsys.readouterr()
    return caught.value.code, printed.out, printed.err


@pytest.mark.parametrize("name", READABLE)
def test_the_command_answers(name: str, draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, text, errors = run(capsys, "analyze", "--full", str(draw(READABLE[name])))
    assert (code, errors) == (0, "")
    first, *others = text.splitlines()
    assert ("no communication" in f"{first} {others[0]}") == (name in WITHOUT_COMMUNICATION or "hidden" in name)
    assert first.startswith("whole trace ") == (name in WITHOUT_STEPS or name == "no step that launched anything")
    if name in WITHOUT_COMMUNICATION:
        assert not any("What communication was for" in line for line in others)
        table = others[others.index("Where the time went") :]
        rows = [line.split() for line in table[: table.index("") if "" in table else None] if line.startswith("0 ")]
        assert rows
        assert all("none" in row or "n/a" in row for row in rows)


@pytest.mark.parametrize("name", READABLE)
def test_the_document_says_nan_where_nothing_is_known(
    name: str, draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = run(capsys, "analyze", "--json", str(draw(READABLE[name])))
    assert code == 0
    document: Any = json.loads(text)
    assert list(document) == [
        "format_version",
        "world_size",
        "ranks",
        "unread",
        "uncorrelated",
        "unknown_names",
        "names_on_comm_lanes",
        "owners",
        "not_compared",
        "undecided",
        "undecided_ns",
        "waiting",
        "handed_on_ns",
        "late_together",
        "awaited_host",
        "slow_group",
        "links",
        "notes",
        "doubts",
        "collectives",
    ]
    assert document["handed_on_ns"] == "NaN"  # of one rank nobody can tell
    (rank,) = document["ranks"]
    for account in (rank["whole"], *rank["steps"]):
        parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        window_ns = account["window_ns"] if "window_ns" in account else account["step_ns"]
        if any(account[part] == "NaN" for part in parts):
            assert (window_ns == "NaN") == ("step_ns" in account and name in LAUNCHED_NOTHING)
            assert window_ns == "NaN" or name == "one span of gloo"
        else:
            assert sum(account[part] for part in parts) == window_ns
        assert (account["hidden_fraction"] == "NaN") == (account["comm_ns"] in (0, "NaN") or name == "one span of gloo")
        assert (account["exposed_step_fraction"] == "NaN") == (account["exposed_comm_ns"] == "NaN")
    assert (document["collectives"] == []) == (name in WITHOUT_COMMUNICATION)
    for row in document["collectives"]:
        assert row["step"] == (1 if "step Profiler" in READABLE[name] else "NaN")
        assert row["size_bytes"] == "NaN"
        assert row["start_ns"] < row["end_ns"]


@pytest.mark.parametrize("name", READABLE)
def test_a_notebook_gets_every_table(name: str, draw: Callable[..., Path]) -> None:
    traces = dtbench.read_trace(draw(READABLE[name]))
    assert len(traces.whole) == 1
    assert len(traces.overlap) == READABLE[name].count("step Profiler")
    assert traces.collectives["size_bytes"].isna().all()
    assert (len(traces.purposes) > 0) <= (name not in WITHOUT_COMMUNICATION)
    assert any("no ProfilerStep range" in note for note in traces.notes) == (name in WITHOUT_STEPS)
    assert str(traces)


@pytest.mark.parametrize("name", REFUSED)
def test_a_trace_in_which_nothing_runs_is_a_sentence(
    name: str, draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = draw(REFUSED[name])
    for arguments in (["analyze", str(path)], ["analyze", "--json", str(path)]):
        code, text, errors = run(capsys, *arguments)
        assert (code, text) == (TraceError.exit_code, "")
        assert errors.startswith(f"{path}: {REASONS.get(name, NOTHING_RUNS)}")
    with pytest.raises(TraceError, match=REASONS.get(name, NOTHING_RUNS)):
        dtbench.read_trace(path)


@pytest.mark.parametrize("name", READABLE)
def test_beside_a_full_trace_a_lacking_one_takes_nothing_away(
    name: str, draw: Callable[..., Path], recorded: Path
) -> None:
    full = recorded / "ddp_2ranks_rank0.json.gz"
    alone = dtbench.read_trace(full)
    both = dtbench.read_trace([full, draw(READABLE[name], "rank1.json")])
    assert both.whole["rank"].tolist() == [0, 1]
    assert str(both)
    mine = both.overlap[both.overlap["rank"] == 0]
    assert mine.to_numpy().tolist() == alone.overlap.to_numpy().tolist()


def test_an_event_of_no_length_is_no_time_and_no_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 0, "args": {}}
    path.write_text(json.dumps({"traceEvents": [event]}))
    for arguments in (["analyze", str(path)], ["analyze", "--json", str(path)]):
        code, text, errors = run(capsys, *arguments)
        assert code == TraceError.exit_code or ("n/a" in text or '"NaN"' in text)
        assert "bug" not in errors


@pytest.mark.parametrize(
    ("elements", "group_size", "is_believed"),
    [(25_000_000, 2, True), (25_000_001, 2, False), (10**9, 2, False), (10**9, 1, True)],
)
def test_a_size_that_no_memory_moves_in_the_time_is_not_believed_and_counted(
    draw: Callable[..., Path], elements: int, group_size: int, is_believed: bool
) -> None:
    said = {"Collective name": "allreduce", "Group size": group_size, "dtype": "Float"}
    args = json.dumps({**said, "In msg nelems": elements, "Out msg nelems": elements})
    drawing = f"{STEP}kernel gemm @7 | a|\nkernel ncclDevKernel_AllReduce_Sum_f32 @8 | bb| {args}"
    report = dtbench.read_trace(draw(drawing))
    assert report.collectives["size_bytes"].tolist() == [elements * 4 if is_believed else pd.NA]
    assert report.purposes["unsized"].tolist() == [int(not is_believed)]
    note = (
        "rank 0: the size of 1 of 1 collective is not believed, and n/a: it would have moved more than 50000 GB/s,"
        " which no link and no device's memory does"
    )
    assert (note in report.notes) is not is_believed


def test_a_payload_that_fits_no_device_is_not_known(draw: Callable[..., Path]) -> None:
    said = {"Collective name": "allreduce", "In msg nelems": 2**62, "Out msg nelems": 2**62, "dtype": "Double"}
    traces = dtbench.read_trace(draw(f"kernel ncclDevKernel_AllReduce @7 |==| {json.dumps(said)}"))
    assert traces.collectives["size_bytes"].isna().all()
    assert traces.whole["exposed_comm_ns"].tolist() == [2000]


def test_a_step_whose_number_fits_no_table_is_no_step(draw: Callable[..., Path]) -> None:
    traces = dtbench.read_trace(draw(f"{STEP}step ProfilerStep#{'9' * 5000} @1 |     =|\nkernel gemm @7 | aabb|"))
    assert traces.overlap["step"].tolist() == [1]


def test_a_trace_of_which_nothing_could_be_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 2**53, "dur": 5, "args": {}}
    path.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(TraceError, match="and 1 that could not be read: 1 time out of range"):
        dtbench.read_trace(path)


def test_a_name_without_end_is_shortened_for_people(
    draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = run(capsys, "analyze", str(draw(f"kernel my_all_gather{'x' * 100_000} @7 |==|")))
    assert "xxx... (100013 letters)" in text
    assert len(text) < 5000

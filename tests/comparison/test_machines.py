"""Traces tell where they were recorded: what both tell is compared, and what neither tells is said to be unchecked."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import ComparisonError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.machines import find_machine_changes, read_machines
from dtbench.comparison.run import compare_paths
from dtbench.traces.job.foreign import analyze_traces

A100: dict[str, Any] = {
    "host_name": "node1",
    "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],
    "cuda_runtime_version": 12040,
    "cuda_driver_version": 12080,
}

Record = Callable[..., str]


def compare(old: str, new: str, *, force: bool = False) -> Comparison:
    return compare_paths(old, new, results=Path(old).parent, force=force)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    def write(name: str, of_ranks: Sequence[dict[str, Any]] = ({}, {}), on: Sequence[int] = (0, 0), **top: Any) -> str:
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 90}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 40}
        events = [step, {**launch, "args": {"correlation": 1}}]
        path = tmp_path / name
        path.mkdir()
        for rank, (of_rank, device) in enumerate(zip(of_ranks, on, strict=True)):
            info = {"rank": rank, "world_size": len(on)}
            own = {**kernel, "pid": device, "args": {"correlation": 1}}
            document = {**top, **of_rank, "distributedInfo": info, "traceEvents": [*events, own]}
            (path / f"rank{rank}.json").write_text(json.dumps(document))
        return str(path)

    return write


def test_traces_of_unlike_devices_are_refused_and_warned_of_when_forced(record: Record) -> None:
    old = record("old", **A100)
    new = record("new", **{**A100, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]})
    with pytest.raises(ComparisonError, match="kinds of devices NVIDIA A100 against NVIDIA H100"):
        compare(old, new)
    forced = compare(old, new, force=True)
    assert forced.notes[0].startswith("WARNING: unlike environments")


def test_another_host_and_driver_are_told_and_no_more(record: Record) -> None:
    old, new = record("old", **A100), record("new", **{**A100, "host_name": "node2", "cuda_driver_version": 13000})
    found = compare(old, new)
    assert [(one.what, one.baseline, one.candidate, one.why) for one in found.environment] == [
        ("host", "node1", "node2", ""),
        ("CUDA driver", "12.8", "13.0", ""),
    ]


def test_what_only_one_side_tells_is_not_held_against_the_other_and_the_rest_is_said_to_be_unchecked(
    record: Record,
) -> None:
    found = compare(record("old", **A100), record("new", host_name="node1"))
    assert found.environment == ()
    assert "of where old and new ran, both traces tell only host; whether anything else is alike is not checked" in (
        found.notes
    )
    silent = compare(record("older"), record("newer", **A100)).notes
    assert any(note.startswith("it is not known on which machine and software older and newer ran") for note in silent)


def test_ranks_on_several_machines_and_devices_are_named_each_once(record: Record) -> None:
    old = record("old", **A100)
    first = Path(old) / "rank0.json"
    first.write_text(first.read_text().replace("node1", "node0"))
    (change,) = compare(old, record("new", **A100)).environment
    assert (change.baseline, change.candidate) == ("node0, node1", "node1")


def list_devices(*names: str) -> dict[str, Any]:
    return {**A100, "deviceProperties": [{"id": place, "name": name} for place, name in enumerate(names)]}


def test_a_device_that_a_rank_sees_and_does_not_use_is_no_difference(record: Record) -> None:
    both = list_devices("NVIDIA A100", "NVIDIA T400")
    assert compare(record("old", **both), record("new", **list_devices("NVIDIA A100"))).environment == ()
    with pytest.raises(ComparisonError, match="kinds of devices NVIDIA A100 against NVIDIA T400"):
        compare(record("first", **both), record("second", on=(1, 1), **both))
    assert compare(record("third", **both), record("fourth", on=(5, 5), **both)).environment == ()


@pytest.mark.parametrize(
    ("before", "after", "is_alike"),
    [
        ("AB", "BA", True),
        ("A-", "AA", True),
        ("A-", "AB", True),
        ("A-", "BB", False),
        ("A-", "B-", False),
        ("AAB", "ABB", False),
        ("A--", "ABB", True),
        ("A--", "BBB", False),
        ("AAA", "AA", True),
        ("AAB", "AA", False),
        ("AAB", "A-", True),
    ],
)
def test_ranks_are_alike_where_they_can_be_paired_and_one_that_tells_no_device_may_be_like_another(
    record: Record, before: str, after: str, *, is_alike: bool
) -> None:
    def write(name: str, kinds: str) -> dict[str, tuple[str, ...]]:
        told = [{} if kind == "-" else list_devices(kind) for kind in kinds]
        return read_machines(analyze_traces([Path(record(name, of_ranks=told, on=[0] * len(kinds)))]))

    changes = find_machine_changes(write("old", before), write("new", after))
    assert [change.what for change in changes if change.why] == ([] if is_alike else ["kinds of devices"])


def test_ranks_that_do_not_tell_their_device_are_counted(record: Record) -> None:
    found = compare(record("old", **A100), record("new", of_ranks=(A100, {"host_name": "node1"})))
    (note,) = [note for note in found.notes if note.startswith("of where old and new ran")]
    assert "kinds of devices (not of 1 of 2 ranks of new)" in note


def test_as_many_kinds_of_unlike_numbers_are_told_by_number(record: Record) -> None:
    sides = [
        record(name, of_ranks=[list_devices(kind) for kind in kinds], on=(0, 0, 0))
        for name, kinds in (("old", "AAB"), ("new", "ABB"))
    ]
    with pytest.raises(ComparisonError, match="kinds of devices 2 x A, 1 x B against 1 x A, 2 x B"):
        compare(*sides)


def test_what_the_profiler_was_asked_to_record_makes_traces_unlike(record: Record) -> None:
    """It takes time of the host; torch writes options that are on, and none that is off."""
    old, new = record("old", **A100), record("new", **A100, with_stack=1, profile_memory=1)
    with pytest.raises(ComparisonError, match="profiler's with_stack off against on; profiler's profile_memory off "):
        compare(old, new)
    forced = compare(old, new, force=True)
    assert {one.what: bool(one.why) for one in forced.environment} == {
        "profiler's with_stack": True,
        "profiler's profile_memory": True,
    }
    assert not any("tell only" in note and "profiler" in note for note in forced.notes)


def test_recorded_calls_of_python_tell_an_option_that_no_header_does(tmp_path: Path) -> None:
    told = []
    for name, category in (("old", "cpu_op"), ("new", "python_function"), ("nothing", "user_annotation")):
        event = {"ph": "X", "cat": category, "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9, "dur": 40}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"traceEvents": [event, kernel]}))
        told.append(read_machines(analyze_traces([path])))
    assert told == [{"profiler's with_stack": ("off",)}, {"profiler's with_stack": ("on",)}, {}]

"""A repeated trace is the same account again and again, and nothing of one copy points into another."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COPIES = 3
LENGTH_US = 52  # of the source below: 50.9 us, in whole microseconds and one more


def event(name: str, category: str, ts: float, dur: float, lane: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": lane, "ts": ts, "dur": dur, "args": args}


def flow(phase: str, ts: float, lane: int) -> dict[str, Any]:
    return {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 0, "tid": lane, "ts": ts}


SOURCE: dict[str, Any] = {
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    "deviceProperties": [{"id": 5, "correlation": 5}],
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 100.5, "args": {"name": "python"}},
        event("ProfilerStep#8", "user_annotation", 100.125, 20, 1, **{"External id": 1, "Ev Idx": 0}),
        event("ProfilerStep#9", "user_annotation", 120.125, 30, 1, **{"External id": 2, "Ev Idx": 1}),
        event('say "ts": 5 \\"id\\": 6', "cpu_op", 101, 5, 1, **{"External id": 3, "Sequence number": 40}),
        event("cudaLaunchKernel", "cuda_runtime", 102, 1, 1, correlation=7),
        flow("s", 102, 1),
        event("gemm", "kernel", 104.001, 18.5, 9, correlation=7, stream=9),
        flow("f", 104.001, 9),
        event("cudaLaunchKernel", "cuda_runtime", 122, 1, 1, correlation=8),
        event("ncclDevKernel_AllReduce_Sum", "kernel", 123, 28, 11, correlation=8, Seq=2),
        event("gemm", "kernel", 130, 3.125, 9, correlation=0),
    ],
}


def repeat(source: Path, target: Path, *options: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.benchmarks.repeat_trace", str(source), str(target), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said: dict[str, int] = json.loads(done.stdout)
    return said


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.json"
    path.write_text(json.dumps(SOURCE, indent=2))
    return path


@pytest.fixture
def repeated(source: Path, tmp_path: Path) -> dict[str, Any]:
    said = repeat(source, tmp_path / "repeated.json.gz", "--copies", str(COPIES))
    text = gzip.decompress((tmp_path / "repeated.json.gz").read_bytes())
    assert said == {"copies": COPIES, "events": COPIES * 10, "bytes": len(text)}
    trace: dict[str, Any] = json.loads(text)
    return trace


def test_a_single_copy_is_the_source_to_the_byte(source: Path, tmp_path: Path) -> None:
    repeat(source, tmp_path / "one.json", "--copies", "1")
    assert (tmp_path / "one.json").read_bytes() == source.read_bytes()


def test_only_times_and_numbers_that_tell_copies_apart_differ_between_copies(repeated: dict[str, Any]) -> None:
    events = repeated.pop("traceEvents")
    assert repeated == {key: value for key, value in SOURCE.items() if key != "traceEvents"}
    assert [one["ph"] for one in events].count("M") == 1
    second = {one["ts"]: one for one in events[11:21]}
    assert second[100.125 + LENGTH_US] == event(
        "ProfilerStep#10", "user_annotation", 100.125 + LENGTH_US, 20, 1, **{"External id": 9, "Ev Idx": 0}
    )
    assert second[101 + LENGTH_US] == event(
        'say "ts": 5 \\"id\\": 6', "cpu_op", 101 + LENGTH_US, 5, 1, **{"External id": 11, "Sequence number": 41}
    )
    assert second[123 + LENGTH_US] == event(
        "ncclDevKernel_AllReduce_Sum", "kernel", 123 + LENGTH_US, 28, 11, correlation=16, Seq=3
    )
    assert second[130 + LENGTH_US]["args"] == {"correlation": 0}


def test_ids_are_distinct_and_still_tie_the_same_events_together(repeated: dict[str, Any]) -> None:
    events = repeated["traceEvents"]
    launches = [one["args"]["correlation"] for one in events if one["name"] == "cudaLaunchKernel"]
    kernels = [one["args"]["correlation"] for one in events if one.get("cat") == "kernel"]
    arrows = {phase: [one["id"] for one in events if one["ph"] == phase] for phase in "sf"}
    assert len(set(launches)) == len(launches) == 2 * COPIES
    assert [one for one in kernels if one] == launches
    assert arrows["s"] == arrows["f"] == launches[::2]
    steps = [one["name"] for one in events if one["name"].startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{step}" for step in range(8, 8 + 2 * COPIES)]


def analyze(path: Path) -> dict[str, Any]:
    """Return the only rank's part of ``dtbench analyze --json``."""
    command = [sys.executable, "-c", "from dtbench.cli.main import main; main()", "analyze", str(path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (rank,) = json.loads(done.stdout)["ranks"]
    found: dict[str, Any] = rank
    return found


def account(path: Path) -> list[tuple[int, ...]]:
    """Compute, communication and hidden ns of every step, then of the whole."""
    found = analyze(path)
    return [(one["compute_ns"], one["comm_ns"], one["hidden_comm_ns"]) for one in [*found["steps"], found["whole"]]]


def test_each_copy_has_the_account_of_the_source(source: Path, tmp_path: Path) -> None:
    repeat(source, tmp_path / "repeated.json", "--copies", str(COPIES))
    *steps, whole = account(source)
    *all_steps, all_whole = account(tmp_path / "repeated.json")
    assert steps == [(18_500, 0, 0), (3_125, 28_000, 3_125)]
    assert all_steps == steps * COPIES
    assert all_whole == tuple(COPIES * part for part in whole)


def test_a_size_is_reached_with_the_fewest_copies(source: Path, tmp_path: Path) -> None:
    said = repeat(source, tmp_path / "repeated.json", "--mb", "0.01")
    assert (tmp_path / "repeated.json").stat().st_size == said["bytes"] >= 10_000
    assert repeat(source, tmp_path / "less.json", "--copies", str(said["copies"] - 1))["bytes"] < 10_000


def test_a_trace_can_be_written_as_another_ranks(source: Path, tmp_path: Path) -> None:
    repeat(source, tmp_path / "rank6.json", "--copies", "1", "--rank", "6")
    assert json.loads((tmp_path / "rank6.json").read_text())["distributedInfo"]["rank"] == 6


def test_a_time_that_cannot_be_moved_is_refused(source: Path, tmp_path: Path) -> None:
    events = [{**one, "ts": one["ts"] - 101} for one in SOURCE["traceEvents"]]
    source.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        repeat(source, tmp_path / "repeated.json", "--copies", "2")
    assert "negative or otherwise odd time" in refused.value.stderr

"""Which compute kernels got slower between two traces: only those that did the same work, and more than steps vary."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.comparison.comparison import KernelChange, Outcome
from dtbench.comparison.run import compare_paths

STEP_US = 1000
JITTER_US = (0, 2, 1, 3, 1, 2)


def write_trace(path: Path, kernels: Mapping[str, tuple[int, float]], *, grid: Sequence[int] = (8, 1, 1)) -> Path:
    """Write a trace of six steps in which kernels run so often, each for so many us and a little more."""
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, lane: str, begin: float, length: float, **args: Any) -> None:
        row = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": lane, "ts": begin, "dur": length}
        events.append({**row, "args": args})

    number = 0
    for step, jitter in enumerate(JITTER_US):
        add("user_annotation", f"ProfilerStep#{step + 3}", "1", step * STEP_US, STEP_US)
        at = float(step * STEP_US)
        for name, (count, length) in kernels.items():
            for _ in range(count):
                number += 1
                add("cuda_runtime", "cudaLaunchKernel", "1", at, 1, correlation=number)
                shape = {"grid": [*grid], "block": [128, 1, 1]}
                add("kernel", name, "7", at + 2, length + jitter, correlation=number, device=0, stream=7, **shape)
                at += length + 10
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def compare(before: Path, after: Path, **options: Any) -> dict[str, KernelChange]:
    found = compare_paths(str(before), str(after), results=before.parent, **options)
    return {row.name: row for row in found.kernels}


def test_a_kernel_that_takes_longer_at_equal_work_is_named(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0), "norm": (2, 50.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0), "norm": (2, 50.0)})
    rows = compare(before, after)
    assert list(rows) == ["gemm", "norm"]  # what costs a step most comes first
    gemm = rows["gemm"]
    assert (gemm.count, gemm.outcome, gemm.is_same_work) == ((3.0, 3.0), Outcome.HIGHER, True)
    assert gemm.median_ns == (101_000.0, 131_000.0)  # the last step, cut where the trace ends, does not count
    assert gemm.low > 1.2
    assert rows["norm"].outcome not in (Outcome.HIGHER, Outcome.LOWER)
    said = str(dtbench.compare(before, after))
    assert "compute kernels that took longer in these traces: gemm 101 us -> 131 us (+29.7 %, 3 runs per step)" in said


def test_kernels_that_run_more_often_did_other_work_and_are_not_called_slower(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0), "norm": (2, 50.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (4, 130.0), "silu": (2, 50.0)})
    rows = compare(before, after)
    assert not any(row.is_same_work for row in rows.values())
    assert {row.outcome for row in rows.values()} == {Outcome.UNKNOWN}
    assert "took longer" not in str(dtbench.compare(before, after))
    frame = dtbench.compare(before, after).kernels.set_index("kernel")
    assert frame["baseline_median_ns"].isna()["silu"]  # it did not run, which is no time of 0
    assert frame.loc["silu", "baseline_count"] == 0


def test_another_launch_shape_is_other_work(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)}, grid=(16, 1, 1))
    found = compare_paths(str(before), str(after), results=tmp_path)
    assert [row.is_same_work for row in found.kernels] == [False, False]


def test_what_lies_below_the_threshold_is_not_named(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)})
    assert compare(before, after, threshold=0.5)["gemm"].outcome is not Outcome.HIGHER


def test_steps_that_are_too_few_establish_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_trace.__globals__, "JITTER_US", (0, 2, 1))
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)})
    assert compare(before, after)["gemm"].outcome is Outcome.NOT_ENOUGH_LAUNCHES


def test_runs_and_traces_of_threads_tell_no_kernels() -> None:
    root = Path(__file__).parents[2]
    cells = str(root / "results" / "example_sweep")
    found = compare_paths(f"{cells}:micro_batches-1", f"{cells}:micro_batches-4", results=root)
    assert found.kernels == ()

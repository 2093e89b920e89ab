"""Several ranks or devices in one file: each is accounted for itself, whatever tool put them together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.job import SizeNotTold
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.parts import split_trace
from dtbench.traces.reader import read_trace

CASES = Path(__file__).parent / "cases"
Rows = list[dict[str, Any]]


def rank_rows(rank: int, *, first_id: int, starts_us: int) -> Rows:
    """Draw a rank that computes for 2 ms, and then all-reduces until 7 ms."""
    process, device = 1000 * (rank + 1), rank
    op = {"cat": "cpu_op", "pid": process, "tid": 1}
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": process, "tid": 1, "dur": 3}
    kernel = {"cat": "kernel", "pid": device}
    return [
        {"ph": "X", **row}
        for row in (
            {"cat": "user_annotation", "name": "ProfilerStep#1", "pid": process, "tid": 1, "ts": 0, "dur": 9000},
            {**op, "name": "aten::mm", "ts": 95, "dur": 20},
            {**call, "ts": 100, "args": {"correlation": first_id}},
            {**op, "name": "c10d::allreduce_", "ts": 195, "dur": 20},
            {**call, "ts": 200, "args": {"correlation": first_id + 1}},
            {**kernel, "name": "gemm", "tid": 7, "ts": starts_us, "dur": 2000, "args": {"correlation": first_id}},
            {
                **kernel,
                "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "tid": 21,
                "ts": starts_us + 2000,
                "dur": 5000 - starts_us,
                "args": {"correlation": first_id + 1},
            },
        )
    ]


def write(path: Path, rows: Sequence[dict[str, Any]], **top: Any) -> Path:
    path.write_text(json.dumps({**top, "traceEvents": list(rows)}))
    return path


def accounts(traces: TraceSet) -> list[tuple[int, int | None, int | None]]:
    return [
        (one.rank, step.overlap.exposed_comm_ns, step.overlap.hidden_comm_ns)
        for one in traces.analyses
        for step in one.steps
    ]


def test_a_merged_file_is_read_as_its_ranks() -> None:
    traces = analyze_traces([CASES / "merged.json"])
    assert accounts(traces) == [(0, 4_000_000, 0), (1, 2_000_000, 0)]
    assert [one.whole.comm_ns for one in traces.analyses] == [4_000_000, 2_000_000]
    assert any("rank 0 is process 1000; rank 1 is process 2000" in note for note in say_notes(traces.notes))
    assert traces.world_size == 2


def test_devices_of_one_process_are_accounted_apart() -> None:
    traces = analyze_traces([CASES / "one_process_two_devices.json"])
    first, second = (one.steps[0].overlap for one in traces.analyses)
    assert (first.comm_ns, first.exposed_comm_ns, first.hidden_comm_ns) == (2_000_000, 2_000_000, 0)
    assert (second.comm_ns, second.compute_ns) == (0, 2_000_000)
    assert any("rank 0 is device 0; rank 1 is device 1" in note for note in say_notes(traces.notes))
    of_kernels = [str(note) for note in traces.notes if not isinstance(note, SizeNotTold)]
    assert not any("not seen" in note or "missing" in note for note in of_kernels)  # what ran on the other is no loss


@pytest.mark.parametrize("rank", [0, 1])
def test_devices_of_a_process_that_is_one_rank_are_no_ranks(tmp_path: Path, rank: int) -> None:
    job = {"rank": rank, "world_size": 2}
    document = json.loads((CASES / "one_process_two_devices.json").read_text())
    traces = analyze_traces([write(tmp_path / "rank.json", document["traceEvents"], distributedInfo=job)])
    (one,) = traces.analyses
    assert (one.rank, traces.world_size) == (rank, 2)
    assert one.whole.comm_ns == 2_000_000
    said = f"in no number: rank {rank} is accounted for by device 0, on which its process computes most"
    assert any("on device 1 (2.00 ms)" in note and said in note for note in say_notes(traces.notes))


EXPECTED = [(0, 4_000_000, 0), (1, 2_000_000, 0), (2, 3_000_000, 0)]
STARTS = (1000, 3000, 2000)


@pytest.mark.parametrize("ids", [(1, 100, 200), (1, 1, 1)], ids=["own ids", "equal ids"])
def test_three_ranks_one_after_the_other_in_a_file(ids: tuple[int, int, int], tmp_path: Path) -> None:
    rows = [
        row
        for rank, (first_id, starts_us) in enumerate(zip(ids, STARTS, strict=True))
        for row in rank_rows(rank, first_id=first_id, starts_us=starts_us)
    ]
    assert accounts(analyze_traces([write(tmp_path / "all.json", rows)])) == EXPECTED


def test_ranks_whose_rows_are_mixed_by_time_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    rows = [
        row
        for rank, starts_us in enumerate(STARTS)
        for row in rank_rows(rank, first_id=100 * rank + 1, starts_us=starts_us)
    ]
    rows.sort(key=lambda row: (row["ts"], row["name"]))
    assert accounts(analyze_traces([write(tmp_path / "all.json", rows)])) == EXPECTED


def test_labels_before_process_numbers_tell_whose_a_device_is(tmp_path: Path) -> None:
    rows = []
    for rank, starts_us in enumerate(STARTS):
        for row in rank_rows(rank, first_id=1, starts_us=starts_us):
            device = 0 if row["cat"] == "kernel" else row["pid"]  # every rank calls its own device 0
            rows.append({**row, "pid": f"[TP{rank:02}-EP00] {device}"})
    rows.sort(key=lambda row: row["ts"])
    assert accounts(analyze_traces([write(tmp_path / "merged.json", rows)])) == EXPECTED


def test_equal_ids_in_rows_that_are_mixed_are_refused(tmp_path: Path) -> None:
    rows = [
        row
        for _ in range(10)
        for rank, starts_us in enumerate(STARTS[:2])
        for row in rank_rows(rank, first_id=1, starts_us=starts_us)
    ]
    with pytest.raises(TraceError, match="several processes in one file gave out the same launch ids"):
        analyze_traces([write(tmp_path / "mixed.json", rows)])


def test_two_ranks_of_a_cpu_are_told_apart_by_their_processes(tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start, "dur": length}
        for process, compute in ((11, 300), (22, 700))
        for category, name, thread, start, length in (
            ("user_annotation", "ProfilerStep#1", 1, 0, 1000),
            ("cpu_op", "aten::mm", 1, 0, compute),
            ("user_annotation", "gloo:all_reduce", 2, 200, 600),
        )
    ]
    assert accounts(analyze_traces([write(tmp_path / "gloo.json", rows)])) == [
        (0, 500_000, 100_000),
        (1, 100_000, 500_000),
    ]


def test_stray_work_on_another_device_costs_a_note_and_makes_no_rank(tmp_path: Path) -> None:
    rows = rank_rows(0, first_id=1, starts_us=1000)
    alone = analyze_traces([write(tmp_path / "alone.json", rows)])
    stray = {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 5, "tid": 7, "ts": 3500, "dur": 9}
    beside = analyze_traces([write(tmp_path / "beside.json", [*rows, stray])])
    assert accounts(beside) == accounts(alone) == [(0, 4_000_000, 0)]
    assert any("1 event on device 5 (9.00 us) is in no number" in note for note in say_notes(beside.notes))


def test_a_file_of_one_rank_is_not_copied() -> None:
    trace = read_trace(CASES / "xpu.json")
    (part,) = split_trace(trace)
    assert part.trace is trace


def test_parts_are_drawn_as_they_are_counted() -> None:
    from dtbench.traces.spans import collect_spans

    traces = analyze_traces([CASES / "merged.json"])
    drawn = collect_spans(traces)
    assert [int((one.exposed.ends_ns - one.exposed.starts_ns).sum()) for one in drawn.ranks] == [4_000_000, 2_000_000]
    assert [len(one.work) for one in drawn.ranks] == [2, 2]

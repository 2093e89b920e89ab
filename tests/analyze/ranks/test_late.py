"""What the rank did that the others waited for."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.analyze.foreign import analyze_traces
from dtbench.analyze.ranks.late import LateRank, describe_late
from dtbench.analyze.trace_set import TraceSet
from dtbench.report.trace_document import traces_document
from dtbench.report.trace_words import answer_lines

MS = 1_000  # us, as Kineto writes
Event = dict[str, Any]


def event(category: str, name: str, where: tuple[int, int], start: float, length: float, **more: Any) -> Event:
    process, thread = where
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": start, "dur": length, "args": more,
    }  # fmt: skip


def step(rank: int, begins: float, work: Sequence[tuple[str, float]], ends: float, number: int = 1) -> list[Event]:
    """Write a step that works, one thing after the other, then issues an all-reduce that all ranks leave together."""
    host, now, events = (1, 1), begins, []
    for name, length in work:
        events.append(event("user_annotation", name, host, now, length))
        now += length
    said = {
        "Collective name": "allreduce",
        "Process Group Name": "dp",
        "Seq": number,
        "dtype": "Float",
        "Group size": 3,
        "Process Group Ranks": "[0, 1, 2]",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
    }
    calls = {"correlation": 10 * number}
    events += [
        event("cpu_op", "c10d::allreduce_", host, now, 40),
        event("cuda_runtime", "cudaLaunchKernel", host, now + 5, 10, **calls),
        event("kernel", "ncclDevKernel_AllReduce(a)", (0, 20), now + 30, ends - now - 30, **calls, **said),
        event("cuda_runtime", "cudaLaunchKernel", host, now + 60, 10, correlation=10 * number + 1),
        event("kernel", "gemm", (0, 7), ends + 10, 100, correlation=10 * number + 1),
        event("user_annotation", f"ProfilerStep#{number}", host, begins, now + 100 - begins),
    ]
    return events


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Sequence[list[Event]]], TraceSet]:
    def write(ranks: Sequence[list[Event]]) -> TraceSet:
        for rank, events in enumerate(ranks):
            told = {"distributedInfo": {"rank": rank, "world_size": len(ranks)}, "traceEvents": events}
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
        return analyze_traces([tmp_path])

    return write


def late_sentences(traces: TraceSet) -> list[str]:
    return [line for line in answer_lines(traces) if line.startswith("rank 2 ") and "is last" not in line]


def test_a_rank_that_began_late_and_copied_long_is_told_so(tell: Callable[..., TraceSet]) -> None:
    usual = [("forward", 2 * MS)]
    ranks = [step(rank, 0, usual, 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 7.6 * MS, [("copy_batch_to_gpu", 1.46 * MS), ("forward", 2 * MS)], 20 * MS))
    traces = tell(ranks)
    assert late_sentences(traces) == [
        "rank 2 began its step 7.60 ms late and then spent 1.46 ms in `copy_batch_to_gpu` (the others 0 ns)"
    ]
    waiting = traces_document(traces)["waiting"]
    assert isinstance(waiting, list)
    first, _, told = (one["meanwhile"] for one in waiting)
    assert first == "NaN"
    assert (told["began_late_ns"], told["name"], told["name_ns"]) == (7_600_000, "copy_batch_to_gpu", 1_460_000)


def test_data_loading_is_named(tell: Callable[..., TraceSet]) -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    ranks = [step(rank, 0, [(loader, 0.2 * MS), ("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [(loader, 9 * MS), ("forward", 2 * MS)], 20 * MS))
    assert late_sentences(tell(ranks)) == [f"rank 2 spent 9.00 ms in data loading (`{loader}`) (the others 200 us)"]


def test_means_are_over_the_steps_in_which_it_was_late(tell: Callable[..., TraceSet]) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(3):
            extra = [("evaluate", (4 + 2 * number) * MS)] if rank == 2 and number < 2 else []
            begins = number * 40 * MS
            events += step(rank, begins, [*extra, ("forward", 2 * MS)], begins + 20 * MS, number + 1)
        ranks.append(events)
    assert late_sentences(tell(ranks)) == [
        "rank 2 spent 5.00 ms in `evaluate` (the others 0 ns), in the mean of 2 steps"
    ]


def test_a_rank_whose_host_was_in_time_was_late_on_its_device(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in range(3)]
    kernel = next(one for one in ranks[2] if one["name"].startswith("nccl"))
    kernel["ts"], kernel["dur"] = 12 * MS, 8 * MS
    assert late_sentences(tell(ranks)) == [
        "rank 2 issued no later than the others: its device came late to what its host had launched"
    ]


def test_nothing_is_told_of_one_rank_alone_or_where_nobody_waits(tell: Callable[..., TraceSet]) -> None:
    assert not tell([step(0, 0, [("forward", 2 * MS)], 20 * MS)]).late_ranks
    assert not tell([step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in range(3)]).late_ranks


def test_a_host_that_was_late_with_nothing_to_show_for_it_is_passed_over() -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100, began_late_ns=0, name="", name_ns=0, others_ns=0, host_late_ns=90
    )  # fmt: skip
    assert describe_late(one) is None

"""Steps in which a clock was set have no times: they are counted, and enter no mean."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.report.page.trace_page import purpose_table
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average, average_purposes
from dtbench.traces.job.set_clocks import leave_out_settings
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rows.tables import OVERLAP
from dtbench.traces.time.intervals import unite
from dtbench.traces.time.overlap import NOT_SEEN
from tests.known import known, total

STEP_US = 10_000
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def event(category: str, name: str, where: tuple[int, int], start: float, length: float, **more: Any) -> dict[str, Any]:
    process, thread = where
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": start, "dur": length, "args": more,
    }  # fmt: skip


def draw(rank: int, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Draw steps of 10 ms: compute for 3 ms, an all-reduce of 4 ms of which the last 2 lie behind compute, idle."""
    events = []
    for number in range(steps):
        at, calls = number * STEP_US, 100 * number
        said = {
            "Collective name": "allreduce", "Process Group Name": "dp", "Seq": number, "dtype": "Float",
            "Group size": ranks, "Process Group Ranks": str(list(range(ranks))),
            "In msg nelems": 1024, "Out msg nelems": 1024,
        }  # fmt: skip
        events += [
            event("user_annotation", f"ProfilerStep#{number}", (1, 1), at, STEP_US - 100),
            event("cuda_runtime", "cudaLaunchKernel", (1, 1), at + 10, 10, correlation=calls),
            event("kernel", "gemm", (0, 7), at + 100, 3_000, correlation=calls),
            event("cpu_op", "c10d::allreduce_", (1, 1), at + 30, 40),
            event("cuda_runtime", "cudaLaunchKernel", (1, 1), at + 35, 10, correlation=calls + 1),
            event(
                "kernel", "ncclDevKernel_AllReduce(a)", (0, 20), at + 1_100, 4_000 + rank, correlation=calls + 1, **said
            ),
            event("cuda_runtime", "cudaLaunchKernel", (1, 1), at + 80, 10, correlation=calls + 2),
            event("kernel", "gemm", (0, 7), at + 9_000, 50, correlation=calls + 2),
        ]
    return events


def set_clock(events: Sequence[dict[str, Any]], at_us: float, by_us: float) -> list[dict[str, Any]]:
    def see(time_us: float) -> float:
        return time_us + by_us * (time_us > at_us)

    ends = [(one, one["ts"] + one["dur"]) for one in events]
    return [{**one, "ts": see(one["ts"]), "dur": see(end) - see(one["ts"])} for one, end in ends]


@pytest.fixture
def analyze(tmp_path: Path) -> Callable[..., TraceSet]:
    def write(ranks: int, steps: int, *, set_at_us: float | None = None, by_us: float = 30_000) -> TraceSet:
        for rank in range(ranks):
            events = draw(rank, ranks, steps)
            if rank == 0 and set_at_us is not None:
                events = set_clock(events, set_at_us, by_us)
            told = {"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events}
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
        return analyze_traces([tmp_path])

    return write


# number 3's all-reduce runs from 31.1 to 35.1 ms; the one before ended at 25.1: steps 2 and 3 may hold the moment
DURING = 34_000


def test_steps_of_the_rank_whose_clock_was_set_are_left_out_and_counted(analyze: Callable[..., TraceSet]) -> None:
    plain = analyze(4, 8)
    traces = analyze(4, 8, set_at_us=DURING)
    first, *others = traces.analyses
    assert first.set_steps == (2, 3)
    assert [step.step for step in first.steps if step.overlap == NOT_SEEN] == [2, 3]
    assert first.whole == NOT_SEEN
    assert [one.set_steps for one in others] == [None] * 3
    assert average([first]).overlap.hidden_comm_ns == average([plain.analyses[0]]).overlap.hidden_comm_ns == 2_000_000
    assert average(traces.analyses).overlap.hidden_comm_ns == average(plain.analyses).overlap.hidden_comm_ns
    assert [row.comm_ns for row in average_purposes([first])] == [
        row.comm_ns for row in average_purposes([plain.analyses[0]])
    ]
    assert (
        "rank 0: steps 2-3 are left out: a clock may have been set while it was recorded, and what was under way then"
        " took longer, or shorter, than it says; nor is any time of the whole trace known"
    ) in say_notes(traces.notes)
    assert "without 2 steps in which a clock may have been set" in answer_lines(traces)[-1]


def test_owners_still_add_up_to_the_steps_that_are_left(analyze: Callable[..., TraceSet]) -> None:
    traces = analyze(4, 8, set_at_us=DURING)
    exposed_ns = [step.overlap.exposed_comm_ns for one in traces.analyses for step in one.steps if step.overlap.step_ns]
    assert len(exposed_ns) == 30
    assert sum(row.exposed_ns for row in traces.owners) == total(exposed_ns)
    for one in traces.analyses:
        steps_ns = (step.overlap.exposed_comm_ns or 0 for step in one.steps)
        assert sum(one.stepped_exposed_ns) == sum(steps_ns)
    assert traces.analyses[0].timeline.exposed_of(3) is None
    assert traces.analyses[0].timeline.exposed_of(4) == known(traces.analyses[0].steps[4].overlap.exposed_comm_ns)


def test_of_two_ranks_the_steps_of_both_are_left_out(analyze: Callable[..., TraceSet]) -> None:
    traces = analyze(2, 8, set_at_us=DURING)
    assert [one.set_steps for one in traces.analyses] == [(2, 3), (2, 3)]
    rows = list(OVERLAP.list_rows(traces.analyses))
    assert [row["step"] for row in rows if row["compute_ns"] is None] == [2, 3, 2, 3]


def test_a_single_end_on_one_side_tells_where_it_stays_so(analyze: Callable[..., TraceSet]) -> None:
    #     ends at 5.1, 15.1 and 25.1 ms, the last two on the other clock; then without the last step, whose end tells
    traces = analyze(2, 3, set_at_us=14_000, by_us=3_000)
    assert [one.set_steps for one in traces.analyses] == [(0, 1), (0, 1)]
    assert average(traces.analyses).windows == 2
    traces = analyze(2, 3, set_at_us=24_000, by_us=3_000)
    assert [one.set_steps for one in traces.analyses] == [(1, 2), (1, 2)]


def test_where_no_step_is_left_nothing_is_known(analyze: Callable[..., TraceSet]) -> None:
    one = analyze(1, 2).analyses[0]
    left = leave_out_settings(one, unite([5_000_000], [15_000_000]))
    assert left.set_steps == (0, 1)
    mean = average([left])
    assert mean.overlap == NOT_SEEN
    assert (mean.step, mean.exposed) == (None, None)
    assert [row.comm_ns for row in average_purposes([left])] == [None]
    assert set(left.exposed_ns) == set(left.stepped_exposed_ns) == {0}
    assert left.accounts.whole.gaps is None
    assert leave_out_settings(one, unite([], [])) is one


def test_a_clock_that_was_not_set_leaves_nothing_out(analyze: Callable[..., TraceSet]) -> None:
    traces = analyze(2, 8)
    assert [one.set_steps for one in traces.analyses] == [None, None]
    assert not any("clock" in note for note in say_notes(traces.notes))


def draw_loading(steps: int, *, last_loads_us: float = 6_000) -> str:
    """Draw steps that load data for 6 ms, compute for 1, reduce for 2.5 and end half a ms later."""
    events = []
    for number in range(steps):
        at, calls = number * STEP_US, 2 * number + 1
        load = last_loads_us if number == steps - 1 else 6_000
        said = {"Collective name": "allreduce", "Process Group Name": "dp", "Seq": number}
        events += [
            event("user_annotation", f"ProfilerStep#{number}", (1, 1), at, load + 4_000),
            event("cuda_runtime", "cudaLaunchKernel", (1, 1), at + load, 10, correlation=calls),
            event("cuda_runtime", "cudaLaunchKernel", (1, 1), at + load + 10, 10, correlation=calls + 1),
            event("kernel", "gemm", (0, 7), at + load + 20, 1_000, correlation=calls),
            event(
                "kernel", "ncclDevKernel_AllReduce(a)", (0, 8), at + load + 1_020, 2_500, correlation=calls + 1, **said
            ),
        ]
    return json.dumps({"traceEvents": events})


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_a_last_step_that_the_trace_cuts_short_enters_no_mean(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "trace.json"
    path.write_text(draw_loading(steps))
    traces = analyze_traces([path])
    mean = average(traces.analyses)
    assert (mean.windows, known(mean.step).median_ns) == (steps - 1, 10_000_000)
    assert mean.overlap.exposed_comm_ns == 2_500_000
    assert sum(traces.analyses[0].stepped_exposed_ns) == (steps - 1) * 2_500_000
    assert [row["step_ns"] for row in OVERLAP.list_rows(traces.analyses)][:steps] == [10_000_000] * (steps - 1) + [None]
    (note,) = (note for note in say_notes(traces.notes) if "left out" in note)
    assert note == (
        f"rank 0: step {steps - 1} is left out, not all of it is there: from its first kernel to the trace's last are"
        " 3.50 ms, and it took the host 10.0 ms and others 10.0 ms"
    )
    said = " ".join(answer_lines(traces))
    assert "without 1 last step not all in the trace" in said
    assert "NOT REPRESENTATIVE" not in said


def test_the_only_step_stays_and_a_note_says_that_it_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(draw_loading(1))
    traces = analyze_traces([path])
    assert average(traces.analyses).overlap.exposed_comm_ns == 2_500_000
    assert any("step 0 is not all there" in note for note in say_notes(traces.notes))


def test_a_last_step_that_is_short_on_the_host_too_is_no_part_of_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(draw_loading(5, last_loads_us=0))
    traces = analyze_traces([path])
    assert traces.analyses[0].truncated_step is None
    assert average(traces.analyses).windows == 5


def test_the_only_step_of_a_rank_is_left_out_where_another_rank_has_a_whole_one(tmp_path: Path) -> None:
    """One step was profiled: the mean of a whole one and of a part of one is no step's."""
    for rank, load in enumerate((0, 6_000)):
        told = {"distributedInfo": {"rank": rank, "world_size": 2}, **json.loads(draw_loading(1, last_loads_us=load))}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
    traces = analyze_traces([tmp_path])
    mean = average(traces.analyses)
    assert (mean.windows, mean.ranks, mean.overlap.step_ns) == (1, (0,), 3_500_000)
    assert [one.accounts.steps[0].gaps is None for one in traces.analyses] == [False, True]
    assert any(
        note.startswith("rank 1: step 0 is left out, not all of it is there") for note in say_notes(traces.notes)
    )
    assert "none of rank 1, without 1 last step not all in the trace" in answer_lines(traces)[-1]


def test_what_is_lost_of_a_step_that_is_left_out_makes_no_bound_of_the_others(tmp_path: Path) -> None:
    """Of rank 1's last step hardly a kernel is there: it has part in no number."""
    folder = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "ddp"
    for path in sorted(folder.glob("rank*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        if path.name.startswith("rank1"):
            starts_us = sorted(one["ts"] for one in trace["traceEvents"] if one.get("cat") in DEVICE)
            last_us = starts_us[int(len(starts_us) * 0.7)]
            kept = [one for one in trace["traceEvents"] if one.get("cat") not in DEVICE or one["ts"] <= last_us]
            trace["traceEvents"] = kept
        (tmp_path / path.name.removesuffix(".gz")).write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    (left,) = [step for step in traces.analyses[1].steps if step.overlap.step_ns is None]
    assert traces.analyses[1].unseen == left.lost > 0
    assert average(traces.analyses).lost == 0
    assert "at least" not in answer_lines(traces)[0].partition(" exposed")[0]
    assert not [words for row in purpose_table(traces).words for words in row if "at least" in str(words)]

"""An answer about traces names the larger loss first, and says of one rank's bandwidth only what it can."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.report.page.trace_page import gap_table, purpose_table
from dtbench.report.words.larger_losses import HostWait, describe_host
from dtbench.report.words.sentences import answer_sentence
from dtbench.report.words.trace_words import answer_lines
from dtbench.runs.cell.summarize_waits import summarize_idle
from dtbench.runs.summary import CellSummary, DeviceIdle
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.known_part import KnownPart
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.rows.collective_table import COLLECTIVES

QUEUE = Path(__file__).parents[1] / "traces" / "recorded" / "one_hardware_queue" / "queue1"
MS = 1_000  # us


def write_step(path: Path, *, launched_ms: float, sync_ms: float = 0, copied_ms: float = 0) -> TraceSet:
    """Write a step of 20 ms: compute for 1 ms, a collective from 1 to 4 ms, a copy from 4 ms, compute from 15 ms on."""
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, where: tuple[int, int], start: float, length: float, **more: Any) -> None:
        process, thread = where
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread}
            | {"ts": start * MS, "dur": length * MS, "args": more}
        )

    said = {"Collective name": "allreduce", "Process Group Name": "dp", "In msg nelems": 3_000_000, "dtype": "Float"}
    add("user_annotation", "ProfilerStep#1", (1, 1), 0, 20)
    add("cuda_runtime", "cudaLaunchKernel", (1, 1), 0.1, 0.01, correlation=1)
    add("kernel", "gemm", (0, 7), 0.2, 0.8, correlation=1)
    add("cpu_op", "c10d::allreduce_", (1, 1), 0.3, 0.1)
    add("cuda_runtime", "cudaLaunchKernel", (1, 1), 0.32, 0.01, correlation=2)
    add("kernel", "ncclDevKernel_AllReduce(a)", (0, 20), 1, 3, correlation=2, **said, **{"Group size": 2})
    if copied_ms:
        add("cuda_runtime", "cudaMemcpyAsync", (1, 1), 0.5, 0.01, correlation=4)
        add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", (0, 7), 4, copied_ms, correlation=4)
    if sync_ms:
        add("cuda_runtime", "cudaStreamSynchronize", (1, 1), launched_ms - sync_ms, sync_ms)
    add("cuda_runtime", "cudaLaunchKernel", (1, 1), launched_ms, 0.01, correlation=3)
    add("kernel", "gemm", (0, 7), 15, 5, correlation=3)
    path.write_text(json.dumps({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events}))
    return analyze_traces([path])


def test_where_the_device_waits_longer_for_the_host_that_comes_first(tmp_path: Path) -> None:
    first, second, *_ = answer_lines(write_step(tmp_path / "a.json", launched_ms=14))
    assert first == "step 19.8 ms, the device waits 13.0 ms of it for the host (65.7 %), longer than for communication"
    assert second.startswith("3.00 ms exposed")


def test_what_the_host_spent_in_a_synchronising_call_is_told(tmp_path: Path) -> None:
    first = answer_lines(write_step(tmp_path / "a.json", launched_ms=14, sync_ms=6))[0]
    assert first.endswith(
        "for the host (65.7 %), 6.00 ms of that in synchronising calls, longer than for communication"
    )


def test_where_launches_are_not_recorded_the_wait_for_the_host_is_at_least_what_is_seen(
    tmp_path: Path, make_ddp: Callable[..., CellSummary]
) -> None:
    """The device stood still for 2 ms before a kernel without a launch: who was late is not known, who else is."""
    path = tmp_path / "a.json"
    write_step(path, launched_ms=14, sync_ms=6)
    trace = json.loads(path.read_text())
    last = next(one for one in trace["traceEvents"] if one["ts"] == 15 * MS)
    last["dur"] = 1 * MS
    trace["traceEvents"].append({**last, "ts": 18 * MS, "dur": 2 * MS, "args": {"correlation": 99}})
    path.write_text(json.dumps(trace))
    traces = analyze_traces([path])
    said = (
        "waits at least 13.0 ms of it for the host (at least 65.7 %), at least 6.00 ms of that in synchronising calls"
    )
    assert said in answer_lines(traces)[0]
    (row,) = gap_table(traces).words
    assert row[3:6] == ("n/a", "at least 13.0 ms", "at least 6.00 ms")
    idle = DeviceIdle(host_wait_ns=90e6, host_sync_ns=4e6, comm_wait_ns=1e6, comm_wait_at_most_ns=2e6)
    answer = answer_sentence(make_ddp(update={"idle": idle})) or ""
    assert answer.startswith("the device waits at least 90.0 ms of a profiled step for the host")


@pytest.mark.parametrize(
    ("host_ns", "same"), [(80, ", and at least 10.0 ns of that while communication was exposed"), (70, "")]
)
def test_two_losses_that_are_longer_than_a_step_together_are_said_to_be_of_the_same_time(
    host_ns: int, same: str
) -> None:
    said = describe_host(HostWait(host_ns, 0, 0), comm_ns=5, exposed_ns=30, step_ns=100, of="it")
    assert said == (
        f"the device waits {host_ns}.0 ns of it for the host ({host_ns}.0 %), longer than for communication{same}; "
    )


def test_where_the_device_waits_longer_for_communication_the_host_is_not_named(tmp_path: Path) -> None:
    assert "host" not in answer_lines(write_step(tmp_path / "a.json", launched_ms=2))[0]


@pytest.mark.parametrize(("copied_ms", "is_told"), [(0, False), (2.5, False), (9, True)])
def test_where_copies_alone_take_longer_than_communication_is_exposed_they_come_first(
    tmp_path: Path, copied_ms: float, is_told: bool
) -> None:
    first, second, *_ = answer_lines(write_step(tmp_path / "a.json", launched_ms=2, copied_ms=copied_ms))
    assert ("copies alone take 9.00 ms of it (45.5 %), longer than communication is exposed" in first) is is_told
    assert second.startswith("3.00 ms exposed") is is_told
    assert ("copies" in first) is is_told


def test_a_run_says_of_copies_too_where_they_are_the_larger_loss(make_ddp: Callable[..., CellSummary]) -> None:
    one = make_ddp()
    ranks = tuple(row.model_copy(update={"exposed_copy_ns": 50_000_000}) for row in one.ranks)
    assert "copies" not in str(answer_sentence(one))
    said = str(answer_sentence(one.model_copy(update={"ranks": ranks})))
    assert said.startswith("copies alone take 50.0 ms of a profiled step (")
    unseen = one.model_copy(update={"ranks": ranks, "unseen_collectives": 1})
    assert "copies" not in str(answer_sentence(unseen)), "it may have run beside them"


def test_a_copy_that_may_have_run_beside_a_collective_that_was_not_seen_is_no_larger_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_step(path, launched_ms=2, copied_ms=9)
    trace = json.loads(path.read_text())
    launch = next(one for one in trace["traceEvents"] if one["args"].get("correlation") == 2)
    call = {**launch, "ts": 21_020, "args": {"correlation": 77}}
    issue = next(one for one in trace["traceEvents"] if one["name"] == "c10d::allreduce_")
    trace["traceEvents"] += [{**issue, "ts": 21_000}, call]  # after the step
    path.write_text(json.dumps(trace))
    traces = analyze_traces([path])
    assert answer_lines(traces)[0].startswith("step 19.8 ms, at least 3.00 ms exposed")
    (row,) = purpose_table(traces).words
    assert row[5] == "at least 3.00 ms", "a mean is a bound in the table where it is one in the answer"
    assert average(traces.analyses).lost == 1


@pytest.mark.parametrize("name", ["plain", "ring"])
def test_where_all_ranks_are_here_a_bandwidth_says_their_waiting_is_not_known_only_where_it_is_not(name: str) -> None:
    traces = analyze_traces([QUEUE.parents[1] / "pipelines" / name])  # sends and receives: transfer is not told apart
    assert any(skew.skew_wait_ns for one in traces.analyses for skew in one.skews)
    assert purpose_table(traces).said[-1].endswith("; waiting for others counts as transfer")
    untold = [replace(one, skews=tuple(CollectiveSkew() for _ in one.skews)) for one in traces.analyses]
    (note,) = purpose_table(replace(traces, analyses=tuple(untold))).said
    assert note.endswith("; how long each waited for others is not known, and counts as transfer")


def test_one_ranks_bandwidth_is_at_least_its_bytes_over_its_spans() -> None:
    alone, together = analyze_traces([QUEUE / "rank0.json"]), analyze_traces([QUEUE])
    (note,) = purpose_table(alone).said
    assert note == (
        "bandwidth (algbw) at least: grad_reduce 1.80 GB/s; waiting for ranks that are not here counts as transfer"
    )
    assert purpose_table(together).said == ()
    rows = COLLECTIVES.tabulate(alone.analyses)
    assert rows["algbw"].isna().all()
    assert rows["algbw_at_least"].tolist() == pytest.approx([2**21 / 1.5e-3, 2**21 / 1.5e-3, 2**21 / 0.5e-3])
    assert rows["busbw_at_least"].tolist() == pytest.approx([half / 2 for half in rows["algbw_at_least"]])


def test_where_two_collectives_ran_at_once_a_bandwidth_is_of_both() -> None:
    """The same twice, at the same time, moves twice the bytes."""
    alone = analyze_traces([QUEUE / "rank0.json"])
    (one,) = alone.analyses
    timeline = replace(one.timeline, collectives=one.collectives * 2)
    (note,) = purpose_table(replace(alone, analyses=(replace(one, timeline=timeline),))).said
    assert "grad_reduce 3.60 GB/s" in note


def test_of_a_size_that_is_not_told_there_is_no_bandwidth(tmp_path: Path) -> None:
    told = json.loads((QUEUE / "rank0.json").read_text())
    for one in told["traceEvents"]:
        one.get("args", {}).pop("In msg nelems", None)
        one.get("args", {}).pop("Out msg nelems", None)
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(told))
    traces = analyze_traces([path])
    assert purpose_table(traces).said == ()
    assert COLLECTIVES.tabulate(traces.analyses)["algbw_at_least"].isna().all()


@pytest.mark.parametrize(("comm_ms", "is_said"), [(2, True), (14, False)])
def test_where_the_wait_for_communication_is_not_known_all_of_it_stands_against_the_host(
    tmp_path: Path, comm_ms: int, *, is_said: bool
) -> None:
    """No consumer of the collective is to be seen: its wait is n/a, not 0."""
    path = tmp_path / "a.json"
    write_step(path, launched_ms=14)
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event["name"].startswith("ncclDevKernel"):
            event["ts"], event["dur"] = 0.95 * MS, comm_ms * MS
    path.write_text(json.dumps(trace))
    traces = analyze_traces([path])
    (account,) = traces.analyses[0].accounts.steps
    unknown = replace(account, gaps=replace(account.gaps, comm_wait_ns=None)) if account.gaps else account
    one = traces.analyses[0]
    untold = replace(traces, analyses=(replace(one, accounts=replace(one.accounts, steps=(unknown,))),))
    assert ("for the host" in answer_lines(untold)[0]) is is_said


@pytest.mark.parametrize(
    ("idle", "begin"),
    [
        (None, "11.5 ms of a profiled step"),
        (
            DeviceIdle(host_wait_ns=1e6, host_sync_ns=0.0, comm_wait_ns=9e6, comm_wait_at_most_ns=9e6),
            "11.5 ms of a profiled step",
        ),
        (
            DeviceIdle(host_wait_ns=15e6, host_sync_ns=4e6, comm_wait_ns=9e6, comm_wait_at_most_ns=9e6),
            "the device waits 15.0 ms of a profiled step for the host (9.9 %), 4.00 ms of that in synchronising calls",
        ),
    ],
)
def test_a_run_names_the_larger_loss_first_too(
    make_ddp: Callable[..., CellSummary], idle: DeviceIdle | None, begin: str
) -> None:
    said = answer_sentence(make_ddp(update={"idle": idle}))
    assert said is not None
    assert said.startswith(begin)


def test_what_devices_stood_still_for_is_a_mean_over_what_is_known() -> None:
    rows = pd.DataFrame({"host_wait_ns": [4, 8, pd.NA], "host_sync_ns": [0, 2, pd.NA], "comm_wait_ns": [1, 3, pd.NA]})
    rows = rows.astype("Int64").assign(gap_ns=[9, 40, 9], launch_unknown_ns=[0, 6, 0], rank=0, step=[1, 2, 3])
    of_cpu = rows.assign(host_wait_ns=pd.array([pd.NA] * 3, dtype="Int64"))
    part = KnownPart(steps=2, of_steps=3)
    found = summarize_idle(rows, rows[["rank", "step"]])
    idle = DeviceIdle(host_wait_ns=6.0, host_sync_ns=1.0, comm_wait_ns=2.0, comm_wait_at_most_ns=5.0, part=part)
    assert found == idle
    of_lost = rows.assign(comm_wait_ns=pd.array([1, pd.NA, pd.NA], dtype="Int64"))
    doubtful = summarize_idle(of_lost, rows[["rank", "step"]])
    assert doubtful is not None
    assert math.isnan(doubtful.comm_wait_ns)
    assert doubtful.comm_wait_at_most_ns == (1 + 40 - 8) / 2
    assert summarize_idle(of_cpu, rows[["rank", "step"]]) is None


def test_the_host_is_not_blamed_for_gaps_of_which_nobody_knows_what_was_launched(
    make_ddp: Callable[..., CellSummary], tmp_path: Path
) -> None:
    idle = DeviceIdle(host_wait_ns=90e6, host_sync_ns=4e6, comm_wait_ns=1e6, comm_wait_at_most_ns=96e6)
    assert "for the host" not in (answer_sentence(make_ddp(update={"idle": idle})) or "")
    path = tmp_path / "a.json"
    whole = write_step(path, launched_ms=15)
    assert "for the host" in answer_lines(whole)[0]
    gaps = whole.analyses[0].accounts.steps[0].gaps
    assert gaps is not None
    unknown = replace(gaps, launch_unknown_ns=gaps.host_wait_ns or 0)
    accounts = replace(whole.analyses[0].accounts, steps=(replace(whole.analyses[0].accounts.steps[0], gaps=unknown),))
    lost = replace(whole, analyses=(replace(whole.analyses[0], accounts=accounts),))
    assert "for the host" not in answer_lines(lost)[0]


def test_what_devices_wait_for_is_set_against_nothing_of_other_steps(make_ddp: Callable[..., CellSummary]) -> None:
    idle = DeviceIdle(host_wait_ns=90e6, host_sync_ns=4e6, comm_wait_ns=1e6, comm_wait_at_most_ns=1e6)
    part = KnownPart(steps=2, of_steps=3)
    assert "for the host" in (answer_sentence(make_ddp(update={"idle": idle})) or "")
    assert "for the host" not in (answer_sentence(make_ddp(update={"idle": idle, "part": part})) or "")


def test_where_a_collective_was_not_seen_to_run_that_is_why_exposure_is_not_known(tmp_path: Path) -> None:
    for path in sorted(QUEUE.glob("rank*.json")):
        trace = json.loads(path.read_text())
        sent = sorted(
            (one for one in trace["traceEvents"] if "nccl" in one["name"] and one.get("cat") == "kernel"),
            key=lambda one: one["ts"],
        )
        trace["traceEvents"].remove(sent[2])
        (tmp_path / path.name).write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    first = answer_lines(traces)[0]
    assert "how much of it was exposed is not known: collectives were launched that were not seen to run" in first
    assert "at least 3.00 ms of communication" in first
    assert all(math.isnan(step.overlap.hidden_fraction) for one in traces.analyses for step in one.steps)

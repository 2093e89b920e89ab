"""Two NCCL ranks on one H200, recorded with torch's profiler alone: traces/README.md says how and with what in them.

Every figure of every step is held against a count, nanosecond by nanosecond, over the file's own events.
"""

import gzip
import json
import re
from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.causes.split import sum_lacking
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP
from dtbench.traces.time.overlap import Overlap

NAMES = ("at_once", "compiled", "ddp", "fsdp2", "fsdp2_tp", "graph", "host", "sendrecv", "skew")
LAYER_BYTES = 4 * (256 * 1024 + 1024 + 1024 * 256 + 256)
HEAD_BYTES = 4 * (256 * 16 + 16)


@pytest.fixture
def folder(recorded: Path) -> Path:
    return recorded / "two_ranks_one_gpu"


@pytest.fixture
def analyze(folder: Path) -> Callable[[str], TraceAnalysis]:
    return lambda name: analyze_trace(read_trace(folder / name / "rank0.json.gz"))


def kind_of(event: dict[str, Any]) -> str | None:
    if event.get("cat") in ("gpu_memcpy", "gpu_memset") or re.fullmatch(r"memcpy(32_post|128)", event.get("name", "")):
        return "copy"
    if event.get("cat") != "kernel":
        return None
    return "comm" if event["name"].startswith("ncclDevKernel") else "compute"


def times_ns(event: dict[str, Any]) -> tuple[int, int]:
    start_ns = round(event["ts"] * 1000)
    return start_ns, start_ns + round(event["dur"] * 1000)


def count(path: Path) -> list[Overlap]:
    """Account for every step of a file from its events alone, border by border."""
    text = gzip.decompress(path.read_bytes())
    events: list[dict[str, Any]] = json.loads(text, parse_float=Decimal)["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    steps = [one for one in spans if one["name"].startswith("ProfilerStep") and one["cat"] == "user_annotation"]
    marks = sorted(times_ns(one)[0] for one in steps)
    launched = {one["args"]["correlation"]: times_ns(one)[0] for one in spans if one["cat"].startswith("cuda_")}
    device = [(*times_ns(one), kind_of(one), one["args"].get("correlation")) for one in spans if kind_of(one)]
    first: dict[int, int] = {}
    for start_ns, _, _, correlation in device:
        step = bisect_right(marks, launched.get(correlation, 0)) - 1
        if step >= 0:
            first[step] = min(start_ns, first.get(step, start_ns))
    borders = [first[step] for step in range(len(marks))] + [max(end_ns for _, end_ns, _, _ in device)]
    return [count_window(device, *window) for window in pairwise(borders)]


def count_window(device: list[Any], start_ns: int, end_ns: int) -> Overlap:
    changes = [(max(a, start_ns), kind, 1) for a, b, kind, _ in device if a < end_ns and b > start_ns]
    changes += [(min(b, end_ns), kind, -1) for a, b, kind, _ in device if a < end_ns and b > start_ns]
    running = dict.fromkeys(("compute", "comm", "copy"), 0)
    spent = dict.fromkeys(("compute", "comm", "hidden", "exposed", "copy", "idle"), 0)
    before_ns = start_ns
    for now_ns, kind, change in [*sorted(changes), (end_ns, "comm", 0)]:
        length_ns, before_ns = now_ns - before_ns, now_ns
        on = {kind for kind, count in running.items() if count}
        spent["compute"] += length_ns * ("compute" in on)
        spent["comm"] += length_ns * ("comm" in on)
        spent["hidden"] += length_ns * ({"comm", "compute"} <= on)
        spent["exposed"] += length_ns * ("comm" in on and "compute" not in on)
        spent["copy"] += length_ns * (on == {"copy"})
        spent["idle"] += length_ns * (not on)
        running[kind] += change
    return Overlap(end_ns - start_ns, *spent.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", [0, 1])
def test_each_step_is_what_its_events_add_up_to(folder: Path, name: str, rank: int) -> None:
    path = folder / name / f"rank{rank}.json.gz"
    steps = analyze_trace(read_trace(path)).steps
    assert [step.overlap for step in steps] == count(path)
    assert len(steps) == 3


@pytest.mark.parametrize("name", NAMES)
def test_no_kernel_of_torch_nccl_or_the_driver_is_unknown(folder: Path, name: str) -> None:
    traces = analyze_traces([folder / name])
    assert traces.unknown_names == ()
    assert [one.name for one in traces.names_on_comm_lanes if "spin_kernel" not in one.name] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("ddp", {Purpose.GRAD_REDUCE: (6, 3 * LAYER_BYTES + HEAD_BYTES)}),
        ("compiled", {Purpose.GRAD_REDUCE: (7, 3 * LAYER_BYTES + HEAD_BYTES)}),
        (
            "fsdp2",
            {
                # In bfloat16, layers in forward and again in backward; the root stays gathered until the end.
                Purpose.UNSHARD: (7, (2 * 3 * LAYER_BYTES + HEAD_BYTES) // 2),
                Purpose.GRAD_REDUCE: (4, 3 * LAYER_BYTES + HEAD_BYTES),
                Purpose.OTHER: (1, None),
            },
        ),
        ("fsdp2_tp", {Purpose.TENSOR: (5, 5 * 64 * 256 * 4)}),
        ("skew", {Purpose.GRAD_REDUCE: (4, 4 * (4 * (1024 * 1024 + 1024)) + 4 * (1024 * 16 + 16))}),
        ("at_once", {Purpose.OTHER: (1, 4 << 20)}),
        ("graph", {Purpose.OTHER: (6, None)}),
        ("sendrecv", {Purpose.OTHER: (1, None)}),
    ],
)
def test_collectives_are_for_what_the_loop_has_them_and_as_large(
    analyze: Callable[[str], TraceAnalysis], name: str, wanted: dict[Purpose, tuple[int, int | None]]
) -> None:
    for step in analyze(name).steps:
        found = {one.purpose: (one.count, one.size_bytes) for one in step.purposes if one.count}
        assert {purpose: found[purpose][0] for purpose in found} == {key: value[0] for key, value in wanted.items()}
        for purpose, (_, size_bytes) in wanted.items():
            if size_bytes is not None:
                assert found[purpose][1] == size_bytes


def test_a_rank_whose_device_computes_longer_is_the_one_that_is_waited_for(folder: Path) -> None:
    """Rank 1 spins for 42.5 million cycles at the start of each step, 21.5 ms at 1.98 GHz."""
    traces = analyze_traces([folder / "skew"])
    means = OVERLAP.tabulate(traces.analyses).groupby("rank")[["compute_ns", "exposed_comm_ns"]].mean()
    planted_ns = means["compute_ns"][1] - means["compute_ns"][0]
    assert planted_ns == pytest.approx(42.5e6 / 1.98, rel=0.01)
    assert means["exposed_comm_ns"][0] - means["exposed_comm_ns"][1] == pytest.approx(planted_ns, rel=0.01)
    collectives = COLLECTIVES.tabulate(traces.analyses).dropna(subset=["step"])
    waited_ns = collectives.groupby("rank")["skew_wait_ns"].max()
    assert waited_ns[0] == pytest.approx(planted_ns, rel=0.02)
    assert waited_ns[1] == 0
    assert "waited for rank 1" in answer_lines(traces)[0]


def test_one_rank_alone_says_that_its_causes_may_be_waiting_for_the_other(folder: Path) -> None:
    """Of what rank 0 queued for, nearly all is its wait for rank 1, as both together say."""
    said = "rank 0 alone of 2: whatever its cause, any of it may be waiting for the other"
    alone = answer_lines(analyze_traces([folder / "skew" / "rank0.json.gz"]))
    assert "queued behind" in alone[0]
    assert [line for line in alone if line.startswith(said)]
    assert not [line for line in answer_lines(analyze_traces([folder / "skew"])) if " alone of " in line]


def test_a_host_that_stands_still_is_named_before_communication(folder: Path) -> None:
    """A hook of backward waits for the device, and then sleeps 40 ms."""
    traces = analyze_traces([folder / "host"])
    idle_ns = OVERLAP.tabulate(traces.analyses)["idle_ns"]
    assert idle_ns.between(40 * NS_PER_MS, 41.5 * NS_PER_MS).all()
    waits = r"the device waits 4\d\.\d ms of it for the host .*longer than for communication"
    assert re.search(waits, answer_lines(traces)[0])


def test_collectives_of_a_graph_are_nobodys_and_of_unknown_size(analyze: Callable[[str], TraceAnalysis]) -> None:
    one = analyze("graph")
    assert {found.operation for found in one.collectives} == {Operation.ALL_REDUCE}
    assert {(found.size_bytes, found.owner) for found in one.collectives} == {(None, "")}
    assert one.uncorrelated.graph_launched == 405


def test_when_collectives_of_a_graph_could_have_run_is_not_known(folder: Path) -> None:
    """Its launch is ahead of the device by a replay or two, and is no issue of any of them."""
    traces = analyze_traces([folder / "graph"])
    parts = [
        part
        for one in traces.analyses
        for collective, split in zip(one.collectives, one.splits, strict=True)
        if collective.is_captured
        for part in split.parts
    ]
    assert {part.cause for part in parts} == {Cause.SKEW, Cause.UNKNOWN}
    assert all(MissingInput.GRAPH_ORDER in part.missing for part in parts if part.cause is Cause.UNKNOWN)
    assert all("queued" not in line for line in answer_lines(traces))


def test_what_most_of_the_time_lacks_is_asked_for_first(folder: Path) -> None:
    """Of 14.5 ms that lie in graphs a late rank put off 0.2 ms."""
    traces = analyze_traces([folder / "graph"])
    (row,) = [row for row in traces.owners if row.cause is Cause.UNKNOWN]
    assert row.missing == (MissingInput.GRAPH_ORDER, MissingInput.PUT_OFF)
    parts = [part for one in traces.analyses for split in one.splits for part in split.parts]
    lacking_ns = sum_lacking([part for part in parts if part.cause is Cause.UNKNOWN])
    assert lacking_ns[MissingInput.PUT_OFF] * 50 < lacking_ns[MissingInput.GRAPH_ORDER]
    assert answer_lines(traces)[1].endswith("Profile a step without captured graphs.")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_spin_of_forward_and_a_longer_one_of_backward_are_no_tax(folder: Path, rank: int) -> None:
    """Both are one kernel of one shape, 2 ms alone in forward and 12 ms beside communication in backward."""
    tax = analyze_trace(read_trace(folder / "skew" / f"rank{rank}.json.gz")).accounts.overlap_tax
    assert tax is not None
    assert not any("spin_kernel" in kernel.name for kernel in tax.kernels)
    assert not tax.kernels or abs(tax.tax_ns) < NS_PER_MS / 2

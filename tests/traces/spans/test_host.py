"""What hosts did beside their devices: which operator was innermost when, which call launched what."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.report.timeline import make_timeline
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.job.chosen_steps import StepRange
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.spans import JobSpans, collect_spans
from dtbench.traces.spans.host import HostSpans
from dtbench.traces.spans.span_rows import arrange_lanes

RECORDED = Path(__file__).parents[1] / "recorded"
SAID = '{"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float", "Seq": 1, "Process Group Name": "0"}'
HOSTED = f"""
step ProfilerStep#1                 @1  |===============               |
step ProfilerStep#2                 @1  |               ===============|
range dtbench::region forward       @1  |===============               |
range loss                          @1  | ========                     |
range inner                         @1  |   ==                         |
op aten::linear                     @1  | ======                       |
op aten::mm                         @1  |  ===                         |
op aten::add                        @1  |                 ==           |
call cudaLaunchKernel               @1  |   a  b           c           |
call cudaGraphLaunch                @1  |                    dddddddddd|
call cudaStreamSynchronize          @1  |        ===========           |
call cudaMalloc                     @1  |       ==                     |
op autograd::engine::evaluate_function: AddBackward0  @2  |         ===  |
kernel gemm                         @7  |     aaa            ccddd     |
kernel add                          @7  |                         ddd  |
kernel ncclDevKernel_AllReduce_Sum  @20 |        bbbb                  | {SAID}
"""
MUCH = 1_000


def us(spans: HostSpans, names: tuple[str, ...]) -> list[tuple[str, int, int, int]]:
    """Return name, level, start and end of each span, in microseconds of the drawing."""
    return [
        (names[name], level, start // 1000, end // 1000)
        for name, level, start, end in zip(
            spans.name.tolist(), spans.level.tolist(), spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True
        )
    ]


@pytest.fixture
def hosted(draw: Callable[..., Path]) -> TraceSet:
    return analyze_traces([draw(HOSTED)])


def collect(traces: TraceSet, steps: StepRange | None = None, most: int = MUCH) -> JobSpans:
    return collect_spans(traces, steps, most_host_spans=most)


def test_of_a_host_are_its_ranges_its_innermost_operators_and_its_calls(hosted: TraceSet) -> None:
    (one,) = collect(hosted).ranks
    assert one.host is not None
    names = one.host.names
    assert us(one.host.ranges, names) == [("loss", 0, 1, 9), ("inner", 1, 3, 5)]
    # From the first launch on, at 3 us.
    assert us(one.host.operators, names) == [
        ("aten::mm", 0, 2, 5),
        ("aten::linear", 0, 5, 7),
        ("autograd::engine::evaluate_function: AddBackward0", 0, 9, 12),
        ("aten::add", 0, 17, 19),
    ]
    # Of calls that launched nothing the long one: it kept the thread waiting.
    assert [row[0::2] for row in us(one.host.calls, names)] == [
        ("cudaLaunchKernel", 3),
        ("cudaLaunchKernel", 6),
        ("cudaStreamSynchronize", 8),
        ("cudaLaunchKernel", 18),
        ("cudaGraphLaunch", 20),
    ]
    assert [one.host.threads[thread] for thread in one.host.ranges.thread.tolist()] == ["0/1"] * 2
    assert one.host.engine == {"0/2"}


@pytest.mark.parametrize("seed", range(8))
def test_at_every_moment_the_operator_is_the_last_that_began_and_has_not_ended(
    draw: Callable[..., Path], seed: int
) -> None:
    random = np.random.default_rng(seed)
    starts = random.integers(0, 30, 14)
    ends = starts + random.integers(1, 12, 14)
    threads = random.integers(1, 3, 14)
    lines = [
        f"op op{number} @{thread} |{' ' * start}{'=' * (end - start)}|"
        for number, (start, end, thread) in enumerate(zip(starts, ends, threads, strict=True))
    ]
    (one,) = collect(analyze_traces([draw("\n".join([*lines, f"kernel gemm @7 |{'=' * 50}|"]))])).ranks
    assert one.host is not None
    drawn = {
        (one.host.threads[thread], tick): name
        for (name, _, start, end), thread in zip(
            us(one.host.operators, one.host.names), one.host.operators.thread.tolist(), strict=True
        )
        for tick in range(start, end)
    }
    expected = {}
    for thread in (1, 2):
        order = sorted(np.flatnonzero(threads == thread).tolist(), key=lambda at: (starts[at], -ends[at]))
        for tick in range(50):
            inside = [number for number in order if starts[number] <= tick < ends[number]]
            expected.update({(f"0/{thread}", tick): f"op{inside[-1]}"} if inside else {})
    assert drawn == expected


def test_every_span_knows_the_call_that_launched_it_and_a_graph_launches_several(hosted: TraceSet) -> None:
    (one,) = collect(hosted).ranks
    assert one.host is not None
    moments = dict(zip(one.host.calls.event.tolist(), (one.host.calls.start_ns // 1000).tolist(), strict=True))
    launched = [
        (lane.names[text], start // 1000, moments[call])
        for lane in arrange_lanes(one)
        for text, start, call in zip(lane.text.tolist(), lane.start_ns.tolist(), lane.call.tolist(), strict=True)
    ]
    assert launched == [("gemm", 5, 3), ("gemm", 20, 18), ("gemm", 22, 20), ("add", 25, 20), ("all_reduce", 8, 6)]


def test_of_a_step_are_the_calls_that_launched_it_though_they_were_earlier(hosted: TraceSet) -> None:
    (one,) = collect(hosted, StepRange(2, 2)).ranks
    assert one.host is not None
    assert one.window.start_ns == 20_000
    assert [start for _, _, start, _ in us(one.host.calls, one.host.names)] == [8, 18, 20]
    assert [row[0] for row in us(one.host.operators, one.host.names)] == ["aten::add"]


def test_what_does_not_fit_is_the_shortest_and_is_counted(hosted: TraceSet) -> None:
    spans = collect(hosted, most=6)
    (one,) = spans.ranks
    assert one.host is not None
    assert len(one.host.calls) == 5  # four launches and the longest of all the rest
    assert [row[0] for row in us(one.host.ranges, one.host.names)] == ["loss"]
    assert len(one.host.operators) == 0
    said = "5 of 7 ranges, operators and calls of hosts, those of 3.00 us and shorter, are not drawn"
    assert say_notes(spans.notes)[-1] == said
    fewer = collect(hosted, most=2)
    (one,) = fewer.ranks
    assert one.host is not None
    assert [start for _, _, start, _ in us(one.host.calls, one.host.names)] == [6, 8]  # of launches that of the longest
    assert say_notes(fewer.notes)[-2:] == (
        "3 of 4 launches, those of work of 3.00 us and shorter, are not drawn",
        "6 of 7 ranges, operators and calls of hosts, those of 8.00 us and shorter, are not drawn",
    )


def test_hosts_are_looked_at_only_where_somebody_asks(hosted: TraceSet) -> None:
    spans = collect_spans(hosted)
    assert (spans.ranks[0].host, spans.ranks[0].host_lacks, spans.notes) == (None, (), ())


def test_what_was_not_recorded_of_a_host_is_named(draw: Callable[..., Path]) -> None:
    bare = [line for line in HOSTED.splitlines() if line.startswith("kernel")]
    for lines, lacks in (
        (bare, ("operators", "ranges", "launches")),
        ([*bare, "op aten::mm @1 | == |"], ("launches",)),
        ([*bare, "call cudaLaunchKernel @1 | a |"], ("operators",)),
    ):
        spans = collect(analyze_traces([draw("\n".join(lines))]))
        assert spans.ranks[0].host_lacks == lacks
        said = f"{' and '.join(lacks)} of the host of rank 0 were not recorded: none are drawn"
        assert said in say_notes(spans.notes)


def test_where_clocks_do_not_fit_nothing_is_tied_to_its_launch_and_that_is_said(hosted: TraceSet) -> None:
    (one,) = hosted.analyses
    astray = dataclasses.replace(hosted, analyses=(dataclasses.replace(one, clock=DeviceClock(early=1)),))
    document = make_timeline(astray).document
    assert {call for lane in document.ranks[0].lanes for call in lane.call} == {-1}
    assert len(document.ranks[0].host[0].calls.start) == 2  # long ones that overlap what is drawn, on whatever clock
    assert document.notes == [
        "launches of rank 0 are not tied to what they launched: its device's times do not fit its host's"
    ]


def test_the_document_numbers_calls_from_thread_to_thread(hosted: TraceSet) -> None:
    document = make_timeline(hosted).document
    read: dict[str, Any] = json.loads(document.to_json())
    main, engine = read["ranks"][0]["host"]
    assert (main["name"], engine["name"]) == ("thread 1", "thread 2 · autograd")
    assert [read["strings"][code] for code in main["ranges"]["text"]] == ["loss", "inner"]
    assert main["ranges"]["level"] == [0, 1]
    # From the first kernel, at 5 us.
    assert (main["ranges"]["start"], main["ranges"]["duration"]) == ([-4_000, -2_000], [8_000, 2_000])
    assert main["calls"]["start"] == [-2_000, 1_000, 3_000, 13_000, 15_000]
    assert [lane["call"] for lane in read["ranks"][0]["lanes"]] == [[0, 3, 4, 4], [1]]
    bare = document.without_hosts()
    assert (bare.ranks[0].host, bare.ranks[0].lanes[0].call) == ([], [])
    assert bare.notes == ["rows of hosts are left out: with them it is too large"]


def test_on_cpu_only_ranges_are_of_the_host_as_operators_are_the_compute() -> None:
    document = make_timeline(analyze_traces([RECORDED / "fsdp2_tp_2x2_rank0.json.gz"])).document
    (thread,) = document.ranks[0].host
    names = {document.strings[code] for code in thread.ranges.text}
    assert "FSDP::all_gather (layers.0)" in names or any(name.startswith("FSDP::") for name in names)
    assert any(name.startswith("waits for collective ") for name in names)
    assert not any(name.startswith(("dtbench::", "gloo:", "ProfilerStep", "region ", "collective ")) for name in names)
    assert (thread.operators.start, thread.calls.start, document.ranks[0].host_lacks) == ([], [], [])

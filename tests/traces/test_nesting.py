"""Enclosing spans, against a brute-force oracle; launches, from drawings."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.host.nesting import find_nesting, innermost_time
from dtbench.traces.reader import read_trace
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.trace import Trace

Span = tuple[int, int, str]


def nest(start: int, end: int, depth: int) -> st.SearchStrategy[list[Span]]:
    """Draw properly nested spans inside a window, as a thread makes them."""
    if depth == 0 or end - start < 1:
        return st.just([])

    @st.composite
    def build(drawn: st.DrawFn) -> list[Span]:
        cuts = sorted(set(drawn(st.lists(st.integers(start, end), max_size=6))))
        found: list[Span] = []
        for left, right in zip(cuts[::2], cuts[1::2], strict=False):
            found.append((left, right, drawn(st.sampled_from(["aten::mm", "dtbench::wait group=0 seq=1"]))))
            found += drawn(nest(left, right, depth - 1))
        return found

    return build()


@given(spans=nest(0, 24, 3))
def test_the_innermost_span_at_every_tick_is_found(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> None:
    path = tmp_path_factory.mktemp("nested") / "trace.json"
    rows = [{"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": s, "dur": e - s} for s, e, n in spans]
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = read_trace(path)
    counting = frozenset(i for i, name in enumerate(trace.names) if name == "aten::mm")
    found = innermost_time(trace, find_nesting(trace), frozenset(trace.lane.tolist()), counting)
    expected = 0
    for tick in range(24):
        inside = [(end - start, -order, name) for order, (start, end, name) in enumerate(spans) if start <= tick < end]
        expected += bool(inside) and min(inside)[2] == "aten::mm"
    assert found.length_ns == expected * 1000


def launches(trace: Trace) -> dict[str, str | None]:
    """Return for each device event, by name, its call's name and start in microseconds; None: not in the trace."""
    nesting = find_nesting(trace)
    found: dict[str, str | None] = {}
    for event in np.flatnonzero(trace.is_one_of(("kernel", "gpu_memcpy"))).tolist():
        call = int(nesting.launch[event])
        found[trace.name_of(event)] = None if call == event else f"{trace.name_of(call)} {trace.start_ns[call] // 1000}"
    return found


def test_a_device_event_without_a_call_is_its_own_launch_and_nothing_is_around_it(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        op aten::mm              @1   |======|
        call cudaLaunchKernel    @1   | a    |
        kernel known             @s7  |   a  |
        kernel unknown           @s7  |     b|
        kernel untied            @s7  |=     |
        """)
    )
    assert launches(trace) == {"known": "cudaLaunchKernel 1", "unknown": None, "untied": None}
    nesting = find_nesting(trace)
    calls = nesting.calls(np.arange(len(trace))[2:]).tolist()
    assert [None if call == NOTHING else trace.name_of(call) for call in calls] == ["cudaLaunchKernel", None, None]
    assert [trace.name_of(above) for above in nesting.enclosing(calls[0])] == ["aten::mm"]


def test_many_kernels_of_one_graph_share_its_launch(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        call cudaGraphLaunch     @1   |a          |
        kernel one               @s7  |  a        |
        kernel two               @s7  |    a      |
        kernel three             @s8  |    aaa    |
        """)
    )
    assert launches(trace) == dict.fromkeys(("one", "two", "three"), "cudaGraphLaunch 0")


def test_of_several_calls_with_one_id_the_one_that_starts_work_is_the_launch(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        call cudaStreamSynchronize @1   |    a  |
        call cudaLaunchKernel      @1   | a     |
        call cudaEventRecord       @1   |  a    |
        kernel gemm                @s7  |     a |
        call cudaEventQuery        @1   |  b    |
        kernel odd                 @s7  |      b|
        """)
    )
    assert launches(trace) == {"gemm": "cudaLaunchKernel 1", "odd": "cudaEventQuery 2"}
    assert find_nesting(trace).reused.tolist() == []


def test_where_ids_are_reused_the_last_launch_before_the_kernel_is_taken_and_the_kernel_counted(
    draw: Callable[..., Path],
) -> None:
    trace = read_trace(
        draw("""
        kernel first             @s7  |  a                |
        call cudaLaunchKernel    @1   |a         a       a|
        kernel second            @s7  |            a      |
        kernel alone             @s7  |             b     |
        call cudaLaunchKernel    @2   |    b              |
        """)
    )
    assert launches(trace) == {
        "first": "cudaLaunchKernel 0",
        "second": "cudaLaunchKernel 10",
        "alone": "cudaLaunchKernel 4",
    }
    names = [trace.name_of(event) for event in find_nesting(trace).reused.tolist()]
    assert sorted(names) == ["first", "second"]


def test_a_kernel_that_starts_before_all_calls_with_its_id_takes_the_first(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        kernel early             @s7  |a        |
        call cudaLaunchKernel    @1   |  a    a |
        """)
    )
    assert launches(trace) == {"early": "cudaLaunchKernel 2"}


def test_a_driver_call_inside_a_runtime_call_is_the_same_launch_not_a_reused_id(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        op aten::mm              @1   |=======|
        call cudaLaunchKernel    @1   | aaaa  |
        call cuLaunchKernel      @1   |  aa   |
        kernel gemm              @s7  |     aa|
        """)
    )
    assert launches(trace) == {"gemm": "cuLaunchKernel 2"}
    assert find_nesting(trace).reused.tolist() == []


def test_spans_that_overlap_on_a_thread_are_walked_as_a_stack_walks_them(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        op outer   @1 |=========== |
        op early   @1 | =====      |
        op late    @1 |    ======  |
        op inner   @1 |       =    |
        op other   @2 |       =    |
        """)
    )
    nesting = find_nesting(trace)
    around = {trace.name_of(e): [trace.name_of(a) for a in nesting.enclosing(e)] for e in range(len(trace))}
    assert around == {
        "outer": [],
        "early": ["outer"],
        "late": ["early", "outer"],
        "inner": ["late", "early", "outer"],
        "other": [],
    }


def test_the_innermost_of_some_spans_is_looked_for_past_the_others_and_past_what_has_ended(
    draw: Callable[..., Path],
) -> None:
    trace = read_trace(
        draw("""
        range mine             @1 |=========   |
        range mine again       @1 | =====      |
        op late                @1 |    =====   |
        call cudaLaunchKernel  @1 |       a  b |
        """)
    )
    nesting = find_nesting(trace)
    mine = np.array([trace.name_of(event).startswith("mine") for event in range(len(trace))])
    calls = np.flatnonzero(trace.is_one_of(("cuda_runtime",)))
    found = nesting.innermost(np.append(calls, NOTHING), mine)
    assert [trace.name_of(event) if event != NOTHING else None for event in found.tolist()] == ["mine", None, None]

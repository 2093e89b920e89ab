"""The account of a window: drawn timelines, and an oracle that looks at every tick."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.base.errors import TraceError
from dtbench.base.vocabulary import Kind
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import OVERLAP
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, clip, intersect, subtract, unite, unite_all
from dtbench.traces.time.overlap import NOT_SEEN, Overlap, measure_overlaps
from dtbench.traces.time.shares import share_time

TICKS = 30
Spans = list[tuple[int, int]]
spans = st.lists(
    st.tuples(st.integers(0, TICKS), st.integers(0, 8)).map(lambda one: (one[0], one[0] + one[1])), max_size=8
)


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def ticks_of(intervals: Intervals) -> set[int]:
    pairs = zip(intervals.starts_ns.tolist(), intervals.ends_ns.tolist(), strict=True)
    return {tick for start, end in pairs for tick in range(start, end)}


def ticks(some: Spans) -> set[int]:
    return {tick for start, end in some for tick in range(start, end)}


def united(some: Spans) -> Intervals:
    return unite([start for start, _ in some], [end for _, end in some])


@given(first=spans, second=spans, start=st.integers(0, TICKS), length=st.integers(0, 10))
def test_interval_algebra_agrees_with_sets_of_ticks(first: Spans, second: Spans, start: int, length: int) -> None:
    one, other = united(first), united(second)
    assert ticks_of(one) == ticks(first)
    assert np.all(one.ends_ns[:-1] < one.starts_ns[1:])
    assert ticks_of(unite_all(one, other)) == ticks(first) | ticks(second)
    assert ticks_of(subtract(one, other)) == ticks(first) - ticks(second)
    assert ticks_of(intersect(one, other)) == ticks(first) & ticks(second)
    assert ticks_of(clip(one, start, start + length)) == ticks(first) & set(range(start, start + length))
    points = np.arange(TICKS + 10)
    assert one.covers(points).tolist() == [tick in ticks(first) for tick in range(TICKS + 10)]
    assert one.covered_before(points).tolist() == [len(ticks(first) & set(range(tick))) for tick in range(TICKS + 10)]


@given(compute=spans, comm=spans, copy=spans, start=st.integers(0, TICKS), length=st.integers(1, TICKS))
def test_the_account_agrees_with_counting_ticks(
    compute: Spans, comm: Spans, copy: Spans, start: int, length: int
) -> None:
    kinds = {Kind.COMPUTE: united(compute), Kind.COMM: united(comm), Kind.COPY: united(copy)}
    (overlap,) = measure_overlaps([Window(start, start + length)], kinds)
    window = set(range(start, start + length))
    c, n, m = ticks(compute) & window, ticks(comm) & window, ticks(copy) & window
    assert overlap == Overlap(
        step_ns=length,
        compute_ns=len(c),
        comm_ns=len(n),
        hidden_comm_ns=len(n & c),
        exposed_comm_ns=len(n - c),
        exposed_copy_ns=len(m - c - n),
        idle_ns=len(window - c - n - m),
    )


@given(compute=spans, comm=spans, recorded=spans, start=st.integers(0, TICKS), length=st.integers(0, TICKS))
def test_a_window_in_which_what_computes_was_not_recorded_keeps_its_length_and_its_communication(
    compute: Spans, comm: Spans, recorded: Spans, start: int, length: int
) -> None:
    kinds = {Kind.COMPUTE: united(compute), Kind.COMM: united(comm), Kind.COPY: united([])}
    (overlap,) = measure_overlaps([Window(start, start + length)], kinds, united(recorded))
    (full,) = measure_overlaps([Window(start, start + length)], kinds)
    if set(range(start, start + length)) <= ticks(recorded):
        assert overlap == full
    else:
        assert overlap == replace(NOT_SEEN, step_ns=full.step_ns, comm_ns=full.comm_ns)


@given(collectives=st.lists(spans, max_size=5), compute=spans, recorded=spans)
def test_time_outside_of_what_was_recorded_is_neither_hidden_nor_exposed(
    collectives: list[Spans], compute: Spans, recorded: Spans
) -> None:
    shares = share_time([united(one) for one in collectives], united(compute), [], united(recorded))
    communicating, known = set().union(*(ticks(one) for one in collectives)), ticks(recorded)
    exposed, hidden, undecided = (total.sum() for total in shares.totals())
    assert exposed == len((communicating & known) - ticks(compute))
    assert hidden == len(communicating & known & ticks(compute))
    assert undecided == len(communicating - known)


@given(collectives=st.lists(spans, max_size=5), compute=spans, cuts=st.lists(st.integers(0, TICKS + 8), max_size=3))
def test_shares_add_up_to_every_tick_and_are_fair(collectives: list[Spans], compute: Spans, cuts: list[int]) -> None:
    borders = sorted(set(cuts))
    windows = [Window(start, end) for start, end in pairwise(borders)]
    shares = share_time([united(one) for one in collectives], united(compute), windows)
    everything = [ticks(one) for one in collectives]
    outside = set(range(TICKS + 20)) - {tick for window in windows for tick in range(window.start_ns, window.end_ns)}
    for column, window in enumerate([*(set(range(one.start_ns, one.end_ns)) for one in windows), outside]):
        communicating = set().union(*everything) & window
        assert shares.exposed_ns[:, column].sum() == len(communicating - ticks(compute))
        assert shares.hidden_ns[:, column].sum() == len(communicating & ticks(compute))
        for row, mine in enumerate(everything):
            fair = sum(1 / sum(tick in one for one in everything) for tick in (mine & window) - ticks(compute))
            assert abs(shares.exposed_ns[row, column] - fair) <= 2 * len(collectives) * 8  # one per piece at most


def test_where_two_run_at_once_each_gets_half_and_the_odd_nanosecond_goes_to_the_first() -> None:
    shares = share_time([united([(0, 5)]), united([(2, 9)])], united([(8, 20)]), [Window(0, 20)])
    assert shares.exposed_ns[:, 0].tolist() == [2 + 2, 1 + 3]
    assert shares.hidden_ns[:, 0].tolist() == [0, 1]


def test_a_drawn_device_trace_is_accounted_to_the_nanosecond(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#4                    @1   |==========          |
        step ProfilerStep#5                    @1   |          ==========|
        call cudaLaunchKernel                  @1   |a.b.c     d e f     |
        kernel gemm                            @s7  |  aaaa      dd      |
        kernel ncclDevKernel_AllReduce(int)    @s20 |    bbbbb     eee   |
        copy Memcpy DtoH                       @s7  |           c    ff  |
        """)
    )
    assert one.whole == Overlap(16000, 6000, 8000, 2000, 6000, 2000, 2000)
    # step 4 runs from the first start of what it launched (a) to that of what step 5 launched (d)
    first, second = (step.overlap for step in one.steps)
    assert first == Overlap(10000, 4000, 5000, 2000, 3000, 1000, 2000)
    assert second == Overlap(6000, 2000, 3000, 0, 3000, 1000, 0)
    assert [step.step for step in one.steps] == [4, 5]


@pytest.mark.xfail(reason="a device's steps are cut where the next one's first work starts, ours too", strict=True)
def test_what_is_launched_between_steps_of_ours_is_in_none(draw: Callable[..., Path]) -> None:
    trace = draw("""
        step ProfilerStep#1                  @1   |======                    |
        step ProfilerStep#2                  @1   |                ======    |
        range dtbench::region forward        @1   |======          ======    |
        call cudaLaunchKernel                @1   | a       b       c        |
        kernel gemm                          @s7  |   aaaa            cccc   |
        kernel ncclDevKernel_Broadcast       @s8  |          bbb             |
        """)
    assert [step.overlap.comm_ns for step in analyze(trace).steps] == [0, 0]


def test_a_kernel_without_a_launch_counts_where_it_runs_but_sets_no_boundary(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1                    @1   |==========|
        call cudaLaunchKernel                  @1   |b         |
        kernel early                           @s7  |==        |
        kernel gemm                            @s7  |    bbb   |
        """)
    )
    assert one.whole.compute_ns == 5000
    assert (one.steps[0].overlap.step_ns, one.steps[0].overlap.compute_ns) == (3000, 3000)


def test_user_annotations_and_synchronisation_on_the_device_are_no_work(draw: Callable[..., Path]) -> None:
    path = draw("kernel gemm @s7 |==    ==|")
    text = path.read_text().rstrip("]}") + '}}, {"ph": "X", "cat": "%s", "name": "x", "ts": 0, "dur": 9, "args": {}}]}'
    for category in ("gpu_user_annotation", "cuda_sync"):
        path.write_text(text % category)
        assert analyze(path).whole.compute_ns == 4000


def test_without_communication_the_hidden_fraction_is_not_a_number(draw: Callable[..., Path]) -> None:
    overlap = analyze(draw("kernel gemm @s7 |====|")).whole
    assert math.isnan(overlap.hidden_fraction)
    assert overlap.exposed_step_fraction == 0.0


def test_communication_alone_is_all_exposed(draw: Callable[..., Path]) -> None:
    overlap = analyze(draw("kernel ncclDevKernel_AllGather @s7 |====|")).whole
    assert (overlap.hidden_fraction, overlap.exposed_step_fraction) == (0.0, 1.0)


def test_a_trace_without_steps_has_only_a_whole(draw: Callable[..., Path]) -> None:
    one = analyze(draw("kernel gemm @s7 |====|"))
    assert (one.steps, one.whole.step_ns) == ((), 4000)
    assert len(OVERLAP.tabulate([one])) == 0


@pytest.mark.parametrize("drawing", ["step ProfilerStep#1 @1 |====|", "range something @1 |==|"])
def test_a_trace_in_which_nothing_runs_is_refused(draw: Callable[..., Path], drawing: str) -> None:
    with pytest.raises(TraceError, match="nothing in it computes"):
        analyze(draw(drawing))


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(TraceError, match="nothing in it computes"):
        analyze(path)


def test_a_step_that_launched_nothing_is_empty_and_the_others_still_tile(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1      @1  |====            |
        step ProfilerStep#2      @1  |    ====        |
        step ProfilerStep#3      @1  |        ====    |
        call cudaLaunchKernel    @1  |a       b       |
        kernel gemm              @s7 | aa       bbb   |
        """)
    )
    assert [step.overlap.step_ns for step in one.steps] == [9000, None, 3000]
    assert one.steps[1].overlap == NOT_SEEN
    assert math.isnan(one.steps[1].overlap.exposed_step_fraction)

"""The stream that computes most, and which ends close its gaps."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.device.main_lane import MainLane, find_closed_gaps, is_wait_seen, read_main_lane
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.trace import Sparse, Trace, Unread

KERNELS = (
    # name, stream, start, end, correlation id, in ns; calls of ids 1 to 4 begin at 0, 1, 2, 3
    ("gemm", 7, 20, 50, 1),
    ("gemm", 7, 100, 130, 3),
    ("Memcpy DtoH", 7, 60, 70, 2),
    ("gemm", 8, 70, 100, 4),
    ("ncclDevKernel", 20, 0, 180, 0),
    ("gemm", 7, 170, 180, 0),
)


def trace_of(kernels: Sequence[tuple[str, int, int, int, int]]) -> Trace:
    calls = [("cudaLaunchKernel", 1, number, number + 1, number + 1) for number in range(4)]
    rows = [*calls, *kernels]
    names, streams, starts, ends, ids = zip(*rows, strict=True)
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    lanes = {stream: index for index, stream in enumerate(dict.fromkeys(streams))}
    tied = np.flatnonzero(np.array(ids))
    return Trace(
        path="drawn",
        rank=None,
        world_size=None,
        names=tuple(numbers),
        categories=("cuda_runtime", "kernel"),
        lanes=tuple(("0", str(stream)) for stream in lanes),
        name=np.array([numbers[name] for name in names], dtype=np.int32),
        category=np.array([0] * len(calls) + [1] * len(kernels), dtype=np.int16),
        lane=np.array([lanes[stream] for stream in streams], dtype=np.int32),
        start_ns=np.array(starts),
        end_ns=np.array(ends),
        correlation=Sparse(tied, np.array(ids)[tied]),
        details={},
        group_descriptions={},
        unread=Unread(),
    )


def lane_of(kernels: Sequence[tuple[str, int, int, int, int]]) -> MainLane:
    trace = trace_of(kernels)
    compute = np.array([trace.name_of(event) == "gemm" for event in range(len(trace))])
    return read_main_lane(trace, find_nesting(trace), compute)


def test_the_main_lane_computes_most_however_long_the_others_copy_or_communicate() -> None:
    lane = lane_of(KERNELS)
    assert lane.starts_ns.tolist() == [20, 60, 100, 170]
    assert lane.busy_until_ns.tolist() == [0, 50, 70, 130]  # the device began at 0
    assert lane.launches_ns.tolist() == [0, 1, 2, 170]


def test_a_trace_without_compute_has_an_empty_main_lane_in_which_nothing_ends() -> None:
    lane = lane_of(KERNELS[4:5])
    assert len(lane.events) == 0
    assert len(find_closed_gaps(lane, np.array([3000])).closer) == 0


work = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 12)).map(
        lambda w: (w[0], w[0] + w[1], w[0] - w[2])
    ),
    min_size=1,
    max_size=12,
).map(sorted)


@given(spans=work, ends=st.lists(st.integers(0, 40), max_size=8))
def test_an_end_closes_the_gap_in_which_it_is_the_last_and_for_which_the_next_work_was_launched(
    spans: list[tuple[int, int, int]], ends: list[int]
) -> None:
    """Every span is (start, end, launch); the oracle looks at one gap after the other."""
    starts = [start for start, _, _ in spans]
    busy = [starts[0], *(max(end for _, end, _ in spans[:index]) for index in range(1, len(spans)))]
    lane = MainLane(
        lane=0,
        events=np.arange(len(spans)),
        starts_ns=np.array(starts),
        busy_until_ns=np.array(busy),
        launches_ns=np.array([launch for _, _, launch in spans]),
        calls=np.full(len(spans), NOTHING),
    )
    expected = []
    for index, (start, _, launch) in enumerate(spans):
        waiting_from = max(busy[index], launch)
        inside = [end for end in ends if waiting_from < end <= start]
        if inside:
            expected.append((waiting_from, max(inside), index))
    found = find_closed_gaps(lane, np.array(ends, dtype=np.int64))
    assert list(zip(found.starts_ns.tolist(), found.ends_ns.tolist(), found.events.tolist(), strict=True)) == expected
    assert [ends[index] for index in found.closer.tolist()] == [end for _, end, _ in expected]


def test_of_streams_that_compute_equally_long_the_order_in_the_file_chooses_none() -> None:
    kernels = (("gemm", 8, 70, 100, 4), ("gemm", 7, 20, 50, 1), ("ncclDevKernel", 9, 0, 180, 0))
    assert lane_of(kernels).starts_ns.tolist() == lane_of(kernels[::-1]).starts_ns.tolist() == [20]


def test_compute_that_takes_no_time_makes_no_lane_the_main_one() -> None:
    assert not len(lane_of((("gemm", 7, 20, 20, 1), ("ncclDevKernel", 9, 0, 180, 0))).events)


def test_no_consumer_waited_for_what_ended_while_the_lane_did_its_last_work() -> None:
    lane = lane_of(KERNELS[:2])
    assert is_wait_seen(lane, np.array([60, 110, 131])).tolist() == [True, True, False]  # the last work ends at 130

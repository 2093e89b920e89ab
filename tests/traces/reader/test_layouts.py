"""What the columns hold: every layout from 2021 on in today's spelling, arrows, communication, modules, exact times."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtbench.traces.reader.times import read_floats
from dtbench.traces.trace import Trace

Read = Callable[..., Trace]


def complete(**fields: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1, **fields}


def dump(*events: dict[str, Any], **top: Any) -> str:
    return json.dumps({**top, "traceEvents": events})


@pytest.mark.parametrize(
    ("written", "category", "tid", "lane"),
    [
        ("Operator", "cpu_op", "3621", "3621"),  # torch 1.8: threads as text
        ("Runtime", "cuda_runtime", "3621", "3621"),
        ("Kernel", "kernel", "stream 7", "7"),
        ("Memcpy", "gpu_memcpy", "stream 7", "7"),
        ("Memset", "gpu_memset", "stream 20", "20"),
        ("User", "gpu_user_annotation", "stream 7 user", "7"),
        ("gpu_user_Annotation", "gpu_user_annotation", 7, "7"),
        ("kernel", "kernel", 7, "7"),
        ("kernel", "kernel", 7.0, "7"),
        ("mtia_runtime", "cuda_runtime", 7, "7"),  # calls of any vendor
        ("xpu_runtime", "cuda_runtime", 7, "7"),
        ("xpu_driver", "cuda_driver", 7, "7"),
        ("privateuse1_driver", "cuda_driver", 7, "7"),
        ("hip_runtime", "cuda_runtime", 7, "7"),
        ("nobodys_runtime", "cuda_runtime", 7, "7"),
        ("mtia_ccp_events", "kernel", 7, "7"),
        ("nobodys_kernel", "nobodys_kernel", 7, "7"),
    ],
)
def test_old_categories_and_lanes_are_in_todays_spelling(
    written: str, category: str, tid: object, lane: str, read: Read
) -> None:
    trace = read(dump(complete(cat=written, pid=0, tid=tid)))
    assert (trace.categories, trace.lanes) == ((category,), (("0", lane),))


def test_old_and_new_spellings_of_a_lane_are_one_lane(read: Read) -> None:
    trace = read(dump(complete(cat="Kernel", tid="stream 7"), complete(cat="kernel", tid=7)))
    assert (trace.lanes, trace.lane.tolist()) == ((("1", "7"),), [0, 0])


@pytest.mark.parametrize("category", ["Trace", "Traces", "Spans"])
def test_rows_that_span_everything_are_left_out_even_where_their_times_are_bad(category: str, read: Read) -> None:
    trace = read(dump(complete(cat=category, dur=-1), complete()))
    assert (len(trace), trace.unread.count, trace.categories) == (1, 0, ("cpu_op",))


@pytest.mark.parametrize("category", ["fwdbwd", "forward_backward"])
def test_arrows_are_paired_by_id_and_repeated_ids_in_order(category: str, read: Read) -> None:
    def arrow(phase: str, identity: object, at: float, cat: str = category) -> dict[str, Any]:
        return {"ph": phase, "id": identity, "cat": cat, "ts": at}

    trace = read(
        dump(
            complete(),
            arrow("f", 1, 50.5),  # backward may come first in the file
            arrow("s", 1, 10.25),
            arrow("s", 2, 11),
            arrow("f", 2, 49),
            arrow("s", 1, 110),
            arrow("f", 1, 150),
            arrow("s", 9, 1),  # without an end
            arrow("s", 3, 1, "ac2g"),
            arrow("f", 3, 2, "ac2g"),
        )
    )
    assert sorted(trace.flows.tolist()) == [[10250, 50500], [11000, 49000], [110000, 150000]]


def test_a_lane_written_as_a_fraction_is_the_same_lane_beside_a_defect(read: Read) -> None:
    broken = '{"ph": "X", "cat": "kernel", "name": "a\x01", "pid": 1.0, "tid": 7.0, "ts": 1, "dur": 1}'
    trace = read("[" + broken + "," + json.dumps(complete(tid=7)) + "]")
    assert (trace.lanes, trace.lane.tolist(), trace.unread.count) == ((("1", "7"),), [0, 0], 0)


def test_what_autograd_says_is_read(read: Read) -> None:
    forward = complete(args={"Sequence number": 0, "Fwd thread id": 0})
    backward = complete(args={"Sequence number": 0, "Fwd thread id": 1})
    trace = read(dump(complete(), forward, backward))
    assert trace.sequence.dense(3, -1).tolist() == [-1, 0, 0]
    assert trace.forward_thread.dense(3, 0).tolist() == [0, 0, 1]


def test_launch_shapes_are_one_spelling_and_only_of_kernels(read: Read) -> None:
    text = """[{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args": {"grid": [64, 1, 1], "block": [128,1,1]}},
              {"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args": {"grid": [64,1,1], "block": [128, 1, 1]}},
              {"ph": "X", "cat": "cuda_runtime", "ts": 1, "dur": 1, "args": {"grid": [6,1,1], "block": [1,1,1]}}]"""
    trace = read(text)
    assert trace.grids == ("[64,1,1] [128,1,1]",)
    assert trace.grid.dense(3, -1).tolist() == [0, 0, -1]


def test_modules_are_kept_where_a_trace_names_them(read: Read) -> None:
    trace = read(dump(complete(args={"Module Hierarchy": ""}), complete(args={"Module Hierarchy": "Net.fc1"})))
    assert dict(trace.modules) == {1: "Net.fc1"}


METADATA = {
    "Collective name": "_allgather_base",
    "Process Group Name": "1",
    "Process Group Description": "mesh_shard",
    "Process Group Ranks": "[0, 2]",
    "Group size": 2,
    "In msg nelems": 4,
    "Out msg nelems": 8,
    "dtype": "BFloat16",
    "Seq": 17,
    "Src Rank": 0,
    "Dst Rank": 2,
    "Is asynchronized op": 1,
    "Input Dims": [[[8]], []],
    "Input type": ["TensorList", ""],
}


@pytest.mark.parametrize("name", ["nccl:_all_gather_base", "FSDP::all_gather (layers.0)", "ncclDevKernel_AllGather"])
def test_what_an_event_says_about_communication_is_read_whatever_its_name(name: str, read: Read) -> None:
    details = read(dump(complete(name=name, args=METADATA))).details[0]
    assert (details.collective, details.group, details.group_description) == ("_allgather_base", "1", "mesh_shard")
    assert (details.ranks, details.group_size, details.seq, details.is_async) == ((0, 2), 2, 17, True)
    assert (details.source_rank, details.destination_rank) == (0, 2)
    assert (details.in_elements, details.out_elements, details.dtype) == (4, 8, "BFloat16")
    assert (details.shapes, details.dtypes) == (([[8]], []), ("TensorList", ""))


def test_shapes_are_kept_of_operators_that_communicate_by_name_and_of_no_others(read: Read) -> None:
    shapes = {"Input Dims": [[4]], "Input type": ["float"]}
    trace = read(dump(complete(name="gloo:all_reduce", args=shapes), complete(args=shapes), complete(name="nccl:x")))
    assert list(trace.details) == [0]
    assert trace.details[0].shapes == ([4],)


def test_a_list_of_ranks_that_is_shortened_is_no_list(read: Read) -> None:
    args = {**METADATA, "Process Group Ranks": "[0, 1, ..., 7]"}
    assert read(dump(complete(args=args))).details[0].ranks == ()


@pytest.mark.parametrize("order", ["before", "after"])
def test_who_this_rank_is_may_stand_before_or_behind_the_events(order: str, read: Read) -> None:
    info = {
        "rank": "3",  # as text in traces on demand
        "world_size": 8,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": "[0, 1]"}, {"pg_name": "1", "ranks": [1]}],
    }
    events = [complete()]
    document = {"distributedInfo": info, "traceEvents": events}
    trace = read(json.dumps(document if order == "before" else dict(reversed(document.items()))))
    assert (trace.rank, trace.world_size) == (3, 8)
    assert dict(trace.group_descriptions) == {"0": "default_pg"}
    assert dict(trace.group_ranks) == {"0": (0, 1), "1": (1,)}


def test_a_trace_without_events_has_none(read: Read) -> None:
    for text in ('{"traceEvents": []}', "[]", '{"traceEvents": [ ], "traceName": "x"}'):
        trace = read(text)
        assert (len(trace), trace.unread.count, trace.unread.is_truncated) == (0, 0, False)


@given(
    times=st.lists(st.tuples(st.integers(10**18, 2**52 * 1000 - 1), st.integers(0, 10**9)), min_size=1, max_size=5),
    window_bytes=st.sampled_from([100, 1 << 20]),
)
def test_absolute_microseconds_with_three_decimals_are_exact_in_windows_of_any_size(
    times: list[tuple[int, int]], window_bytes: int, read: Read
) -> None:
    event = '{"ph": "X", "name": "a", "ts": %d.%03d, "dur": %d.%03d}'
    texts = [event % (*divmod(start, 1000), *divmod(duration, 1000)) for start, duration in times]
    trace = read("[" + ",\n".join(texts) + "]", window_bytes)
    assert trace.start_ns.tolist() == [start for start, _ in times]
    assert (trace.end_ns - trace.start_ns).tolist() == [duration for _, duration in times]


def test_whole_absolute_microseconds_need_no_second_look(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def count(start_us: Any, duration_us: Any) -> Any:
        seen.append(len(start_us))
        return read_floats(start_us, duration_us)

    monkeypatch.setattr("dtbench.traces.reader.decode.read_floats", count)
    trace = read(dump(complete(ts=1661203462598738), complete(ts=1661203462598739)))
    assert trace.start_ns.tolist() == [1661203462598738000, 1661203462598739000]
    assert seen == [2]


def test_the_collector_of_cycles_is_as_it_was(read: Read) -> None:
    import gc

    assert gc.isenabled()
    read(dump(complete()))
    assert gc.isenabled()


@pytest.mark.parametrize("said", [-1, 10**30, "9" * 5000, 1.5, True, "two", None])
def test_a_number_of_ranks_that_no_job_has_is_as_if_it_were_not_said(said: object, read: Read) -> None:
    trace = read(dump(complete(), distributedInfo={"rank": said, "world_size": said}))
    assert (trace.rank, trace.world_size) == (None, None)


def test_shapes_whose_sizes_are_no_numbers_are_no_shapes(read: Read) -> None:
    arguments = {"Input Dims": [[4], [["x"]]], "Input type": ["float", "TensorList"]}
    assert read(dump(complete(name="gloo:all_reduce", args=arguments))).details[0].shapes == ()

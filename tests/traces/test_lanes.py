"""What each lane was busy with, drawn."""

from collections.abc import Callable
from pathlib import Path

from dtbench.traces.account.lanes import LaneTime
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import LANES
from tests.known import known, total


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def test_each_stream_has_its_time_by_kind_and_time_at_once_is_busy_once(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        kernel gemm            @s7  |aaa  aaa   |
        copy Memcpy DtoD       @s7  |  bb       |
        kernel ncclKernel      @s20 | ccccc     |
        kernel multi_stream    @s7  |      ddd  |
        """)
    )
    assert one.accounts.whole.lanes == (
        LaneTime(lane="0/s7", busy_ns=8000, compute_ns=7000, comm_ns=0, copy_ns=2000),
        LaneTime(lane="0/s20", busy_ns=5000, compute_ns=0, comm_ns=5000, copy_ns=0),
    )


def test_lanes_are_clipped_to_steps_and_idle_ones_keep_their_row(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1    @1   |=====        |
        step ProfilerStep#2    @1   |     ===     |
        call cudaLaunchKernel  @1   |ab   c       |
        kernel gemm            @s7  |aaa   ccc    |
        kernel ncclKernel      @s20 | bbbbbbb     |
        copy Memcpy DtoD       @s9  |b            |
        """)
    )
    table = LANES.tabulate([one])
    assert list(zip(table["step"], table["lane"], table["busy_ns"], strict=True)) == [
        (1, "0/s7", 3000),
        (1, "0/s20", 5000),
        (1, "0/s9", 1000),
        (2, "0/s7", 3000),
        (2, "0/s20", 2000),
        (2, "0/s9", 0),
    ]
    assert table["comm_ns"].sum() == total(step.overlap.comm_ns for step in one.steps)


def test_on_a_cpu_lanes_are_the_models_threads_and_gloos(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1        @1 |==============|
        range FSDP::all_gather (0) @1 |=========     |
        op c10d::_allgather_base_  @1 | ==           | {"Input Dims": [[4], [2]], "Input type": ["float", "float"]}
        op aten::mm                @1 |          === |
        range gloo:all_gather      @2 |  ======      | {"Input Dims": [[2]], "Input type": ["float"]}
        """)
    )
    assert one.accounts.whole.lanes == (
        LaneTime(lane="0/1", busy_ns=3000, compute_ns=3000, comm_ns=0, copy_ns=0),
        LaneTime(lane="0/2", busy_ns=6000, compute_ns=0, comm_ns=6000, copy_ns=0),
    )


def test_the_lanes_of_a_recorded_cpu_run_carry_all_of_its_compute_and_communication(recorded: Path) -> None:
    one = analyze(recorded / "fsdp2_tp_2x2_rank0.json.gz")
    for step, account in zip(one.steps, one.accounts.steps, strict=True):
        computing = [lane.compute_ns for lane in account.lanes if lane.compute_ns]
        assert max(computing) <= known(step.overlap.compute_ns) <= sum(computing)
        assert known(step.overlap.comm_ns) <= total(lane.comm_ns for lane in account.lanes)


def test_a_lane_of_which_collectives_may_be_lost_has_no_zero_of_communication(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1    @1   |=====        |
        step ProfilerStep#2    @1   |     =====   |
        op c10d::allreduce_    @1   | ==    ==    |
        call cudaLaunchKernel  @1   |ab   c       |
        call cuLaunchKernelEx  @1   |       e     |
        kernel gemm            @s7  |aaa   ccc    |
        kernel ncclKernel      @s20 | bbb         |
        """)
    )
    assert [(lane.busy_ns, lane.compute_ns, lane.comm_ns) for lane in one.accounts.steps[0].lanes] == [
        (3000, 3000, 0),
        (3000, 0, 3000),
    ]
    assert [(lane.busy_ns, lane.compute_ns, lane.comm_ns) for lane in one.accounts.steps[1].lanes] == [
        (3000, 3000, None),
        (None, 0, None),
    ]


def test_of_a_thread_that_was_not_recorded_only_its_communication_is_known(recorded: Path) -> None:
    trace = read_trace(recorded / "pipelines" / "1f1b" / "rank0.json.gz")
    is_gloo = trace.is_named(lambda name: name.startswith("gloo:"))
    one = analyze_trace(trace.select(~trace.is_one_of(("cpu_op",)) | is_gloo))
    lanes = [lane for account in one.accounts.steps for lane in account.lanes]
    assert {(lane.busy_ns, lane.compute_ns, lane.copy_ns) for lane in lanes} == {(None, None, None)}
    assert all(lane.comm_ns for lane in lanes)

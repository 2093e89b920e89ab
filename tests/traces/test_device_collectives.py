"""Collectives of device traces: what they say, whose they are, when the main lane waited for them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dtbench.base.ranges import parse_reduces_range, reduces_range
from dtbench.base.vocabulary import Axis, Operation, Purpose, Region
from dtbench.traces.job.explain import explain
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Collective

NODE = "autograd::engine::evaluate_function: MmBackward0"
LABEL = "dtbench::collective group=3 seq=41 op=all_reduce bytes=4096 axis=tensor async=1 owner=layers.0.wq"


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def only(path: Path) -> Collective:
    (found,) = analyze(path).collectives
    return found


@pytest.mark.parametrize(
    ("around", "purpose", "owner"),
    [
        ("FSDP::all_gather (layers.0)", Purpose.UNSHARD, "layers.0"),
        ("FSDP::all_gather", Purpose.UNSHARD, "root"),
        ("FSDP::post_backward_reduce (layers.1)", Purpose.GRAD_REDUCE, "layers.1"),
    ],
)
def test_an_fsdp_unit_owns_what_its_range_issues(
    draw: Callable[..., Path], around: str, purpose: Purpose, owner: str
) -> None:
    found = only(
        draw(f"""
        range {around}             @1  |======      |
        op record_param_comms      @1  | ====       |
        range nccl:something       @1  |  ==        |
        call cudaLaunchKernel      @1  |  a         |
        kernel ncclDevKernel       @s9 |     aaaa   |
        """)
    )
    assert (found.purpose, found.owner) == (purpose, owner)


@pytest.mark.parametrize(
    ("name", "purpose", "owner"),
    [
        ("FSDP::all_gather (layers.0)", Purpose.UNSHARD, "layers.0"),
        ("FSDP::reduce_scatter (layers.0)", Purpose.GRAD_REDUCE, "layers.0"),
        ("my own all-to-all", Purpose.OTHER, "my own all-to-all"),
    ],
)
def test_a_name_that_the_program_gave_to_the_communication_itself_is_its_owner(
    draw: Callable[..., Path], name: str, purpose: Purpose, owner: str
) -> None:
    """``dist.record_comm`` (torch 2.13) puts it in place of ``nccl:all_gather``, inside the plumbing."""
    found = only(
        draw(f"""
        op record_param_comms      @1  | ====       |
        range {name}               @1  |  ==        |
        call cudaLaunchKernel      @1  |  a         |
        kernel ncclDevKernel       @s9 |     aaaa   |
        """)
    )
    assert (found.purpose, found.owner, found.issue_ns) == (purpose, owner, 1000)


def test_a_tensors_redistribution_belongs_to_the_operator_and_module_that_asked(draw: Callable[..., Path]) -> None:
    sized = '{"Collective name": "allreduce", "In msg nelems": 512, "dtype": "Float"}'
    found = only(
        draw(f"""
        python nn.Module: Block_2        @1  |==========      |
        python nn.Module: Linear_3       @1  | ========       |
        op aten::mm                      @1  |  ======        |
        op PythonSubclass                @1  |  =====         |
        op _c10d_functional::all_reduce  @1  |   ====         |
        op c10d::allreduce_              @1  |    ==          |
        call cudaLaunchKernel            @1  |    a           |
        kernel ncclDevKernel             @s9 |       aaaa     | {sized}
        """)
    )
    assert (found.purpose, found.owner, found.region) == (
        Purpose.TENSOR,
        "aten::mm of Block_2.Linear_3",
        Region.FORWARD,
    )
    assert (found.issue_ns, found.issue_end_ns, found.operation) == (3000, 7000, Operation.ALL_REDUCE)


def test_in_backward_it_belongs_to_the_module_of_the_forward_operator(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw(f"""
        python nn.Module: Linear_3       @1  |===             |
        op aten::mm                      @1  | =              |
        op {NODE}                        @2  |    ======      |
        op MmBackward0                   @2  |    =====       |
        op _c10d_functional::all_reduce  @2  |     ===        |
        call cudaLaunchKernel            @2  |      a         |
        kernel ncclDevKernel             @s9 |         aaaa   |
        """)
    )
    (found,) = analyze_trace(replace(trace, flows=np.array([(1000, 4000)]))).collectives
    assert (found.purpose, found.owner, found.region) == (
        Purpose.OTHER,  # nothing shows on which axis
        "MmBackward0 of Linear_3",
        Region.BACKWARD,
    )


@pytest.mark.parametrize(
    ("around", "region"),
    [
        ("DistributedDataParallel.forward", Region.FORWARD),
        ("Optimizer.step#AdamW.step", Region.OPTIMIZER),
        ("FSDP::pre_backward (layers.0)", Region.BACKWARD),
        ("## forward ##", Region.FORWARD),
        ("forward of something else", None),
    ],
)
def test_without_our_ranges_the_region_is_what_the_names_around_say(
    draw: Callable[..., Path], around: str, region: Region | None
) -> None:
    found = only(
        draw(f"""
        range {around}             @1  |======      |
        op c10d::broadcast_        @1  | ====       |
        call cudaLaunchKernel      @1  |  a         |
        kernel ncclDevKernel       @s9 |     aaaa   |
        """)
    )
    assert found.region is region


def test_what_nothing_says_has_no_owner_and_its_exposed_time_is_told(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1              @1  |======              |
        step ProfilerStep#2              @1  |            ========|
        op c10d::broadcast_              @1  | ==          ===    |
        call cudaLaunchKernel            @1  |  a           b     |
        range FSDP::all_gather (0)       @1  |    ==              |
        call cudaMemcpyAsync             @1  |    c    d          |
        kernel ncclDevKernel_Broadcast   @s9 |    aaa         bbb |
        kernel ncclDevKernel_AllGather   @s8 |        cc          |
        kernel gemm                      @s7 |      d          d  |
        """)
    )
    assert [collective.owner for collective in one.collectives] == ["", "0", ""]
    assert one.whole.exposed_comm_ns == 2000 + 2000 + 2000
    assert [step.unattributed_ns for step in one.steps] == [2000, 2000]
    assert one.whole_unattributed_ns == 4000


def test_our_own_label_says_owner_axis_and_number_before_anything_is_inferred(draw: Callable[..., Path]) -> None:
    found = only(
        draw(f"""
        range dtbench::region backward    @1  |==========      |
        op aten::mm                       @1  | =======        |
        range {LABEL}                     @1  |  =====         |
        op c10d::allreduce_               @1  |   ===          |
        call cudaLaunchKernel             @1  |    a           |
        kernel ncclDevKernel              @s9 |       aaaa     |
        """)
    )
    assert (found.owner, found.axis, found.group, found.seq) == ("layers.0.wq", Axis.TENSOR, "3", 41)
    assert (found.is_async, found.region, found.purpose) == (True, Region.BACKWARD, Purpose.TENSOR)


@pytest.mark.parametrize(
    ("operator", "caller", "owner"),
    [
        ("op record_param_comms", "caller=train.mean ", "train.mean"),
        ("op record_param_comms", "", ""),
        ("op aten::_log_softmax", "caller=train.mean ", "aten::_log_softmax"),
    ],
)
def test_a_function_that_asked_owns_what_nothing_else_does(
    draw: Callable[..., Path], operator: str, caller: str, owner: str
) -> None:
    found = only(
        draw(f"""
        range dtbench::region forward     @1  |==========      |
        {operator}                        @1  | =======        |
        range {LABEL.replace("axis=tensor", "axis=").partition("owner=")[0]}{caller}owner= @1  |  =====         |
        op c10d::allreduce_               @1  |   ===          |
        call cudaLaunchKernel             @1  |    a           |
        kernel ncclDevKernel              @s9 |       aaaa     |
        """)
    )
    assert (found.owner, found.seq) == (owner, 41)


def test_a_collective_names_the_gap_of_the_main_lane_that_its_end_closes(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op aten::mm                       @1  |======          |
        call cudaLaunchKernel             @1  |abcd            |
        kernel gemm                       @s7 |  aaa     ddd   |
        kernel ncclDevKernel_AllGather    @s8 |   bbb          |
        kernel ncclDevKernel_AllReduce    @s9 |    ccccc       |
        """)
    )
    waits = [(collective.first_wait_ns, collective.first_wait_end_ns) for collective in one.collectives]
    assert waits == [(None, None), (5000, 9000)]  # both end inside the gap, the later one closes it


def test_what_the_metadata_says_is_kept(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        op record_param_comms         @1  |==      | {"Collective name": "send", "Process Group Name": "pp"}
        call cudaLaunchKernel         @1  | a      |
        kernel ncclDevKernel_SendRecv @s9 |   aaaa | {"Collective name": "send", "Process Group Name": "pp"}
        """)
    )
    told = {
        event: replace(said, source_rank=3, destination_rank=4, is_async=False, ranks=(3, 4), dtype="Float")
        for event, said in trace.details.items()
    }
    (found,) = analyze_trace(replace(trace, details=told)).collectives
    assert (found.operation, found.purpose, found.peer) == (Operation.SEND, Purpose.OTHER, 4)
    assert (found.is_async, found.group_ranks, found.dtype) == (False, (3, 4), "Float")
    received = {event: replace(said, collective="recv") for event, said in told.items()}
    (found,) = analyze_trace(replace(trace, details=received)).collectives
    assert (found.operation, found.peer) == (Operation.RECV, 3)


def test_the_ranks_of_a_group_come_from_the_file_where_the_event_leaves_them_out(draw: Callable[..., Path]) -> None:
    trace = read_trace(draw('kernel ncclDevKernel @s9 |====| {"Process Group Name": "2"}'))
    (found,) = analyze_trace(replace(trace, group_ranks={"2": (0, 4)})).collectives
    assert found.group_ranks == (0, 4)


def test_copies_of_one_collective_operator_are_one_collective_and_each_kernel_is_its_own(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op c10d::allgather_            @1  |=====           |
        call cudaMemcpyAsync           @1  | ab             |
        call cudaLaunchKernel          @1  |   c            |
        copy Memcpy PtoP               @s8 |    aa  bb      |
        kernel ncclDevKernel_AllGather @s9 |       ccc      |
        """)
    )
    assert [(c.span.starts_ns.tolist(), c.span.ends_ns.tolist()) for c in one.collectives] == [
        ([4000, 8000], [6000, 10000]),
        ([7000], [10000]),
    ]


def test_kernels_launched_before_the_trace_stay_in_the_account(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op aten::mm                       @1  |   ===          |
        call cudaLaunchKernel             @1  |    d           |
        kernel gemm                       @s7 |aaa     ddd     |
        kernel ncclDevKernel_AllGather    @s8 |  bbb           |
        """)
    )
    assert (one.uncorrelated.launched_before, one.whole.compute_ns, one.whole.comm_ns) == (2, 6000, 3000)
    assert [(c.owner, c.issue_ns, c.region, c.above) for c in one.collectives] == [("", None, None, ())]


SAYS = '{"Collective name": "allreduce", "Process Group Name": "0", "dtype": "%s"}'


def test_what_ddp_reduces_out_of_its_order_has_the_owner_that_it_says_and_buckets_are_counted_without_it(
    draw: Callable[..., Path],
) -> None:
    path = draw(f"""
        step ProfilerStep#1                             @1  |============================|
        range dtbench::region backward                  @1  |========================    |
        range DistributedDataParallel.forward           @2  |=                           |
        op autograd::engine::evaluate_function: AccumulateGrad @1 |===                         |
        range dtbench::reduces (delayed parameters)     @1  |      ====                  |
        op c10d::allreduce_                             @1  |===    ===   ===   ===      | {SAYS % "Float"}
        call cudaLaunchKernel                           @1  | a      b     c     d       |
        kernel ncclDevKernel_AllReduce                  @s9 |  aa     bb          dd     | {SAYS % "Float"}
        kernel ncclDevKernel_AllReduce                  @s9 |               cc           | {SAYS % "Int"}
        """)
    owners = [one.owner for one in analyze(path).collectives]
    assert owners == ["bucket 0", "delayed parameters", "unused-parameter map", "bucket 1"]


@pytest.mark.parametrize("owner", ["bucket 3", "delayed parameters", "layers.0 (odd)"])
def test_the_name_of_what_is_reduced_survives_the_trace(owner: str) -> None:
    assert parse_reduces_range(reduces_range(owner)) == owner
    assert parse_reduces_range(owner) is None


@pytest.mark.parametrize(
    ("call", "stream", "wait", "is_async"),
    [
        ("cudaLaunchKernel", "7", (5000, 10_000), False),
        ("cudaLaunchKernel", "20", (4000, 10_000), None),
        ("cudaGraphLaunch", "7", (None, None), None),
    ],
    ids=["its own wait", "a gap", "a graph says nothing of streams"],
)
def test_what_runs_on_the_stream_that_computes_holds_it_up_for_as_long_as_it_takes(
    draw: Callable[..., Path], call: str, stream: str, wait: tuple[int | None, int | None], is_async: bool | None
) -> None:
    found = only(
        draw(f"""
        call cudaLaunchKernel          @1         |a c               |
        call {call}                    @1         | b                |
        kernel gemm                    @7         |aaaa       ccccccc|
        kernel ncclDevKernel_AllReduce @{stream}  |     bbbbb        | {SAYS % "Float"}
        """)
    )
    assert (found.first_wait_ns, found.first_wait_end_ns, found.is_async) == (*wait, is_async)


@pytest.mark.parametrize("said", [True, False])
def test_an_operator_above_says_whether_it_was_issued_blocking_where_the_kernel_does_not(
    draw: Callable[..., Path], said: bool
) -> None:
    inputs = f'{{"Concrete Inputs": ["", "", "{said}", "-1"]}}'
    found = only(
        draw(f"""
        op c10d::allreduce_            @1  |====              | {inputs}
        op record_param_comms          @1  | ==               | {SAYS % "Float"}
        call cudaLaunchKernel          @1  | a                |
        kernel ncclDevKernel_AllReduce @20 |     aaaaa        | {SAYS % "Float"}
        """)
    )
    assert found.is_async is said


def test_a_kernel_that_only_opens_an_exchange_is_one_collective_with_the_kernel_that_carries_it_out(
    draw: Callable[..., Path],
) -> None:
    """DeepEP launches two kernels for each dispatch or combine; the second waits behind no collective but its own."""
    one = analyze(
        draw("""
        range combine(B)                                           @1 |==                     |
        range dispatch(F)                                          @1 |   ======              |
        call cudaLaunchKernel                                      @1 |ab c    d              |
        kernel void deep_ep::internode::cached_notify<false>       @7 | aaa                   |
        kernel void deep_ep::internode::combine<false>             @7 |     bbbb              |
        kernel void deep_ep::internode::notify_dispatch<false, 4>  @7 |         ccc           |
        kernel void deep_ep::internode::dispatch<false, 4>         @7 |             dddd      |
        kernel gemm                                                @8 |                     ==|
        """)
    )
    assert [(found.owner, found.issue_ns, len(found.span.starts_ns)) for found in one.collectives] == [
        ("combine(B)", 0, 2),
        ("dispatch(F)", 3000, 2),
    ]
    assert [split.cause for split in explain([one]).analyses[0].splits] == ["unknown", "queued"]


def test_an_opening_kernel_is_joined_to_no_other_call_and_no_other_librarys_kernel(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        range a                                                @1 |=                 |
        range b                                                @1 | ===              |
        call cudaLaunchKernel                                  @1 |abcd              |
        kernel deep_ep::intranode::cached_notify_combine<8>    @7 | aa   cc          |
        kernel void deep_ep::intranode::combine<8>             @7 |   bb             |
        kernel ncclDevKernel_AllReduce                         @7 |         dd       |
        kernel gemm                                            @8 |                 =|
        """)
    )
    assert len(one.collectives) == 4


def test_kernels_that_one_operator_launched_on_one_lane_are_one_collective(draw: Callable[..., Path]) -> None:
    """torch's all-to-all over symmetric memory exchanges sizes with one kernel and sends with another."""
    found = only(
        draw("""
        op symm_mem::all_to_all_vdev           @1 |=====                    |
        call cudaLaunchKernel                  @1 | a b                     |
        kernel exchangeSplitAndOffset<false>   @7 |     aa                  |
        kernel allToAllV                       @7 |         bbb             |
        kernel gemm                            @8 |                 ==      |
        """)
    )
    assert (found.operation, found.start_ns, found.end_ns) == (Operation.ALL_TO_ALL, 5000, 12000)


@pytest.mark.parametrize("written", ["18446744073709551557", '"18446744073709551557"'])
def test_the_id_of_a_collective_is_read_however_it_is_written(draw: Callable[..., Path], written: str) -> None:
    drawing = f"""
        op record_param_comms                  @1 |=====                    | {{"Comms Id": {written}, "Seq": 7}}
        call cudaLaunchKernel                  @1 | a                       |
        kernel ncclDevKernel_AllReduce         @7 |     aa                  | {{"Collective name": "allreduce"}}
        kernel gemm                            @8 |                 ==      |
        """
    assert only(draw(drawing)).comms_id == "18446744073709551557"


def test_collectives_that_one_operator_names_apart_stay_apart(draw: Callable[..., Path]) -> None:
    drawing = """
        op c10d::allreduce_coalesced_          @1 |=====                    |
        call cudaLaunchKernel                  @1 | a b                     |
        kernel ncclDevKernel_AllReduce         @7 |     aa                  | {"Collective name": "allreduce", "Seq": 1}
        kernel ncclDevKernel_AllReduce         @7 |         bbb             | {"Collective name": "allreduce", "Seq": 2}
        kernel gemm                            @8 |                 ==      |
        """
    assert [found.seq for found in analyze(draw(drawing)).collectives] == [1, 2]

"""Kinds of device events by operator and category, and what no rule knows."""

from collections.abc import Callable
from pathlib import Path

from dtbench.base.vocabulary import Kind, Operation
from dtbench.traces.kinds.patterns import KernelPattern
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from tests.known import total


def analyze(path: Path, *patterns: KernelPattern) -> TraceAnalysis:
    return analyze_trace(read_trace(path), patterns=patterns)


def test_a_kernel_without_a_known_name_is_communication_where_a_collective_itself_launched_it(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op c10d::allreduce_       @1  | =======   |
        op record_param_comms     @1  |  =====    |
        op aten::add              @1  |    ==     |
        call cudaLaunchKernelExC  @1  |   a b     |
        kernel vendor_kernel_7    @s7 |   aaa     |
        kernel some_local_kernel  @s7 |      bb   |
        """)
    )
    assert (one.whole.comm_ns, one.whole.compute_ns) == (3000, 2000)
    assert [collective.operation for collective in one.collectives] == [Operation.ALL_REDUCE]


def test_a_kernel_that_a_rule_calls_local_is_compute_though_a_collective_launched_it(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op nccl:all_reduce                   @1  | =======   |
        call cudaLaunchKernel                @1  |  a b      |
        kernel void c10d::checkForNaN<float> @s7 |   aa      |
        kernel ncclDevKernel_Generic         @s7 |     bb    |
        """)
    )
    assert (one.whole.comm_ns, one.whole.compute_ns) == (2000, 2000)


def test_a_driver_call_inside_a_runtime_call_belongs_to_the_operator_around_both(draw: Callable[..., Path]) -> None:
    path = draw("""
        op nccl:all_gather     @1  | =======   |
        call cudaMemcpyAsync   @1  |  ===      |
        call cuMemcpyAsync     @1  |   a       |
        copy Memcpy DtoD       @s7 |     aaa   |
        """)
    assert analyze(path).whole.comm_ns == 3000


def test_a_copy_inside_a_collective_by_another_operator_is_a_copy(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op c10d::allgather_    @1  | =======   |
        op aten::copy_         @1  |  ===      |
        call cudaMemcpyAsync   @1  |   a  b    |
        copy Memcpy DtoD       @s7 |     aa b  |
        """)
    )
    assert (one.whole.exposed_copy_ns, one.whole.comm_ns) == (2000, 1000)


def test_symmetric_memorys_copies_between_devices_are_communication_and_its_local_ones_are_not(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op symm_mem::fused_all_gather_matmul     @1  |===========|
        op aten::copy_                           @1  | == ===    |
        call cudaMemcpyAsync                     @1  | a  b      |
        copy Memcpy DtoD (Device -> Device)      @s7 |  a        |
        copy Memcpy PtoP (Device -> Device)      @s7 |    bbb    |
        """)
    )
    assert (one.whole.exposed_copy_ns, one.whole.comm_ns) == (1000, 3000)
    assert [collective.operation for collective in one.collectives] == [Operation.ALL_GATHER]
    assert total(lane.copy_ns for lane in one.accounts.whole.lanes) == 1000  # an event has one kind


def test_a_product_that_symmetric_memory_itself_launches_is_compute(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op symm_mem::one_shot_all_reduce    @1  |==         |
        op symm_mem::_async_input_mm        @1  |   ===     |
        call cudaLaunchKernel               @1  |a  b       |
        kernel fused_pull                   @s7 | aaa       |
        kernel void cutlass::device_kernel  @s7 |     bbbb  |
        """)
    )
    assert (one.whole.comm_ns, one.whole.compute_ns) == (3000, 4000)


def test_a_copy_between_devices_under_no_operator_stays_a_copy(draw: Callable[..., Path]) -> None:
    one = analyze(draw("copy Memcpy PtoP (Device -> Device) @s7 | === |"))
    assert (one.whole.exposed_copy_ns, one.whole.comm_ns) == (3000, 0)


def test_users_patterns_decide_kind_and_operation(draw: Callable[..., Path]) -> None:
    path = draw("""
        kernel ring_exchange            @s7 | aaa     |
        kernel nccl_tuner_model         @s7 |     bb  |
        kernel paste                    @s7 |       c |
        """)
    one = analyze(
        path,
        KernelPattern(pattern="ring_exchange", kind=Kind.COMM, operation=Operation.ALL_TO_ALL),
        KernelPattern(pattern="tuner", kind=Kind.COMPUTE),
        KernelPattern(pattern="paste", kind=Kind.COPY),
    )
    assert (one.whole.comm_ns, one.whole.compute_ns, one.whole.exposed_copy_ns) == (3000, 2000, 1000)
    assert [collective.operation for collective in one.collectives] == [Operation.ALL_TO_ALL]


def test_a_name_that_sounds_like_communication_is_shown_until_a_pattern_claims_it(draw: Callable[..., Path]) -> None:
    path = draw("kernel my_a2a_kernel @s7 | aaa |\nkernel gemm @s7 |    a|")
    assert analyze(path).unknown_names == (("my_a2a_kernel", 1),)
    assert analyze(path, KernelPattern(pattern="my_a2a", kind=Kind.COMPUTE)).unknown_names == ()


def test_names_without_a_rule_are_shown_on_lanes_where_most_is_communication(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        kernel ncclDevKernel_Generic            @s20 |aaaa   aaaa   |
        kernel mystery                          @s20 |    bb     b  |
        kernel pack                             @s20 |            == |
        kernel at::native::CatArrayBatchedCopy  @s20 |      =       |
        kernel mystery                          @s7  |  bbb         |
        copy Memcpy DtoD                        @s20 |              =======================|
        """)
    )
    assert [(name.name, name.lane, name.count, name.time_ns) for name in one.names_on_comm_lanes] == [
        ("mystery", "0/s20", 2, 3000),
        ("pack", "0/s20", 1, 2000),
    ]
    assert one.whole.comm_ns == 8000


def test_a_lane_with_as_much_compute_as_communication_is_no_communication_lane(draw: Callable[..., Path]) -> None:
    one = analyze(draw("kernel ncclDevKernel_Generic @s20 |aaaa    |\nkernel mystery @s20 |    bbbb|"))
    assert one.names_on_comm_lanes == ()


def test_kernels_that_rocms_runtime_fills_and_copies_with_are_copies(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        call hipLaunchKernel                          @1 |a           |
        call hipMemsetAsync                           @1 | b          |
        call hipMemcpyAsync                           @1 |  c         |
        kernel Cijk_Ailk_Bljk_BBS_BH_MT128x128x64     @s0|   aaaa     |
        kernel __amd_rocclr_fillBufferAligned.kd      @s0|       bb   |
        kernel __amd_rocclr_copyBufferRectAligned.kd  @s1|        ccc |
        """)
    )
    assert (one.whole.compute_ns, one.whole.exposed_copy_ns, one.whole.comm_ns) == (4000, 4000, 0)
    assert one.unknown_names == ()


def test_a_copy_kernel_that_a_collective_itself_launched_is_communication_as_a_memcpy_is(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op c10d::_allgather_base_       @1  | =====      |
        call hipMemcpyAsync             @1  | a b        |
        op aten::copy_                  @1  |       ==   |
        call hipMemcpyAsync             @1  |       c    |
        kernel __amd_rocclr_copyBuffer  @s7 |   aabb     |
        kernel __amd_rocclr_copyBuffer  @s8 |         cc |
        """)
    )
    assert (one.whole.comm_ns, one.whole.exposed_copy_ns, one.whole.compute_ns) == (4000, 2000, 0)
    assert [(one.operation, one.span.length_ns) for one in one.collectives] == [(Operation.ALL_GATHER, 4000)]


def test_a_users_pattern_for_a_copy_kernel_decides_before_the_table(draw: Callable[..., Path]) -> None:
    path = draw("kernel __amd_rocclr_fillBufferAligned @s7 |===|")
    mine = KernelPattern(pattern="rocclr_fill", kind=Kind.COMPUTE)
    assert (analyze(path, mine).whole.compute_ns, analyze(path, mine).whole.exposed_copy_ns) == (3000, 0)


def test_vendors_collectives_are_known_by_name_where_no_operator_launched_them(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        kernel allreduce_large_impl<sycl::half, 4, 2, true>() @s1 |==     |
        kernel mcclKernel_ReduceScatter_RING_LL_Sum_float     @s1 |  =    |
        kernel HcclAllGather_1_0                              @s1 |   =   |
        kernel gemm                                           @s2 |    ===|
        """)
    )
    assert (one.whole.comm_ns, one.whole.compute_ns) == (4000, 3000)
    assert [one.operation for one in one.collectives] == [
        Operation.ALL_REDUCE,
        Operation.REDUCE_SCATTER,
        Operation.ALL_GATHER,
    ]

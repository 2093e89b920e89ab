"""The tables of names, each rule with a recorded real name, and what a device trace says about its collectives."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose, Region
from dtbench.traces.kinds.operators import Role, cpu_role, find_operation
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.who.purposes import find_purpose, find_unit

ACCUMULATE = "autograd::engine::evaluate_function: AccumulateGrad"
METADATA = (
    '{"Collective name": "_reduce_scatter_base", "In msg nelems": 1024, "Out msg nelems": 512, "Group size": 2, '
    '"dtype": "BFloat16", "Process Group Name": "7", "Process Group Description": "mesh_shard"}'
)


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


@pytest.mark.parametrize(
    ("name", "category", "role"),
    [
        ("aten::mm", "cpu_op", Role.COMPUTE),
        ("fsdp::chunk_cat", "cpu_op", Role.COMPUTE),
        ("gloo:all_reduce", "user_annotation", Role.COLLECTIVE),
        ("c10d::allreduce_", "cpu_op", Role.ISSUE),
        ("xccl:all_reduce", "user_annotation", Role.ISSUE),
        ("oneccl::init", "cpu_op", Role.COMPUTE),
        ("symm_mem::fused_all_gather_matmul", "cpu_op", Role.ISSUE),
        ("symm_mem::_async_input_mm", "cpu_op", Role.COMPUTE),
        ("_c10d_functional::_wrap_tensor_autograd", "cpu_op", Role.ISSUE),
        ("_c10d_functional_autograd::all_to_all_single", "cpu_op", Role.ISSUE),
        ("_c10d_functional::wait_tensor", "cpu_op", Role.WAIT),
        ("dtbench::wait group=0 seq=4", "user_annotation", Role.WAIT),
        ("dtbench::timed layers.3 backward", "user_annotation", Role.COMPUTE),
        ("dtbench::module layers.3", "user_annotation", Role.CONTAINER),
        ("autograd::engine::evaluate_function: MmBackward0", "cpu_op", Role.CONTAINER),
        ("torch::autograd::AccumulateGrad", "cpu_op", Role.CONTAINER),
        ("MmBackward0", "cpu_op", Role.CONTAINER),
        ("_ToTorchTensor", "cpu_op", Role.CONTAINER),
        ("torch::distributed::reducer::mul_out", "cpu_op", Role.CONTAINER),
        ("FSDP::pre_forward (0)", "user_annotation", Role.CONTAINER),
        ("Optimizer.step#AdamW.step", "user_annotation", Role.CONTAINER),
        ("ProfilerStep#12", "user_annotation", Role.CONTAINER),
    ],
)
def test_operators_and_ranges_have_one_role(name: str, category: str, role: Role) -> None:
    assert cpu_role(name, category) is role


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("c10d::_allgather_base_", Operation.ALL_GATHER),
        ("c10d::_reduce_scatter_base_", Operation.REDUCE_SCATTER),
        ("c10d::allreduce_", Operation.ALL_REDUCE),
        ("nccl:all_to_all", Operation.ALL_TO_ALL),
        ("gloo:barrier", Operation.BARRIER),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Operation.BROADCAST),
        ("_allgather_base", Operation.ALL_GATHER),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", None),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16>", Operation.ALL_REDUCE),
        ("aten::mm", None),
    ],
)
def test_operations_are_told_by_name(text: str, operation: Operation | None) -> None:
    assert find_operation(text) is operation


def test_a_name_that_sounds_like_communication_is_compute_and_counted(draw: Callable[..., Path]) -> None:
    one = analyze(draw("kernel my_fused_all_gather_gemm @s7 |== ==|\nkernel gemm @s7 |  =|"))
    assert (one.whole.compute_ns, one.whole.comm_ns) == (5000, 0)
    assert one.unknown_names == (("my_fused_all_gather_gemm", 2),)


def test_metadata_decides_before_the_name(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1   @1   |=====|
        call cudaLaunchKernel @1   |a    |
        kernel something      @s20 | aaa | {METADATA}
        """)
    )
    (row,) = COLLECTIVES.tabulate([one]).to_dict("records")
    assert one.whole.comm_ns == 3000
    assert (row["group"], row["axis"], row["operation"], row["size_bytes"]) == ("7", "shard", "reduce_scatter", 2048)


def test_a_copy_launched_by_a_collective_is_communication_and_fsdps_own_copy_is_not(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1        @1  |====================|
        range FSDP::all_gather (0) @1  |==========          |
        op c10d::_allgather_base_  @1  | =====              | {"Input Dims": [[8]], "Input type": ["float"]}
        op aten::copy_             @1  |       ==           |
        call cudaMemcpyAsync       @1  |  a b   c           |
        copy Memcpy DtoD           @s7 |    aa bb  cc       |
        """)
    )
    assert (one.whole.comm_ns, one.whole.exposed_copy_ns) == (4000, 2000)
    (row,) = COLLECTIVES.tabulate([one]).to_dict("records")  # two copies of one operator are one collective
    assert (row["purpose"], row["owner"], row["size_bytes"]) == ("unshard", "0", 32)
    assert (row["start_ns"], row["end_ns"], row["exposed_ns"]) == (4000, 9000, 4000)


def test_the_enclosing_operator_launched_a_kernel_not_the_last_that_started(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        op c10d::allreduce_   @1  |======  |
        op aten::view         @1  | =      |
        op aten::add          @1  |      = |
        call cudaMemcpyAsync  @1  |   a  b |
        copy Memcpy DtoD      @s7 |    a  b|
        """)
    )
    assert (one.whole.comm_ns, one.whole.exposed_copy_ns) == (1000, 1000)


def test_axes_of_groups_can_be_told_from_outside(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1            @1   |=====|
        range dtbench::region backward @2   |=====|
        call cudaLaunchKernel          @1   |a    |
        kernel nccl                    @s20 | aaa | {METADATA.replace("mesh_shard", "default_pg")}
        """)
    one = analyze_trace(read_trace(path), process_groups={"7": Axis.REPLICATE})
    assert (one.collectives[0].axis, one.collectives[0].purpose) == (Axis.REPLICATE, Purpose.GRAD_REDUCE)


@pytest.mark.parametrize(
    ("axis", "operation", "region", "above", "purpose"),
    [
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, (), Purpose.UNSHARD),
        (Axis.TENSOR, Operation.ALL_REDUCE, Region.BACKWARD, (), Purpose.TENSOR),
        (Axis.TENSOR, Operation.ALL_REDUCE, Region.OPTIMIZER, ("_c10d_functional::all_reduce",), Purpose.OTHER),
        (None, Operation.ALL_GATHER, None, ("FSDP::all_gather (layers.0)",), Purpose.UNSHARD),
        (None, Operation.REDUCE_SCATTER, None, ("FSDP::post_backward_reduce (layers.0)",), Purpose.GRAD_REDUCE),
        (None, Operation.ALL_REDUCE, None, ("_c10d_functional::all_reduce",), Purpose.OTHER),
        (None, Operation.ALL_REDUCE, Region.OPTIMIZER, ("_c10d_functional::all_reduce",), Purpose.OTHER),
        (None, Operation.ALL_REDUCE, None, ("autograd::engine::evaluate_function: X",), Purpose.OTHER),
        (None, Operation.ALL_REDUCE, None, (ACCUMULATE,), Purpose.GRAD_REDUCE),
        (None, Operation.SEND, None, (), Purpose.OTHER),
        (None, Operation.BROADCAST, None, (), Purpose.OTHER),
        (None, Operation.ALL_GATHER, Region.STATE_DICT, (), Purpose.STATE),
    ],
)
def test_the_purpose_follows_from_axis_and_region_or_from_the_ranges_around(
    axis: Axis | None, operation: Operation, region: Region | None, above: tuple[str, ...], purpose: Purpose
) -> None:
    assert find_purpose(axis, operation, region, above) is purpose


def test_the_innermost_fsdp_range_names_the_unit() -> None:
    assert find_unit(("c10d::x", "FSDP::all_gather (layers.0)", "FSDP::backward_prefetch for layers.0")) == "layers.0"
    assert find_unit(("FSDP::all_gather",)) == "root"
    assert find_unit(("c10d::x",)) == ""

"""Purposes by axis, ranges, operators and region, in this order of decision; traces without a backward."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose, Region, axis_described, purpose_of
from dtbench.traces.job.explain import explain
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.purposes import DataParallel, find_data_parallel, find_purpose
from tests.known import known

NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = f"{NODE}torch::autograd::AccumulateGrad"
FSDP1_FORWARD = "FullyShardedDataParallel.forward"
ADAM = "Optimizer.step#AdamW.step"
FSDP = DataParallel(has_fsdp=True)
DDP = DataParallel(has_reducer=True)


def say(collective: str, group: str, *, ranks: int = 2, elements: int = 512) -> str:
    """Return the metadata of a collective in bfloat16, on a group that is described."""
    return json.dumps(
        {
            "Collective name": collective,
            "dtype": "BFloat16",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": ranks,
            "Process Group Name": group.lower(),
            "Process Group Description": group,
        }
    )


def analyze(path: Path) -> TraceAnalysis:
    return explain([analyze_trace(read_trace(path))]).analyses[0]


def exposed(one: TraceAnalysis) -> dict[str, tuple[float, int]]:
    """Return count and exposed ns of each purpose in the first step."""
    return {str(purpose.purpose): (purpose.count, known(purpose.exposed_ns)) for purpose in one.steps[0].purposes}


@pytest.mark.parametrize(
    ("description", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", Axis.TENSOR),
        ("EXPERT_TENSOR_PARALLEL_GROUP", Axis.TENSOR),
        ("CONTEXT_PARALLEL_GROUP", Axis.CONTEXT),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_1", Axis.CONTEXT),
        ("EXPERT_MODEL_PARALLEL_GROUP", Axis.EXPERT),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", Axis.EXPERT),
        ("PIPELINE_MODEL_PARALLEL_GROUP", Axis.PIPELINE),
        ("DATA_PARALLEL_GROUP", Axis.DATA),
        ("DATA_PARALLEL_GROUP_WITH_CP_GLOO", Axis.DATA),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", Axis.DATA),
        ("EXPERT_DATA_PARALLEL_GROUP", Axis.DATA),
        ("mesh_cp", Axis.CONTEXT),
        ("mesh_sp", Axis.CONTEXT),
        ("mesh_ep", Axis.EXPERT),
        ("mesh_pp", Axis.PIPELINE),
        ("mesh_etp", Axis.TENSOR),
        ("mesh_TP", Axis.TENSOR),
        ("mesh_dp_shard_cp", Axis.SHARD),
        ("mesh_dp_mod_ep", Axis.SHARD),
        ("mesh_efsdp", Axis.SHARD),
        ("mesh_dp_replicate", Axis.REPLICATE),
        ("mesh_dp", Axis.DATA),
        ("mesh_loss", Axis.DATA),
        ("mesh_data_parallel", Axis.DATA),
        ("mesh_tensor_parallel", Axis.TENSOR),
        ("mesh_dp_replicate_dp_shard", Axis.DATA),
        ("mesh_dp_replicate_dp_shard_cp", Axis.DATA),
        ("mesh_replicate_shard", Axis.DATA),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", None),
        ("MODEL_PARALLEL_GROUP", None),
        ("mesh_dim_0", None),
        ("default_pg", None),
        ("", None),
        (None, None),
    ],
)
def test_an_axis_is_known_by_its_groups_description_whoever_made_the_mesh(
    description: str | None, axis: Axis | None
) -> None:
    assert axis_described(description) is axis


@pytest.mark.parametrize("region", [Region.FORWARD, Region.BACKWARD, None])
@pytest.mark.parametrize("operation", [*Operation, None])
@pytest.mark.parametrize("shown", [DataParallel(), FSDP, DDP])
def test_axes_that_carry_one_thing_decide_alone(
    region: Region | None, operation: Operation | None, shown: DataParallel
) -> None:
    above = ("c10d::allreduce_", f"{NODE}MmBackward0")
    for axis, purpose in [
        (Axis.TENSOR, Purpose.TENSOR),
        (Axis.CONTEXT, Purpose.CONTEXT),
        (Axis.EXPERT, Purpose.EXPERT),
        (Axis.PIPELINE, Purpose.PIPELINE),
    ]:
        assert find_purpose(axis, operation, region, above, shown) is purpose
        assert purpose_of(axis, operation, region) is purpose


@pytest.mark.parametrize("axis", [*Axis, None])
@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.SEND, Operation.BROADCAST])
def test_clipping_optimizer_and_state_dict_come_before_the_axis(axis: Axis | None, operation: Operation) -> None:
    for above in (("dtbench::clip_grad_norm_",), ("torch/nn/utils/clip_grad.py(210): clip_grad_norm_",)):
        assert find_purpose(axis, operation, None, above) is Purpose.OTHER
        assert find_purpose(axis, operation, Region.FORWARD, above) is Purpose.OTHER
    assert find_purpose(axis, operation, Region.OPTIMIZER, (ADAM,)) is Purpose.OTHER
    assert find_purpose(axis, operation, Region.STATE_DICT, ()) is Purpose.STATE
    assert purpose_of(axis, operation, Region.OPTIMIZER) is Purpose.OTHER


@pytest.mark.parametrize(
    ("axis", "operation", "region", "above", "shown", "purpose"),
    [
        # What FSDP's ranges enclose, and what the reducer's hook issued.
        (Axis.SHARD, Operation.ALL_GATHER, None, ("FSDP::all_gather (0)",), FSDP, Purpose.UNSHARD),
        (Axis.SHARD, Operation.REDUCE_SCATTER, None, ("FSDP::post_backward_reduce (0)",), FSDP, Purpose.GRAD_REDUCE),
        (Axis.REPLICATE, Operation.ALL_REDUCE, None, ("FSDP::post_backward_reduce",), FSDP, Purpose.GRAD_REDUCE),
        (Axis.DATA, Operation.ALL_REDUCE, None, (ACCUMULATE,), DDP, Purpose.GRAD_REDUCE),
        (None, Operation.ALL_REDUCE, None, (ACCUMULATE,), DDP, Purpose.GRAD_REDUCE),
        # All else on an axis of data in such a trace.
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, ("aten::mm",), FSDP, Purpose.OTHER),
        (Axis.SHARD, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}X",), FSDP, Purpose.OTHER),
        (Axis.DATA, Operation.ALL_GATHER, Region.FORWARD, ("nn.Module: CLIPLoss_0",), DDP, Purpose.OTHER),
        (Axis.DATA, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}SyncBatchNormBackward",), DDP, Purpose.OTHER),
        (None, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}SyncBatchNormBackward",), DDP, Purpose.OTHER),
        (None, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}MyLossBackward",), DDP, Purpose.OTHER),
        (None, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}MyLossBackward",), FSDP, Purpose.OTHER),
        (None, Operation.ALL_REDUCE, Region.BACKWARD, ("## backward ##",), DDP, Purpose.GRAD_REDUCE),
        (Axis.SHARD, Operation.ALL_TO_ALL, None, ("_AllToAll", "nn.Module: MoELayer_0"), FSDP, Purpose.EXPERT),
        (Axis.DATA, Operation.SEND, Region.FORWARD, ("AttnFuncWithCPAndKVP2P",), DDP, Purpose.CONTEXT),
        (Axis.SHARD, Operation.ALL_GATHER, None, ("AttnFuncWithCPAndKVAllGather",), FSDP, Purpose.CONTEXT),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, ("cplib::flex_cp_allgather",), FSDP, Purpose.CONTEXT),
        (Axis.SHARD, Operation.REDUCE_SCATTER, None, ("cplib::flex_cp_allgather_backward",), FSDP, Purpose.CONTEXT),
        # The innermost name: a unit gathered for a module, a module's own collective under FSDP1's forward.
        (Axis.SHARD, Operation.ALL_GATHER, None, ("FSDP::all_gather (1)", "nn.Module: MoE_0"), FSDP, Purpose.UNSHARD),
        (None, Operation.ALL_GATHER, None, ("RingFlashAttnFunc", FSDP1_FORWARD), FSDP, Purpose.CONTEXT),
        (None, Operation.ALL_GATHER, None, ("_c10d_functional::all_gather_into_tensor", FSDP1_FORWARD), FSDP,
         Purpose.OTHER),
        (None, Operation.ALL_GATHER, None, ("c10d::_allgather_base_", "FullyShardedDataParallel._pre_forward"),
         FSDP, Purpose.UNSHARD),
        # A unit's forward is the user's, too: a loss that gathers features, say.
        (None, Operation.ALL_GATHER, Region.FORWARD, ("GatherFeatures", FSDP1_FORWARD), FSDP, Purpose.OTHER),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, (FSDP1_FORWARD,), FSDP, Purpose.OTHER),
        # Without ranges or hooks: operation and region.
        (Axis.DATA, Operation.ALL_GATHER, None, (), DataParallel(), Purpose.UNSHARD),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, (), DataParallel(), Purpose.UNSHARD),
        (Axis.REPLICATE, Operation.ALL_GATHER, Region.FORWARD, (), DataParallel(), Purpose.OTHER),
        (Axis.DATA, Operation.REDUCE_SCATTER, None, (), DataParallel(), Purpose.GRAD_REDUCE),
        (Axis.DATA, Operation.REDUCE_SCATTER, Region.FORWARD, (), DataParallel(), Purpose.OTHER),
        (Axis.DATA, Operation.REDUCE, Region.BACKWARD, (), DataParallel(), Purpose.GRAD_REDUCE),
        (Axis.DATA, Operation.ALL_REDUCE, None, (f"{NODE}X",), DataParallel(), Purpose.GRAD_REDUCE),
        (Axis.DATA, Operation.ALL_REDUCE, None, (), DataParallel(), Purpose.OTHER),
        (Axis.DATA, Operation.SEND, None, (), DataParallel(), Purpose.OTHER),
        (None, Operation.SEND, None, (), DataParallel(), Purpose.OTHER),
        (None, Operation.SEND, None, (), DataParallel(has_stages=True), Purpose.PIPELINE),
        (None, Operation.ALL_TO_ALL, None, (), DataParallel(), Purpose.OTHER),
        (None, Operation.ALL_GATHER, None, (), DataParallel(), Purpose.OTHER),
        # Operators that are known for what they send.
        (None, Operation.ALL_REDUCE, None, ("_ReduceFromModelParallelRegion",), DataParallel(), Purpose.TENSOR),
        (None, Operation.ALL_REDUCE, None, (f"{NODE}_CopyToModelParallelRegionBackward",), DataParallel(),
         Purpose.TENSOR),
        (None, Operation.ALL_GATHER, None, ("_GatherFromSequenceParallelRegion",), DataParallel(), Purpose.TENSOR),
        (None, Operation.REDUCE_SCATTER, None, (f"{NODE}LinearWithGradAccumulationAndAsyncCommunicationBackward",),
         DataParallel(), Purpose.TENSOR),
        (None, Operation.ALL_REDUCE, None, ("c10d::allreduce_", "nn.Module: RowParallelLinear_0"), DataParallel(),
         Purpose.TENSOR),
        (None, Operation.ALL_REDUCE, None, ("vllm::all_reduce",), DataParallel(), Purpose.TENSOR),
        (None, Operation.SEND, None, ("torch/.../_attention.py(9): _templated_ring_attention",),
         DataParallel(), Purpose.CONTEXT),
        # Any attention that sends does so around a ring; what it sums need not be of a sequence's parts.
        (None, Operation.SEND, None, ("SequenceAttention",), DataParallel(), Purpose.CONTEXT),
        (None, Operation.RECV, None, (f"{NODE}SequenceAttentionBackward",), DDP, Purpose.CONTEXT),
        (None, Operation.ALL_REDUCE, None, ("SequenceAttention",), DataParallel(), Purpose.OTHER),
        (None, Operation.ALL_TO_ALL, None, ("_SeqAllToAll",), DataParallel(), Purpose.CONTEXT),
        # torch's own all-to-alls, which Ulysses and experts alike are made of, say nothing.
        (None, Operation.ALL_TO_ALL, None, (f"{NODE}_AlltoAllSingleBackward",), DataParallel(), Purpose.OTHER),
        (None, Operation.ALL_TO_ALL, None, (f"{NODE}_AllToAllBackward",), DataParallel(), Purpose.OTHER),
        (None, Operation.ALL_TO_ALL, None, ("_c10d_functional::all_to_all_single",
                                            "_c10d_functional_autograd::all_to_all_single"),
         DataParallel(), Purpose.OTHER),
        # Sums of nodes that are no hooks of gradients: a tensor axis written by hand, a loss.
        (None, Operation.ALL_REDUCE, None, (f"{NODE}MyCopyBackward",), DataParallel(), Purpose.OTHER),
        # Of a loop that reduces its gradients itself, in a range of its own, nothing says otherwise.
        (None, Operation.ALL_REDUCE, Region.BACKWARD, ("## backward ##",), DataParallel(), Purpose.GRAD_REDUCE),
        (None, Operation.ALL_REDUCE, Region.BACKWARD, ("## backward ##",), FSDP, Purpose.OTHER),
        (None, Operation.ALL_TO_ALL, None, ("void deep_ep::intranode::combine<__nv_bfloat16>",), DataParallel(),
         Purpose.EXPERT),
        # Sharded optimizers: parameters gathered in the step or after it; not under FSDP, not by clipping.
        (Axis.DATA, Operation.ALL_GATHER, Region.OPTIMIZER, (ADAM,), DataParallel(), Purpose.UNSHARD),
        (Axis.DATA, Operation.ALL_GATHER, Region.OPTIMIZER, (ADAM,), FSDP, Purpose.OTHER),
        (Axis.DATA, Operation.ALL_GATHER, Region.OPTIMIZER, ("clip_grad_norm_",), DataParallel(), Purpose.OTHER),
        (Axis.TENSOR, Operation.ALL_GATHER, Region.OPTIMIZER, (ADAM,), DataParallel(), Purpose.OTHER),
        (None, Operation.BROADCAST, Region.OPTIMIZER, ("Optimizer.step#ZeroRedundancyOptimizer.step",), DDP,
         Purpose.UNSHARD),
        (None, Operation.ALL_GATHER, Region.OPTIMIZER, ("Optimizer.step#DistributedFusedAdam.step",), DataParallel(),
         Purpose.UNSHARD),
        (None, Operation.ALL_GATHER, None, ("deepspeed/runtime/zero/stage_1_and_2.py(1900): step",), DataParallel(),
         Purpose.UNSHARD),
        (None, Operation.ALL_REDUCE, None, ("deepspeed/runtime/zero/stage_1_and_2.py(1700): get_grad_norm",),
         DataParallel(), Purpose.OTHER),
    ],
)  # fmt: skip
def test_the_order_of_decision(
    axis: Axis | None,
    operation: Operation,
    region: Region | None,
    above: tuple[str, ...],
    shown: DataParallel,
    purpose: Purpose,
) -> None:
    assert find_purpose(axis, operation, region, above, shown) is purpose


def test_ranges_of_fsdp_and_the_reducers_hook_are_what_a_trace_shows() -> None:
    reduce, scatter, gather = Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.ALL_GATHER
    assert find_data_parallel([(reduce, ("c10d::allreduce_", ACCUMULATE))]) == DDP
    assert find_data_parallel([(gather, ("FSDP::all_gather (0)",))]) == FSDP
    assert find_data_parallel([(reduce, ("_ReduceFromModelParallelRegion",))]) == DataParallel()
    # Hooks that scatter leave each rank a part: a sharded optimizer's, whose gathers are of parameters.
    assert find_data_parallel([(scatter, ("c10d::_reduce_scatter_base_", ACCUMULATE))]) == DataParallel()


def test_what_the_worker_said_is_final_where_nothing_shows_who_asked() -> None:
    gather, reduce = Operation.ALL_GATHER, Operation.ALL_REDUCE
    told = DataParallel(is_labelled=True)
    assert find_purpose(Axis.SHARD, gather, Region.FORWARD, (), told) is Purpose.UNSHARD
    assert find_purpose(Axis.REPLICATE, reduce, Region.BACKWARD, (f"{NODE}X",), told) is Purpose.GRAD_REDUCE
    assert find_purpose(Axis.SHARD, gather, Region.OPTIMIZER, (ADAM,), told) is Purpose.OTHER


LABELLED_FSDP = DataParallel(is_labelled=True, has_fsdp=True)
LABELLED_DDP = DataParallel(is_labelled=True, has_reducer=True)


@pytest.mark.parametrize(
    ("axis", "operation", "region", "above", "shown", "purpose"),
    [
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, ("FSDP::all_gather (0)",), LABELLED_FSDP, Purpose.UNSHARD),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, ("dtbench::unit (0)",), LABELLED_FSDP, Purpose.UNSHARD),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, (), LABELLED_FSDP, Purpose.OTHER),
        (Axis.SHARD, Operation.ALL_GATHER, Region.FORWARD, ("ring_attention",), LABELLED_FSDP, Purpose.CONTEXT),
        (Axis.REPLICATE, Operation.SEND, Region.FORWARD, ("dtbench::module layers.0.attn",), LABELLED_DDP,
         Purpose.CONTEXT),
        (Axis.SHARD, Operation.REDUCE_SCATTER, Region.BACKWARD, (f"{NODE}KvBackward",), LABELLED_FSDP, Purpose.OTHER),
        (Axis.SHARD, Operation.REDUCE_SCATTER, Region.BACKWARD, ("FSDP::post_backward_reduce (0)", f"{NODE}X"),
         LABELLED_FSDP, Purpose.GRAD_REDUCE),
        (Axis.SHARD, Operation.ALL_GATHER, Region.OPTIMIZER, (ADAM,), LABELLED_FSDP, Purpose.OTHER),
        (Axis.REPLICATE, Operation.ALL_REDUCE, Region.BACKWARD, (ACCUMULATE,), LABELLED_DDP, Purpose.GRAD_REDUCE),
        (Axis.REPLICATE, Operation.ALL_REDUCE, Region.BACKWARD, (), LABELLED_DDP, Purpose.GRAD_REDUCE),
        (Axis.REPLICATE, Operation.ALL_REDUCE, Region.BACKWARD, ("_c10d_functional::all_reduce", ACCUMULATE),
         LABELLED_DDP, Purpose.GRAD_REDUCE),
        (Axis.REPLICATE, Operation.ALL_REDUCE, Region.BACKWARD, (f"{NODE}SyncBatchNormBackward",), LABELLED_DDP,
         Purpose.OTHER),
        (Axis.TENSOR, Operation.ALL_REDUCE, Region.BACKWARD, (ACCUMULATE,), LABELLED_DDP, Purpose.TENSOR),
    ],
)  # fmt: skip
def test_on_a_shared_axis_what_neither_fsdp_nor_ddp_issued_is_not_theirs_whoever_recorded_it(
    axis: Axis | None,
    operation: Operation,
    region: Region | None,
    above: tuple[str, ...],
    shown: DataParallel,
    purpose: Purpose,
) -> None:
    assert find_purpose(axis, operation, region, above, shown) is purpose


LABEL = "range dtbench::collective group=3 seq={} op={} bytes=16 axis=shard async=0 owner="


@pytest.mark.parametrize("is_labelled", [False, True], ids=["plain", "captured"])
def test_context_parallelism_on_fsdps_own_group_is_told_apart_with_and_without_labels(
    draw: Callable[..., Path], is_labelled: bool
) -> None:
    regions = """
        range dtbench::region forward          @1 |============                    |
        range dtbench::region backward         @1 |            ==================  |"""
    labels = f"""
        {LABEL.format(1, "all_gather")}        @1 |  =                             |
        {LABEL.format(2, "all_gather")}        @1 |        =                       |
        {LABEL.format(3, "reduce_scatter")}    @1 |             =                  |
        {LABEL.format(4, "reduce_scatter")}    @1 |                   =            |"""
    said = regions + labels if is_labelled else ""
    one = analyze(
        draw(f"""
        step ProfilerStep#1                    @1 |================================|{said}
        range FSDP::all_gather (0)             @1 | =====                          |
        op c10d::_allgather_base_              @1 |  =                             |
        op _RingKeysAndValues                  @1 |       ===                      |
        op c10d::_allgather_base_              @1 |        =                       |
        op {NODE}_RingKeysAndValuesBackward    @1 |            =====               |
        op c10d::_reduce_scatter_base_         @1 |             =                  |
        range FSDP::post_backward_reduce (0)   @1 |                  =====         |
        op c10d::_reduce_scatter_base_         @1 |                   =            |
        range gloo:all_gather                  @2 |  ===    ==                     |
        range gloo:all_reduce                  @2 |              ==     =          |
        """)
    )
    assert {str(row.purpose): row.count for row in one.steps[0].purposes} == {
        "unshard": 1,
        "grad_reduce": 1,
        "other": 2,
    }


@pytest.mark.parametrize(
    ("part", "operation", "region", "purpose"),
    [
        ("experts", "all_to_all", "forward", "expert"),
        ("experts", "all_gather", "forward", "other"),
        ("experts", "all_to_all", "optimizer", "other"),
        ("attention", "all_to_all", "forward", "other"),
        ("shared_experts", "all_to_all", "forward", "other"),
    ],
)
def test_all_to_alls_of_a_module_that_calls_experts_carry_their_rows(
    draw: Callable[..., Path], part: str, operation: str, region: str, purpose: str
) -> None:
    label = "range dtbench::collective group=0 seq={} op={} bytes=16 axis=replicate async=0 owner="
    one = analyze(
        draw(f"""
        step ProfilerStep#1                    @1 |================================|
        range dtbench::region {region}         @1 |================================|
        range dtbench::module 0                @1 | =============================  |
        op _AllToAll                           @1 |  ===            ===            |
        {label.format(1, operation)}           @1 |   =                            |
        range dtbench::module 0.{part}         @1 |         ====                   |
        {label.format(2, operation)}           @1 |                  =             |
        range gloo:{operation}                 @2 |    ==             ==           |
        """)
    )
    assert [(str(found.purpose), found.owner) for found in one.collectives] == [(purpose, "0")] * 2


def test_each_groups_sends_and_gathers_are_for_what_its_axis_is_for(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1               @1  |=============================|
        op aten::mm                       @1  |=====                        |
        op c10d::send                     @1  | =   =                       |
        op c10d::alltoall_base_           @1  |  =                          |
        op c10d::_allgather_base_         @1  |   =                         |
        call cudaLaunchKernel             @1  |abcde                        |
        kernel gemm                       @s7 |   aaa                       |
        kernel ncclDevKernel_SendRecv     @s8 |      bbbb                   | {say("send", "CONTEXT_PARALLEL_GROUP")}
        kernel ncclDevKernel_SendRecv     @s9 |          ccc                | {say("all_to_allv", "mesh_ep")}
        kernel ncclDevKernel_AllGather    @s10|             ddddd           | {say("_allgather_base", "mesh_dp")}
        kernel ncclDevKernel_SendRecv     @s11|                  ee         | {say("send", "mesh_pp")}
        """)
    )
    assert exposed(one) == {
        "context": (1, 4_000),
        "expert": (1, 3_000),
        "unshard": (1, 5_000),
        "pipeline": (1, 2_000),
    }
    assert [str(one.axis) for one in one.collectives] == ["context", "expert", "data", "pipeline"]
    assert {group.axis for group in one.accounts.whole.groups} == {"cp", "ep", "dp", "pp"}


def test_a_distributed_optimizers_gathers_after_hooks_that_scatter_are_unshards(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                  @1  |====================|
        op {ACCUMULATE}                      @2  | ==                 |
        op c10d::_reduce_scatter_base_       @2  |  =                 |
        range {ADAM}                         @1  |      ===           |
        op aten::_fused_adam                 @1  |      =             |
        op c10d::allreduce_                  @1  |       =            |
        op c10d::_allgather_base_            @1  |         =          |
        call cudaLaunchKernel                @2  |  a                 |
        call cudaLaunchKernel                @1  |      bcd           |
        kernel ncclDevKernel_ReduceScatter   @s8 |   aaa              | {say("_reduce_scatter_base", "mesh_dp")}
        kernel adam                          @s7 |        b           |
        kernel ncclDevKernel_AllReduce       @s8 |         cc         | {say("allreduce", "DATA_PARALLEL_GROUP")}
        kernel ncclDevKernel_AllGather       @s8 |           ddd      | {say("_allgather_base", "mesh_dp")}
        """)
    )
    assert exposed(one)["grad_reduce"] == (1, 3_000)
    assert exposed(one)["other"] == (1, 2_000)
    assert exposed(one)["unshard"] == (1, 3_000)

"""The table of kernels: every rule is proved by a recorded name, and the user's rules come first."""

import pytest

from dtbench.base.vocabulary import Kind, Operation
from dtbench.traces.kinds.kernels import KERNELS, RULES, InName, KernelRule, find_algorithm, make_table
from dtbench.traces.kinds.patterns import KernelPattern


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in RULES for name in rule.examples])
def test_a_recorded_name_is_claimed_by_the_rule_that_it_stands_beside(rule: KernelRule, name: str) -> None:
    assert KERNELS.find_rule(name) is rule


def test_no_rule_stands_without_a_recorded_name() -> None:
    assert [rule.pattern.pattern for rule in RULES if not rule.examples] == []


def test_a_rule_that_asks_the_name_for_the_operation_stands_beside_a_name_that_tells_it() -> None:
    asking = [rule for rule in RULES if rule.operation is InName.YES]
    silent = [rule.family for rule in asking if not any(map(KERNELS.operation_of, rule.examples))]
    assert silent == ["RCCL"], "whose kernel runs all of them"


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)", "all_reduce"),
        ("ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16", "reduce_scatter"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", None),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "all_reduce"),
        ("void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *)", "all_reduce"),
        ("void multimem_all_gather_kernel<16>(char*, char*, unsigned long)", "all_gather"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *)", "all_to_all"),
        ("void dpsk::ep::internode::dispatch_ll<8>(int*)", "all_to_all"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "reduce_scatter"),
        ("userbuffers_fp16_sum_inplace_gpu_mc", "all_reduce"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "send"),
        ("hcom_allGather__318_0_1", "all_gather"),
        ("hcom_reduceScatter__456_0_1", "reduce_scatter"),
        ("hcom_alltoallv__900_0_1@1111111111111111111", "all_to_all"),
        ("hcom_send__226_1_1@14841742970657550226", "send"),
        ("hcom_receive_226_1_1@14841742970657550226", "recv"),
        ("oneccl_allgatherv", "all_gather"),
        ("oneccl_reduce_base<float, 2, 16, 1, 1, 2>", None),
    ],
)
def test_the_operation_of_a_kernel_is_what_its_rule_or_its_name_says(name: str, operation: str | None) -> None:
    assert KERNELS.kind_of(name) is Kind.COMM
    assert KERNELS.operation_of(name) == operation


@pytest.mark.parametrize(
    "name",
    [
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64<ncclLike>",
        "void step::interlude::internode_map<8>(int*)",
        "multi_tensor_apply_kernel<TensorListMetadata<4>>",
    ],
)
def test_a_name_that_only_resembles_communication_is_claimed_by_no_rule(name: str) -> None:
    assert KERNELS.find_rule(name) is None


def test_the_first_of_a_users_patterns_decides_before_the_table() -> None:
    table = make_table(
        [
            KernelPattern(pattern="nccl.*Generic", kind=Kind.COMPUTE),
            KernelPattern(pattern="ring_exchange", kind=Kind.COMM, operation=Operation.ALL_GATHER),
            KernelPattern(pattern="ring", kind=Kind.COPY),
            KernelPattern(pattern="mine", kind=Kind.COMM),
        ]
    )
    assert table.kind_of("ncclDevKernel_Generic") is Kind.COMPUTE
    assert table.kind_of("ncclDevKernel_AllReduce") is Kind.COMM
    assert (table.kind_of("my_ring_exchange"), table.operation_of("my_ring_exchange")) == ("comm", "all_gather")
    assert (table.kind_of("my_ring"), table.operation_of("my_ring")) == (Kind.COPY, None)
    assert table.operation_of("mine_reduce_scatter<all_gather>") is Operation.REDUCE_SCATTER


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "RING"),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "TREE"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclWorkElem)", "TREE"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("void my_RING_kernel<ncclThing>(int)", ""),
    ],
)
def test_a_kernels_name_tells_its_algorithm_or_none(name: str, algorithm: str) -> None:
    assert find_algorithm(name) == algorithm

"""Which names of kernels sound like communication, and which only look so."""

import pytest

from dtbench.traces.kinds.unknown import sounds_like_comm


@pytest.mark.parametrize(
    "name",
    [
        "my_fused_all_gather_gemm",
        "my_a2a_kernel",
        "moeA2APrepareKernel",
        "p2p_copy_kernel",
        "void kP2PCopy<4>(int*)",
        "device_barrier_kernel",
        "void DeviceBarrierKernel(int*)",
        "my_rdma_write",
        "kuserbuffers_pullsend",
        "put_signal_kernel",
        "void ForwardRdmaPut<8>",
        "nvshmemi_transfer_rma_nbi",
        "ishmem_put_nbi",
        "ucclKernel_AllToAll",
        "void fused::gemm<mscclpp::SmChannelDeviceHandle>(float*)",
        "void moe::deep_ep::pack<8>",
        "symm_mem_copy",
    ],
)
def test_a_name_that_speaks_of_other_devices_is_suspected(name: str) -> None:
    assert sounds_like_comm(name)


@pytest.mark.parametrize(
    "name",
    [
        "__amd_rocclr_fillBufferAligned.kd",
        "__amd_rocclr_copyBuffer.kd",
        "__amd_rocclr_streamOpsWait",
        "void cutlass::device_kernel<GemmUniversal<cutlass::arch::NamedBarrier, cutlass::ClusterBarrier>>(Params)",
        "void flash::prepare<flash::TileScheduler>(cutlass::arch::ClusterTransactionBarrier*)",
        "void gridBarrierTest(int*)",
        "fmha_forwardMasked_kernel",  # "rdMa"
        "coordMapKernel",
        "cunn_SoftMaxForward_shmem",
        "layer_norm_shmem_kernel",
        "void blockAllReduceSum<float>(float*)",
        "warp_allreduce_softmax",
        "map2point_kernel",
        "step2pos",
        "compute_occl_map",
        "ccl_label_propagation",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64",
        "ssymm_memLeft",
    ],
)
def test_a_name_of_local_work_is_not(name: str) -> None:
    assert not sounds_like_comm(name)

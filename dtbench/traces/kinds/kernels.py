"""The table of kernels: what each library's kernels are called, what they do, and a recorded name that proves it.

The first rule that fits decides. Patterns are searched in the whole name; those that must not be found in a template
argument or a signature start with ``^[^<(]*``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from dtbench.base.vocabulary import Kind, Operation
from dtbench.traces.kinds.operators import find_operation

if TYPE_CHECKING:
    from dtbench.traces.kinds.patterns import KernelPattern


class InName(Enum):
    """Where a rule itself knows no operation: whether the kernel's name can be asked."""

    YES = auto()
    NO = auto()  # one kernel runs many operations, or its name says only a part


@dataclass(frozen=True)
class KernelRule:
    """One row of the table.

    Attributes:
        family: the library or framework whose kernels these are.
        pattern: searched in the name.
        kind: what they do.
        operation: the collective they carry out; ``InName`` where the rule cannot say. ``InName.NO`` for compute.
        examples: names recorded in traces, or where none was at hand as the library's source spells them.
        is_opening: they only exchange what the library's next kernel on their stream needs to know; both together are
            one collective.
    """

    family: str
    pattern: re.Pattern[str]
    kind: Kind
    operation: Operation | InName
    examples: tuple[str, ...]
    is_opening: bool = False


def _local(library: str, pattern: str, *examples: str) -> KernelRule:
    return KernelRule(library, re.compile(pattern), Kind.COMPUTE, InName.NO, examples)


def _copy(library: str, pattern: str, *examples: str) -> KernelRule:
    return KernelRule(library, re.compile(pattern), Kind.COPY, InName.NO, examples)


def _comm(library: str, pattern: str, operation: Operation | InName, *examples: str) -> KernelRule:
    return KernelRule(library, re.compile(pattern), Kind.COMM, operation, examples)


def _opening(library: str, pattern: str, operation: Operation, *examples: str) -> KernelRule:
    return KernelRule(library, re.compile(pattern), Kind.COMM, operation, examples, is_opening=True)


RULES: Final[tuple[KernelRule, ...]] = (
    # Local work whose name speaks of communication.
    _local("Inductor", r"^triton_(?:poi|red|per)_fused_", "triton_poi_fused_add_all_reduce_4"),
    _local("ATen", r"^(?:void )?at::native::", "void at::native::vectorized_elementwise_kernel<8, at::native::AUnary>"),
    _local(
        "DeepEP",
        r"\bget_dispatch_layout",
        "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)",
        "void deep_ep::layout::get_dispatch_layout<(int)256, (int)4, (int)8>(const long *, int *, int *, int *)",
    ),
    _local("c10d", r"\bcheckForNaN\b", "void c10d::checkForNaN<float>(float*, unsigned long)"),
    # What a runtime carries out with a kernel where others have a copy engine (rocclr/device/rocm/rocblit.cpp).
    _copy(
        "ROCm",
        r"^__amd_rocclr_(?:fill|copy)",
        "__amd_rocclr_fillBufferAligned.kd",
        "__amd_rocclr_fillBufferAligned2D.kd",
        "__amd_rocclr_copyBuffer.kd",
        "__amd_rocclr_copyBufferAligned",
        "__amd_rocclr_copyBufferRect",
        "__amd_rocclr_copyBufferRectAligned",
        "__amd_rocclr_copyBufferToImage",
        "__amd_rocclr_copyImage",
    ),
    # Copies and fills in CUDA graphs: kernels of the driver's own, which Kineto tells apart from others by name alone.
    _copy(
        "CUDA driver",
        r"^mem(?:cpy|set)\d+(?:_post)?$",
        "memcpy32",
        "memcpy32_post",
        "memcpy128",
        "memset32",
        "memset32_post",
    ),
    _copy(
        "HIP before ROCm 4",
        r"\bhip_(?:fill|copy2d)_n\b",
        "void hip_fill_n<256u, unsigned int*, unsigned long, unsigned int>",
        "void hip_copy2d_n<256u, unsigned int*, unsigned int const*, unsigned long>",
    ),
    # NCCL and what grew from it.
    _comm(
        "MSCCL", r"^mscclKernel", InName.NO, "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)"
    ),
    _comm(
        "NCCL",
        r"^[^<(]*(?i:nccl)",
        InName.YES,
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
        "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16",
    ),
    _comm("RCCL", r"^[^<(]*(?i:rccl)", InName.YES, "rcclGenericKernel"),
    _comm(
        "MSCCL++",
        r"\ball_?(?:reduce|gather|to_?all)\w*\b.*\bmscclpp::\w+DeviceHandle",
        InName.YES,
        "void tvm::runtime::allreduce_simple<__half>(mscclpp::SmChannelDeviceHandle *, const T1 *)",
    ),
    # Expert parallelism.
    _opening(
        "DeepEP",
        r"(?<![A-Za-z0-9])(?:deep_)?ep::int(?:er|ra)node(?:_ll)?::\w*notify",
        Operation.ALL_TO_ALL,
        "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int, int)",
        "deep_ep::intranode::cached_notify_combine<8>",
    ),
    _comm(
        "DeepEP",
        r"(?<![A-Za-z0-9])(?:deep_)?ep::int(?:er|ra)node(?:_ll)?::\w*(?:dispatch|combine)",
        Operation.ALL_TO_ALL,
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2>",
        "void deep_ep::internode::dispatch<false, 4, false, 7, 4>(int4*, float*, long*, float*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, (int)2, (int)768, (int)4096>(T1 *, float *)",
        "void primus_turbo::deep_ep::intranode::combine<hip_bfloat16, 8, 1024, true>(hip_bfloat16*)",
        "void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*, void*, int*, void*, void const*)",
    ),
    _comm(
        "DeepEP",
        r"(?<![A-Za-z0-9])(?:deep_)?ep::int(?:er|ra)node(?:_ll)?::barrier",
        Operation.BARRIER,
        "void deep_ep::intranode::barrier<8>(int**, int)",
    ),
    _comm("HybridEP", r"\bhybrid_ep::(?:dispatch|combine)_kernel", Operation.ALL_TO_ALL, "hybrid_ep::dispatch_kernel"),
    _comm("MORI", r"\bEp(?:Dispatch|Combine)\w*Kernel", Operation.ALL_TO_ALL, "EpDispatchIntraNodeKernel_bf16"),
    _comm(
        "TensorRT-LLM, FlashInfer",
        r"\bmoeA2A(?:Dispatch|Combine)Kernel",
        Operation.ALL_TO_ALL,
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int const*)",
    ),
    # torch's symmetric memory (torch/csrc/distributed/c10d/symm_mem).
    _comm(
        "symmetric memory",
        r"(?<![A-Za-z])(?:multimem_|(?:one|two)_shot_)(?:one_shot_)?all_(?:reduce|gather)_kernel",
        InName.YES,
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *, unsigned long, unsigned int **)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
    ),
    _comm(
        "symmetric memory",
        r"\bsymmetric_memory::barrier_kernel",
        Operation.BARRIER,
        "c10d::symmetric_memory::barrier_kernel",
    ),
    _comm(
        "symmetric memory",
        r"\bsymmetric_memory::(?:put|wait)_signal_kernel",
        InName.NO,
        "c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
    ),
    _comm(
        "symmetric memory",
        r"\b(?:exchangeSplitAndOffset|allToAllV)(?:_2d)?\b",
        Operation.ALL_TO_ALL,
        "void exchangeSplitAndOffset_2d<false>(long*, long*, int, int, unsigned long)",
    ),
    # All-reduces that inference engines bring along.
    _comm(
        "vLLM, SGLang, AITER",
        r"cross_device_reduce_[12]stage",
        Operation.ALL_REDUCE,
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
        "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, sglang::RankSignals, sglang::Signal*)",
        "void aiter::cross_device_reduce_1stage<std::bfloat16_t, 4, false>(aiter::RankData*, aiter::RankData*)",
    ),
    _comm(
        "AITER",
        r"reduce_scatter_cross_device_store",
        Operation.REDUCE_SCATTER,
        "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsE",
    ),
    _comm(
        "TensorRT-LLM, FlashInfer, AITER",
        r"^[^<(]*allreduce_fusion_kernel",
        Operation.ALL_REDUCE,
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
        "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>",
        "void aiter::allreduce_fusion_kernel_1stage<std::bfloat16_t, std::bfloat16_t, 4, true>(aiter::RankData*)",
    ),
    _comm(
        "TensorRT-LLM, FlashInfer, c10d",
        r"(?:one|two)[sS]hotAll[rR]educe\w*Kernel",
        Operation.ALL_REDUCE,
        "void tensorrt_llm::twoShotAllReduceKernel<__half, (int)8>(tensorrt_llm::AllReduceParams)",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)8, __nv_bfloat16, true>",
        "void c10d::intra_node_comm::oneShotAllReduceKernel<4u>",
    ),
    _comm(
        "quick_reduce",
        r"allreduce_prototype_twoshot",
        Operation.ALL_REDUCE,
        "quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half,4>, true>, __half>",
    ),
    # Transformer Engine's userbuffers.
    _comm(
        "userbuffers",
        r"userbuffers_fp16_sum_inplace_gpu_\w*_rs(?![a-z])",
        Operation.REDUCE_SCATTER,
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8",
    ),
    _comm(
        "userbuffers",
        r"userbuffers_fp16_sum_inplace_gpu_\w*_ag(?![a-z])",
        Operation.ALL_GATHER,
        "userbuffers_fp16_sum_inplace_gpu_rw_ag",
    ),
    _comm(
        "userbuffers",
        r"userbuffers_fp16_sum_inplace_gpu_",
        Operation.ALL_REDUCE,
        "userbuffers_fp16_sum_inplace_gpu_rw",
    ),
    _comm(
        "userbuffers",
        r"kuserbuffers_pushsend(?!recv)",
        Operation.SEND,
        "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    ),
    _comm("userbuffers", r"kuserbuffers_pushrecv", Operation.RECV, "kuserbuffers_pushrecv"),
    # NVSHMEM's collectives on a stream (nvshmem/src/host/stream/coll).
    _comm(
        "NVSHMEM",
        r"\b(?:barrier|sync)(?:_all)?_on_stream_kernel",
        Operation.BARRIER,
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    ),
    _comm("NVSHMEM", r"\brdxn_\w*on_stream_kernel", Operation.ALL_REDUCE, "rdxn_on_stream_kernel<int, (rdxn_ops)3>"),
    _comm("NVSHMEM", r"\bfcollect_\w*on_stream_kernel", Operation.ALL_GATHER, "fcollect_on_stream_kernel<int>"),
    _comm(
        "NVSHMEM",
        r"\b(?:alltoall|broadcast|reducescatter)\w*_on_stream_kernel",
        InName.YES,
        "alltoall_on_stream_kernel<float>(int, float*, float const*, unsigned long)",
    ),
    _comm("NVSHMEM", r"^(?:void )?nvshmem[ix]?_", InName.NO, "nvshmem_put_quiet_kernel(int*, int*, unsigned long)"),
    # Other vendors.
    _comm("HCCL", r"^hcom_", InName.YES, "hcom_allReduce__606_0_1", "hcom_receive_226_1_1@14841742970657550226"),
    _comm("HCCL", r"^aiv_(?:all|reduce_scatter|broadcast|send|recv)", InName.YES, "aiv_all_reduce_910b_float"),
    _comm("oneCCL", r"\boneccl_(?:all|reduce_scatter|broadcast)", InName.YES, "oneccl_allreduce_pcie"),
    _comm("oneCCL", r"\boneccl_", InName.NO, "oneccl_reduce_base<float, 2, 16, 1, 1, 2>"),
    _comm(
        "oneCCL",
        r"(?<![A-Za-z0-9_])(?:all_?reduce|reduce_scatter|all_?gatherv?|all_?to_?allv?|broadcast|reduce|send|recv)_"
        r"(?:tiny|small|medium|large|scale_?out|ring|rec_dbling|ll)\w*_impl\b",
        InName.YES,
        "allreduce_large_impl<sycl::_V1::ext::oneapi::bfloat16, 4, 2, true>(void const*, void*, unsigned long)",
        "void allreduce_small_impl<float, 8, 1, true>(void const*, void*, unsigned long)",
        "reduce_scatter_large_impl<sycl::_V1::half, 4, 2, true>(void const*, void*, unsigned long)",
        "allgatherv_small_impl<float, 4, 8>(void const*, unsigned long, void*)",
        "ccl::v1::event alltoall_large_impl<int, 2, 1>(void const*, void*, unsigned long)",
    ),
    # XCCL, MCCL, CNCL, BKCL, ...: what the makers of other devices call their NCCL, as torch's backends are named.
    _comm(
        "another vendor's NCCL",
        r"^[^<(]*(?<![A-Za-z])(?i:[ehimptvx]ccl|ixccl|bkcl|cncl)(?=[A-Z_:])",
        InName.YES,
        "mcclKernel_AllReduce_RING_LL_Sum_float(mcclDevComm*, unsigned long, mcclWork*)",
        "xccl_all_gather_kernel",
        "void cnclKernelAllReduceRing<float>(cnclDevComm*)",
        "bkcl_reduce_scatter_kernel",
    ),
)


@dataclass(frozen=True)
class KernelTable:
    """Rules in order, the user's before the library's."""

    rules: tuple[KernelRule, ...] = RULES

    def find_rule(self, name: str) -> KernelRule | None:
        """Return the first rule that claims a kernel; None: none does."""
        bare = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
        texts = (name,) if bare == name else (bare, name)
        return next((rule for rule in self.rules if any(rule.pattern.search(text) for text in texts)), None)

    def find_used(self, names: Iterable[str]) -> frozenset[str]:
        """Return the user's patterns that decide what any of some kernels is."""
        found = (self.find_rule(name) for name in names)
        return frozenset(rule.pattern.pattern for rule in found if rule is not None and rule.family == _OWN)

    def kind_of(self, name: str) -> Kind | None:
        """Return the kind of a kernel by its name alone; None: no rule claims it."""
        rule = self.find_rule(name)
        return None if rule is None else rule.kind

    def operation_of(self, name: str) -> Operation | None:
        """Return the collective that a kernel carries out by its name alone; None: not by this name."""
        rule = self.find_rule(name)
        match rule.operation if rule else InName.YES:
            case InName.YES:
                return find_operation(name)
            case InName.NO:
                return None
            case Operation() as operation:
                return operation


KERNELS: Final = KernelTable()


def find_algorithm(name: str) -> str:
    """Name the algorithm that a kernel is called by; empty: its name tells none.

    NCCL builds one kernel of an operation for trees and one for all else, both called by the protocol LL, whichever
    runs (its ``src/device/generate.py``, ``best_kernel``): so the protocol is left out.

    >>> find_algorithm("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'RING'
    """
    match = _ALGORITHM.match(name)
    return "" if match is None else match[1].upper()


def is_transfer(name: str) -> bool:
    """Tell whether a kernel fills or copies memory for a runtime, as ``gpu_memset`` and ``gpu_memcpy`` do elsewhere."""
    return any(pattern.search(name) for pattern in _TRANSFERS)


_TRANSFERS: Final = tuple(rule.pattern for rule in RULES if rule.kind is Kind.COPY)


_ALGORITHM: Final = re.compile(r"[^<(]*(?i:[nrm]ccl)[^<(]*_(?i:(ring|tree|collnet|nvls|pat)(?=_|[^a-z0-9]|$))")
"""Of kernels of NCCL and what grew from it."""


_OWN: Final = "your patterns"


def make_table(patterns: Iterable["KernelPattern"]) -> KernelTable:
    """Put a user's patterns before the rules of the table; the first of them that fits decides."""
    own = tuple(
        KernelRule(
            family=_OWN,
            pattern=re.compile(one.pattern),
            kind=one.kind,
            operation=one.operation or (InName.YES if one.kind is Kind.COMM else InName.NO),
            examples=(),
        )
        for one in patterns
    )
    return KernelTable((*own, *RULES)) if own else KERNELS

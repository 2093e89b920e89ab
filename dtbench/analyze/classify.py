"""What an event is: one ordered table for device events, one for the operators and ranges of a CPU thread.

The first rule that fits decides. A name that no rule claims and that sounds like communication is compute, and is
*counted* (``find_unknown_names``): never guessed silently.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import numpy as np

from dtbench.analyze.enclosures import NOTHING
from dtbench.analyze.intervals import Bools
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.ranges import COLLECTIVE_PREFIX, WAIT_PREFIX
from dtbench.vocabulary import Kind, Operation

KERNEL: Final = "kernel"
COPIES: Final = ("gpu_memcpy", "gpu_memset")
DEVICE_CATEGORIES: Final = (KERNEL, *COPIES)  # not cuda_sync (no work), not gpu_user_annotation (spans its kernels)

# Kernels by name, in this order; each pattern with a recorded name.
_KERNEL_RULES: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (re.compile(r"nccl", re.IGNORECASE), Kind.COMM),  # ncclDevKernel_Generic, ncclKernel_AllReduce_RING_LL_Sum_float
    (re.compile(r"rccl", re.IGNORECASE), Kind.COMM),  # rcclGenericKernel; newer ROCm says ncclDevKernel
    (re.compile(r"\bep::(internode|intranode)(_ll)?::"), Kind.COMM),  # dpsk::ep::internode::dispatch (DeepEP)
    (re.compile(r"\bep::.*get_dispatch_layout"), Kind.COMPUTE),  # dpsk::ep::cuda::get_dispatch_layout: local
    (re.compile(r"multimem_|(one|two)_shot_all_reduce"), Kind.COMM),  # torch's CUDASymmetricMemoryOps.cu
)
_SOUNDS_LIKE_COMM: Final = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|shmem|rdma|ibgda|p2p|\bep::|barrier",
    re.IGNORECASE,
)

# Operators that are, or contain, one collective: `nccl:all_reduce`, `record_param_comms`, `c10d::allreduce_`, ...
_ISSUE: Final = re.compile(rf"c10d::|_?c10d_functional::|nccl:|record_param_comms|{COLLECTIVE_PREFIX}")


class Role(StrEnum):
    """What the innermost open span of a CPU thread means for that thread's time."""

    COMPUTE = "compute"
    COLLECTIVE = "collective"
    ISSUE = "issue"
    WAIT = "wait"
    CONTAINER = "container"


_CPU_RULES: Final[tuple[tuple[Callable[[str, str], object], Role], ...]] = (
    (lambda name, _: name.startswith("gloo:"), Role.COLLECTIVE),
    (lambda name, _: name.startswith(WAIT_PREFIX) or name.endswith("c10d_functional::wait_tensor"), Role.WAIT),
    (lambda name, _: _ISSUE.match(name), Role.ISSUE),
    (
        lambda _, category: category != "cpu_op",
        Role.CONTAINER,
    ),  # FSDP::*, Optimizer.*, ProfilerStep, user ranges, frames
    (lambda name, _: name.startswith(("autograd::", "torch::autograd::")), Role.CONTAINER),
    # DDP's own ranges around a gradient's copy (torch/csrc/distributed/c10d/reducer.cpp); the copy inside is an
    # operator
    (
        lambda name, _: name.startswith(("torch::distributed::reducer::", "torch.distributed.ddp.reducer::")),
        Role.CONTAINER,
    ),
    # autograd nodes and functions: MmBackward0, _ToTorchTensor, PythonSubclass; an operator has a namespace or is lower
    # case
    (lambda name, _: re.fullmatch(r"_?[A-Z]\w*", name), Role.CONTAINER),
    (lambda _name, _category: True, Role.COMPUTE),
)

# Operation by what the trace calls it: c10d::<op>_, gloo:<op>, nccl:<op>, "Collective name", kernel names. First match
# decides.
_OPERATIONS: Final[tuple[tuple[re.Pattern[str], Operation], ...]] = (
    (re.compile(r"reduce_?scatter", re.IGNORECASE), Operation.REDUCE_SCATTER),
    (re.compile(r"all_?gather", re.IGNORECASE), Operation.ALL_GATHER),
    (re.compile(r"all_?reduce", re.IGNORECASE), Operation.ALL_REDUCE),
    (re.compile(r"all_?to_?all|SendRecv|\bep::", re.IGNORECASE), Operation.ALL_TO_ALL),
    (re.compile(r"broadcast", re.IGNORECASE), Operation.BROADCAST),
    (re.compile(r"barrier", re.IGNORECASE), Operation.BARRIER),
    (re.compile(r"reduce", re.IGNORECASE), Operation.REDUCE),
    (re.compile(r"gather", re.IGNORECASE), Operation.GATHER),
    (re.compile(r"scatter", re.IGNORECASE), Operation.SCATTER),
    (re.compile(r"recv", re.IGNORECASE), Operation.RECV),
    (re.compile(r"send", re.IGNORECASE), Operation.SEND),
)


def is_issue(name: str) -> bool:
    """Tell whether an operator or range issues a collective."""
    return _ISSUE.match(name) is not None and not name.endswith("wait_tensor")


def find_operation(text: str) -> Operation | None:
    """Recognise a collective in the name of an operator, a range or a kernel; None: not by this name."""
    stem = re.split(r"[(<]", text, maxsplit=1)[0]  # a signature or a template argument names no collective
    return next((operation for pattern, operation in _OPERATIONS if pattern.search(stem)), None)


def cpu_role(name: str, category: str) -> Role:
    """Give the role of an event on a CPU thread."""
    return next(role for fits, role in _CPU_RULES if fits(name, category))


def kernel_kind(name: str) -> Kind:
    """Give the kind of a kernel by its name alone."""
    return next((kind for pattern, kind in _KERNEL_RULES if pattern.search(name)), Kind.COMPUTE)


def device_kinds(trace: Trace, nesting: Nesting) -> dict[Kind, Bools]:
    """Select the device events of each kind.

    In order: communication metadata on the event; copies by the operator that launched them (a copy-engine all-gather
    is a ``Memcpy`` launched by the collective itself) and by category; kernels by name.

    Returns:
        For each kind shape ``(n,)``, bool; every event of ``DEVICE_CATEGORIES`` has exactly one.
    """
    is_copy, is_kernel = trace.is_one_of(COPIES), trace.is_one_of((KERNEL,))
    says_comm = np.zeros(len(trace.name), dtype=np.bool_)
    for event, details in trace.details.items():
        says_comm[event] = (details.collective or details.group) is not None
    copies = np.flatnonzero(is_copy)
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)
    says_comm[copies] |= nesting.launched_inside(copies, issues) != NOTHING
    named = np.array([kernel_kind(name) is Kind.COMM for name in trace.names], dtype=np.bool_)[trace.name]
    comm = (is_kernel & (says_comm | named)) | (is_copy & says_comm)
    return {Kind.COMPUTE: is_kernel & ~comm, Kind.COMM: comm, Kind.COPY: is_copy & ~comm}


def find_unknown_names(trace: Trace, computing: Bools) -> tuple[tuple[str, int], ...]:
    """Count kernels taken for compute that no rule claims and that sound like communication, most frequent first."""
    counts = np.bincount(trace.name[computing], minlength=len(trace.names))
    claimed = [any(pattern.search(name) for pattern, _ in _KERNEL_RULES) for name in trace.names]
    unknown = [
        (name, int(count))
        for name, count, known in zip(trace.names, counts, claimed, strict=True)
        if count and not known and _SOUNDS_LIKE_COMM.search(name)
    ]
    return tuple(sorted(unknown, key=lambda item: (-item[1], item[0])))

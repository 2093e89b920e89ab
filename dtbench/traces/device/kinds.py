"""The kind of every device event: by what it says, by the operator that launched it, by its category, by its name."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.device.link import serves
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, COPIES, KERNEL
from dtbench.traces.kinds.kernels import KERNELS, KernelTable, is_transfer
from dtbench.traces.kinds.operators import is_issue, is_symmetric_memory
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_BETWEEN_DEVICES: Final = "PtoP"  # Kineto's `Memcpy PtoP (Device -> Device)`


@dataclass(frozen=True)
class PeerCopies:
    """Copies from one device to another that are copies here, as nothing says that they are communication.

    So is asynchronous tensor parallelism (symmetric memory) in a trace without operators.
    """

    count: int = 0
    time_ns: int = 0


def find_peer_copies(trace: Trace, copy: Bools) -> PeerCopies:
    """Count the copies between devices.

    Args:
        trace: the events.
        copy: shape ``(n,)``, the events that are copies.
    """
    crosses = np.flatnonzero(copy & trace.is_named(lambda name: _BETWEEN_DEVICES in name))
    return PeerCopies(len(crosses), int((trace.end_ns[crosses] - trace.start_ns[crosses]).sum()))


def device_kinds(trace: Trace, nesting: Nesting, kernels: KernelTable = KERNELS) -> dict[Kind, Bools]:
    """Select the device events of each kind.

    In order:

    1. Communication metadata on the event, or its launch in a range of the emulated link.
    2. The innermost operator around its launch is a collective: a copy-engine all-gather is a ``Memcpy`` that the
       collective itself launched, while FSDP's copy-in, launched by ``aten::copy_``, is a copy. Copies between devices
       are communication under any operator of symmetric memory. A kernel whose name a rule knows is what the rule says:
       a collective also launches local kernels, such as the search for NaN. Kernels that a runtime fills or copies
       memory with (ROCm's) are copies here too.
    3. The category: copies.
    4. The name, by the table of kernels. What no rule knows is compute.

    Returns:
        For each kind shape ``(n,)``, bool; every event of ``DEVICE_CATEGORIES`` has exactly one.
    """
    is_kernel, is_copy = trace.is_one_of((KERNEL,)), trace.is_one_of(COPIES)
    says_comm = np.zeros(len(trace), dtype=np.bool_)
    says_comm[[event for event, said in trace.details.items() if (said.collective or said.group) is not None]] = True
    says_comm &= is_kernel | is_copy
    named = _kinds_by_name(trace, is_kernel, kernels)
    transfers = named[Kind.COPY] & trace.is_named(is_transfer)
    unclaimed = is_copy | transfers | (is_kernel & ~named[Kind.COMPUTE] & ~named[Kind.COMM] & ~named[Kind.COPY])
    says_comm |= unclaimed & launched_by_collective(trace, nesting, unclaimed)
    comm = says_comm | named[Kind.COMM] | serves(trace, nesting)
    copy = ~comm & (is_copy | named[Kind.COPY])
    return {Kind.COMPUTE: is_kernel & ~comm & ~copy, Kind.COMM: comm, Kind.COPY: copy}


def _kinds_by_name(trace: Trace, is_kernel: Bools, kernels: KernelTable) -> dict[Kind, Bools]:
    """Select the kernels that a rule claims, by its kind, each shape ``(n,)``; only names of kernels are looked at."""
    events = np.flatnonzero(is_kernel)
    names, place = np.unique(trace.name[events], return_inverse=True)
    kinds = [kernels.kind_of(trace.names[name]) for name in names.tolist()]
    found = {}
    for kind in Kind:
        found[kind] = np.zeros(len(trace), dtype=np.bool_)
        found[kind][events] = np.array([one is kind for one in kinds], dtype=np.bool_)[place]
    return found


def launched_by_collective(trace: Trace, nesting: Nesting, device: Bools) -> Bools:
    """Tell which device events a collective operator launched itself; shape ``(n,)``.

    Args:
        trace: the events.
        nesting: its nesting.
        device: shape ``(n,)``, the events to look at.
    """
    events = np.flatnonzero(device)
    events = events[nesting.launch[events] != events]
    launch = nesting.launch[events].astype(np.int64)
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)
    found = np.zeros(len(trace), dtype=np.bool_)
    found[events] = issues[trace.name[_innermost_operator(trace, nesting, launch)]]
    crosses = np.array([_BETWEEN_DEVICES in name for name in trace.names], dtype=np.bool_)
    between = crosses[trace.name[events]]
    if between.any():
        found[events[between]] |= _under_symmetric_memory(trace, nesting, launch[between])
    return found


def _innermost_operator(trace: Trace, nesting: Nesting, launch: Ints) -> Ints:
    """Climb from each launch past calls into the runtime and driver; a call without an operator stands for itself."""
    is_call = np.array([category in CALLS for category in trace.categories], dtype=np.bool_)
    place = launch
    while True:
        above = np.where(is_call[trace.category[place]], nesting.parent[place].astype(np.int64), place)
        if np.array_equal(above, place):
            return place
        place = above


def _under_symmetric_memory(trace: Trace, nesting: Nesting, launch: Ints) -> Bools:
    fits = np.array([is_symmetric_memory(name) for name in trace.names], dtype=np.bool_)
    found = fits[trace.name[launch]]
    place = launch
    while True:
        above = nesting.parent[place].astype(np.int64)
        if np.array_equal(above, place):
            return found
        found |= fits[trace.name[above]]
        place = above

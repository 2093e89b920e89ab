"""Names that no rule knows: kernels that may be communication, ranges of another dtbench; counted, never guessed."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.ranges import find_unknown_words
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.kinds.kernels import KERNELS, KernelTable
from dtbench.traces.time.intervals import Bools
from dtbench.traces.trace import Trace

# Anywhere in a name. A reduction of a block or a warp is local: `blockAllReduceSum`.
_SAYS_COMM: Final = re.compile(
    r"(?<!block)(?<!block_)(?<!warp)(?<!warp_)(?<!wave)(?<!group)(?<!group_)all_?reduce|all_?gather|reduce_?scatter|"
    r"all_?to_?all|send_?recv|pu(?:sh|ll)(?:send|recv)|userbuffers|put_?signal|signal_wait|(?:nv|roc|open)shmem|(?<![a-z])(?:rdma|ibgda)|"
    r"(?<![a-z])i?shmem[xi]?_(?:put|get|quiet|fence|signal|wait|collect|sync|broadcast)|nccl|rccl|mscclpp|"
    r"(?:\b|_)ep::|(?<![a-z])(?:multimem|nvls|symm_?mem)",
    re.IGNORECASE,
)
# `[a-z]ccl` begins a word: `ncclDevKernel`, not `__amd_rocclr_copyBuffer`. In camel case a capital begins one.
_SAYS_COMM_IN_CASE: Final = re.compile(
    r"(?<![A-Za-z])[A-Za-z][a-z]{0,4}(?<!o)ccl(?=[A-Z_:])|Rdma|RDMA|Ibgda|IBGDA|Multimem|Nvls|NVLS|Symm(?:etric)?Mem"
)
# Only in the name itself: as template arguments barriers are in most kernels of Hopper (`cutlass::arch::NamedBarrier`).
_NAME_SAYS_COMM: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:a2a|p2p)(?![a-z0-9])|(?<![A-Z0-9])(?:A2A|P2P)(?![0-9])|(?<![A-Za-z])barrier|Barrier(?![a-z])"
)
_GRID_BARRIER: Final = re.compile(r"(?:grid|named|cluster|block|warp)_?barrier", re.IGNORECASE)


def sounds_like_comm(name: str) -> bool:
    """Tell whether a kernel's name speaks of communication between devices."""
    if _SAYS_COMM.search(name) or _SAYS_COMM_IN_CASE.search(name):
        return True
    stem = re.split(r"[(<]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return _NAME_SAYS_COMM.search(_GRID_BARRIER.sub("", stem)) is not None


@dataclass(frozen=True)
class UnknownName:
    """A kernel's name that no rule claims, on a lane where most of the time is communication.

    Attributes:
        lane: ``"<process>/<thread>"``.
        count: its kernels there; they are accounted as compute.
        time_ns: sum of their lengths.
    """

    name: str
    lane: str
    count: int
    time_ns: int


def find_unknown_names(trace: Trace, computing: Bools, kernels: KernelTable = KERNELS) -> tuple[tuple[str, int], ...]:
    """Count kernels taken for compute that no rule claims and that sound like communication, most frequent first."""
    counts = np.bincount(trace.name[computing], minlength=len(trace.names))
    unknown = [
        (name, int(count))
        for name, count in zip(trace.names, counts.tolist(), strict=True)
        if count and sounds_like_comm(name) and kernels.find_rule(name) is None
    ]
    return tuple(sorted(unknown, key=lambda item: (-item[1], item[0])))


def count_unknown_words(trace: Trace) -> tuple[tuple[str, int], ...]:
    """Count what dtbench's own ranges say and this version cannot read, by word, most frequent first."""
    on_host = ~trace.is_one_of((DEVICE_RANGE,))  # on a device there is a copy of a range
    counts = np.bincount(trace.name[on_host], minlength=len(trace.names)).tolist()
    return sum_names(
        [(word, count) for word in find_unknown_words(name)]
        for name, count in zip(trace.names, counts, strict=True)
        if count
    )


def find_names_on_comm_lanes(
    trace: Trace, computing: Bools, comm: Bools, kernels: KernelTable = KERNELS
) -> tuple[UnknownName, ...]:
    """Count kernels that no rule claims on lanes where communication takes more than half of the kernels' time.

    Such a lane is one that a library opened to communicate; what else runs there packs its messages, or is
    communication by a name nobody told us.

    Args:
        trace: the events.
        computing: shape ``(n,)``, events taken for compute.
        comm: shape ``(n,)``, events known for communication.
        kernels: the table of kernels.

    Returns:
        Those that took longest first.
    """
    busy = [_time_by_lane(trace, mask) for mask in (comm, computing)]
    is_comm_lane = busy[0] > busy[1]
    events = np.flatnonzero(computing & is_comm_lane[trace.lane]) if len(trace) else np.array([], dtype=np.int64)
    num_lanes = len(trace.lanes)
    pairs, group = np.unique(trace.name[events] * np.int64(num_lanes) + trace.lane[events], return_inverse=True)
    counts = np.bincount(group, minlength=len(pairs))
    times = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(times, group, (trace.end_ns - trace.start_ns)[events])
    found = [
        UnknownName(trace.names[pair // num_lanes], "/".join(trace.lanes[pair % num_lanes]), count, time_ns)
        for pair, count, time_ns in zip(pairs.tolist(), counts.tolist(), times.tolist(), strict=True)
        if kernels.find_rule(trace.names[pair // num_lanes]) is None
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name, one.lane)))


def find_names_apart(
    trace: Trace, computing: Bools, lane: int | None, kernels: KernelTable = KERNELS
) -> tuple[str, ...]:
    """Return the names of kernels that no rule knows and that never ran on the main lane, longest first.

    Where nothing is known to communicate, communication by a name that nobody told us is likely among them: it is
    given a stream of its own, so that it can overlap.

    Args:
        trace: the events.
        computing: shape ``(n,)``, events taken for compute.
        lane: the main lane; None: there is none, and no stream is beside it.
        kernels: the table of kernels.
    """
    if lane is None:
        return ()
    is_main = trace.lane == lane
    apart, main = np.flatnonzero(computing & ~is_main), computing & is_main
    times_ns = np.zeros(len(trace.names), dtype=np.int64)
    np.add.at(times_ns, trace.name[apart], (trace.end_ns - trace.start_ns)[apart])
    times_ns[trace.name[main]] = 0
    longest = np.argsort(-times_ns, kind="stable").tolist()
    named = (trace.names[name] for name in longest if times_ns[name])
    return tuple(name for name in named if kernels.find_rule(name) is None)


def _time_by_lane(trace: Trace, events: Bools) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    times = np.zeros(len(trace.lanes), dtype=np.int64)
    np.add.at(times, trace.lane[events], (trace.end_ns - trace.start_ns)[events])
    return times


def sum_names(tables: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    """Sum the counts of equal names over ranks or launches, most frequent first."""
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(dict(table))
    return tuple(counts.most_common())

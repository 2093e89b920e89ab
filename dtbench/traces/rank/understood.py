"""Whether what ran on a device is understood: events of a category that nobody told dtbench are no account's.

A trace whose device rows are not understood has no account. The host's operators do not stand in for the device's work:
they only launched it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.units import count_things, is_or_are
from dtbench.traces.device.unseen_launches import LAUNCHES_KERNEL
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES, DEVICE_RANGE, HOST_CATEGORIES, NO_WORK
from dtbench.traces.notes.files import HostCollectives, NotUnderstood
from dtbench.traces.time.intervals import Bools, unite
from dtbench.traces.trace import Trace

_KNOWN: Final = (*HOST_CATEGORIES, *DEVICE_CATEGORIES, DEVICE_RANGE, *NO_WORK)
# How categories of rows on a device begin: Kineto's ActivityType.cpp, and the words of torch's device types.
_ON_DEVICE: Final = re.compile(r"(?:cuda|gpu|hip|rocm|xpu|mtia|hpu|npu|mps|musa|mlu|maia|tpu|neuron|privateuse1)_")


_BY_HOST: Final = re.compile(r"(?:gloo|mpi|oneccl):(?!:)")
# torch's ranges around collectives of libraries that communicate between devices: `nccl:all_reduce`, `xccl:`, `hccl:`.
_BY_DEVICE: Final = re.compile(r"(?!oneccl)[a-z]{1,5}ccl:(?!:)")


def is_of_device(trace: Trace) -> bool:
    """Tell whether the work of a trace ran on a device; else it ran on the threads of its host.

    Raises:
        TraceError: it ran on a device, and is not understood or not there.
    """
    unknown = np.array([category not in _KNOWN for category in trace.categories], dtype=np.bool_)[trace.category]
    launched = unknown & _are_launched(trace) if unknown.any() else unknown
    if launched.any():
        raise TraceError(_refuse_unknown(trace, launched))
    if any(category in DEVICE_CATEGORIES for category in trace.categories):
        return True
    named = unknown & trace.is_one_of([one for one in trace.categories if _ON_DEVICE.match(one)])
    if named.any():
        raise TraceError(_refuse_unknown(trace, named))
    issued = _count_issued(trace)
    told = f"{trace.path}: {issued}, and no kernel is in it"
    if issued and trace.unread.is_truncated:
        raise TraceError(f"{told}: the file was cut before them")
    if issued:
        raise TraceError(
            f"{told}, so nothing is said of them; "
            "record ProfilerActivity.CUDA (or XPU, MTIA, PrivateUse1) too, while no other profiler holds the device"
        )
    return False


def _count_issued(trace: Trace) -> str:
    """Say what a host gave a device to do, as far as the trace shows it; empty: nothing."""
    launches = int(np.count_nonzero(trace.is_named(LAUNCHES_KERNEL.search) & trace.is_one_of(CALLS)))
    if launches:
        return f"{count_things(launches, 'call')} to launch kernels"
    collectives = int(np.count_nonzero(trace.is_named(_BY_DEVICE.match) & trace.is_one_of(HOST_CATEGORIES)))
    return f"{count_things(collectives, 'collective')} of a device's library" if collectives else ""


def find_left_out(trace: Trace) -> tuple[NotUnderstood | HostCollectives, ...]:
    """Return what is in no number: categories that nobody told dtbench, and collectives of the host beside a device's.

    They are of no rank yet.
    """
    unknown = np.array([category not in _KNOWN for category in trace.categories], dtype=np.bool_)[trace.category]
    found = tuple(NotUnderstood((), category, count) for category, count in _count(trace, unknown).most_common())
    is_device = any(category in DEVICE_CATEGORIES for category in trace.categories)
    return (*found, *_find_host_collectives(trace)) if is_device else found


def _find_host_collectives(trace: Trace) -> Iterator[HostCollectives]:
    """Yield what a library of the host, as gloo, communicated in a trace whose account is the device's."""
    spans = np.flatnonzero(trace.is_named(_BY_HOST.match) & trace.is_one_of(HOST_CATEGORIES))
    libraries = sorted({trace.name_of(event).partition(":")[0] for event in spans.tolist()})
    if libraries:
        took_ns = unite(trace.start_ns[spans], trace.end_ns[spans]).length_ns
        yield HostCollectives((), tuple(libraries), len(spans), took_ns)


def _are_launched(trace: Trace) -> Bools:
    """Tell which events carry the id of a call, without being one; shape ``(n,)``."""
    tied, ids = trace.correlation.events, trace.correlation.values
    is_call = trace.is_one_of(CALLS)[tied]
    found = np.zeros(len(trace), dtype=np.bool_)
    found[tied[~is_call & np.isin(ids, ids[is_call])]] = True
    return found


def _count(trace: Trace, events: Bools) -> Counter[str]:
    counts = np.bincount(trace.category[events], minlength=len(trace.categories)).tolist()
    return Counter({category: count for category, count in zip(trace.categories, counts, strict=True) if count})


def _refuse_unknown(trace: Trace, events: Bools) -> str:
    counts = _count(trace, events)
    counted = ", ".join(f"{count_things(count, 'event')} of category {name}" for name, count in counts.most_common())
    return (
        f"{trace.path}: {counted} ran on a device and {is_or_are(counts.total())} not understood, "
        f"so nothing is said about overlap; dtbench reads {', '.join(DEVICE_CATEGORIES)} and mtia_ccp_events"
    )

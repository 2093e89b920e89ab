"""Time a consumer stood still for a collective, by purpose.

CPU: a wait is a range or operator of the thread that runs the model, less any compute inside it: ``dtbench::wait`` (it
names its collective), ``_c10d_functional::wait_tensor``, and two waits that are no event: DDP's in C++ at the end of
backward, and FSDP's in traces without our ranges. CUDA: a gap of the main compute stream that the end of a collective
closes. See each function for its rule.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dtbench.analyze.collectives import Collective, find_regions
from dtbench.analyze.intervals import Bools, Intervals, Ints, clip, subtract, unite
from dtbench.analyze.kinds.categories import DEVICE_CATEGORIES
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.purposes import is_functional
from dtbench.analyze.trace import Trace
from dtbench.ranges import parse_wait_range
from dtbench.vocabulary import Purpose, Region

_ENGINE: Final = "autograd::engine::evaluate_function"
Waits = Mapping[Purpose, Intervals]


def find_cpu_waits(trace: Trace, collectives: Sequence[Collective], compute: Intervals) -> Waits:
    """Find the waits of a CPU trace; time in which a thread of the model computes is no wait.

    Args:
        trace: the events.
        collectives: of the trace.
        compute: time in which a thread that runs the model computes.
    """
    spans = [
        *_labelled_waits(trace, collectives),
        *_functional_waits(trace, collectives),
        *_reducer_waits(trace, collectives),
        *_unlabelled_fsdp_waits(trace, collectives),
    ]
    return {purpose: subtract(waits, compute) for purpose, waits in _unite_by_purpose(spans).items()}


def _unite_by_purpose(spans: Sequence[tuple[Purpose, int, int]]) -> Waits:
    return {
        purpose: unite([s for p, s, _ in spans if p is purpose], [e for p, _, e in spans if p is purpose])
        for purpose in Purpose
        if any(p is purpose for p, _, _ in spans)
    }


def _labelled_waits(trace: Trace, collectives: Sequence[Collective]) -> list[tuple[Purpose, int, int]]:
    """``dtbench::wait``: the purpose of the collective that it names; ``other`` if that was issued before the trace."""
    purposes = {(collective.group, collective.seq): collective.purpose for collective in collectives}
    labels = {i: label for i, name in enumerate(trace.names) if (label := parse_wait_range(name)) is not None}
    spans = []
    for event in np.flatnonzero(np.isin(trace.name, list(labels))).tolist():
        label = labels[int(trace.name[event])]
        purpose = purposes.get((label.group, label.seq), Purpose.OTHER)
        spans.append((purpose, int(trace.start_ns[event]), int(trace.end_ns[event])))
    return spans


def _functional_waits(trace: Trace, collectives: Sequence[Collective]) -> list[tuple[Purpose, int, int]]:
    """``_c10d_functional::wait_tensor``: the purpose of the latest functional collective issued before it.

    The wait does not say what it waits for. A functional collective is DTensor's (``tensor``), or the gradient norm's
    (``other``), and those two never mix in time.
    """
    functional = sorted(
        (collective.issue_ns, collective.purpose)
        for collective in collectives
        if collective.issue_ns is not None and any(is_functional(name) for name in collective.above)
    )
    issued_at = np.array([issue_ns for issue_ns, _ in functional], dtype=np.int64)
    spans = []
    for event in np.flatnonzero(_named(trace, suffix="c10d_functional::wait_tensor")).tolist():
        start_ns = int(trace.start_ns[event])
        latest = int(np.searchsorted(issued_at, start_ns, side="right")) - 1
        purpose = functional[latest][1] if latest >= 0 else Purpose.TENSOR
        spans.append((purpose, start_ns, int(trace.end_ns[event])))
    return spans


def _named(trace: Trace, *, suffix: str) -> Bools:
    return np.array([name.endswith(suffix) for name in trace.names], dtype=np.bool_)[trace.name]


def _reducer_waits(trace: Trace, collectives: Sequence[Collective]) -> list[tuple[Purpose, int, int]]:
    """DDP's final wait, which C++ makes without an event.

    ::

        engine       ██ ██ ██ |                |          |
        bucket 0       ├─────────────┤         |
        bucket 1            ├──────────────────┤
        copies                |      ░░        |░░          compute, subtracted by the caller
        wait                  |██████  ████████|

    From the end of the engine's last node in a backward, while a gradient's all-reduce issued in it outside FSDP is
    outstanding, until it ends or the region does.
    """
    buckets = [
        collective
        for collective in collectives
        if collective.purpose is Purpose.GRAD_REDUCE and collective.issue_ns is not None and not _in_fsdp(collective)
    ]
    spans: list[tuple[Purpose, int, int]] = []
    for start_ns, node_end_ns, end_ns in _backwards(trace):
        issued = [c for c in buckets if c.issue_ns is not None and start_ns <= c.issue_ns < end_ns]
        for collective in issued:
            last_ns = min(collective.end_ns, end_ns)
            if last_ns > node_end_ns:
                spans.append((Purpose.GRAD_REDUCE, node_end_ns, last_ns))
    return spans


def _in_fsdp(collective: Collective) -> bool:
    return any(name.startswith("FSDP::") for name in collective.above)


def _backwards(trace: Trace) -> list[tuple[int, int, int]]:
    """Give start, end of the engine's last node, and end of every backward.

    Where the trace has no region ranges, a backward ends where the next one starts (the last with the trace): DDP waits
    for all its buckets before anything else computes, so that time after them is never counted.
    """
    is_node = np.array([name.startswith(_ENGINE) for name in trace.names], dtype=np.bool_)
    nodes = np.flatnonzero(is_node[trace.name]) if len(trace.name) else np.array([], dtype=np.int64)
    if not len(nodes):
        return []
    regions = find_regions(trace)
    if regions.regions:
        borders = [
            (start, end)
            for region, start, end in zip(
                regions.regions, regions.starts_ns.tolist(), regions.ends_ns.tolist(), strict=True
            )
            if region is Region.BACKWARD
        ]
    else:
        borders = _engine_extents(trace, nodes)
    found = []
    for start, end in borders:
        inside = nodes[(trace.start_ns[nodes] >= start) & (trace.start_ns[nodes] < end)]
        if len(inside):
            found.append((start, int(trace.end_ns[inside].max()), end))
    return found


def _engine_extents(trace: Trace, nodes: Ints) -> list[tuple[int, int]]:
    """Split the engine's nodes where a training step starts."""
    first_ns, last_ns = int(trace.start_ns[nodes].min()), int(trace.end_ns.max())
    is_step = np.array([name.startswith("ProfilerStep#") for name in trace.names], dtype=np.bool_)
    steps = sorted(start for start in trace.start_ns[is_step[trace.name]].tolist() if start > first_ns)
    return list(zip([first_ns, *steps], [*steps, last_ns], strict=True))


def _unlabelled_fsdp_waits(trace: Trace, collectives: Sequence[Collective]) -> list[tuple[Purpose, int, int]]:
    """FSDP2's waits in traces without our ranges.

    From the return of the issue while the collective is outstanding and FSDP's range around it is open.
    FSDP waits inside ``FSDP::all_gather`` and ``FSDP::post_backward_reduce`` when it issued synchronously, as it does
    on gloo; an asynchronous issue returns from the range at once and gives next to nothing here.
    """
    ends: dict[str, tuple[Ints, Ints]] = {}
    spans = []
    for collective in collectives:
        unit = next(
            (name for name in collective.above if name.startswith(("FSDP::all_gather", "FSDP::post_backward_reduce"))),
            None,
        )
        if unit is None or collective.seq is not None or collective.issue_ns is None or collective.issue_end_ns is None:
            continue
        if unit not in ends:
            events = np.flatnonzero(trace.name == trace.names.index(unit))
            events = events[np.argsort(trace.start_ns[events], kind="stable")]
            ends[unit] = trace.start_ns[events], trace.end_ns[events]
        range_starts, range_ends = ends[unit]
        range_end_ns = int(range_ends[np.searchsorted(range_starts, collective.issue_ns, side="right") - 1])
        spans.append((collective.purpose, collective.issue_end_ns, min(collective.end_ns, range_end_ns)))
    return spans


def find_device_waits(trace: Trace, nesting: Nesting, compute: Bools, collectives: Sequence[Collective]) -> Waits:
    """Find the gaps of the main compute stream that the end of a collective closes.

    ::

        compute stream   ████░░░░░░░░████        next kernel launched here ^ before the collective ended
        collective          ├──────┤
        wait                 ███████             from the end of the kernel before, or from the launch if that is later

    The main compute stream is the one with most compute. A gap counts when a collective ends inside it, and the kernel
    after it had been launched by then: that kernel can only have waited for the collective. The last to end names the
    purpose.
    """
    kernels = _main_stream(trace, compute)
    ended = sorted(
        ((collective.end_ns, collective.purpose) for collective in collectives if len(collective.span.starts_ns)),
        key=lambda item: item[0],
    )
    ends_ns = np.array([end_ns for end_ns, _ in ended], dtype=np.int64)
    spans: list[tuple[Purpose, int, int]] = []
    busy_until = int(trace.end_ns[kernels[0]]) if len(kernels) else 0
    for event in kernels[1:].tolist():
        start_ns, launch = int(trace.start_ns[event]), int(nesting.launch[event])
        last = int(np.searchsorted(ends_ns, start_ns, side="right")) - 1
        launched_ns = int(trace.start_ns[launch])
        if launch != event and last >= 0 and ends_ns[last] > max(busy_until, launched_ns):
            spans.append((ended[last][1], max(busy_until, launched_ns), int(ends_ns[last])))
        busy_until = max(busy_until, int(trace.end_ns[event]))
    return _unite_by_purpose(spans)


def _main_stream(trace: Trace, compute: Bools) -> Ints:
    """Give the work of the stream with most compute, in order of start, its copies too."""
    lengths = np.bincount(trace.lane[compute], weights=(trace.end_ns - trace.start_ns)[compute])
    if not len(lengths):
        return np.array([], dtype=np.int64)
    is_work = np.array([category in DEVICE_CATEGORIES for category in trace.categories], dtype=np.bool_)
    events = np.flatnonzero((trace.lane == int(np.argmax(lengths))) & is_work[trace.category])
    return events[np.argsort(trace.start_ns[events], kind="stable")]


def wait_time_ns(waits: Waits, purpose: Purpose, start_ns: int, end_ns: int) -> int:
    """Give the time a consumer waited for a purpose inside a window."""
    return clip(waits[purpose], start_ns, end_ns).length_ns if purpose in waits else 0

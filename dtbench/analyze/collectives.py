"""One collective: what the trace says about it, whose it is, and why it was issued.

Device traces: every communication kernel is one collective; copies that one collective operator launched are one
together. CPU traces are read by ``gloo.py``, which ends in the same ``Collective``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.analyze.classify import KERNEL, find_operation, is_issue
from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Bools, Intervals, Ints, unite
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.payload import largest_argument_bytes, metadata_bytes
from dtbench.analyze.purposes import FSDP_RANGES, find_purpose, find_unit
from dtbench.analyze.trace import Details, Trace
from dtbench.ranges import REGION_PREFIX
from dtbench.vocabulary import MESH_PREFIX, Axis, Operation, Purpose, Region, axis_named


@dataclass(frozen=True)
class Collective:
    """One collective of one rank; None and empty text where the trace does not say.

    Attributes:
        span: when it ran, a set because it may be several copies; empty: its span was not found.
        issue_ns: when the CPU issued it; decides which step it belongs to.
        issue_end_ns: when the call that issued it returned.
        above: names around the issue, innermost first.
        lane: stream or thread that its span lies on, ``"<process>/<thread>"``.
        region: part of the step that issued it.
        group_size: ranks of its group.
        group_ranks: their global ranks.
        peer: global rank at the other end of a send or receive.
        is_async: whether the call that issued it may return before it is done.
        ready_ns: when it could have been issued at the earliest: its gradients were there, or, for an unshard, the unit
            before began to compute.
        first_wait_ns: when the first consumer began to stand still for it, or would have.
        first_wait_end_ns: when that consumer went on.
        parameters: FQNs that a DDP bucket or an FSDP unit carries.
    """

    group: str
    axis: Axis | None
    seq: int | None
    operation: Operation | None
    purpose: Purpose
    owner: str
    size_bytes: int | None
    issue_ns: int | None
    issue_end_ns: int | None
    span: Intervals
    above: tuple[str, ...]
    lane: str = ""
    region: Region | None = None
    group_size: int | None = None
    group_ranks: tuple[int, ...] = ()
    dtype: str | None = None
    peer: int | None = None
    is_async: bool | None = None
    ready_ns: int | None = None
    first_wait_ns: int | None = None
    first_wait_end_ns: int | None = None
    parameters: tuple[str, ...] = ()

    @property
    def start_ns(self) -> int:
        """First start of its span; where none was found, its issue."""
        return int(self.span.starts_ns[0]) if len(self.span.starts_ns) else self.issue_ns or 0

    @property
    def end_ns(self) -> int:
        """Last end of its span; where none was found, its issue."""
        return int(self.span.ends_ns[-1]) if len(self.span.ends_ns) else self.issue_ns or 0


@dataclass(frozen=True)
class Regions:
    """What the training loop was doing when, from the ranges that dtbench's worker makes.

    Attributes:
        regions: in order of time, disjoint.
        starts_ns: shape ``(n,)``.
        ends_ns: shape ``(n,)``.
    """

    regions: tuple[Region, ...]
    starts_ns: Ints
    ends_ns: Ints

    def at(self, time_ns: int) -> Region | None:
        """Give the region open at a moment, on whatever thread; None: none, or a trace without such ranges."""
        before = int(np.searchsorted(self.starts_ns, time_ns, side="right")) - 1
        return self.regions[before] if before >= 0 and time_ns < self.ends_ns[before] else None


def find_regions(trace: Trace) -> Regions:
    """Collect the region ranges of a trace."""
    known = {f"{REGION_PREFIX}{region}": region for region in Region}
    wanted = [i for i, name in enumerate(trace.names) if name in known]
    events = [
        event
        for event in np.flatnonzero(np.isin(trace.name, wanted)).tolist()
        if trace.category_of(event) != "gpu_user_annotation"
    ]
    events.sort(key=lambda event: int(trace.start_ns[event]))
    return Regions(tuple(known[trace.name_of(event)] for event in events), trace.start_ns[events], trace.end_ns[events])


def find_axis(group: str, description: str | None, process_groups: Mapping[str, Axis | None]) -> Axis | None:
    """Give the mesh axis of a process group: as told, else as DeviceMesh describes it."""
    if process_groups.get(group) is not None:
        return process_groups[group]
    return axis_named((description or "").removeprefix(MESH_PREFIX))


def find_device_collectives(
    trace: Trace, nesting: Nesting, comm: Bools, process_groups: Mapping[str, Axis | None]
) -> tuple[Collective, ...]:
    """Find the collectives of a device trace, in order of start.

    Args:
        trace: the events.
        nesting: its nesting.
        comm: shape ``(n,)``, the device events that are communication.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
    """
    regions = find_regions(trace)
    pieces: dict[int, list[int]] = {}
    for event in np.flatnonzero(comm).tolist():
        pieces.setdefault(_key(trace, nesting, event), []).append(event)
    found = [_describe(trace, nesting, events, regions, process_groups) for events in pieces.values()]
    return tuple(sorted(found, key=lambda collective: (collective.start_ns, collective.end_ns)))


def _key(trace: Trace, nesting: Nesting, event: int) -> int:
    """Give the event that stands for the whole collective: a kernel for itself, a copy for its issuing operator."""
    if trace.category_of(event) == KERNEL:
        return event
    return next((above for above in reversed(list(nesting.launchers(event))) if is_issue(trace.name_of(above))), event)


def _describe(
    trace: Trace, nesting: Nesting, events: list[int], regions: Regions, process_groups: Mapping[str, Axis | None]
) -> Collective:
    around = list(nesting.launchers(events[0]))
    above = tuple(trace.name_of(event) for event in around)
    levels = [trace.details[event] for event in (events[0], *around) if event in trace.details]
    said = next((details for details in levels if details.group is not None or details.collective is not None), None)
    issue = next((event for event in reversed(around) if is_issue(trace.name_of(event))), around[0] if around else None)
    issue_ns = None if issue is None else int(trace.start_ns[issue])
    operation = _find_operation(said, above, trace.name_of(events[0]))
    group = said.group or "" if said else ""
    description = (said.group_description if said else None) or trace.group_descriptions.get(group)
    axis = find_axis(group, description, process_groups)
    region = None if issue_ns is None else regions.at(issue_ns)
    purpose = find_purpose(axis, operation, region, above)
    size_bytes = metadata_bytes(said, operation) if said else None
    return Collective(
        group=group,
        axis=axis,
        seq=said.seq if said else None,
        operation=operation,
        purpose=purpose,
        owner=find_unit(above) if purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE) else "",
        size_bytes=largest_argument_bytes(levels) if size_bytes is None else size_bytes,
        issue_ns=issue_ns,
        issue_end_ns=None if issue is None else int(trace.end_ns[issue]),
        span=unite(trace.start_ns[events], trace.end_ns[events]),
        above=above,
        lane="/".join(trace.lanes[int(trace.lane[events[0]])]),
        region=region,
        group_size=said.group_size if said else None,
        group_ranks=(said.ranks if said else ()) or trace.group_ranks.get(group, ()),
        dtype=said.dtype if said else None,
        is_async=said.is_async if said else None,
    )


def _find_operation(said: Details | None, above: Sequence[str], kernel: str) -> Operation | None:
    texts = [said.collective or "" if said else "", *(name for name in above if is_issue(name)), kernel]
    return next((operation for text in texts if (operation := find_operation(text)) is not None), None)


def assign_steps(collectives: Sequence[Collective], hosts: Sequence[Window]) -> list[int | None]:
    """Give the index of the step in whose host range each collective was issued; None: in none."""
    starts = np.array([host.start_ns for host in hosts], dtype=np.int64)
    steps: list[int | None] = []
    for collective in collectives:
        issue_ns = collective.issue_ns
        index = -1 if issue_ns is None else int(np.searchsorted(starts, issue_ns, side="right")) - 1
        steps.append(index if index >= 0 and issue_ns is not None and issue_ns < hosts[index].end_ns else None)
    return steps


def name_buckets(
    collectives: Sequence[Collective], steps: Sequence[int | None], regions: Regions
) -> tuple[Collective, ...]:
    """Name DDP's buckets ``bucket 0``, ``bucket 1``, ... in order of issue, where no owner is known.

    They are counted anew in each backward, as far as the trace knows regions; else in each step.
    """
    named = list(collectives)
    next_bucket: Counter[tuple[int, int]] = Counter()
    for index in sorted(range(len(named)), key=lambda i: named[i].issue_ns or 0):
        collective, step = named[index], steps[index]
        is_bucket = collective.purpose is Purpose.GRAD_REDUCE and collective.operation is Operation.ALL_REDUCE
        is_fsdp = any(name.startswith(FSDP_RANGES) for name in collective.above)
        if is_bucket and not is_fsdp and not collective.owner and step is not None:
            backward = int(np.searchsorted(regions.starts_ns, collective.issue_ns or 0, side="right"))
            named[index] = replace(collective, owner=f"bucket {next_bucket[step, backward]}")
            next_bucket[step, backward] += 1
    return tuple(named)

"""One collective: what the trace says about it, whose it is, and why it was issued.

``device_collectives.py`` finds them in device traces, ``gloo.py`` in CPU traces.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.ranges import REGION_PREFIX
from dtbench.base.vocabulary import Axis, Operation, Purpose, Region, axis_described
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, Ints, unite
from dtbench.traces.trace import Trace

INFERRED_PREFIX: Final = "inferred "
"""Begins the names of groups that one rank's trace does not name and only shows; they mean nothing on other ranks."""
_NEGLIGIBLE: Final = 0.01
"""Of a wait: compute that is shorter decides nothing."""
_NEVER: Final = unite([], [])


@dataclass(frozen=True)
class Collective:
    """One collective of one rank; None and empty text where the trace does not say.

    Attributes:
        span: when it ran, a set because it may be several copies; empty: its span was not found.
        issue_ns: when the CPU issued it; decides which step it belongs to.
        issue_end_ns: when the call that issued it returned.
        issue_between_ns: on a device, where ``issue_ns`` is None, between when it was issued; see ``launched.py``.
        caller: function that asked for it, where dtbench's worker saw one; owns what nothing else does.
        above: names around the issue, innermost first; on a device trace without the step's.
        lane: stream or thread that its span lies on, ``"<process>/<thread>"``.
        region: part of the step that issued it.
        group_size: ranks of its group.
        group_ranks: their global ranks.
        peer: global rank at the other end of a send or receive.
        root: who gives or gets all of a broadcast, reduce, gather or scatter, by its place among the group's ranks.
        comms_id: which all its ranks give it, and no other collective has; None: the trace does not say.
        is_async: whether the call that issued it may return before it is done.
        ready_ns: when it could have been issued at the earliest: its gradients were there, or, for an unshard, the unit
            before began to compute.
        first_wait_ns: when the first consumer began to stand still for it, or would have.
        first_wait_end_ns: when that consumer went on.
        waited: on the host, when any of its consumers stood still for it; that consumer alone where no other is known.
        awaited_by: the function under study that was that consumer; empty: another, or its probe was not asked for.
        parameters: FQNs that a DDP bucket or an FSDP unit carries.
        computed_ns: for a reduction of gradients, end of the last compute of the backward pass before its issue that is
            not the hand-over of a finished gradient; see ``causes/ready.py``.
        is_wait_seen: whether a consumer that stood still for it would have been seen; False: its ``first_wait_ns`` is
            None for want of evidence.
        awaited_ns: on a device, when on the host's clock a wait for it may first have been queued; None: not known, or
            never. See ``causes/awaited.py``.
        standing_ns: on a device, time in which compute that needs nothing of it stood launched until it ended; see
            ``causes/standing.py``.
        undecided_ns: the same of compute of which the trace does not say whether it waited for it.
        host_late_ns: on a device, time in which it ran and the main lane stood still for work that the host had not
            launched yet.
        blocked_ns: on a device, time in which it ran and the main lane stood still because the thread that launches its
            work sat in a synchronising call; whatever that waited for.
        has_ended: False: its span was still open when the profiler stopped, and its end is the profiler's.
        algorithm: as its kernel is called by: ``RING``, ``TREE``; empty: that tells none.
        on_link: it ran on an emulated link, which each rank's own clock ends when its bytes would be there.
        is_issue_untold: its issue is there, one of several of which others were not seen to run: it is no collective
            more. None of these issues has a span then.
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
    issue_between_ns: tuple[int, int] | None = None
    caller: str = ""
    lane: str = ""
    region: Region | None = None
    group_size: int | None = None
    group_ranks: tuple[int, ...] = ()
    dtype: str | None = None
    peer: int | None = None
    root: int | None = None
    comms_id: str | None = None
    is_async: bool | None = None
    ready_ns: int | None = None
    first_wait_ns: int | None = None
    first_wait_end_ns: int | None = None
    waited: Intervals = _NEVER
    awaited_by: str = ""
    parameters: tuple[str, ...] = ()
    computed_ns: int | None = None
    is_wait_seen: bool = False
    awaited_ns: int | None = None
    standing_ns: int = 0
    undecided_ns: int = 0
    host_late_ns: int = 0
    blocked_ns: int = 0
    has_ended: bool = True
    on_link: bool = False
    algorithm: str = ""
    is_issue_untold: bool = False

    def may_be_of(self, purpose: Purpose, operations: Container[Operation]) -> bool:
        """Tell whether it may be one of some purpose, for nothing around its issue is known."""
        is_untold = self.issue_between_ns is not None and self.issue_ns is None and len(self.span.starts_ns) > 0
        is_operation = self.operation is None or self.operation in operations
        return is_untold and is_operation and self.purpose in (purpose, Purpose.OTHER)

    @property
    def is_seen(self) -> bool:
        """Whether it was seen to run."""
        return len(self.span.starts_ns) > 0

    @property
    def is_span_missing(self) -> bool:
        """Whether it was issued and is not seen to run, or not told to be."""
        return not self.is_seen and not self.is_issue_untold

    @property
    def is_captured(self) -> bool:
        """Whether the launch of a CUDA graph launched it."""
        return is_captured(self.above)

    @property
    def is_blocking(self) -> bool:
        """Whether the call that issued it let nothing go on until its end."""
        return self.operation is Operation.BARRIER or self.is_async is False

    @property
    def is_wait_doubtful(self) -> bool:
        """Whether compute that stood still until it ended may have waited for something else, as far as is known."""
        if self.first_wait_ns is None or self.first_wait_end_ns is None:
            return False
        return self.undecided_ns > _NEGLIGIBLE * (self.first_wait_end_ns - self.first_wait_ns)

    @property
    def start_ns(self) -> int:
        """First start of its span; where none was found, its issue."""
        return int(self.span.starts_ns[0]) if len(self.span.starts_ns) else self.issue_ns or 0

    @property
    def end_ns(self) -> int:
        """Last end of its span; where none was found, its issue."""
        return int(self.span.ends_ns[-1]) if len(self.span.ends_ns) else self.issue_ns or 0


def is_captured(above: Sequence[str]) -> bool:
    """Tell from the names around a launch, innermost first, that it is a CUDA graph's.

    What came before a collective inside the graph the host cannot say.
    """
    return any("GraphLaunch" in name for name in above[:1])


@dataclass(frozen=True)
class Launch:
    """A collective that was launched and whose kernel is not in the trace.

    Attributes:
        operation: None: the trace does not say.
        group: torch's name of the process group; empty: not said.
        seq: its number on that group.
        start_ns: of the call that launched its kernel; where that is not in the trace either, of its record.
        end_ns: of the same call; the kernel began a few microseconds later at the earliest. Of a record its start.
    """

    operation: Operation | None
    group: str
    seq: int | None
    start_ns: int
    end_ns: int


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

    def place_at(self, time_ns: int) -> int | None:
        """Return the place of the region open at a moment, on whatever thread; None: none is."""
        before = int(self.starts_ns.searchsorted(time_ns, side="right")) - 1
        return before if before >= 0 and time_ns < self.ends_ns[before] else None

    def at(self, time_ns: int) -> Region | None:
        """Return the region open at a moment, on whatever thread; None: none, or a trace without such ranges."""
        place = self.place_at(time_ns)
        return None if place is None else self.regions[place]


def find_regions(trace: Trace) -> Regions:
    """Collect the region ranges of a trace."""
    known = {f"{REGION_PREFIX}{region}": region for region in Region}
    events = [
        event
        for event in np.flatnonzero(trace.is_named(known.__contains__)).tolist()
        if trace.category_of(event) != DEVICE_RANGE
    ]
    events.sort(key=lambda event: int(trace.start_ns[event]))
    return Regions(tuple(known[trace.name_of(event)] for event in events), trace.start_ns[events], trace.end_ns[events])


def find_axis(group: str, description: str | None, process_groups: Mapping[str, Axis | None]) -> Axis | None:
    """Return the mesh axis of a process group: as told, else as its description names it."""
    told = process_groups.get(group)
    return axis_described(description) if told is None else told


def assign_steps(
    collectives: Sequence[Collective], hosts: Sequence[Window], windows: Sequence[Window]
) -> list[int | None]:
    """Return the index of the step in whose host range each collective was issued; None: in none.

    One whose issue is not in the trace belongs to the step in whose window it begins.
    """
    by_issue = _place_in([one.issue_ns for one in collectives], hosts)
    begun_ns = [one.start_ns if one.issue_ns is None and len(one.span.starts_ns) else None for one in collectives]
    return [
        here if one.issue_ns is not None else begun
        for one, here, begun in zip(collectives, by_issue, _place_in(begun_ns, windows), strict=True)
    ]


def _place_in(moments_ns: Sequence[int | None], windows: Sequence[Window]) -> list[int | None]:
    """Return the window that holds each moment; None: none does, or there is no moment."""
    starts_ns = np.array([window.start_ns for window in windows], dtype=np.int64)
    places = np.searchsorted(starts_ns, [moment or 0 for moment in moments_ns], side="right") - 1
    return [
        place if moment is not None and place >= 0 and moment < windows[place].end_ns else None
        for place, moment in zip(places.tolist(), moments_ns, strict=True)
    ]


def count_by(
    collectives: Sequence[Collective], group_of: Ints, step_of: Sequence[int | None], shape: tuple[int, int]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Count collectives by group and window: all, their known bytes, those without a size, the spans that were seen.

    Args:
        collectives: of the trace.
        group_of: shape ``(num_collectives,)``, the group of each.
        step_of: index of the window that issued each; None: none did.
        shape: number of groups, and of windows and one: what was issued outside all has the last column.
    """
    step = np.array([shape[1] - 1 if of is None else of for of in step_of], dtype=np.int64)
    columns = (
        np.array([not one.is_issue_untold for one in collectives], dtype=np.int64),
        np.array([0 if one.is_issue_untold else one.size_bytes or 0 for one in collectives], dtype=np.int64),
        np.array([one.size_bytes is None and not one.is_issue_untold for one in collectives], dtype=np.int64),
        np.array([len(one.span.starts_ns) > 0 for one in collectives], dtype=np.int64),
    )
    tables = tuple(np.zeros(shape, dtype=np.int64) for _ in columns)
    for table, column in zip(tables, columns, strict=True):
        np.add.at(table, (group_of, step), column)
    return tables[0], tables[1], tables[2], tables[3]

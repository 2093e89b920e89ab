"""When each collective could have been issued: what the rules of ``split.py`` need beside the trace's own facts.

The host runs ahead of a device, so that "before" has two meanings: *launched before* (host clock, the order of the
program) and *ended before* (device clock). A collective's producer is the last compute launched before its issue; its
ready time is that compute's end::

    host      k1 k2 c k3            k: launch of compute, c: issue of the collective
    compute         ████k1███████k2████         ██k3██
    comm                               ├───c───┤
    ready                              |

For an unshard it is the start of the compute of the unit before, at which FSDP could have asked for it (as
``forward_prefetch`` does): of the first compute launched inside or after that unit's ``FSDP::all_gather_copy_out``
range, else (FSDP1, which has none) of the first launched after its unshard was issued that starts after its end. The
first unshard of a region has no unit before it: it could have been issued with the region's first compute, in forward
at the end of what was launched before (the optimizer's). Where regions are not known (a trace without steps), two are
of one region only if nothing shows that a backward or an optimizer's step lies between.

CPU: a launch is a start, and compute that still runs when a collective is issued by another thread ends with the issue.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import REDUCTIONS, Axis, Operation, Purpose, Region
from dtbench.traces.device.launched import Launched
from dtbench.traces.device.main_lane import find_main_lane
from dtbench.traces.host.backwards import OPTIMIZER, engine_nodes, is_on_device
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, Regions
from dtbench.traces.who.purposes import FSDP1_GRADIENTS, find_unit, is_fsdps

# Nodes that only hand a finished gradient over: what DDP's hook (inside AccumulateGrad) and DTensor's conversions run.
_FSDP_REDUCES: Final = ("FSDP::post_backward", FSDP1_GRADIENTS)
_GATHERS: Final = frozenset({Operation.ALL_GATHER})
_COPY_OUT: Final = re.compile(r"FSDP::all_gather_copy_out(?: \((.*)\))?")


@dataclass(frozen=True)
class Work:
    """Compute of one stream, which is also the order of its launches, or of the threads that run the model.

    Where it is not told when compute was launched, as if all that was as early, or as late, as it may have been.

    Attributes:
        launches_ns: shape ``(m,)``, rising.
        starts_ns: shape ``(m,)``, rising.
        ends_ns: shape ``(m,)``, rising.
        any_launches_ns: shape ``(k,)``, rising, the same for compute of all streams.
        any_ends_ns: shape ``(k,)``, ends of these.
        is_device: the host runs ahead of it; False: a launch is a start.
        is_late: which of the two.
        between_ns: shape ``(u, 2)``, between when each was launched of which that is not told.
        untold_ends_ns: shape ``(u,)``, ends of these.
    """

    launches_ns: Ints
    starts_ns: Ints
    ends_ns: Ints
    any_launches_ns: Ints
    any_ends_ns: Ints
    is_device: bool
    is_late: bool = False
    between_ns: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    untold_ends_ns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def launched_before(self, time_ns: int) -> int | None:
        """Return the last one launched before a moment; None: none was."""
        place = int(self.launches_ns.searchsorted(time_ns, side="left")) - 1
        return place if place >= 0 else None

    def ended_by(self, time_ns: int) -> int | None:
        """Return the last one that ended at or before a moment; None: none did."""
        place = int(self.ends_ns.searchsorted(time_ns, side="right")) - 1
        return place if place >= 0 else None

    def launched_from(self, time_ns: int) -> int | None:
        """Return the first one launched at or after a moment; None: none was."""
        place = int(self.launches_ns.searchsorted(time_ns, side="left"))
        return place if place < len(self.launches_ns) else None

    def following(self, collective: Collective) -> int | None:
        """Return the first one launched after a collective's issue that starts after its end; None: none does."""
        launched = int(self.launches_ns.searchsorted(collective.issue_ns or 0, side="left"))
        place = max(launched, int(self.starts_ns.searchsorted(collective.end_ns, side="left")))
        return place if place < len(self.launches_ns) else None


def device_work(trace: Trace, launched: Launched, compute: Bools, *, is_late: bool) -> Work:
    """Return the compute of the stream with most of it.

    Args:
        trace: the events.
        launched: when they were launched, as far as it says.
        compute: shape ``(n,)``, the device events that compute.
        is_late: those of which it does not as late as they may have been; False: as early.
    """
    events = np.flatnonzero(compute)
    main = find_main_lane(trace, compute)
    launches_ns = launched.when(is_late=is_late)[events]
    order = np.lexsort((trace.start_ns[events], launches_ns))
    events, launches_ns = events[order], launches_ns[order]
    on_main = trace.lane[events] == main
    untold, between_ns = launched.find_untold(events)
    return Work(
        launches_ns=launches_ns[on_main],
        starts_ns=trace.start_ns[events[on_main]],
        ends_ns=trace.end_ns[events[on_main]],
        any_launches_ns=launches_ns,
        any_ends_ns=trace.end_ns[events],
        is_device=True,
        is_late=is_late,
        between_ns=between_ns,
        untold_ends_ns=trace.end_ns[untold],
    )


def cpu_work(compute: Intervals) -> Work:
    """Return the compute of the threads that run the model."""
    return Work(
        launches_ns=compute.starts_ns,
        starts_ns=compute.starts_ns,
        ends_ns=compute.ends_ns,
        any_launches_ns=compute.starts_ns,
        any_ends_ns=compute.ends_ns,
        is_device=False,
    )


def find_ready(trace: Trace, work: Work, regions: Regions, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Fill ``ready_ns`` and ``computed_ns`` of collectives, where they are None.

    Args:
        trace: the events.
        work: its compute.
        regions: what the training loop was doing when.
        collectives: of the trace, in any order.
    """
    ready = {**_ready_times(work, collectives), **_unshard_times(trace, work, regions, collectives)}
    computed = _computed_times(trace, work, collectives)
    return tuple(
        replace(
            collective,
            ready_ns=ready.get(index) if collective.ready_ns is None else collective.ready_ns,
            computed_ns=computed.get(index) if collective.computed_ns is None else collective.computed_ns,
        )
        for index, collective in enumerate(collectives)
    )


def _ready_times(work: Work, collectives: Sequence[Collective]) -> dict[int, int]:
    """Return the end of each collective's producer; where nothing was launched before, its issue."""
    ready: dict[int, int] = {}
    for index, collective in enumerate(collectives):
        if collective.issue_ns is not None and not collective.is_captured:
            produced_ns = _produced_ns(work, collective, collective.issue_ns)
            ready[index] = collective.issue_ns if produced_ns is None else produced_ns
    return ready


def _produced_ns(work: Work, collective: Collective, issue_ns: int) -> int | None:
    """Return the end of the last compute launched before an issue; None: none was launched.

    On any stream; for FSDP's reductions on the main one, because what it launches last, on a stream of its own, is the
    copy into the collective's buffer, which stands behind the reduction before. Compute that ends after the collective
    started did not produce its input: then it is the last of the main stream that had ended by then.
    """
    perhaps_ns: int | None = None
    if not any(name.startswith("FSDP::post_backward") for name in collective.above):
        place = int(work.any_launches_ns.searchsorted(issue_ns, side="left")) - 1
        perhaps_ns = _perhaps_produced_ns(work, collective, issue_ns, place)
        if place >= 0 and (end_ns := int(work.any_ends_ns[place])) <= collective.start_ns:
            return max(end_ns, perhaps_ns or end_ns) if work.is_device else min(end_ns, issue_ns)
    launched, ended = work.launched_before(issue_ns), work.ended_by(collective.start_ns)
    if launched is None or ended is None:
        return perhaps_ns
    end_ns = int(work.ends_ns[min(launched, ended)])
    return max(end_ns, perhaps_ns or end_ns) if work.is_device else min(end_ns, issue_ns)


def _perhaps_produced_ns(work: Work, collective: Collective, issue_ns: int, last: int) -> int | None:
    """Return, early, the last end of compute that may have been launched after what is taken for the last; else None.

    Of lanes of which nothing tells which of them launched last.
    """
    if work.is_late or not len(work.between_ns):
        return None
    last_ns = int(work.any_launches_ns[last]) if last >= 0 else np.iinfo(np.int64).min
    may_be = (work.between_ns[:, 0] < issue_ns) & (work.between_ns[:, 1] > last_ns)
    ends_ns = work.untold_ends_ns[may_be & (work.untold_ends_ns <= collective.start_ns)]
    return int(ends_ns.max()) if len(ends_ns) else None


def _unshard_times(trace: Trace, work: Work, regions: Regions, collectives: Sequence[Collective]) -> dict[int, int]:
    """Return the start of the compute of the unit before each unshard.

    Where the launch of another is not told, that may have been the unshard before it: early, nothing is known of when
    that one's unit began to compute; late, it began with the first compute after it.
    """
    copy_outs, turns_ns = find_copy_outs(trace), _find_turns(trace, collectives)
    untold = [one for one in collectives if one.may_be_of(Purpose.UNSHARD, _GATHERS)]
    groups: dict[str, list[int]] = {}
    for index, collective in enumerate(collectives):
        if is_fsdps_unshard(collective) and collective.issue_ns is not None and not collective.is_captured:
            groups.setdefault(collective.group, []).append(index)
    ready: dict[int, int] = {}
    for members in groups.values():
        members.sort(key=lambda index: collectives[index].issue_ns or 0)
        previous: Collective | None = None
        for index in members:
            is_first = previous is None or not _is_same_pass(regions, previous, collectives[index], turns_ns)
            start_ns = _ready_after(work, regions, None if is_first else previous, collectives[index], copy_outs)
            between = [one for one in untold if _may_be_between(previous, one, collectives[index])]
            if between and work.is_late:
                firsts_ns = work.starts_ns[work.starts_ns >= min(one.end_ns for one in between)][:1]
                start_ns = min([*firsts_ns.tolist(), *([] if start_ns is None else [start_ns])], default=None)
            elif between:
                start_ns = collectives[index].start_ns
            if start_ns is not None:
                ready[index] = start_ns
            previous = collectives[index]
    return ready


def _may_be_between(before: Collective | None, untold: Collective, after: Collective) -> bool:
    """Tell whether one may be of the same group, and have been issued between two others."""
    if untold.issue_between_ns is None or (untold.group and untold.group != after.group):
        return False
    first_ns, last_ns = untold.issue_between_ns
    return first_ns < (after.issue_ns or 0) and (before is None or last_ns > (before.issue_ns or 0))


def is_fsdps_unshard(collective: Collective) -> bool:
    """Tell whether FSDP could have gathered a unit's parameters earlier; a sharded optimizer updates them first."""
    is_sharded = collective.axis is Axis.SHARD or any(is_fsdps(name) for name in collective.above)
    return collective.purpose is Purpose.UNSHARD and is_sharded


def _ready_after(
    work: Work, regions: Regions, previous: Collective | None, collective: Collective, copy_outs: Mapping[str, Ints]
) -> int | None:
    """Return the start of the compute of the unit before; ``previous`` is None for the first of a pass."""
    if previous is not None:
        place = _first_compute(work, previous, copy_outs)
        return None if place is None else int(work.starts_ns[place])
    mine = regions.place_at(collective.issue_ns or 0)
    if mine is None or regions.regions[mine] is Region.FORWARD:
        return None  # after the optimizer: the end of what was launched before, as for any other collective
    place = work.launched_from(int(regions.starts_ns[mine]))
    is_before = place is not None and work.launches_ns[place] < (collective.issue_ns or 0)
    return int(work.starts_ns[place]) if place is not None and is_before else None


def _is_same_pass(regions: Regions, previous: Collective, one: Collective, turns_ns: Ints) -> bool:
    """Tell whether two unshards are of the same forward or backward pass, so that one's unit comes before the other's.

    Where it is not known in which regions they were issued, the names around them say forward or backward, and two
    forwards are one unless something turned between.
    """
    issued_ns = [previous.issue_ns or 0, one.issue_ns or 0]
    places = [regions.place_at(issue_ns) for issue_ns in issued_ns]
    if places != [None, None]:
        return places[0] == places[1]
    first, beyond = turns_ns.searchsorted(issued_ns).tolist()
    has_turned = one.region is Region.FORWARD and beyond > first
    return one.region is not None and previous.region is one.region and not has_turned


def _find_turns(trace: Trace, collectives: Sequence[Collective]) -> Ints:
    """Return when nodes of the engine, reductions of gradients and steps of optimizers began on the host, rising."""
    is_optimizer = trace.is_named(lambda name: name.startswith(OPTIMIZER)) & ~is_on_device(trace)
    reductions = [one for one in collectives if one.purpose is Purpose.GRAD_REDUCE]
    reduced_ns = [one.issue_ns for one in reductions if one.issue_ns is not None]
    nodes_ns = engine_nodes(trace, handing_over=True).starts_ns
    return np.sort(np.concatenate((nodes_ns, trace.start_ns[is_optimizer], np.array(reduced_ns, dtype=np.int64))))


def _first_compute(work: Work, unshard: Collective, copy_outs: Mapping[str, Ints]) -> int | None:
    """Return the first compute of the unit that an unshard was for."""
    ranges = copy_outs.get(find_unit(unshard.above) or unshard.owner)
    if ranges is not None:
        place = int(ranges.searchsorted(unshard.issue_ns or 0, side="left"))
        if place < len(ranges):
            return work.launched_from(int(ranges[place]))
    return work.following(unshard)


def find_copy_outs(trace: Trace) -> dict[str, Ints]:
    """Return the starts of each unit's copy-out ranges, rising."""
    found: dict[str, Ints] = {}
    for index, name in enumerate(trace.names):
        if (match := _COPY_OUT.fullmatch(name)) is not None:
            is_range = (trace.name == index) & ~trace.is_one_of((DEVICE_RANGE,))
            found[match[1] or ROOT] = np.sort(trace.start_ns[is_range])
    return found


def _computed_times(trace: Trace, work: Work, collectives: Sequence[Collective]) -> dict[int, int]:
    """Give, for reductions of gradients, the end of the last compute before the issue that made any gradient.

    That is compute of any stream (autograd runs a node on the stream of its forward) launched in a node of the engine
    other than those that hand finished gradients over; on a device not by FSDP, which copies gradients into buffers on
    a stream of its own. Where several reductions have the same, nothing was computed between them, unless it is not
    told of some compute between which of them it was launched: of these late.
    """
    is_computing = engine_nodes(trace, handing_over=False).covers(work.any_launches_ns)
    if work.is_device:
        is_computing &= ~_fsdps_reductions(trace).covers(work.any_launches_ns)
    computing = np.flatnonzero(is_computing)
    launches_ns, ends_ns = work.any_launches_ns[computing], work.any_ends_ns[computing]
    issues = [(_issue_of_reduction(one, is_late=work.is_late), index) for index, one in enumerate(collectives)]
    reductions = sorted((issue_ns, index) for issue_ns, index in issues if issue_ns is not None)
    issues_ns = np.array([issue_ns for issue_ns, _ in reductions], dtype=np.int64)
    last = launches_ns.searchsorted(issues_ns, side="left") - 1
    if work.is_late:
        first, beyond = issues_ns.searchsorted(work.between_ns, side="right").T
        several = beyond - first > 1
        untold = unite(first[several], beyond[several]).covers(np.arange(len(issues_ns)))
        last = np.where(untold, -1, last)
    return {
        index: int(ends_ns[place]) for (_, index), place in zip(reductions, last.tolist(), strict=True) if place >= 0
    }


def _issue_of_reduction(one: Collective, *, is_late: bool) -> int | None:
    """Return when a collective was issued that reduces gradients, or may; None: it does not, or that is not known."""
    if one.may_be_of(Purpose.GRAD_REDUCE, REDUCTIONS) and one.issue_between_ns is not None:
        return one.issue_between_ns[is_late]
    return one.issue_ns if one.purpose is Purpose.GRAD_REDUCE else None


def _fsdps_reductions(trace: Trace) -> Intervals:
    """Return the time in which FSDP's hooks reduce gradients on the host."""
    events = np.flatnonzero(trace.is_named(lambda name: name.startswith(_FSDP_REDUCES)))
    events = events[~trace.is_one_of((DEVICE_RANGE,))[events]]
    return unite(trace.start_ns[events], trace.end_ns[events])

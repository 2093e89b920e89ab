"""What a device trace holds: kernels and copies by kind, the collectives among them, who launched what.

::

    nesting -> kinds -> collectives -> steps, waits, gaps, lanes, overlap tax
"""

from collections.abc import Mapping

import numpy as np

from dtbench.base.vocabulary import Axis, Kind, Region
from dtbench.traces.account.accounts import Sources
from dtbench.traces.account.gaps import find_gaps
from dtbench.traces.account.kernel_times import find_kernel_spans
from dtbench.traces.account.lanes import device_lanes
from dtbench.traces.account.overlap_tax import NO_REGION, measure_overlap_tax
from dtbench.traces.causes.regions import find_or_infer_regions
from dtbench.traces.causes.standing import Device
from dtbench.traces.causes.untold import prepare_device
from dtbench.traces.device.absent import find_absent_work
from dtbench.traces.device.clock import find_device_clock
from dtbench.traces.device.collectives import find_device_collectives
from dtbench.traces.device.kinds import find_peer_copies
from dtbench.traces.device.launched import find_launched, launched_as_started, launched_at_any_time
from dtbench.traces.device.lost_kernels import (
    Lost,
    add_absent,
    add_lost_copies,
    find_lost,
    find_lost_copies,
    find_seen_launches,
)
from dtbench.traces.device.main_lane import NO_LANE, read_main_lane
from dtbench.traces.device.streams import find_mixed_streams
from dtbench.traces.device.time import find_device_time
from dtbench.traces.device.unlaunched import find_unlaunched
from dtbench.traces.device.unseen_launches import find_unseen_launches
from dtbench.traces.host.correlate import count_uncorrelated, find_links
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.kernels import KernelTable
from dtbench.traces.kinds.unknown import find_names_apart, find_names_on_comm_lanes, find_unknown_names
from dtbench.traces.rank.contents import Contents
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Regions
from dtbench.traces.who.sharded_optimizers import name_sharded_optimizers


def find_device_contents(trace: Trace, process_groups: Mapping[str, Axis | None], kernels: KernelTable) -> Contents:
    """Find what a device trace holds.

    Args:
        trace: as read.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        kernels: what kernels are, by name.

    Raises:
        TraceError: nothing in it computes, copies or communicates.
    """
    time = find_device_time(trace, kernels)
    trace, nesting, masks = time.trace, time.nesting, time.masks
    clock = find_device_clock(trace, nesting)
    timed = nesting.without_launches() if clock.is_off else nesting
    launched = launched_as_started(trace, nesting) if clock.is_off else find_launched(trace, nesting)
    computing = np.flatnonzero(masks[Kind.COMPUTE] & (trace.end_ns > trace.start_ns))
    computing = computing[np.argsort(trace.start_ns[computing], kind="stable")]
    mixed = find_mixed_streams(trace, masks[Kind.COMPUTE], masks[Kind.COMM])
    lane = NO_LANE if mixed else read_main_lane(trace, timed, masks[Kind.COMPUTE])
    collectives = find_device_collectives(
        trace, launched, masks[Kind.COMM], lane=lane, process_groups=process_groups, kernels=kernels
    )
    collectives = name_sharded_optimizers(trace, collectives)
    regions = find_or_infer_regions(trace, nesting, [step.host for step in time.steps])
    unlaunched = find_unlaunched(trace, nesting, time.steps)
    lost = find_lost(
        trace,
        nesting,
        masks[Kind.COMM],
        unlaunched_ns=unlaunched.kernels_ns,
        steps=time.steps,
        whole=time.whole,
    )
    lost = add_absent(
        lost,
        find_absent_work(trace, nesting, time.steps),
        launches_ns=find_seen_launches(trace, nesting),
        steps=time.steps,
        whole=time.whole,
    )
    copies_ns = np.sort(np.concatenate((find_lost_copies(trace), unlaunched.copies_ns)))
    lost, steps = add_lost_copies(lost, copies_ns, time.steps, lane)
    return Contents(
        is_device=True,
        kinds=time.kinds,
        whole=time.whole,
        steps=steps,
        collectives=collectives,
        unknown_names=find_unknown_names(trace, masks[Kind.COMPUTE], kernels),
        names_on_comm_lanes=find_names_on_comm_lanes(trace, masks[Kind.COMPUTE], masks[Kind.COMM], kernels),
        names_apart=() if masks[Kind.COMM].any() else find_names_apart(trace, masks[Kind.COMPUTE], lane.lane, kernels),
        compute_starts_ns=trace.start_ns[computing],
        compute_launches_ns=np.stack((launched.earliest_ns[computing], launched.latest_ns[computing])),
        uncorrelated=count_uncorrelated(find_links(trace, nesting)[1]),
        sources=Sources(
            lanes=device_lanes(trace, masks),
            gaps=None
            if mixed
            else find_gaps(
                trace,
                launched_at_any_time(trace, timed) if clock.is_off else launched,
                masks,
                collectives,
                time.whole,
            ),
            overlap_tax=measure_overlap_tax(
                trace,
                _keep_recorded(trace, masks, lost),
                time.kinds[Kind.COMM],
                _number_regions(trace, nesting, regions),
            ),
            kernels=find_kernel_spans(trace, masks[Kind.COMPUTE]),
            recorded=lost.recorded,
        ),
        regions=regions,
        unseen=find_unseen_launches(trace, nesting, masks[Kind.COMM]),
        recorded=lost.recorded,
        lost=lost,
        clock=clock,
        peer_copies=find_peer_copies(trace, masks[Kind.COPY]),
        mixed_streams=mixed,
        prepare=lambda found: prepare_device(Device(trace, timed, masks, lane, regions), launched, found),
    )


def _number_regions(trace: Trace, nesting: Nesting, regions: Regions) -> Ints:
    """Number the region that launched each event, shape ``(n,)``; ``NO_REGION``: none is known."""
    events = np.arange(len(trace))
    launch_ns = np.where(nesting.launch == events, -1, nesting.launch_ns(events))
    place = regions.starts_ns.searchsorted(launch_ns, side="right") - 1
    kinds = np.array([NO_REGION, *(1 + list(Region).index(region) for region in regions.regions)], dtype=np.int64)
    ends_ns = np.concatenate([[0], regions.ends_ns])
    return kinds[np.where(launch_ns < ends_ns[place + 1], place + 1, 0)]


def _keep_recorded(trace: Trace, masks: Mapping[Kind, Bools], lost: Lost) -> Bools:
    """Return the compute of the time of which nothing is lost, shape ``(n,)``."""
    computing = masks[Kind.COMPUTE]
    return computing if lost.recorded is None else computing & lost.recorded.covers(trace.start_ns)

"""From one trace to its account: steps, whole trace, purposes and collectives of one rank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dtbench.analyze.accounts import Accounts, Sources, make_accounts
from dtbench.analyze.causes.blocking import find_blocking
from dtbench.analyze.causes.ready import cpu_work, device_work, find_ready
from dtbench.analyze.causes.regions import find_or_infer_regions
from dtbench.analyze.causes.split import CauseSplit
from dtbench.analyze.collectives import Collective, Regions, assign_steps, find_regions, name_buckets
from dtbench.analyze.correlate import Uncorrelated, count_uncorrelated, find_links
from dtbench.analyze.coverage import Window
from dtbench.analyze.cpu_waits import find_cpu_waits, sum_waits, tell_waits
from dtbench.analyze.device_collectives import find_device_collectives
from dtbench.analyze.facts import RankFacts
from dtbench.analyze.gaps import find_gaps
from dtbench.analyze.gloo import find_gloo_collectives, model_lanes
from dtbench.analyze.groups import account_groups, describe_groups
from dtbench.analyze.intervals import Intervals, Ints, unite, unite_all
from dtbench.analyze.kinds.categories import DEVICE_CATEGORIES
from dtbench.analyze.kinds.device import device_kinds
from dtbench.analyze.kinds.kernels import KernelTable, make_table
from dtbench.analyze.kinds.operators import Role, cpu_role
from dtbench.analyze.kinds.patterns import KernelPattern
from dtbench.analyze.kinds.unknown import UnknownName, find_names_on_comm_lanes, find_unknown_names
from dtbench.analyze.lanes import compute_of_threads, device_lanes, thread_lanes
from dtbench.analyze.main_lane import find_main_lane
from dtbench.analyze.nesting import find_nesting
from dtbench.analyze.overlap import Overlap, measure_overlaps
from dtbench.analyze.overlap_tax import measure_overlap_tax
from dtbench.analyze.ranks.skew import CollectiveSkew
from dtbench.analyze.shares import Shares, share_time
from dtbench.analyze.steps import Step, cpu_steps, device_steps, find_host_ranges
from dtbench.analyze.timeline import RankTimeline
from dtbench.analyze.trace import Trace
from dtbench.analyze.waits import Waits, find_device_waits, wait_time_ns
from dtbench.errors import TraceError
from dtbench.vocabulary import Axis, Kind, Purpose


@dataclass(frozen=True)
class PurposeTime:
    """One purpose in one window: a row of ``tables.PURPOSES`` without rank and step.

    ``comm_ns`` is ``hidden_ns + exposed_ns``: both are shares (see ``shares.py``), so each column adds up over purposes
    to the window's account.
    """

    purpose: Purpose
    count: int
    size_bytes: int
    comm_ns: int
    hidden_ns: int
    exposed_ns: int
    wait_ns: int


@dataclass(frozen=True)
class StepAccount:
    """One step's account and what its communication was for.

    ``unattributed_ns`` is the part of ``exposed_comm_ns`` that belongs to collectives without an owner.
    """

    step: int
    overlap: Overlap
    purposes: tuple[PurposeTime, ...]
    unattributed_ns: int = 0


@dataclass(frozen=True)
class TraceAnalysis:
    """What one trace says.

    Attributes:
        rank: as told, else as the trace says, else 0.
        whole: first start to last end of the spans that have a kind; never a step.
        steps: in order of time; empty for a trace without ``ProfilerStep`` ranges.
        collectives: as ``step_of`` says which step issued it.
        step_of: index into ``steps`` for each collective; None: issued outside all.
        exposed_ns: each collective's share of exposed time, over the whole trace.
        stepped_exposed_ns: the same inside the windows of steps: adds up to what the steps' accounts say.
        unread: events that could not be read.
        unknown_names: kernels counted as compute that sound like communication.
        names_on_comm_lanes: kernels counted as compute that no rule knows, on lanes where most is communication.
        timeline: what questions over ranks need.
        uncorrelated: device events that are tied to no single operator, by reason; all are in the account.
        whole_unattributed_ns: exposed time of collectives without an owner, over the whole trace.
        accounts: by lane, process group and gap of the main compute lane.
        skews: each collective against the other ranks' of its group; empty until ``explain.py`` compared them.
        splits: each collective's exposed time by cause; likewise.
        unmatched: issues whose span was not found.
    """

    path: str
    rank: int
    whole: Overlap
    whole_purposes: tuple[PurposeTime, ...]
    steps: tuple[StepAccount, ...]
    collectives: tuple[Collective, ...]
    step_of: tuple[int | None, ...]
    exposed_ns: tuple[int, ...]
    stepped_exposed_ns: tuple[int, ...]
    unread: int
    unknown_names: tuple[tuple[str, int], ...]
    timeline: RankTimeline
    accounts: Accounts
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)
    whole_unattributed_ns: int = 0
    names_on_comm_lanes: tuple[UnknownName, ...] = ()
    skews: tuple[CollectiveSkew, ...] = ()
    splits: tuple[CauseSplit, ...] = ()

    @property
    def unmatched(self) -> int:
        """Collectives that were issued and whose span was not found."""
        return sum(not len(collective.span.starts_ns) for collective in self.collectives)


@dataclass(frozen=True)
class _Timeline:
    """What both kinds of trace are reduced to before anything is counted."""

    kinds: Mapping[Kind, Intervals]
    whole: Window
    steps: tuple[Step, ...]
    collectives: tuple[Collective, ...]
    waits: Waits
    unknown_names: tuple[tuple[str, int], ...]
    compute_starts_ns: Ints
    compute_launches_ns: Ints
    sources: Sources
    regions: Regions
    prepare: Callable[[Sequence[Collective]], tuple[Collective, ...]]  # fills in what causes need and no event says
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)
    names_on_comm_lanes: tuple[UnknownName, ...] = ()


def analyze_trace(
    trace: Trace,
    *,
    rank: int | None = None,
    process_groups: Mapping[str, Axis | None] | None = None,
    patterns: Sequence[KernelPattern] = (),
    facts: RankFacts | None = None,
) -> TraceAnalysis:
    """Account for a trace.

    Args:
        trace: as read.
        rank: where the trace does not know it.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        patterns: a user's own kernels, asked before the table of kernels.
        facts: what the rank's record knows beside; None: there is no record.

    Raises:
        TraceError: nothing in the trace computes, copies or communicates.
    """
    is_device = any(category in DEVICE_CATEGORIES for category in trace.categories)
    timeline = (
        _device_timeline(trace, process_groups or {}, make_table(patterns)) if is_device else _cpu_timeline(trace)
    )
    step_of = assign_steps(timeline.collectives, [step.host for step in timeline.steps])
    collectives = name_buckets(timeline.collectives, step_of, find_regions(trace))
    if facts is not None:
        collectives = tuple(facts.complete(collective) for collective in collectives)
    windows = [step.window for step in timeline.steps]
    spans = [collective.span for collective in collectives]
    shares = share_time(spans, timeline.kinds[Kind.COMPUTE], windows)
    purposes = _purposes_of_windows(collectives, step_of, shares, (timeline.waits, timeline.whole, windows))
    unattributed_ns = _find_unattributed(collectives, shares)
    overlaps = measure_overlaps([*windows, timeline.whole], timeline.kinds)
    known_rank = next((known for known in (rank, trace.rank) if known is not None), 0)
    stepped_exposed_ns = tuple(shares.stepped_exposed_ns().tolist())
    exposed_ns, hidden_ns = (tuple(total.tolist()) for total in shares.totals())
    return TraceAnalysis(
        path=trace.path,
        rank=known_rank,
        whole=overlaps[-1],
        whole_purposes=purposes[-1],
        steps=tuple(
            StepAccount(step.number, overlap, of_step, missing_ns)
            for step, overlap, of_step, missing_ns in zip(
                timeline.steps, overlaps[:-1], purposes[:-1], unattributed_ns[:-1], strict=True
            )
        ),
        collectives=collectives,
        step_of=tuple(step_of),
        exposed_ns=exposed_ns,
        stepped_exposed_ns=stepped_exposed_ns,
        unread=trace.unread.count,
        unknown_names=timeline.unknown_names,
        names_on_comm_lanes=timeline.names_on_comm_lanes,
        accounts=make_accounts(
            timeline.sources,
            windows,
            timeline.whole,
            account_groups(collectives, step_of, shares, describe_groups(trace)),
        ),
        timeline=RankTimeline(
            rank=known_rank,
            is_device=is_device,
            collectives=timeline.prepare(collectives),
            step_of=tuple(step_of),
            exposed_ns=exposed_ns,
            stepped_exposed_ns=stepped_exposed_ns,
            hidden_ns=hidden_ns,
            compute=timeline.kinds[Kind.COMPUTE],
            compute_starts_ns=timeline.compute_starts_ns,
            compute_launches_ns=timeline.compute_launches_ns,
            regions=timeline.regions,
            step_numbers=tuple(step.number for step in timeline.steps),
            steps=tuple(windows),
            path=trace.path,
            world_size=trace.world_size,
        ),
        uncorrelated=timeline.uncorrelated,
        whole_unattributed_ns=sum(unattributed_ns),
    )


def _device_timeline(trace: Trace, process_groups: Mapping[str, Axis | None], kernels: KernelTable) -> _Timeline:
    nesting = find_nesting(trace)
    masks = device_kinds(trace, nesting, kernels)
    kinds = {kind: unite(trace.start_ns[mask], trace.end_ns[mask]) for kind, mask in masks.items()}
    whole = _extent(trace, kinds)
    computing = np.flatnonzero(masks[Kind.COMPUTE])
    computing = computing[np.argsort(trace.start_ns[computing], kind="stable")]
    lane = find_main_lane(trace, nesting, masks[Kind.COMPUTE])
    collectives = find_device_collectives(
        trace, nesting, masks[Kind.COMM], lane=lane, process_groups=process_groups, operation_of=kernels.operation_of
    )
    steps = device_steps(trace, nesting, find_host_ranges(trace), whole.end_ns)
    regions = find_or_infer_regions(trace, [step.host for step in steps])
    return _Timeline(
        kinds=kinds,
        whole=whole,
        steps=tuple(steps),
        collectives=collectives,
        waits=find_device_waits(collectives),
        unknown_names=find_unknown_names(trace, masks[Kind.COMPUTE], kernels),
        names_on_comm_lanes=find_names_on_comm_lanes(trace, masks[Kind.COMPUTE], masks[Kind.COMM], kernels),
        compute_starts_ns=trace.start_ns[computing],
        compute_launches_ns=nesting.launch_ns(computing),
        uncorrelated=count_uncorrelated(find_links(trace, nesting)[1]),
        sources=Sources(
            lanes=device_lanes(trace, masks),
            gaps=find_gaps(trace, nesting, masks, collectives, whole),
            overlap_tax=measure_overlap_tax(trace, masks[Kind.COMPUTE], kinds[Kind.COMM]),
        ),
        regions=regions,
        prepare=lambda found: find_ready(trace, device_work(trace, nesting, masks[Kind.COMPUTE]), regions, found),
    )


def _cpu_timeline(trace: Trace) -> _Timeline:
    nesting = find_nesting(trace)
    roles = [cpu_role(name, category) for name, category in _first_categories(trace)]
    computing = frozenset(i for i, role in enumerate(roles) if role is Role.COMPUTE)
    by_thread = compute_of_threads(trace, nesting, model_lanes(trace), computing)
    compute = unite_all(*by_thread.values())
    issued = find_gloo_collectives(trace, nesting)
    waits = find_cpu_waits(trace, issued)
    collectives = tell_waits(issued, waits)
    kinds = {
        Kind.COMPUTE: compute,
        Kind.COMM: unite_all(*(collective.span for collective in collectives)),
        Kind.COPY: unite([], []),
    }
    ranges = find_host_ranges(trace)
    issued_last = [
        collective.end_ns
        for collective in collectives
        if ranges
        and collective.issue_ns is not None
        and ranges[-1][1].start_ns <= collective.issue_ns < ranges[-1][1].end_ns
    ]
    steps = cpu_steps(ranges, max(issued_last, default=0))
    regions = find_or_infer_regions(trace, [step.host for step in steps])
    return _Timeline(
        kinds=kinds,
        whole=_extent(trace, kinds),
        steps=tuple(steps),
        collectives=collectives,
        waits=sum_waits(waits, compute),
        unknown_names=(),
        compute_starts_ns=compute.starts_ns,
        compute_launches_ns=compute.starts_ns,
        sources=Sources(lanes=thread_lanes(by_thread, collectives)),
        regions=regions,
        prepare=lambda found: find_blocking(trace, nesting, find_ready(trace, cpu_work(compute), regions, found)),
    )


def _first_categories(trace: Trace) -> list[tuple[str, str]]:
    """Give each distinct name with the category it first comes with: one name never is both operator and range."""
    if not len(trace.name):
        return []
    _, first = np.unique(trace.name, return_index=True)
    return [(name, trace.category_of(event)) for name, event in zip(trace.names, first.tolist(), strict=True)]


def _extent(trace: Trace, kinds: Mapping[Kind, Intervals]) -> Window:
    everything = unite_all(*kinds.values())
    if not len(everything.starts_ns):
        reasons = ", ".join(f"{count} {reason}" for reason, count in trace.unread.events.items())
        unread = f", and {trace.unread.count} that could not be read: {reasons}" if trace.unread.count else ""
        raise TraceError(
            f"{trace.path}: nothing in it computes, copies or communicates ({len(trace.name)} events{unread}); "
            "was the profiler started with ProfilerActivity.CPU or CUDA, and did it see a step?"
        )
    return Window(int(everything.starts_ns[0]), int(everything.ends_ns[-1]))


def _purposes_of_windows(
    collectives: Sequence[Collective],
    step_of: Sequence[int | None],
    shares: Shares,
    waiting: tuple[Waits, Window, Sequence[Window]],
) -> list[tuple[PurposeTime, ...]]:
    """Sum over collectives of equal purpose, for each step and, last, for the whole trace.

    Purposes that neither issued, ran nor were waited for are left out.
    """
    waits, whole, windows = waiting
    number = {purpose: index for index, purpose in enumerate(Purpose)}
    purpose_of = np.array([number[collective.purpose] for collective in collectives], dtype=np.int64)
    # Like time outside all windows, what was issued outside all steps has the last column.
    step = np.array([len(windows) if of is None else of for of in step_of], dtype=np.int64)
    size_bytes = np.array([collective.size_bytes or 0 for collective in collectives], dtype=np.int64)
    shape = (len(number), len(windows) + 1)
    count, size = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(count, (purpose_of, step), 1)
    np.add.at(size, (purpose_of, step), size_bytes)
    tables = [count, size, *shares.sum_by(purpose_of, len(number))]
    columns = [np.column_stack((table[:, :-1], table.sum(axis=1))) for table in tables]
    return [
        _purposes_of_window([column[:, index] for column in columns], waits, window)
        for index, window in enumerate([*windows, whole])
    ]


def _find_unattributed(collectives: Sequence[Collective], shares: Shares) -> list[int]:
    """Sum the exposed time of collectives without an owner, for each step and, last, outside all."""
    has_owner = np.array([bool(collective.owner) for collective in collectives], dtype=np.int64)
    return [int(time_ns) for time_ns in shares.sum_by(has_owner, 2)[0][0]]


def _purposes_of_window(columns: Sequence[Ints], waits: Waits, window: Window) -> tuple[PurposeTime, ...]:
    rows = zip(Purpose, *(column.tolist() for column in columns), strict=True)
    found = [
        PurposeTime(
            purpose=purpose,
            count=count,
            size_bytes=size_bytes,
            comm_ns=exposed_ns + hidden_ns,
            hidden_ns=hidden_ns,
            exposed_ns=exposed_ns,
            wait_ns=wait_time_ns(waits, purpose, window.start_ns, window.end_ns),
        )
        for purpose, count, size_bytes, exposed_ns, hidden_ns in rows
    ]
    return tuple(one for one in found if one.count or one.comm_ns or one.wait_ns)

"""From one trace to its account: steps, whole trace, purposes and collectives of one rank."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd

from dtbench.analyze.classify import DEVICE_CATEGORIES, Role, cpu_role, device_kinds, find_unknown_names
from dtbench.analyze.collectives import Collective, assign_steps, find_regions, name_buckets
from dtbench.analyze.correlate import Uncorrelated, count_uncorrelated, find_links
from dtbench.analyze.coverage import Window
from dtbench.analyze.device_collectives import find_device_collectives
from dtbench.analyze.gloo import find_gloo_collectives, model_lanes
from dtbench.analyze.intervals import Intervals, Ints, unite, unite_all
from dtbench.analyze.main_lane import find_main_lane
from dtbench.analyze.nesting import find_nesting, innermost_time
from dtbench.analyze.overlap import Overlap, measure_overlaps
from dtbench.analyze.shares import Shares, share_time
from dtbench.analyze.steps import Step, cpu_steps, device_steps, find_host_ranges
from dtbench.analyze.tables import COLLECTIVES, OVERLAP, PURPOSES
from dtbench.analyze.timeline import RankTimeline
from dtbench.analyze.trace import Trace
from dtbench.analyze.waits import Waits, find_cpu_waits, find_device_waits, wait_time_ns
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
        unread: events that could not be read.
        unknown_names: kernels counted as compute that may be communication.
        timeline: what questions over ranks need.
        uncorrelated: device events that are tied to no single operator, by reason; all are in the account.
        whole_unattributed_ns: exposed time of collectives without an owner, over the whole trace.
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
    unread: int
    unknown_names: tuple[tuple[str, int], ...]
    timeline: RankTimeline
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)
    whole_unattributed_ns: int = 0

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
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)


def analyze_trace(
    trace: Trace, *, rank: int | None = None, process_groups: Mapping[str, Axis | None] | None = None
) -> TraceAnalysis:
    """Account for a trace.

    Args:
        trace: as read.
        rank: where the trace does not know it.
        process_groups: mesh axis by torch's name of the group, where somebody knows.

    Raises:
        TraceError: nothing in the trace computes, copies or communicates.
    """
    is_device = any(category in DEVICE_CATEGORIES for category in trace.categories)
    timeline = _device_timeline(trace, process_groups or {}) if is_device else _cpu_timeline(trace)
    step_of = assign_steps(timeline.collectives, [step.host for step in timeline.steps])
    collectives = name_buckets(timeline.collectives, step_of)
    windows = [step.window for step in timeline.steps]
    spans = [collective.span for collective in collectives]
    shares = share_time(spans, timeline.kinds[Kind.COMPUTE], windows)
    purposes = _purposes_of_windows(collectives, step_of, shares, (timeline.waits, timeline.whole, windows))
    unattributed_ns = _find_unattributed(collectives, shares)
    overlaps = measure_overlaps([*windows, timeline.whole], timeline.kinds)
    known_rank = next((known for known in (rank, trace.rank) if known is not None), 0)
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
        unread=trace.unread.count,
        unknown_names=timeline.unknown_names,
        timeline=RankTimeline(
            rank=known_rank,
            is_device=is_device,
            collectives=collectives,
            step_of=tuple(step_of),
            exposed_ns=exposed_ns,
            hidden_ns=hidden_ns,
            compute=timeline.kinds[Kind.COMPUTE],
            compute_starts_ns=timeline.compute_starts_ns,
            compute_launches_ns=timeline.compute_launches_ns,
            regions=find_regions(trace),
            step_numbers=tuple(step.number for step in timeline.steps),
            steps=tuple(windows),
        ),
        uncorrelated=timeline.uncorrelated,
        whole_unattributed_ns=sum(unattributed_ns),
    )


def _device_timeline(trace: Trace, process_groups: Mapping[str, Axis | None]) -> _Timeline:
    nesting = find_nesting(trace)
    masks = device_kinds(trace, nesting)
    kinds = {kind: unite(trace.start_ns[mask], trace.end_ns[mask]) for kind, mask in masks.items()}
    whole = _extent(trace, kinds)
    computing = np.flatnonzero(masks[Kind.COMPUTE])
    computing = computing[np.argsort(trace.start_ns[computing], kind="stable")]
    lane = find_main_lane(trace, nesting, masks[Kind.COMPUTE])
    collectives = find_device_collectives(trace, nesting, masks[Kind.COMM], lane=lane, process_groups=process_groups)
    return _Timeline(
        kinds=kinds,
        whole=whole,
        steps=tuple(device_steps(trace, nesting, find_host_ranges(trace), whole.end_ns)),
        collectives=collectives,
        waits=find_device_waits(collectives),
        unknown_names=find_unknown_names(trace, masks[Kind.COMPUTE]),
        compute_starts_ns=trace.start_ns[computing],
        compute_launches_ns=nesting.launch_ns(computing),
        uncorrelated=count_uncorrelated(find_links(trace, nesting)[1]),
    )


def _cpu_timeline(trace: Trace) -> _Timeline:
    nesting = find_nesting(trace)
    roles = [cpu_role(name, category) for name, category in _first_categories(trace)]
    computing = frozenset(i for i, role in enumerate(roles) if role is Role.COMPUTE)
    compute = innermost_time(trace, nesting, model_lanes(trace), computing)
    collectives = find_gloo_collectives(trace, nesting)
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
    return _Timeline(
        kinds=kinds,
        whole=_extent(trace, kinds),
        steps=tuple(cpu_steps(ranges, max(issued_last, default=0))),
        collectives=collectives,
        waits=find_cpu_waits(trace, collectives, compute),
        unknown_names=(),
        compute_starts_ns=compute.starts_ns,
        compute_launches_ns=compute.starts_ns,
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
        raise TraceError(
            f"{trace.path}: nothing in it computes, copies or communicates ({len(trace.name)} events); "
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


def tabulate_overlap(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.OVERLAP``."""
    rows = [{"rank": one.rank, "step": step.step, **asdict(step.overlap)} for one in analyses for step in one.steps]
    return pd.DataFrame(rows, columns=list(OVERLAP)).astype(OVERLAP)


def tabulate_purposes(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.PURPOSES``."""
    rows = [
        {"rank": one.rank, "step": step.step, **asdict(purpose), "purpose": str(purpose.purpose)}
        for one in analyses
        for step in one.steps
        for purpose in step.purposes
    ]
    return pd.DataFrame(rows, columns=list(PURPOSES)).astype(PURPOSES)


def tabulate_collectives(analyses: Iterable[TraceAnalysis]) -> pd.DataFrame:
    """Make the table ``tables.COLLECTIVES``; collectives that no step issued are left out.

    ``exposed_ns`` is the share over the collective's whole span, also the part that lies in another step's window.
    """
    rows = [
        _collective_row(one.rank, one.steps[step].step, collective, exposed_ns)
        for one in analyses
        for collective, step, exposed_ns in zip(one.collectives, one.step_of, one.exposed_ns, strict=True)
        if step is not None
    ]
    dtypes = {**COLLECTIVES, "seq": "Int64"}
    return pd.DataFrame(rows, columns=list(COLLECTIVES)).astype(dtypes)


def _collective_row(rank: int, step: int, collective: Collective, exposed_ns: int) -> dict[str, object]:
    return {
        "rank": rank,
        "step": step,
        "group": collective.group,
        "axis": str(collective.axis or ""),
        "seq": collective.seq,
        "operation": str(collective.operation or ""),
        "purpose": str(collective.purpose),
        "owner": collective.owner,
        "size_bytes": collective.size_bytes,
        "issue_ns": collective.issue_ns,
        "start_ns": collective.start_ns,
        "end_ns": collective.end_ns,
        "exposed_ns": exposed_ns,
    }

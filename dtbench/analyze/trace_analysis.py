"""From one trace to its account: steps, whole trace, purposes and collectives of one rank."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from dtbench.analyze.classify import DEVICE_CATEGORIES, Role, cpu_role, device_kinds, find_unknown_names
from dtbench.analyze.collectives import Collective, assign_steps, find_device_collectives, find_regions, name_buckets
from dtbench.analyze.coverage import Window
from dtbench.analyze.cpu_waits import find_cpu_waits, sum_waits, tell_waits
from dtbench.analyze.facts import RankFacts
from dtbench.analyze.gloo import find_gloo_collectives, model_lanes
from dtbench.analyze.intervals import Intervals, Ints, unite, unite_all
from dtbench.analyze.nesting import find_nesting, innermost_time
from dtbench.analyze.overlap import Overlap, measure_overlap
from dtbench.analyze.ready import tell_unshards_ready
from dtbench.analyze.shares import Shares, share_time
from dtbench.analyze.steps import Step, cpu_steps, device_steps, find_host_ranges
from dtbench.analyze.tables import COLLECTIVES, OVERLAP, PURPOSES
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
    """One step's account and what its communication was for."""

    step: int
    overlap: Overlap
    purposes: tuple[PurposeTime, ...]


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


def analyze_trace(
    trace: Trace,
    *,
    rank: int | None = None,
    process_groups: Mapping[str, Axis | None] | None = None,
    facts: RankFacts | None = None,
) -> TraceAnalysis:
    """Account for a trace.

    Args:
        trace: as read.
        rank: where the trace does not know it.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        facts: what the rank's record knows beside; None: there is no record.

    Raises:
        TraceError: nothing in the trace computes, copies or communicates.
    """
    is_device = any(category in DEVICE_CATEGORIES for category in trace.categories)
    timeline = _device_timeline(trace, process_groups or {}) if is_device else _cpu_timeline(trace)
    step_of = assign_steps(timeline.collectives, [step.host for step in timeline.steps])
    regions = find_regions(trace)
    collectives = name_buckets(timeline.collectives, step_of, regions)
    if facts is not None:
        collectives = tuple(facts.complete(collective) for collective in collectives)
    windows = [step.window for step in timeline.steps]
    spans = [collective.span for collective in collectives]
    shares = share_time(spans, timeline.kinds[Kind.COMPUTE], windows)
    steps = [
        StepAccount(
            step=step.number,
            overlap=measure_overlap(step.window, timeline.kinds),
            purposes=_purposes(
                collectives, [of == index for of in step_of], shares, index, _waiting(timeline.waits, step.window)
            ),
        )
        for index, step in enumerate(timeline.steps)
    ]
    known_rank = next((known for known in (rank, trace.rank) if known is not None), 0)
    return TraceAnalysis(
        path=trace.path,
        rank=known_rank,
        whole=measure_overlap(timeline.whole, timeline.kinds),
        whole_purposes=_purposes(
            collectives,
            [True] * len(collectives),
            _sum_over_windows(shares),
            0,
            _waiting(timeline.waits, timeline.whole),
        ),
        steps=tuple(steps),
        collectives=collectives,
        step_of=tuple(step_of),
        exposed_ns=tuple(shares.exposed_ns.sum(axis=1).tolist()),
        unread=trace.unread.count,
        unknown_names=timeline.unknown_names,
        timeline=RankTimeline(
            rank=known_rank,
            is_device=is_device,
            collectives=collectives,
            step_of=tuple(step_of),
            exposed_ns=tuple(shares.exposed_ns.sum(axis=1).tolist()),
            hidden_ns=tuple(shares.hidden_ns.sum(axis=1).tolist()),
            compute=timeline.kinds[Kind.COMPUTE],
            compute_starts_ns=timeline.compute_starts_ns,
            compute_launches_ns=timeline.compute_launches_ns,
            regions=regions,
            step_numbers=tuple(step.number for step in timeline.steps),
            steps=tuple(windows),
        ),
    )


def _device_timeline(trace: Trace, process_groups: Mapping[str, Axis | None]) -> _Timeline:
    nesting = find_nesting(trace)
    masks = device_kinds(trace, nesting)
    kinds = {kind: unite(trace.start_ns[mask], trace.end_ns[mask]) for kind, mask in masks.items()}
    whole = _extent(trace, kinds)
    computing = np.flatnonzero(masks[Kind.COMPUTE])
    computing = computing[np.argsort(trace.start_ns[computing], kind="stable")]
    collectives = find_device_collectives(trace, nesting, masks[Kind.COMM], process_groups)
    return _Timeline(
        kinds=kinds,
        whole=whole,
        steps=tuple(device_steps(trace, nesting, find_host_ranges(trace), whole.end_ns)),
        collectives=collectives,
        waits=find_device_waits(trace, nesting, masks[Kind.COMPUTE], collectives),
        unknown_names=find_unknown_names(trace, masks[Kind.COMPUTE]),
        compute_starts_ns=trace.start_ns[computing],
        compute_launches_ns=trace.start_ns[nesting.launch[computing]],
    )


def _cpu_timeline(trace: Trace) -> _Timeline:
    nesting = find_nesting(trace)
    roles = [cpu_role(name, category) for name, category in _first_categories(trace)]
    computing = frozenset(i for i, role in enumerate(roles) if role is Role.COMPUTE)
    compute = innermost_time(trace, nesting, model_lanes(trace), computing)
    issued = find_gloo_collectives(trace, nesting)
    waits = find_cpu_waits(trace, issued)
    collectives = tell_unshards_ready(tell_waits(issued, waits), find_regions(trace))
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
        waits=sum_waits(waits, compute),
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


def _waiting(waits: Waits, window: Window) -> Callable[[Purpose], int]:
    return lambda purpose: wait_time_ns(waits, purpose, window.start_ns, window.end_ns)


def _sum_over_windows(shares: Shares) -> Shares:
    return Shares(shares.exposed_ns.sum(axis=1, keepdims=True), shares.hidden_ns.sum(axis=1, keepdims=True))


def _purposes(
    collectives: Sequence[Collective],
    issued: Sequence[bool],
    shares: Shares,
    column: int,
    wait_ns: Callable[[Purpose], int],
) -> tuple[PurposeTime, ...]:
    """Sum over collectives of equal purpose; purposes that neither issued, ran nor were waited for are left out."""
    found = []
    for purpose in Purpose:
        rows = [index for index, collective in enumerate(collectives) if collective.purpose is purpose]
        mine = [collectives[index] for index in rows if issued[index]]
        exposed_ns, hidden_ns = int(shares.exposed_ns[rows, column].sum()), int(shares.hidden_ns[rows, column].sum())
        one = PurposeTime(
            purpose=purpose,
            count=len(mine),
            size_bytes=sum(collective.size_bytes or 0 for collective in mine),
            comm_ns=exposed_ns + hidden_ns,
            hidden_ns=hidden_ns,
            exposed_ns=exposed_ns,
            wait_ns=wait_ns(purpose),
        )
        if one.count or one.comm_ns or one.wait_ns:
            found.append(one)
    return tuple(found)


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

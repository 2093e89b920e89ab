"""What one cell of a selftest left behind, read once: its summary, its ranks' records, and what only traces tell."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import Phase, Purpose, Region
from dtbench.runs.exposure.estimates import find_block_disturbance, keep_undisturbed, read_blocks
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.reading.undisturbed import find_disturbance
from dtbench.runs.run import summarize_only_cell
from dtbench.runs.summary import CellSummary
from dtbench.selftest.records import ExpectedBounds
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.rank import RankRecord
from dtbench.traces.ranks.clocks.clocks import estimate_clocks
from dtbench.traces.ranks.clocks.machines import Host
from dtbench.traces.ranks.clocks.times import read_times
from dtbench.traces.ranks.match import match_collectives
from dtbench.traces.rows.launch_tables import read_launch_traces
from dtbench.traces.timeline import RankTimeline


@dataclass(frozen=True)
class Bucket:
    """A reduction of gradients in PROFILED steps, median over steps, ns from the step's start.

    Attributes:
        ready_ns: when the last rank issued it.
        end_ns: when it was done, on the rank where that was last.
    """

    size_bytes: int
    ready_ns: int
    end_ns: int


@dataclass(frozen=True)
class Traced:
    """What only the traces of a launch tell.

    Attributes:
        buckets: in order of issue; empty where steps differ in them.
        step_ns: PROFILED step, slowest rank, median over steps.
        backward_at_ns: when the last rank began its first backward, from the step's start, median; None: in some step
            it is not known of every rank.
        clock_ns: by rank, how far its clock is found to be ahead.
        clock_doubt_ns: half width of the 99 % interval of the least sure of these.
    """

    buckets: tuple[Bucket, ...]
    step_ns: int
    backward_at_ns: int | None
    clock_ns: tuple[tuple[int, int], ...]
    clock_doubt_ns: int


@dataclass(frozen=True)
class Evidence:
    """Everything about one cell.

    Attributes:
        traced: None where no trace can be used.
        cores: of the machine that the ranks shared; None: not told.
        disturbance: what others had of it in the steps that count, or in those of arms where it is more; NaN: not
            known.
    """

    summary: CellSummary
    ranks: tuple[RankRecord, ...]
    traced: Traced | None
    cores: int | None = None
    disturbance: float = math.nan

    @property
    def turns(self) -> float:
        """Ranks that take turns on a core; 1 where each has one."""
        return max(1.0, self.summary.plan.ranks / self.cores) if self.cores else 1.0

    @property
    def host_ns(self) -> int | None:
        """How long a rank's host takes in a MEASURED step: its CPU time, longer where ranks take turns on a core."""
        cpu_ns = self.summary.cpu_ns_per_step
        return None if math.isnan(cpu_ns) else round(cpu_ns * self.turns)

    @property
    def forward_ns(self) -> int | None:
        """How long forward takes in a MEASURED step, median over ranks; None: no rank told."""
        told_ns = [rank.region_ns[Region.FORWARD] for rank in self.ranks if Region.FORWARD in rank.region_ns]
        return round(median(told_ns)) if told_ns else None


def read_evidence(run: Path, cell: str) -> Evidence:
    """Read a cell of a run, whatever of it is there.

    Raises:
        StoreError: a file of it is broken or of another version.
    """
    data = read_run_data(run, cell=cell)
    summary = summarize_only_cell(data)
    launch = data.launches[0]
    traced = _read_traced(_read_timelines(launch.folder), launch.left_out.get(Phase.PROFILED, frozenset()))
    shares = (find_disturbance(launch.steps), _find_arm_disturbance(launch.ranks))
    disturbance = max((share for share in shares if not math.isnan(share)), default=math.nan)
    cores = launch.environment.cores if launch.environment is not None else None
    return Evidence(summary, launch.ranks, traced, cores, disturbance)


def _find_arm_disturbance(ranks: Sequence[RankRecord]) -> float:
    blocks = {record.rank: read_blocks(arms) for record in ranks if (arms := record.extras.exposure) is not None}
    return find_block_disturbance(keep_undisturbed(blocks))


def _read_timelines(folder: LaunchFolder) -> list[RankTimeline]:
    """Return every rank's; none where no trace can be used, which the summary's notes tell."""
    try:
        return [one.timeline for one in read_launch_traces(folder).analyses]
    except StoreError:
        return []


def _read_traced(timelines: Sequence[RankTimeline], left_out: Container[int]) -> Traced | None:
    numbers = min((timeline.step_numbers for timeline in timelines), key=len, default=())
    steps = [place for place, number in enumerate(numbers) if number not in left_out]
    if not steps:
        return None
    clocks = find_clocks(timelines)
    return Traced(
        buckets=_read_buckets(timelines, steps),
        step_ns=round(median(max(timeline.steps[step].length_ns for timeline in timelines) for step in steps)),
        backward_at_ns=find_backward_ns(timelines, steps),
        clock_ns=tuple((rank, offset_ns) for rank, (offset_ns, _) in clocks.items()),
        clock_doubt_ns=max(doubt_ns for _, doubt_ns in clocks.values()),
    )


def find_backward_ns(timelines: Sequence[RankTimeline], steps: Sequence[int]) -> int | None:
    """Return when the last rank began its first backward, median over steps; None: some rank does not tell of one."""
    starts_ns = [[_first_backward_ns(timeline, step) for timeline in timelines] for step in steps]
    told_ns = [[start_ns for start_ns in of_step if start_ns is not None] for of_step in starts_ns]
    is_whole = all(len(of_step) == len(timelines) for of_step in told_ns)
    return round(median(map(max, told_ns))) if is_whole else None


def _first_backward_ns(timeline: RankTimeline, step: int) -> int | None:
    regions = _regions_in(timeline, step)
    return next((start_ns for region, start_ns, _ in regions if region is Region.BACKWARD), None)


def _regions_in(timeline: RankTimeline, step: int) -> Iterator[tuple[Region, int, int]]:
    """Yield the regions that begin in a step with start and end, from the step's start."""
    window, regions = timeline.steps[step], timeline.regions
    starts_ns, ends_ns = regions.starts_ns.tolist(), regions.ends_ns.tolist()
    for region, start_ns, end_ns in zip(regions.regions, starts_ns, ends_ns, strict=True):
        if window.start_ns <= start_ns < window.end_ns:
            yield region, start_ns - window.start_ns, end_ns - window.start_ns


def _read_buckets(timelines: Sequence[RankTimeline], steps: Sequence[int]) -> tuple[Bucket, ...]:
    by_step = [[_buckets_in(timeline, step) for timeline in timelines] for step in steps]
    sizes = {tuple(bucket.size_bytes for bucket in of_rank) for of_ranks in by_step for of_rank in of_ranks}
    if len(sizes) != 1:
        return ()
    return tuple(
        Bucket(
            size_bytes=size_bytes,
            ready_ns=round(median(max(of_rank[place].ready_ns for of_rank in of_ranks) for of_ranks in by_step)),
            end_ns=round(median(max(of_rank[place].end_ns for of_rank in of_ranks) for of_ranks in by_step)),
        )
        for place, size_bytes in enumerate(sizes.pop())
    )


def _buckets_in(timeline: RankTimeline, step: int) -> list[Bucket]:
    start_ns = timeline.steps[step].start_ns
    mine = [
        Bucket(one.size_bytes or 0, one.issue_ns - start_ns, one.end_ns - start_ns)
        for one, of in zip(timeline.collectives, timeline.step_of, strict=True)
        if of == step and one.purpose is Purpose.GRAD_REDUCE and one.issue_ns is not None
    ]
    return sorted(mine, key=lambda bucket: bucket.ready_ns)


def find_clocks(timelines: Sequence[RankTimeline]) -> dict[int, tuple[int, int]]:
    """Return by rank how far its clock is ahead as the analyser estimates it, and the doubt about that, ns.

    Ranks are taken for those of different machines: of one machine the analyser takes clocks to be equal.
    """
    times = read_times(match_collectives(timelines), timelines)
    clocks = estimate_clocks(times, {timeline.rank: Host(f"rank {timeline.rank}") for timeline in timelines})
    return {rank: (clock.offset_ns, clock.uncertainty_ns or 0) for rank, clock in clocks.by_rank.items()}


@dataclass(frozen=True)
class Found:
    """What is known about the cells of a row.

    Attributes:
        evidence: by cell; one that is missing has left nothing that can be read.
        foretold: by cell; one that is missing has no closed form.
    """

    evidence: Mapping[str, Evidence]
    foretold: Mapping[str, ExpectedBounds]

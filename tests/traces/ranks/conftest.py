"""Jobs whose truth is known: ranks that meet in collectives, each with a clock of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals, unite
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective, Regions

SOME_DAY_NS = 1_694_128_201_000_000_000


@dataclass(frozen=True)
class Job:
    """What to generate; times in ns.

    ``groups`` are the ranks of each group, ``offsets_ns`` and ``drifts`` one per rank, ``jitter_ns`` the most by which
    ranks leave a collective apart, ``late_ns`` what a rank computes longer before each. ``is_named``: whether
    the traces say group, ranks and sequence numbers.
    """

    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)
    count: int = 40
    offsets_ns: tuple[int, ...] = (0, 0, 0, 0)
    drifts: tuple[float, ...] = ()
    jitter_ns: int = 0
    late_ns: Mapping[int, int] = field(default_factory=dict)
    is_named: bool = True
    is_periodic: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Truth:
    """Timelines of a job, and by (rank, index) when the last rank of the collective began, on the common clock."""

    timelines: tuple[RankTimeline, ...]
    start_ns: dict[tuple[int, int], int]
    last_start_ns: dict[tuple[int, int], int]
    number: dict[tuple[int, int], int]


def make_collective(start_ns: int, end_ns: int, **facts: Any) -> Collective:
    """Make one collective that ran in one piece."""
    base = Collective(
        group="",
        axis=None,
        seq=None,
        operation=Operation.ALL_REDUCE,
        purpose=Purpose.OTHER,
        owner="",
        size_bytes=4096,
        issue_ns=start_ns - 10,
        issue_end_ns=start_ns - 5,
        span=unite([start_ns], [end_ns]),
        above=(),
        lane="0/7",
    )
    return replace(base, **facts)


def make_timeline(rank: int, collectives: Sequence[Collective], **facts: Any) -> RankTimeline:
    """Make a rank that does nothing but communicate."""
    nothing = np.array([], dtype=np.int64)
    start = min((one.start_ns for one in collectives), default=0)
    end = max((one.end_ns for one in collectives), default=1)
    base = RankTimeline(
        rank=rank,
        is_device=True,
        collectives=tuple(collectives),
        step_of=(0,) * len(collectives),
        exposed_ns=(0,) * len(collectives),
        stepped_exposed_ns=(0,) * len(collectives),
        hidden_ns=(0,) * len(collectives),
        compute=unite([], []),
        compute_starts_ns=nothing,
        compute_launches_ns=np.stack((nothing, nothing)),
        regions=Regions((), nothing, nothing),
        step_numbers=(3,),
        steps=(Window(start, end),),
        path=f"rank{rank}.json",
    )
    return replace(base, **facts)


def generate(job: Job) -> Truth:
    """Run a job: ranks compute for a while, meet in the next collective of a group, and leave it together."""
    random = np.random.default_rng(job.seed)
    ranks = sorted({rank for group in job.groups for rank in group})
    offset = dict(zip(ranks, job.offsets_ns, strict=True))
    drift = dict(zip(ranks, job.drifts or (0.0,) * len(ranks), strict=True))
    free = dict.fromkeys(ranks, 0)
    found: dict[int, list[Collective]] = {rank: [] for rank in ranks}
    start_ns, last_start_ns, number = {}, {}, {}
    operations = [Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER]
    for k in range(job.count * len(job.groups)):
        group = job.groups[k % len(job.groups)]
        kind = 0 if job.is_periodic else int(random.integers(3))
        size = 1 << (16 if job.is_periodic else int(random.integers(12, 16)))
        transfer = 50_000 + size
        starts = {
            rank: free[rank] + int(random.integers(50_000, 3_000_000)) + job.late_ns.get(rank, 0) for rank in group
        }
        last = max(starts.values())
        for rank in group:
            end = last + transfer + int(random.integers(0, job.jitter_ns + 1))
            key = (rank, len(found[rank]))
            start_ns[key], last_start_ns[key], number[key] = starts[rank], last, k
            stream = [own for own in job.groups if rank in own].index(group)
            facts: dict[str, Any] = {"lane": f"{rank}/{7 + stream}", "operation": operations[kind], "size_bytes": size}
            if job.is_named:
                facts |= {"group": str(k % len(job.groups)), "seq": k, "group_ranks": group, "group_size": len(group)}
            mine = [SOME_DAY_NS + when + offset[rank] + round(drift[rank] * when) for when in (starts[rank], end)]
            found[rank].append(make_collective(mine[0], mine[1], **facts))
            free[rank] = end
    timelines = tuple(make_timeline(rank, found[rank], world_size=len(ranks)) for rank in ranks)
    return Truth(timelines, start_ns, last_start_ns, number)


def drop(timeline: RankTimeline, *events: int) -> RankTimeline:
    """Lose some collectives of one rank."""
    kept = [index for index in range(len(timeline.collectives)) if index not in events]
    return replace(
        timeline,
        collectives=tuple(timeline.collectives[index] for index in kept),
        step_of=tuple(timeline.step_of[index] for index in kept),
        exposed_ns=tuple(timeline.exposed_ns[index] for index in kept),
        stepped_exposed_ns=tuple(timeline.exposed_ns[index] for index in kept),
        hidden_ns=tuple(timeline.hidden_ns[index] for index in kept),
    )


def shift(timeline: RankTimeline, by_ns: int) -> RankTimeline:
    """Set one rank's clock ahead."""
    return replace(
        timeline,
        collectives=tuple(
            replace(
                one,
                issue_ns=None if one.issue_ns is None else one.issue_ns + by_ns,
                span=Intervals(one.span.starts_ns + by_ns, one.span.ends_ns + by_ns),
            )
            for one in timeline.collectives
        ),
        unseen=tuple(replace(one, start_ns=one.start_ns + by_ns, end_ns=one.end_ns + by_ns) for one in timeline.unseen),
    )


@dataclass(frozen=True)
class Jobs:
    """The functions above, for tests."""

    job: type[Job] = Job
    generate: Callable[[Job], Truth] = generate
    drop: Callable[..., RankTimeline] = drop
    shift: Callable[[RankTimeline, int], RankTimeline] = shift
    collective: Callable[..., Collective] = make_collective
    timeline: Callable[..., RankTimeline] = make_timeline


@pytest.fixture(scope="session")
def jobs() -> Jobs:
    """Return what makes jobs."""
    return Jobs()

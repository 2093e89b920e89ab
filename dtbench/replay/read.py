"""From traces to the graph of their job, and the steps as they were; or why there is none."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.base.units import name_ranks, name_steps
from dtbench.replay.draft import Draft
from dtbench.replay.graph import GraphStep, Host, Items, JobGraph, Point, RankGraph, Service
from dtbench.replay.read_cpu import read_cpu
from dtbench.replay.read_device import read_device
from dtbench.traces.garbage import without_collection
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.kinds.kernels import make_table
from dtbench.traces.notes.clocks import Misfit
from dtbench.traces.notes.job import OtherJobSize, SharesNothing
from dtbench.traces.notes.lacking import (
    ClockSet,
    CommunicationUntold,
    ComputeNotRecorded,
    CutStep,
    EmptySteps,
    LostCopies,
    LostKernels,
    NotSeenToRun,
    OperatorsAbsent,
    ShownElsewhere,
    SpansMissing,
    StepsSkipped,
    StepsUntold,
    UntiedSteps,
)
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rank.file import read_parts
from dtbench.traces.ranks.clocks.times import Clock


class DisturbedError(PredictionError):
    """No step is left that others did not disturb."""


@dataclass(frozen=True)
class Recorded:
    """A job's steps as lengths and edges, and as they were.

    Attributes:
        graph: what the replay runs.
        numbers: of the steps.
        left_out: numbers of steps of the traces that are not among them: of which not all is known on every rank, that
            others disturbed, or that do not follow these.
        rank_steps_ns: by rank, how long each step took.
        traces: from which it was read.
        are_in_step: it is known how far the clocks of its ranks are apart; else they begin together in the graph, and
            wait for nobody that is not in what their collectives take.
    """

    graph: JobGraph
    numbers: tuple[int, ...]
    rank_steps_ns: Mapping[int, tuple[int, ...]]
    traces: TraceSet
    left_out: tuple[int, ...] = ()
    are_in_step: bool = True

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """How long each step of the job took: the slowest rank's."""
        return tuple(max(of_step) for of_step in zip(*self.rank_steps_ns.values(), strict=True))


def read_graph(traces: TraceSet, without: Collection[int] = ()) -> Recorded:
    """Read the graph of some traces; their files are read once more.

    Args:
        traces: of one job.
        without: numbers of steps that are not to be gone by, as others disturbed them.

    Raises:
        PredictionError: they do not tell enough; with the reason.
        TraceError: a trace is gone.
    """
    _refuse_strangers(traces)
    numbers = _choose_steps(traces, without)
    with without_collection():
        drafts = _read(traces, numbers)
        common = set.intersection(*({step.number for step in draft.steps} for draft in drafts.values()))
        if any(len(draft.steps) > len(common) for draft in drafts.values()):
            drafts = _read(traces, [number for number in numbers if number in common])
    clocks = {rank: traces.over_ranks.clocks.by_rank.get(rank, Clock()) for rank in drafts}
    services = _find_services(traces, drafts, clocks)
    are_in_step = traces.over_ranks.clocks.can_compare(*drafts)
    begins_ns = {
        rank: int(clocks[rank].to_common(np.array([draft.steps[0].host.start_ns], dtype=np.int64))[0])
        if are_in_step
        else 0
        for rank, draft in drafts.items()
    }
    origin_ns = min(begins_ns.values())
    kept = tuple(step.number for step in next(iter(drafts.values())).steps)
    every = {number for one in traces.analyses for number in one.timeline.step_numbers}
    return Recorded(
        {rank: _make_graph(draft, services[rank], begins_ns[rank] - origin_ns) for rank, draft in drafts.items()},
        kept,
        {rank: tuple(step.window.length_ns for step in draft.steps) for rank, draft in drafts.items()},
        traces,
        tuple(sorted(every - set(kept))),
        are_in_step=are_in_step,
    )


def _refuse_strangers(traces: TraceSet) -> None:
    """Refuse traces of several jobs.

    Raises:
        PredictionError: they may be such.
    """
    if len(traces.analyses) > 1 and not traces.over_ranks.is_one_job:
        why = [str(note) for note in traces.notes if isinstance(note, _STRANGE)]
        raise PredictionError(
            "; ".join(("these are not surely ranks of one job: ask the traces of one, or of one rank alone", *why))
        )


_STRANGE: Final = (Misfit, OtherJobSize, SharesNothing, CommunicationUntold)
"""Notes on why ranks may be of several jobs."""


def _choose_steps(traces: TraceSet, without: Collection[int]) -> list[int]:
    """Return the longest run of steps of which all is known on every rank, without some.

    Raises:
        PredictionError: there is none.
    """
    stepless = [one.rank for one in traces.analyses if not one.timeline.step_numbers]
    if stepless:
        have = "has" if len(stepless) == 1 else "have"
        raise PredictionError(f"{name_ranks(stepless)} {have} no steps: which work is one step's is not known there")
    off = [one.rank for one in traces.analyses if one.clock.is_off]
    if off:
        raise PredictionError(
            f"the times of devices do not fit their hosts' on {name_ranks(off)}: how long launches take is not known"
        )
    mixed = [one.rank for one in traces.analyses if one.mixed_streams]
    if mixed:
        raise PredictionError(
            f"the streams of devices are not told apart on {name_ranks(mixed)}: what waited for what is not known"
        )
    of_ranks = {one.rank: _list_known(one) for one in traces.analyses}
    known = set.intersection(*of_ranks.values())
    if known and known <= {*without}:
        raise DisturbedError("others disturbed every step of which all is known")
    longest = _find_longest(traces.analyses[0].timeline.step_numbers, known.difference(without))
    if not longest:
        raise PredictionError(
            "; ".join(("no step is there on all ranks of which all is known", *_say_lack(traces, of_ranks)))
        )
    return longest


_LACKING: Final = (
    CommunicationUntold,
    ShownElsewhere,
    NotSeenToRun,
    SpansMissing,
    LostKernels,
    LostCopies,
    OperatorsAbsent,
    ComputeNotRecorded,
    StepsUntold,
    StepsSkipped,
    CutStep,
    ClockSet,
    EmptySteps,
    UntiedSteps,
)
"""Notes for which all of a step may not be known."""


def _say_lack(traces: TraceSet, known: Mapping[int, Collection[int]]) -> Iterator[str]:
    """Yield, where ranks have no known step in common, which each has, and what the traces lack; by rank both."""
    ranks_of: dict[tuple[int, ...], list[int]] = {}
    for rank, numbers in known.items():
        ranks_of.setdefault(tuple(sorted(numbers)), []).append(rank)
    for numbers, ranks in ranks_of.items():
        yield f"{name_ranks(ranks)}: all is known of {name_steps(numbers) if numbers else 'no step'}"
    yield from (str(note) for note in traces.notes if isinstance(note, _LACKING))


def _find_longest(numbers: Iterable[int], known: Container[int]) -> list[int]:
    """Return the longest run of numbers that are known."""
    runs: list[list[int]] = [[]]
    for number in numbers:
        if number in known:
            runs[-1].append(number)
        else:
            runs.append([])
    return max(runs, key=len)


def _list_known(one: TraceAnalysis) -> set[int]:
    """Return the steps of a rank of which nothing is lost."""
    timeline, lost = one.timeline, one.lost
    lossy = {*lost.steps, *lost.copy_steps, *(number for number, _ in lost.absent), *one.lacking}
    if one.truncated_step is not None:
        lossy.add(one.truncated_step.step)
    return {
        number
        for number, is_known, step in zip(timeline.step_numbers, timeline.known_steps, one.steps, strict=True)
        if is_known and number not in lossy and not step.lost
    }


def _read(traces: TraceSet, numbers: Sequence[int]) -> dict[int, Draft]:
    """Read some steps of all ranks.

    Raises:
        PredictionError: there is none.
    """
    if not numbers:
        raise PredictionError("no step is there on all ranks of which all is known")
    drafts = {}
    for file, analysis in zip(traces.files, traces.analyses, strict=True):
        (part,) = read_parts(file)
        drafts[analysis.rank] = (
            read_device(part.trace, analysis, make_table(file.patterns), numbers)
            if analysis.timeline.is_device
            else read_cpu(part.trace, analysis, numbers)
        )
    return drafts


def _find_services(
    traces: TraceSet, drafts: Mapping[int, Draft], clocks: Mapping[int, Clock]
) -> dict[int, dict[int, Service]]:
    """Return by rank and item how each collective is served: alone, or with the other ranks that have it."""
    services: dict[int, dict[int, Service]] = {rank: {} for rank in drafts}
    item_of: dict[int, dict[int, int]] = {rank: {} for rank in drafts}
    given_ns, starts_ns, ends_ns = (
        {rank: clocks[rank].to_common(getattr(draft.given, column)) for rank, draft in drafts.items()}
        for column in ("given_ns", "start_ns", "end_ns")
    )
    for rank, draft in drafts.items():
        given = draft.given
        for item in np.flatnonzero(given.is_collective).tolist():
            index = int(given.collective[item])
            item_of[rank][index] = item
            length_ns = int(given.end_ns[item] - given.start_ns[item])
            services[rank][item] = Service(
                f"{rank}.{index}",
                (rank,),
                length_ns,
                length_ns,
                on_link=draft.analysis.collectives[index].on_link,
            )
    for number, members in enumerate(_find_matches(traces)):
        items = {rank: item_of[rank][index] for rank, index in members.items() if index in item_of.get(rank, {})}
        if len(items) < len(members):
            continue
        on_link = all(services[rank][item].on_link for rank, item in items.items())
        there_ns = given_ns if on_link else starts_ns
        last_ns = max(int(there_ns[rank][item]) for rank, item in items.items())
        for rank, item in items.items():
            start_ns, end_ns = int(starts_ns[rank][item]), int(ends_ns[rank][item])
            begin_ns = max(last_ns, start_ns) if last_ns < end_ns else start_ns
            length_ns = end_ns - begin_ns
            services[rank][item] = Service(
                str(number), tuple(sorted(items)), length_ns, length_ns, last_ns < end_ns, on_link
            )
    for rank, draft in drafts.items():
        _free_lanes(draft, services[rank])
    return services


def _free_lanes(draft: Draft, services: dict[int, Service]) -> None:
    """Let a lane be free where it begins with its next collective while the one before has not ended."""
    given = draft.given
    for lane in np.unique(given.lane[given.is_collective]).tolist():
        mine = np.flatnonzero((given.lane == lane) & given.is_collective)
        for item, following in pairwise(mine.tolist()):
            over_ns = int(given.end_ns[item] - given.start_ns[following])
            if over_ns > 0:
                service = services[item]
                services[item] = replace(service, held_ns=max(0, service.service_ns - over_ns))


def _find_matches(traces: TraceSet) -> list[Mapping[int, int]]:
    """Return what several ranks have in common: by rank an index of its collectives."""
    over_ranks = traces.over_ranks
    if not over_ranks.is_one_job:
        return []
    found = [one.members for one in over_ranks.matches if one.is_whole and over_ranks.clocks.can_compare(*one.members)]
    transfers = [one for one in over_ranks.transfers.matched if one.is_comparable]
    return [*found, *({one.sender: one.send, one.receiver: one.receive} for one in transfers)]


def _make_graph(draft: Draft, services: Mapping[int, Service], begins_ns: int) -> RankGraph:
    given, analysis = draft.given, draft.analysis
    host_begins_ns = draft.steps[0].host.start_ns
    return RankGraph(
        rank=analysis.rank,
        is_device=analysis.timeline.is_device,
        steps=tuple(GraphStep(step.number, step.first) for step in draft.steps),
        host=_make_host(draft),
        items=Items(
            lanes=given.lanes,
            lane=given.lane,
            busy_ns=given.end_ns - given.start_ns,
            alone_ns=given.alone_ns,
            next_ns=draft.next_ns,
            collective=given.collective,
            name=given.name,
            names=given.names,
            after=draft.after,
        ),
        services=services,
        latencies=draft.latencies,
        begins_ns=begins_ns,
        busy_until_ns={lane: until - host_begins_ns + begins_ns for lane, until in draft.busy_until_ns.items()},
        collectives=analysis.collectives,
    )


_SITS: Final = -1
"""Sorts the start of a sitting, which is no point of the host's."""


def _make_host(draft: Draft) -> Host:
    """Put what the host comes to in order, and let it take between what it took when it did not stand still."""
    moments: list[tuple[int, int, int, int]] = []  # when, order among equals, point, which
    moments += [(time_ns, 2, Point.GIVE, item) for item, time_ns in enumerate(draft.given.given_ns.tolist())]
    sittings = sorted(draft.sittings, key=lambda one: (one.window.end_ns, one.window.start_ns))
    for place, sitting in enumerate(sittings):
        moments.append((sitting.window.start_ns, 3, _SITS, place))
        moments.append((sitting.window.end_ns, 0, Point.SIT, place))
    for place, step in enumerate(draft.steps):
        moments.append((step.host.start_ns, 1, Point.BEGIN, place))
        moments.append((step.host.end_ns, 4, Point.END, place))
    moments.sort()
    points, which, before_ns = [], [], []
    spent_ns, last_ns = 0, moments[0][0]
    for time_ns, _, point, what in moments:
        spent_ns += 0 if point == Point.SIT else time_ns - last_ns
        last_ns = time_ns
        if point != _SITS:
            points.append(point)
            which.append(what)
            before_ns.append(spent_ns)
            spent_ns = 0
    columns = [np.array(column, dtype=np.int64) for column in (points, which, before_ns)]
    return Host(columns[0], columns[1], columns[2], tuple(sitting.items for sitting in sittings))

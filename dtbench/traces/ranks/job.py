"""Whether several traces are ranks of one job, and what of them cannot be used: sentences for a person."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from dtbench.base.units import count_things, find_absent, format_ns, list_numbers, list_runs, name_ranks
from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.match import Matches
from dtbench.traces.ranks.point_to_point import Transfers
from dtbench.traces.timeline import RankTimeline


def keep_distinct_ranks(timelines: Sequence[RankTimeline]) -> tuple[tuple[RankTimeline, ...], tuple[str, ...]]:
    """Return one timeline per rank, in order of rank, the first of each; and a sentence for every one left out."""
    kept: dict[int, RankTimeline] = {}
    notes = []
    for timeline in timelines:
        first = kept.setdefault(timeline.rank, timeline)
        if first is not timeline:
            notes.append(f"{_name(timeline)} is left out: rank {timeline.rank} is there already, from {_name(first)}")
    return tuple(kept[rank] for rank in sorted(kept)), tuple(notes)


def check_job(timelines: Sequence[RankTimeline], matches: Matches, transfers: Transfers) -> tuple[str, ...]:
    """Say what speaks against these being all ranks of one job, and what is still used.

    Args:
        timelines: distinct ranks.
        matches: of these ranks.
        transfers: likewise, sends and receives.
    """
    if len(timelines) < 2:
        return ()
    return (
        *_check_world(timelines),
        *_check_groups(timelines),
        *_check_matches(timelines, matches, transfers),
        *_check_steps(timelines),
        *matches.notes,
    )


def is_one_job(timelines: Sequence[RankTimeline], matches: Matches, transfers: Transfers) -> bool:
    """Tell whether nothing speaks against these being ranks of one job: one size, and no rank alone.

    Alone is a rank that shares no collective with any other and sends nothing to it, or may share some but ran at
    another time.
    """
    sizes = {one.world_size for one in timelines if one.world_size is not None}
    strange = [one for one in timelines if one.rank not in _find_matched(matches, transfers) and _apart(one, timelines)]
    return len(timelines) < 2 or not (len(sizes) > 1 or strange or _find_lonely(timelines, matches, transfers))


def _check_world(timelines: Sequence[RankTimeline]) -> list[str]:
    sizes = Counter(one.world_size for one in timelines if one.world_size is not None)
    notes = []
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        notes += [
            f"{_name_some(ranks)} of a job of {size} ranks, most others of one of {usual}: not one job;"
            " each rank's own figures stand, nothing over ranks does"
            for size in sizes
            if size != usual and (ranks := [one for one in timelines if one.world_size == size])
        ]
    if not any(one.told_size for one in timelines) and any(_communicates(one) for one in timelines):
        notes.append("no trace says how many ranks the job has: some may be missing, for whom all may have waited")
    known = max(sizes, default=0)
    beyond = [one for one in timelines if one.world_size is not None and one.rank >= one.world_size]
    notes += [
        f"{_name(one)} {'says' if one.said_rank == one.rank else 'is taken for'} rank {one.rank} in a job of"
        f" {one.world_size}; are they numbered rightly?"
        for one in beyond
    ]
    absent = find_absent((one.rank for one in timelines), known) if len(sizes) == 1 else []
    if absent:
        have = f"{len(timelines)} of {known} ranks have a trace (not {list_runs(absent)})"
        notes.append(f"{have}: waits for the last rank are at least what is shown")
    return notes


def _check_groups(timelines: Sequence[RankTimeline]) -> list[str]:
    """Find ranks that communicate on groups they are not in: ranks numbered wrongly, or of another job."""
    notes = []
    for timeline in timelines:
        foreign = sorted(
            {one.group for one in timeline.collectives if one.group_ranks and timeline.rank not in one.group_ranks}
        )
        if foreign:
            notes.append(
                f"{_name(timeline)} is taken for rank {timeline.rank}, but communicates in process group"
                f" {_list(foreign)}, which has no such rank; its collectives there match no other rank's rightly"
            )
    return notes


def _check_matches(timelines: Sequence[RankTimeline], matches: Matches, transfers: Transfers) -> list[str]:
    matched = _find_matched(matches, transfers)
    lonely = _find_lonely(timelines, matches, transfers)
    notes = [
        f"{_name(one)} shares no collective with any other rank{_apart(one, timelines)}; its own figures stand,"
        " nothing over ranks is said of it"
        for one in lonely
    ]
    for rank, count in matches.alone.items():
        if rank in matched:
            timeline = next(one for one in timelines if one.rank == rank)
            notes.append(
                f"{_name(timeline)}: {count} of {count_things(len(timeline.collectives), 'collective')} of rank {rank}"
                " could not be found in any other trace; the others are matched"
            )
    return notes


def check_transfers(timelines: Sequence[RankTimeline], transfers: Transfers, clocks: Clocks) -> tuple[str, ...]:
    """Say of which sends and receives nobody knows how long they waited for their other end.

    Args:
        timelines: distinct ranks.
        transfers: of these ranks.
        clocks: theirs.
    """
    if len(timelines) < 2:
        return ()
    by_rank = {timeline.rank: timeline for timeline in timelines}
    notes = []
    for rank, count in transfers.alone.items():
        every = sum(one.operation in POINT_TO_POINT for one in by_rank[rank].collectives)
        have, they = ("has", "it") if count == 1 else ("have", "they")
        notes.append(
            f"{count} of {every} sends and receives of rank {rank} {have} no other end in any trace: how long {they}"
            " waited for that is not known"
        )
    ends = {rank for one in transfers.matched if not one.is_comparable for rank in (one.sender, one.receiver)}
    apart = sorted(ends - clocks.out_of_step)
    if apart:
        notes.append(
            f"{name_ranks(apart)}: nothing tells how far their clocks are apart (they are not of one machine, as far as"
            " their traces say, and have no collective in common that all leave together), so how long they waited for"
            " each other's sends, a pipeline's bubble, is not known"
        )
    return tuple(notes)


def _find_matched(matches: Matches, transfers: Transfers) -> set[int]:
    """Find ranks that share a collective with another, or a send that was there before its receive ended.

    Where nothing tells how far their clocks are apart, a send and its receive are one whenever they were.
    """
    shared = {
        group.ranks[column] for group in matches.groups for column in np.flatnonzero(group.there.sum(axis=0)).tolist()
    }
    sent = {
        rank
        for one in transfers.matched
        if one.sent_ns is not None or not one.is_comparable
        for rank in (one.sender, one.receiver)
    }
    return shared | sent


def _find_lonely(timelines: Sequence[RankTimeline], matches: Matches, transfers: Transfers) -> list[RankTimeline]:
    known = _find_matched(matches, transfers) | matches.undecided
    return [one for one in timelines if one.rank not in known and _communicates(one)]


def _communicates(timeline: RankTimeline) -> bool:
    return any(one.group_size != 1 and len(one.span.starts_ns) for one in timeline.collectives)


def _apart(timeline: RankTimeline, timelines: Sequence[RankTimeline]) -> str:
    """Say how far a trace lies from all others; empty where it overlaps with one or nothing is known."""
    own = _extent(timeline)
    others = [extent for one in timelines if one is not timeline and (extent := _extent(one)) is not None]
    if own is None or not others:
        return ""
    gap_ns = min(max(other[0] - own[1], own[0] - other[1]) for other in others)
    return f" and lies {format_ns(gap_ns)} from theirs" if gap_ns > 0 else ""


def _extent(timeline: RankTimeline) -> tuple[int, int] | None:
    times = [time for one in timeline.collectives for time in (one.start_ns, one.end_ns)]
    return (min(times), max(times)) if times else None


def _check_steps(timelines: Sequence[RankTimeline]) -> list[str]:
    """Find steps that some ranks have and others lack; ranks without any steps are a matter of their own."""
    with_steps = [one for one in timelines if one.step_numbers]
    every = set().union(*(one.step_numbers for one in with_steps))
    lacking: dict[tuple[int, ...], list[RankTimeline]] = defaultdict(list)
    for one in with_steps:
        lacking[tuple(sorted(every.difference(one.step_numbers)))].append(one)
    notes = [
        f"{_name_all(ranks)} no {_steps(steps)}; figures per step are over the ranks that have it"
        for steps, ranks in lacking.items()
        if steps
    ]
    without = [one for one in timelines if not one.step_numbers]
    if with_steps and without:
        used = "its whole trace is used" if len(without) == 1 else "their whole traces are used"
        notes.append(f"{_name_all(without)} no steps, others do; {used}")
    return notes


def _name_all(timelines: Sequence[RankTimeline]) -> str:
    """Name ranks and what they do with what follows, "has" or "have"; of a single one its file, too."""
    if len(timelines) == 1:
        return f"{_name(timelines[0])}: rank {timelines[0].rank} has"
    return f"{name_ranks(one.rank for one in timelines)} have"


def _name_some(timelines: Sequence[RankTimeline]) -> str:
    """Name ranks and what they are with what follows, "is" or "are"; of a single one its file."""
    if len(timelines) == 1:
        return f"{_name(timelines[0])} is"
    return f"{name_ranks(one.rank for one in timelines)} are"


def _steps(numbers: Sequence[int]) -> str:
    return f"step{'s' if len(numbers) > 1 else ''} {list_numbers(numbers)}"


def _list(values: Sequence[object]) -> str:
    shown = ", ".join(str(value) for value in values[:8])
    return f"{shown} and {len(values) - 8} more" if len(values) > 8 else shown


def _name(timeline: RankTimeline) -> str:
    return timeline.path or f"rank {timeline.rank}"

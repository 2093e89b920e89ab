"""Several ranks' analyses as one answer: who is which rank, what is left out, what a reader must know."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from dtbench.base.units import count_things, format_ns, is_or_are, name_ranges, name_ranks
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.host.steps import Cut
from dtbench.traces.job.explain import explain
from dtbench.traces.job.lone_rank import describe_lone
from dtbench.traces.job.shared_owners import describe_shared_owners
from dtbench.traces.job.step_rounds import describe_part_rounds, find_part_rounds
from dtbench.traces.job.unlike_profilers import describe_unlike_profilers
from dtbench.traces.kinds.unknown import UnknownName, sum_names
from dtbench.traces.rank.analysis import StepAccount, TraceAnalysis
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.ranks.late import LateRank
from dtbench.traces.ranks.misfits import find_mistaken
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.time.intervals import subtract, unite, unite_all
from dtbench.traces.trace import Unread
from dtbench.traces.who.buckets import describe_shifted_buckets, describe_uneven_buckets

_NAMED_AT_MOST: Final = 5
_LONGEST: Final = 60
_VISIBLY: Final = 0.01
"""Part of a step by which another beginning of it is worth saying."""


@dataclass(frozen=True)
class TraceSet:
    """What the traces of one job say.

    Attributes:
        analyses: one per rank, in order of rank.
        unread: for each of them what could not be read.
        world_size: number of ranks that the job had; None where no trace says, or they contradict each other.
        unknown_names: kernels counted as compute that may be communication, summed over ranks.
        over_ranks: what only several ranks together say.
        owners: whose communication is exposed and why, over all ranks, most exposed first.
        notes: what a reader of the numbers must know.
        late_ranks: what those did that the others waited for longest.
        files: of the analyses, in the same order: where what they do not keep can be read again.
    """

    analyses: tuple[TraceAnalysis, ...]
    unread: tuple[Unread, ...]
    world_size: int | None
    unknown_names: tuple[tuple[str, int], ...]
    over_ranks: OverRanks
    owners: tuple[ExposedOwner, ...]
    notes: tuple[str, ...]
    files: tuple[TraceFile, ...] = ()
    late_ranks: tuple[LateRank, ...] = ()

    @property
    def rank_doubts(self) -> tuple[str, ...]:
        """Why nothing may be judged by these traces, a sentence each: some do not, or not surely, fit the others."""
        misfits = self.over_ranks.misfits
        return misfits.notes or ((f"{name_ranks(misfits.ranks)}: of a job of another size",) if misfits.ranks else ())

    @property
    def unread_events(self) -> int:
        """Events that could not be read, summed over ranks."""
        return sum(one.count for one in self.unread)

    @property
    def uncorrelated(self) -> Mapping[str, int]:
        """Events whose partner was not found, by class, summed over ranks."""
        counts: Counter[str] = Counter()
        for one in self.analyses:
            counts.update({**asdict(one.uncorrelated), "collective_without_span": one.unmatched})
        return dict(counts)

    @property
    def names_on_comm_lanes(self) -> tuple[UnknownName, ...]:
        """Kernels that no rule knows on lanes where most is communication, over ranks, longest first."""
        found = [name for one in self.analyses for name in one.names_on_comm_lanes]
        return tuple(sorted(found, key=lambda name: -name.time_ns))


def gather_ranks(answers: Sequence[Answer], *, notes: Sequence[str] = ()) -> TraceSet:
    """Put the answers of one job's traces together.

    A rank is what somebody told, else what the trace says, else what the file's name says, else its place. A rank that
    comes twice keeps its last trace. What is left out or guessed is in the notes; where no trace can be used, there are
    no analyses.
    """
    usable = [answer for answer in answers if isinstance(answer, Analyzed)]
    numbered, number_notes = _number(usable)
    kept, duplicate_notes = _leave_out_duplicates(numbered)
    sizes = {one.world_size for one in kept.values() if one.world_size is not None}
    told = {rank: one.said_rank for rank, one in kept.items() if one.file.rank is not None}
    misnumbered = [rank for rank, said in told.items() if said not in (None, rank)]
    numbered_analyses = [_with_rank(one.analysis, rank) for rank, one in kept.items()]
    explained = explain(numbered_analyses, find_mistaken([one.timeline for one in numbered_analyses], misnumbered))
    analyses = explained.analyses
    return TraceSet(
        analyses=analyses,
        unread=tuple(one.unread for one in kept.values()),
        world_size=next(iter(sizes)) if len(sizes) == 1 else None,
        unknown_names=sum_names(one.unknown_names for one in analyses),
        over_ranks=explained.over_ranks,
        owners=explained.owners,
        late_ranks=explained.late_ranks,
        notes=(
            *notes,
            *(_leave_out(answer) for answer in answers if isinstance(answer, Unusable)),
            *_describe_cuts(kept.values()),
            *number_notes,
            *duplicate_notes,
            *_describe_parts(kept),
            *explained.over_ranks.notes,
            *describe_lone([one.timeline for one in analyses], explained.owners),
            *_describe_unused_patterns(kept.values()),
            *_describe_unknown_words(analyses),
            *describe_unlike_profilers(analyses),
            *describe_lacking(analyses),
        ),
        files=tuple(replace(one.file, rank=rank) for rank, one in kept.items()),
    )


def _describe_cuts(kept: Iterable[Analyzed]) -> list[str]:
    cut = [one.file.label for one in kept if one.unread.is_truncated]
    return [f"{label}: cut short; what came before the cut is used" for label in cut]


def _describe_parts(kept: Mapping[int, Analyzed]) -> Iterable[str]:
    """Say which rank each part of a file is, and what of a file is in no number."""
    files: dict[str, list[str]] = {}
    for rank, one in kept.items():
        if one.part:
            files.setdefault(one.file.label, []).append(f"rank {rank} is {one.part}")
    for label, parts in files.items():
        yield f"{label} holds several processes or devices, each accounted for itself: {'; '.join(parts)}"
    for rank, one in kept.items():
        yield from (f"rank {rank}: {note}" for note in (*one.notes, *one.analysis.notes))


def _describe_unused_patterns(kept: Iterable[Analyzed]) -> list[str]:
    """Say which of the user's patterns decided nothing: it may be misspelt, or another before it fits the same."""
    used, asked = set[str](), dict[str, None]()
    for one in kept:
        used |= one.analysis.used_patterns
        asked.update((pattern.pattern, None) for pattern in one.file.patterns)
    idle = [pattern for pattern in asked if pattern not in used]
    return [f"pattern `{pattern}` decides of no kernel of these traces, and changes nothing" for pattern in idle]


def _leave_out(unusable: Unusable) -> str:
    rank = unusable.file.rank
    return f"left out: {unusable.reason}" if rank is None else f"rank {rank} is left out: {unusable.reason}"


def _number(usable: Sequence[Analyzed]) -> tuple[list[tuple[int, Analyzed]], list[str]]:
    """Assign every trace its rank, and notes on how where the traces do not say."""
    known = [one.file.rank if one.file.rank is not None else one.said_rank for one in usable]
    if len(usable) == 1 and known[0] is None:
        return [(usable[0].file.source.rank or 0, usable[0])], []
    notes = []
    silent = [place for place, rank in enumerate(known) if rank is None]
    named = {place: rank for place in silent if (rank := _named_rank(usable[place])) is not None}
    if named:
        known = [named.get(place, rank) for place, rank in enumerate(known)]
        notes.append(f"{name_ranks(named.values())}: numbered by file name, the traces do not say their rank")
    free = iter(number for number in range(2 * len(usable)) if number not in known)
    placed = {place: next(free) for place, rank in enumerate(known) if rank is None}
    if any(not usable[place].part for place in placed):  # what the parts of a file are is told apart
        notes.append(f"{name_ranks(placed.values())}: numbered by place, neither trace nor file name says a rank")
    ranks = [placed[place] if rank is None else rank for place, rank in enumerate(known)]
    return list(zip(ranks, usable, strict=True)), notes


def _named_rank(one: Analyzed) -> int | None:
    """Return the rank that the file's name says; of several parts nobody knows whose it is."""
    return None if one.part else one.file.source.rank


def _leave_out_duplicates(numbered: Sequence[tuple[int, Analyzed]]) -> tuple[dict[int, Analyzed], list[str]]:
    """Keep the last trace of each rank, in order of rank."""
    last = dict(numbered)
    notes = [
        f"rank {rank} comes twice: {one.file.label} is left out, {last[rank].file.label} is used; "
        "give one trace per rank, of one job"
        for rank, one in numbered
        if one is not last[rank]
    ]
    return dict(sorted(last.items())), notes


def _with_rank(analysis: TraceAnalysis, rank: int) -> TraceAnalysis:
    if analysis.rank == rank:
        return analysis
    return replace(analysis, timeline=replace(analysis.timeline, rank=rank))


def _describe_unknown_words(analyses: Sequence[TraceAnalysis]) -> list[str]:
    """Say what dtbench's ranges say in words of another version, over all ranks."""
    words = sum_names(one.unknown_words for one in analyses)
    if not words:
        return []
    count = sum(count for _, count in words)
    named = ", ".join(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word, _ in words[:_NAMED_AT_MOST])
    more = f" and {len(words) - _NAMED_AT_MOST} more" if len(words) > _NAMED_AT_MOST else ""
    what = f"{count_things(count, 'word')} in dtbench's own ranges {is_or_are(count)}"
    rest = "what they say is unknown, all else is used; read the trace with the version that wrote it"
    return [f"{what} not known to this version ({named}{more}): {rest}"]


def describe_lacking(analyses: Sequence[TraceAnalysis]) -> list[str]:
    """Say what the traces lack."""
    any_steps = any(one.steps for one in analyses)
    found: dict[str, list[int]] = {}
    for one in analyses:
        for lack in _describe_lacking(one, any_steps=any_steps):
            found.setdefault(lack, []).append(one.rank)
    return [f"{name_ranks(ranks)}: {lack}" for lack, ranks in found.items()]


def _describe_lacking(one: TraceAnalysis, *, any_steps: bool) -> Iterable[str]:
    if one.unmatched:
        have = "has no span; its" if one.unmatched == 1 else "have no span; their"
        yield f"{one.unmatched} of {count_things(len(one.collectives), 'collective')} {have} time is missing"
    if one.timeline.unseen:
        lost = count_things(len(one.timeline.unseen), "collective")
        were = "was" if len(one.timeline.unseen) == 1 else "were"
        so = "so communication and what is exposed there are 'at least' or n/a"
        yield f"{lost} {were} launched and not seen to run, {so}"
    if one.peer_copies.count:
        times = "once" if one.peer_copies.count == 1 else f"{one.peer_copies.count} times"
        took = format_ns(one.peer_copies.time_ns)
        yield f"copied between devices {times}, for {took}: the trace does not tell whether that is communication"
    yield from describe_shared_owners(one.collectives, one.timeline.step_of)
    if not one.marks.is_own and not one.lost.kernels:
        for describe in (describe_uneven_buckets, describe_shifted_buckets):
            said = describe(one.collectives, one.step_of, one.timeline.step_numbers)
            yield from () if said is None else (said,)
    yield from _describe_unknown_purposes(one)
    yield from _describe_untold(one)
    unrecorded = [step.step for step in one.steps if step.overlap.step_ns and step.overlap.compute_ns is None]
    if unrecorded or (one.whole.compute_ns is None and one.lost.recorded is None and one.set_steps is None):
        where = f" in {_name_steps(unrecorded)}" if unrecorded else ""
        yield (
            f"no operator of the threads that compute was recorded{where}, so it is not known what was hidden there; "
            "record ProfilerActivity.CPU for whole steps"
        )
    if not one.steps and not any_steps:  # else what compares ranks says which lack them
        yield "the trace has no ProfilerStep range; only the whole trace is known"
        return
    yield from (*_describe_outside(one), *_describe_empty(one), *_describe_rounds(one))


def _describe_unknown_purposes(one: TraceAnalysis) -> Iterable[str]:
    """Say of how many collectives it is not there who asked for them, and so what they were for."""
    mine = [index for index in one.untold if one.step_of[index] is not None or not one.steps]
    lost = [index for index in mine if one.collectives[index].issue_ns is None]
    for what, untold in (("the launch of", lost), ("who asked for", [index for index in mine if index not in lost])):
        if untold:
            may_be = ", ".join(sorted(frozenset().union(*(one.untold[index] for index in untold))))
            count, took = len(untold), unite_all(*(one.collectives[index].span for index in untold))
            they_were = "it was" if count == 1 else "they were"
            yield (
                f"{what} {count_things(count, 'collective')}, {format_ns(took.length_ns)}, is not in the trace, nor"
                f" what {they_were} for: of {may_be} there may be more than is said"
            )


def _describe_untold(one: TraceAnalysis) -> Iterable[str]:
    """Say of which times nothing is known, or not how they lie to each other, though the trace has them."""
    if one.clock.is_off:
        yield _describe_clock(one.clock)
    if one.lost.skipped:
        yield _describe_skipped(one)
    if one.lost.kernels or one.lost.is_cut:
        yield _describe_lost(one)
    if one.set_steps is not None:
        yield _describe_set(one.set_steps)
    unsure = [step for step in one.steps if step.unsure_ns > _VISIBLY * (step.overlap.step_ns or math.inf)]
    if unsure:
        yield _describe_unsure(unsure)
    if one.cut is not None:
        yield _describe_cut(one.cut, [step.step for step in one.steps if step.overlap.step_ns])


def _describe_unsure(steps: Sequence[StepAccount]) -> str:
    """Say where steps may begin earlier, so that time of them counts to the step before."""
    begin = "begins" if len(steps) == 1 else "begin"
    within = format_ns(max(step.unsure_ns for step in steps))
    where = f"where {_name_steps([step.step for step in steps])} {begin} is not known to within {within}"
    return f"launches are lost, and {where}: what ran then counts to the step before, and may be of it"


def _describe_set(steps: Sequence[int]) -> str:
    """Say where times are not known as a clock was set, which may be that of another rank."""
    left_out = f"{_name_steps(steps)} {is_or_are(len(steps))} left out: " if steps else ""
    why = (
        "a clock may have been set while it was recorded, and what was under way then took longer, or shorter, than it"
        " says"
    )
    return f"{left_out}{why}; nor is any time of the whole trace known"


def _describe_cut(cut: Cut, known: Sequence[int]) -> str:
    """Say by which figures a last step is not all in the trace."""
    others = f" and others {format_ns(cut.others_ns)}" if cut.others_ns is not None else ""
    why = (
        f"from its first kernel to the trace's last are {format_ns(cut.seen_ns)}, and it took the host"
        f" {format_ns(cut.host_ns)}{others}"
    )
    if cut.unsure_ns:
        what = f"launches are lost, and where step {cut.step} begins is not known to within {format_ns(cut.unsure_ns)}"
        so = "so that shares of it may be larger than they were" if cut.step in known else "so it is left out"
        return f"{what}, {so}: {why}"
    if cut.step in known:  # there is no other
        return f"step {cut.step} is not all there, so that shares of it may be larger than they were: {why}"
    return f"step {cut.step} is left out, not all of it is there: {why}"


def _describe_rounds(one: TraceAnalysis) -> Iterable[str]:
    rounds = find_part_rounds(one)
    return () if rounds is None else (describe_part_rounds(rounds),)


def _describe_empty(one: TraceAnalysis) -> Iterable[str]:
    """Say of which steps no time is known as nothing was seen to run, though no kernel is known to be lost."""
    known = {*one.lost.steps, *(one.set_steps or ()), *([one.cut.step] if one.cut else [])}
    empty = [step.step for step in one.steps if not step.overlap.step_ns and step.step not in known]
    if empty and one.uncorrelated.untied:
        lack = "no launch was recorded" if not one.uncorrelated.without_id else "no work carries the id of a launch"
        yield (
            f"{lack} in {_name_steps(empty)}, so which step the work on its device belongs to is not known; no time is"
            " known there"
        )
    elif empty:
        yield f"nothing ran in {_name_steps(empty)}; no time is known there"


def _describe_outside(one: TraceAnalysis) -> Iterable[str]:
    """Say what of the communication that no step issued ran outside all steps, which no number per step holds."""
    steps = unite([step.start_ns for step in one.timeline.steps], [step.end_ns for step in one.timeline.steps])
    first_ns = min((step.start_ns for step in one.timeline.steps), default=0) if one.marks.is_own else None
    found = (
        subtract(collective.span, steps)
        for collective, step in zip(one.collectives, one.step_of, strict=True)
        if step is None and one.steps and (collective.issue_ns is not None or not one.uncorrelated.untied)
        if first_ns is None or collective.start_ns >= first_ns
    )
    outside = [span for span in found if span.length_ns]
    if outside:
        what = f"{count_things(len(outside), 'collective')} outside all steps"
        took = format_ns(unite_all(*outside).length_ns)
        yield f"{what}, {took} of communication, {is_or_are(len(outside))} in no number per step"


def _describe_clock(clock: DeviceClock) -> str:
    """Say by how much the device's clock is off the host's at least, and what is therefore not known."""
    events = count_things(clock.launched or 0, "event")
    shown = [
        f"{count} of {events} on the device {what}, by up to {format_ns(time_ns)}"
        for count, time_ns, what in (
            (clock.early, clock.early_ns, "begin before the call that launched them"),
            (clock.late, clock.late_ns, "end after a call that waited for them had returned"),
        )
        if count
    ]
    why = "so its clock is off the host's by at least as much"
    return f"{' and '.join(shown)}, {why}: who waited for what, how late the host was and most causes are not known"


def _describe_lost(one: TraceAnalysis) -> str:
    """Say which kernels are not there, and of what therefore nothing is known."""
    count, where = one.lost.kernels, f" in {_name_steps(sorted(one.lost.steps))}" if one.lost.steps else ""
    lost = f"{count_things(count, 'kernel')} that {'was' if count == 1 else 'were'} launched {is_or_are(count)}"
    why = [f"{lost} not in the trace"] if count else []
    why += ["the file was cut"] if one.lost.is_cut else []
    return f"{' and '.join(why)}, so what took the time and what was hidden is not known{where}"


def _describe_skipped(one: TraceAnalysis) -> str:
    """Say which steps in the middle are not there, and of which steps therefore nobody knows how long they took."""
    runs = one.lost.skipped
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_NAMED_AT_MOST]]
    more = f" and {len(runs) - _NAMED_AT_MOST} more times" if len(runs) > _NAMED_AT_MOST else ""
    are_several = len(runs) > 1 or runs[0][0] < runs[0][1]
    skipped = (
        f"no range of step{'s' if are_several else ''} {', '.join(words)}{more} is there, though steps around have one"
    )
    untold = f", and how long it took is not known of {_name_steps(sorted(one.lost.steps))}" if one.lost.steps else ""
    return f"{skipped}: what ran then is in no number per step{untold}"


def _name_steps(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {name_ranges(steps)}"

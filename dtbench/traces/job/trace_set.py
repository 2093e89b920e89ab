"""Several ranks' analyses as one answer: who is which rank, what is left out, what a reader must know."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from dtbench.base.vocabulary import Cause, Purpose
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.job.chosen_steps import StepRange, note_chosen
from dtbench.traces.job.explain import explain
from dtbench.traces.job.means import average
from dtbench.traces.job.shared_owners import find_shared_owners
from dtbench.traces.job.step_rounds import find_part_rounds, find_reducing_steps
from dtbench.traces.job.unlike_profilers import find_unlike_profilers
from dtbench.traces.kinds.unknown import UnknownName, sum_names
from dtbench.traces.notes.clocks import Misfit, OfAnotherSize
from dtbench.traces.notes.files import ComesTwice, CutShort, LeftOut, NumberedByName, NumberedByPlace, SeveralParts
from dtbench.traces.notes.job import LoneRank, PatternUnused, UnknownWords
from dtbench.traces.notes.lacking import (
    ClockSet,
    CommunicationUntold,
    ComputeNotRecorded,
    CopiedBetweenDevices,
    CutStep,
    DeviceClockOff,
    EmptySteps,
    LostCopies,
    LostKernels,
    NoSteps,
    NotSeenToRun,
    OperatorsAbsent,
    OutsideSteps,
    ShownElsewhere,
    SizesImpossible,
    SpansMissing,
    StepsBeginUnsure,
    StepsSkipped,
    StepsUntold,
    StreamsMixed,
    StreamsPerhapsMixed,
    UnknownPurposes,
    UntiedSteps,
)
from dtbench.traces.notes.note import Note, OfRanks, join_ranks
from dtbench.traces.rank.analysis import VISIBLY, TraceAnalysis
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.ranks.by_group.groupings import Grouping, group_by_host, group_by_mesh
from dtbench.traces.ranks.by_group.host_waits import AwaitedHost, find_awaited_host
from dtbench.traces.ranks.by_group.link_speed import LinkSpeed, measure_links
from dtbench.traces.ranks.by_group.slow_group import SlowGroup, find_slow_group
from dtbench.traces.ranks.late import LateRank
from dtbench.traces.ranks.misfits import find_mistaken
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.time.intervals import subtract, unite, unite_all
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.trace import Unread
from dtbench.traces.who.buckets import find_shifted_buckets, find_uneven_buckets
from dtbench.traces.who.payload import MOST_PER_NS


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
    notes: tuple[Note, ...]
    files: tuple[TraceFile, ...] = ()
    late_ranks: tuple[LateRank, ...] = ()

    @property
    def every_rank(self) -> frozenset[int]:
        """Ranks of the job, with and without a trace, as far as any trace says how many there are."""
        return frozenset(range(self.world_size or 0)).union(one.rank for one in self.analyses)

    @property
    def rank_doubts(self) -> tuple[Misfit, ...]:
        """Why nothing may be judged by these traces: some do not, or not surely, fit the others."""
        misfits = self.over_ranks.misfits
        return misfits.notes or ((OfAnotherSize(tuple(sorted(misfits.ranks))),) if misfits.ranks else ())

    @cached_property
    def hosts(self) -> Grouping | None:
        """The ranks of each host; None: traces name fewer than two, or none of several ranks."""
        return group_by_host([one.timeline for one in self.analyses], self.over_ranks.clocks.machines)

    @cached_property
    def groupings(self) -> tuple[Grouping, ...]:
        """What ranks can be divided by: host, and place along each axis of the mesh, as far as traces tell."""
        hosts = [] if self.hosts is None else [self.hosts]
        return (*hosts, *group_by_mesh([one.timeline for one in self.analyses]))

    @cached_property
    def awaited_host(self) -> AwaitedHost | None:
        """The host that others wait for; None: there is none, or it is not known."""
        timelines = [one.timeline for one in self.analyses]
        return None if self.hosts is None else find_awaited_host(self.hosts, self.over_ranks, timelines)

    @cached_property
    def slow_group(self) -> SlowGroup | None:
        """The ranks of one host, or one place in the mesh, that compute longer for being there; None: none do."""
        if not self.groupings:
            return None
        means = {one.rank: average([one]) for one in self.analyses}
        any_steps = any(mean.are_steps for mean in means.values())
        known = {
            rank: mean.overlap.compute_ns
            for rank, mean in means.items()
            if mean.are_steps is any_steps and mean.overlap.compute_ns is not None
        }
        return find_slow_group(known, self.groupings)

    @cached_property
    def links(self) -> tuple[LinkSpeed, ...]:
        """How fast the links of process groups were, those that moved bytes for longest first."""
        return measure_links([one.timeline for one in self.analyses], [one.skews for one in self.analyses])

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


def gather_ranks(answers: Sequence[Answer], *, notes: Sequence[Note] = (), steps: StepRange | None = None) -> TraceSet:
    """Put the answers of one job's traces together.

    A rank is what somebody told, else what the trace says, else what the file's name says, else its place. A rank that
    comes twice keeps its last trace. What is left out or guessed is in the notes; where no trace can be used, there are
    no analyses.

    Args:
        answers: of the traces.
        notes: what finding them left out; they come first.
        steps: which steps count; None: all.

    Raises:
        TraceError: there is no such step.
    """
    usable = [answer for answer in answers if isinstance(answer, Analyzed)]
    numbered, number_notes = _number(usable)
    kept, duplicate_notes = _leave_out_duplicates(numbered)
    sizes = {one.world_size for one in kept.values() if one.world_size is not None}
    told = {rank: one.said_rank for rank, one in kept.items() if one.file.rank is not None}
    misnumbered = [rank for rank, said in told.items() if said not in (None, rank)]
    numbered_analyses = [_with_rank(one.analysis, rank) for rank, one in kept.items()]
    mistaken = find_mistaken([one.timeline for one in numbered_analyses], misnumbered)
    explained = explain(numbered_analyses, mistaken, steps)
    analyses = explained.analyses
    return TraceSet(
        analyses=analyses,
        unread=tuple(one.unread for one in kept.values()),
        world_size=next(iter(sizes)) if len(sizes) == 1 else None,
        unknown_names=sum_names(one.unknown_names for one in analyses),
        over_ranks=explained.over_ranks,
        owners=explained.owners,
        late_ranks=explained.late_ranks,
        notes=join_ranks(
            (
                *notes,
                *(note for one in analyses for note in note_chosen(one)),
                *(LeftOut(one.file.rank, one.reason) for one in answers if isinstance(one, Unusable)),
                *(CutShort(one.file.label) for one in kept.values() if one.unread.is_truncated),
                *number_notes,
                *duplicate_notes,
                *_find_parts(kept),
                *explained.over_ranks.notes,
                *find_lone([one.timeline for one in analyses], explained.owners),
                *_find_unused_patterns(kept.values()),
                *_find_unknown_words(analyses),
                *find_unlike_profilers(analyses),
                *find_lacking(analyses),
            )
        ),
        files=tuple(replace(one.file, rank=rank) for rank, one in kept.items()),
    )


def _find_parts(kept: Mapping[int, Analyzed]) -> Iterator[Note]:
    """Yield which rank each part of a file is, and what of a file is in no number."""
    files: dict[str, list[tuple[int, str]]] = {}
    for rank, one in kept.items():
        if one.part:
            files.setdefault(one.file.label, []).append((rank, one.part))
    yield from (SeveralParts(label, tuple(parts)) for label, parts in files.items())
    for rank, one in kept.items():
        yield from (note.of(rank) for note in (*one.notes, *one.analysis.notes))


def _find_unused_patterns(kept: Iterable[Analyzed]) -> list[PatternUnused]:
    used, asked = set[str](), dict[str, None]()
    for one in kept:
        used |= one.analysis.used_patterns
        asked.update((pattern.pattern, None) for pattern in one.file.patterns)
    return [PatternUnused(pattern) for pattern in asked if pattern not in used]


def _number(usable: Sequence[Analyzed]) -> tuple[list[tuple[int, Analyzed]], list[Note]]:
    """Assign every trace its rank, and notes on how where the traces do not say."""
    known = [one.file.rank if one.file.rank is not None else one.said_rank for one in usable]
    if len(usable) == 1 and known[0] is None:
        return [(usable[0].file.source.rank or 0, usable[0])], []
    notes: list[Note] = []
    silent = [place for place, rank in enumerate(known) if rank is None]
    named = {place: rank for place in silent if (rank := _named_rank(usable[place])) is not None}
    if named:
        known = [named.get(place, rank) for place, rank in enumerate(known)]
        notes.append(NumberedByName(tuple(sorted(named.values()))))
    free = iter(number for number in range(2 * len(usable)) if number not in known)
    placed = {place: next(free) for place, rank in enumerate(known) if rank is None}
    if any(not usable[place].part for place in placed):  # what the parts of a file are is told apart
        notes.append(NumberedByPlace(tuple(sorted(placed.values()))))
    ranks = [placed[place] if rank is None else rank for place, rank in enumerate(known)]
    return list(zip(ranks, usable, strict=True)), notes


def _named_rank(one: Analyzed) -> int | None:
    """Return the rank that the file's name says; of several parts nobody knows whose it is."""
    return None if one.part else one.file.source.rank


def _leave_out_duplicates(numbered: Sequence[tuple[int, Analyzed]]) -> tuple[dict[int, Analyzed], list[ComesTwice]]:
    """Keep the last trace of each rank, in order of rank."""
    last = dict(numbered)
    notes = [ComesTwice(rank, one.file.label, last[rank].file.label) for rank, one in numbered if one is not last[rank]]
    return dict(sorted(last.items())), notes


def _with_rank(analysis: TraceAnalysis, rank: int) -> TraceAnalysis:
    if analysis.rank == rank:
        return analysis
    return replace(analysis, timeline=replace(analysis.timeline, rank=rank))


def _find_unknown_words(analyses: Sequence[TraceAnalysis]) -> list[UnknownWords]:
    words = sum_names(one.unknown_words for one in analyses)
    return [UnknownWords(words)] if words else []


def find_lacking(analyses: Sequence[TraceAnalysis]) -> tuple[OfRanks, ...]:
    """Return what the traces lack."""
    any_steps = any(one.steps for one in analyses)
    reducing_steps = find_reducing_steps(analyses)
    rounds = [find_part_rounds(one, reducing_steps) for one in analyses]
    lacking = (note for one in analyses for note in _find_lacking(one, any_steps=any_steps))
    return join_ranks((*lacking, *(note for note in rounds if note is not None)))


def _find_lacking(one: TraceAnalysis, *, any_steps: bool) -> Iterator[OfRanks]:
    ranks = (one.rank,)
    if one.unmatched:
        yield SpansMissing(ranks, one.unmatched, len(one.collectives) - one.untold_spans, one.untold_spans)
    if one.timeline.unseen:
        yield NotSeenToRun(ranks, len(one.timeline.unseen))
    if one.lacking:
        counted = {step.step: one.lacking[step.step] for step in one.steps if step.step in one.lacking}
        yield from [ShownElsewhere(ranks, sum(counted.values()), tuple(counted))] if counted else []
    if one.impossible_sizes:
        yield SizesImpossible(ranks, one.impossible_sizes, len(one.collectives), MOST_PER_NS)
    if (untold := one.untold_comm) is not None:
        yield CommunicationUntold(ranks, untold.ranks, one.timeline.is_device, untold.names)
    if one.peer_copies.count:
        yield CopiedBetweenDevices(ranks, one.peer_copies.count, one.peer_copies.time_ns)
    yield from find_shared_owners(one.rank, one.collectives, one.timeline.step_of)
    yield from _find_misnumbered_buckets(one)
    yield from _find_unknown_purposes(one)
    yield from _find_untold(one)
    yield from _find_unrecorded(one)
    if not one.steps and not any_steps:  # else what compares ranks says which lack them
        yield NoSteps(ranks, *(one.likely_range or ()))
        return
    yield from (*(_find_outside(one) if one.left is None else ()), *_find_empty(one))


def _find_unrecorded(one: TraceAnalysis) -> Iterator[OfRanks]:
    """Yield of which steps, or whether of the whole trace, what computes was not recorded."""
    ranks = (one.rank,)
    if one.lost.absent:
        numbers, counts = zip(*one.lost.absent, strict=True)
        yield OperatorsAbsent(ranks, sum(counts), numbers)
    unrecorded = tuple(
        step.step
        for step in one.steps
        if step.overlap.step_ns
        and step.overlap.compute_ns is None
        and not step.unsure_ns
        and step.step not in dict(one.lost.absent)
    )
    is_told = one.lost.absent or one.lost.recorded is not None or one.set_steps is not None
    if unrecorded or (one.whole.compute_ns is None and not is_told):
        yield ComputeNotRecorded(ranks, unrecorded)


def _find_misnumbered_buckets(one: TraceAnalysis) -> Iterator[OfRanks]:
    if not one.marks.is_own and not one.lost.kernels:
        for find in (find_uneven_buckets, find_shifted_buckets):
            found = find(one.rank, one.collectives, one.step_of, one.timeline.step_numbers)
            yield from () if found is None else (found,)


def _find_unknown_purposes(one: TraceAnalysis) -> Iterator[UnknownPurposes]:
    """Yield of how many collectives it is not there who asked for them, and so what they were for."""
    mine = [index for index in one.untold if one.step_of[index] is not None or not one.steps]
    lost = [index for index in mine if one.collectives[index].issue_ns is None]
    for is_lost, untold in ((True, lost), (False, [index for index in mine if index not in lost])):
        if untold:
            may_be = frozenset[Purpose]().union(*(one.untold[index] for index in untold))
            took_ns = unite_all(*(one.collectives[index].span for index in untold)).length_ns
            yield UnknownPurposes((one.rank,), len(untold), took_ns, is_lost, may_be)


def _find_untold(one: TraceAnalysis) -> Iterator[OfRanks]:
    """Yield of which times nothing is known, or not how they lie to each other, though the trace has them."""
    ranks, clock, lost = (one.rank,), one.clock, one.lost
    if (mixed := one.mixed_streams).count:
        yield (StreamsMixed if mixed else StreamsPerhapsMixed)(ranks, mixed.count, mixed.time_ns)
    if clock.is_off:
        early, late = (clock.early or 0, clock.early_ns or 0), (clock.late or 0, clock.late_ns or 0)
        yield DeviceClockOff(ranks, clock.launched or 0, *early, *late)
    if lost.skipped:
        yield StepsSkipped(ranks, tuple(lost.skipped), tuple(sorted(lost.steps)))
    if lost.kernels or lost.is_cut:
        kernels = lost.kernels - lost.operators
        yield LostKernels(ranks, kernels, lost.operators, lost.is_cut, tuple(sorted(lost.steps)))
    if lost.copies:
        yield LostCopies(ranks, lost.copies, lost.copy_steps)
    if one.set_steps is not None:
        yield ClockSet(ranks, tuple(one.set_steps))
    yield from _find_unsure(one)
    if (cut := one.truncated_step) is not None:
        is_left_out = cut.step not in [step.step for step in one.steps if step.overlap.step_ns]
        yield CutStep(ranks, cut.step, is_left_out, cut.seen_ns, cut.host_ns, cut.others_ns, cut.unsure_ns)


def _find_unsure(one: TraceAnalysis) -> Iterator[OfRanks]:
    """Yield which steps begin, or end, nobody knows where; not a last one that is cut, of which that is said."""
    cut = None if one.truncated_step is None else one.truncated_step.step
    untold = [step for step in one.steps if step.step in one.unsure_steps and step.step != cut]
    if untold:
        within_ns = max(max(step.unsure_ns, step.unsure_end_ns) for step in untold)
        yield StepsUntold((one.rank,), tuple(step.step for step in untold), within_ns)
    unsure = [step for step in one.steps if step.unsure_ns > VISIBLY * (step.overlap.step_ns or math.inf)]
    if unsure:
        within_ns = max(step.unsure_ns for step in unsure)
        yield StepsBeginUnsure((one.rank,), tuple(step.step for step in unsure), within_ns)


def _find_empty(one: TraceAnalysis) -> Iterator[EmptySteps | UntiedSteps]:
    """Yield the steps of which no time is known as nothing was seen to run, though no kernel is known to be lost."""
    cut = () if one.truncated_step is None else (one.truncated_step.step,)
    known = {*one.lost.steps, *(one.set_steps or ()), *one.unsure_steps, *cut}
    empty = tuple(step.step for step in one.steps if not step.overlap.step_ns and step.step not in known)
    if empty and one.uncorrelated.untied:
        yield UntiedSteps((one.rank,), empty, is_launch_recorded=bool(one.uncorrelated.without_id))
    elif empty:
        yield EmptySteps((one.rank,), empty)


def _find_outside(one: TraceAnalysis) -> Iterator[OutsideSteps]:
    """Yield what of the communication that no step issued ran outside all steps, which no number per step holds."""
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
        yield OutsideSteps((one.rank,), len(outside), unite_all(*outside).length_ns)


def find_lone(timelines: Sequence[RankTimeline], owners: Sequence[ExposedOwner]) -> tuple[LoneRank, ...]:
    """Return that one rank of several does not tell its waiting for the others apart from its causes, where it has any.

    What it queued behind may have waited, and what nothing hides may be long for that alone. A size that no trace tells
    is not one: the job may have other ranks.

    Args:
        timelines: of the ranks that are there; of several nothing is said here.
        owners: whose communication is exposed and why, over these.
    """
    if len(timelines) != 1 or all(row.cause is Cause.UNKNOWN for row in owners):
        return ()
    (one,) = timelines
    size = one.told_size or 1
    if size > 1:
        return (LoneRank(one.rank, size, is_least=not one.world_size),)
    if one.world_size or all(found.group_size or found.group_ranks for found in one.collectives):
        return ()  # alone in its job, or in all groups that are told
    return (LoneRank(one.rank, None, is_least=False),)

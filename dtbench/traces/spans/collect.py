"""From analysed traces to what a picture of them shows: reads every trace once more, one at a time.

An analysis keeps collectives and unions, never single kernels; those are read here, for the steps that are asked for.
Exposed time is the difference of the same two unions that the account is made from, so that what is drawn adds up to
what is counted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.units import name_ranges, name_ranks
from dtbench.traces.garbage import without_collection
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.job.chosen_steps import StepRange, refuse_absent
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import LostCopies
from dtbench.traces.notes.note import Note, join_ranks
from dtbench.traces.notes.spans import (
    HostNotRecorded,
    NotDrawn,
    NoTraceDrawn,
    ShortestNotDrawn,
    SomeRanksDrawn,
    SomeStepsDrawn,
    UnseenNotDrawn,
)
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rank.file import TraceFile, read_parts
from dtbench.traces.spans.host import NO_HOST, Host, HostView, find_host, thin_hosts
from dtbench.traces.spans.place import Place, place_ranks
from dtbench.traces.spans.stage_work import StageWork, find_stage_work
from dtbench.traces.spans.work import Work, find_work
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, clip, intersect, subtract, unite_all

MOST_SPANS: Final = 200_000
"""Spans of one picture; a document of them is some ten megabytes."""


@dataclass(frozen=True)
class RankSpans:
    """What is drawn of one rank; all times on its own clock.

    Attributes:
        analysis: of its trace.
        place: how its times become those of the picture.
        window: what is drawn.
        steps: places in the analysis' steps of those that are drawn, in order.
        work: compute and copies that overlap the window, as long as they are.
        collectives: places in the analysis' collectives of those that overlap the window, in order of start.
        exposed: when communication runs and compute does not, inside the window, as far as compute was recorded.
        stages: what a pipeline's stages computed, of what overlaps the window.
        host: what its host did, of that what is drawn; None: nobody asked for it, or the trace holds nothing.
        host_lacks: what of a device's host was asked for and is not in the trace.
    """

    analysis: TraceAnalysis
    place: Place
    window: Window
    steps: tuple[int, ...]
    work: Work
    collectives: tuple[int, ...]
    exposed: Intervals
    stages: tuple[StageWork, ...] = ()
    host: Host | None = None
    host_lacks: tuple[str, ...] = ()

    @property
    def collective_calls(self) -> Ints:
        """Of each of ``collectives`` the event of the call that launched it; ``NOTHING``: not known."""
        if self.host is None:
            return np.full(len(self.collectives), NOTHING, dtype=np.int64)
        return self.host.collective_calls[list(self.collectives)]

    @property
    def rank(self) -> int:
        """Of the job."""
        return self.analysis.rank

    @property
    def step_windows(self) -> list[tuple[int, Window]]:
        """Number and window of each step that is drawn."""
        timeline = self.analysis.timeline
        return [(timeline.step_numbers[index], timeline.steps[index]) for index in self.steps]

    @property
    def unseen(self) -> int:
        """Count the collectives that may have run in what is drawn, and were launched and not seen to run."""
        steps = self.analysis.steps
        elsewhere = sum(step.lost for index, step in enumerate(steps) if index not in self.steps)
        return max(0, self.analysis.unseen - elsewhere)

    def __len__(self) -> int:
        return len(self.work) + len(self.collectives)


@dataclass(frozen=True)
class JobSpans:
    """What is drawn of a job.

    Attributes:
        ranks: in order.
        origin_ns: where the picture's time begins, on the common clock.
        steps: numbers of all steps of the traces, rising.
        shown: of those that are drawn, rising; empty: the traces have none, and are drawn as a whole.
        matches: by rank and place in its collectives, a number that the same collective has on every rank.
        notes: what is not drawn, or not where it was.
    """

    ranks: tuple[RankSpans, ...]
    origin_ns: int
    steps: tuple[int, ...]
    shown: tuple[int, ...]
    matches: Mapping[tuple[int, int], int]
    notes: tuple[Note, ...]

    @property
    def unseen(self) -> int:
        """Count the collectives of all its ranks that may have run in what is drawn, and were not seen to."""
        return sum(one.unseen for one in self.ranks)


@dataclass(frozen=True)
class _Rank:
    """One rank before it has a place: everything it did, and all that may be drawn of it."""

    analysis: TraceAnalysis
    work: Work
    stages: tuple[StageWork, ...]
    host: Host | None

    def window_of(self, steps: tuple[int, ...]) -> Window:
        """Return from the first to the last of some steps; without any, all that the trace holds."""
        windows = [self.analysis.timeline.steps[index] for index in steps] or [self._extent()]
        return Window(windows[0].start_ns, max(windows[-1].end_ns, windows[0].start_ns + 1))

    def _extent(self) -> Window:
        spans = [one.span for one in self.analysis.collectives if len(one.span.starts_ns)]
        starts = [self.work.start_ns, *(span.starts_ns for span in spans)]
        ends = [self.work.end_ns, *(span.ends_ns for span in spans)]
        return Window(int(np.concatenate(starts).min()), int(np.concatenate(ends).max()))

    @cached_property
    def _borders(self) -> Ints:
        """Start and end of every collective, shape ``(n, 2)``; both the same where its span was not found."""
        borders = [(one.start_ns, one.end_ns) for one in self.analysis.collectives]
        return np.array(borders, dtype=np.int64).reshape(-1, 2)

    def collectives_in(self, window: Window) -> tuple[int, ...]:
        """Return those that overlap a window, in order of start."""
        starts, ends = self._borders.T
        found = np.flatnonzero((starts < window.end_ns) & (ends > window.start_ns) & (ends > starts))
        return tuple(found[np.argsort(starts[found], kind="stable")].tolist())

    def _is_in(self, window: Window) -> Bools:
        return np.asarray((self.work.start_ns < window.end_ns) & (self.work.end_ns > window.start_ns))

    def work_in(self, window: Window) -> Work:
        """Return compute and copies that overlap a window."""
        return self.work.keep(self._is_in(window))

    def count_in(self, window: Window) -> int:
        """Count the spans that overlap a window."""
        return int(self._is_in(window).sum()) + len(self.collectives_in(window))


def collect_spans(
    traces: TraceSet,
    steps: StepRange | None = None,
    *,
    ranks: Collection[int] | None = None,
    most_spans: int = MOST_SPANS,
    most_host_spans: int = 0,
) -> JobSpans:
    """Collect every span of some steps of a job.

    Args:
        traces: as analysed.
        steps: which; None: as many as fit, from the first on; traces without steps are drawn as a whole.
        ranks: which; None: all. The traces of the others are not read.
        most_spans: how many spans may be drawn; what is left out of steps that were asked for are the shortest.
        most_host_spans: how many of hosts may be drawn beside; 0: hosts are not looked at.

    Raises:
        TraceError: a trace cannot be read again, there is none of such a rank, or none has such a step.
    """
    chosen = _choose_ranks(traces, ranks)
    every = sorted({number for one, _ in chosen for number in one.timeline.step_numbers})
    wanted = [number for number in every if steps is None or number in steps]
    if steps is not None:
        refuse_absent(steps, every)
    has_hosts = most_host_spans > 0
    found = [_read_rank(one, file, has_hosts) for one, file in chosen]
    shown = wanted if steps is not None else _choose_steps(found, wanted, most_spans)
    fits_not = steps is None and len(shown) < len(every)
    notes: list[Note] = [SomeStepsDrawn(tuple(shown), tuple(every))] if fits_not else []
    drawn, absent = _leave_out_stepless(found, shown)
    thinned, lost = _thin(drawn, shown, most_spans)
    told = [SomeRanksDrawn(tuple(sorted(one.rank for one, _ in chosen)), len(traces.analyses))]
    of_ranks = told if len(chosen) < len(traces.analyses) else []
    notes = [*_note_traceless(traces), *of_ranks, *notes, *absent, *lost]
    spans = _put_together(traces, thinned, every=every, shown=shown, notes=notes)
    return _thin_hosts(spans, most_host_spans) if has_hosts else spans


def _choose_ranks(traces: TraceSet, ranks: Collection[int] | None) -> list[tuple[TraceAnalysis, TraceFile]]:
    """Return those that are asked for, with their files.

    Raises:
        TraceError: nothing is asked for, or there is no trace of one.
    """
    pairs = list(zip(traces.analyses, traces.files, strict=True))
    if ranks is None:
        return pairs
    there = {one.rank for one in traces.analyses}
    absent = sorted(set(ranks) - there)
    if absent or not ranks:
        asked = f"there is no trace of {name_ranks(absent)}" if absent else "no rank is asked for"
        raise TraceError(f"{asked}: there are {name_ranges(sorted(there))}")
    return [(one, file) for one, file in pairs if one.rank in ranks]


def _note_traceless(traces: TraceSet) -> Iterator[Note]:
    """Name the ranks of the job of which no trace is there."""
    traceless = sorted(traces.every_rank - {one.rank for one in traces.analyses})
    if traceless:
        yield NoTraceDrawn(tuple(traceless), traces.world_size or 0)


def _read_rank(analysis: TraceAnalysis, file: TraceFile, has_host: bool) -> _Rank:  # noqa: FBT001 - passed by one
    with without_collection():
        trace = read_parts(file)[0].trace
        nesting = find_nesting(trace)
        work = find_work(trace, nesting, file.patterns)
        host = find_host(trace, nesting, analysis.collectives) if has_host else None
        return _Rank(analysis, work, find_stage_work(trace, analysis.timeline, work), host)


def _places_of(analysis: TraceAnalysis, shown: Sequence[int]) -> tuple[int, ...]:
    return tuple(index for index, number in enumerate(analysis.timeline.step_numbers) if number in shown)


def _choose_steps(ranks: Sequence[_Rank], wanted: Sequence[int], most_spans: int) -> list[int]:
    """Take steps from the first on while their spans over all ranks fit; at least one."""
    total = 0
    shown: list[int] = []
    for number in wanted:
        for rank in ranks:
            places = _places_of(rank.analysis, (number,))
            if places:
                total += rank.count_in(rank.window_of(places))
        if shown and total > most_spans:
            break
        shown.append(number)
    return shown


def _leave_out_stepless(ranks: Sequence[_Rank], shown: Sequence[int]) -> tuple[list[_Rank], tuple[NotDrawn, ...]]:
    """Leave out ranks that have none of the steps, where there are any."""
    if not shown:
        return list(ranks), ()
    kept = [rank for rank in ranks if _places_of(rank.analysis, shown)]
    lacking = [rank.analysis.rank for rank in ranks if not _places_of(rank.analysis, shown)]
    return kept, (NotDrawn(tuple(sorted(lacking)), tuple(shown)),) if lacking else ()


def _thin(
    ranks: Sequence[_Rank], shown: Sequence[int], most_spans: int
) -> tuple[list[_Rank], tuple[ShortestNotDrawn, ...]]:
    """Leave out the shortest compute and copies, so that at most so many spans are left beside the collectives."""
    cut = [replace(rank, work=rank.work_in(rank.window_of(_places_of(rank.analysis, shown)))) for rank in ranks]
    lengths = np.concatenate([rank.work.end_ns - rank.work.start_ns for rank in cut])
    if len(lengths) <= most_spans:
        return cut, ()
    largest_lost = len(lengths) - most_spans - 1
    least_ns = int(np.partition(lengths, largest_lost)[largest_lost])
    kept = [replace(rank, work=rank.work.keep(rank.work.end_ns - rank.work.start_ns > least_ns)) for rank in cut]
    lost = len(lengths) - sum(len(rank.work) for rank in kept)
    return kept, (ShortestNotDrawn(lost, len(lengths), least_ns),)


def _put_together(
    traces: TraceSet, ranks: Sequence[_Rank], *, every: Sequence[int], shown: Sequence[int], notes: Sequence[Note]
) -> JobSpans:
    windows = {rank.analysis.rank: rank.window_of(_places_of(rank.analysis, shown)) for rank in ranks}
    places, origin_ns, place_notes = place_ranks(windows, traces.over_ranks)
    drawn = tuple(_draw_rank(rank, windows[rank.analysis.rank], places, shown) for rank in ranks)
    unseen = join_ranks(UnseenNotDrawn((one.rank,), one.unseen) for one in drawn if one.unseen)
    return JobSpans(
        ranks=drawn,
        origin_ns=origin_ns,
        steps=tuple(every),
        shown=tuple(shown),
        matches=_number_matches(traces),
        notes=(*notes, *place_notes, *unseen, *join_ranks(_note_lost_copies([one.analysis for one in ranks], shown))),
    )


def _note_lost_copies(analyses: Sequence[TraceAnalysis], shown: Sequence[int]) -> Iterator[LostCopies]:
    """Yield of whom copies are lost that belong to what is drawn: a lane without them is not free of them."""
    for one in analyses:
        steps = [step for step in one.lost.copy_steps if step in shown]
        if one.lost.copies and (steps or not shown):
            yield LostCopies((one.rank,), one.lost.copies, tuple(one.lost.copy_steps))


def _draw_rank(rank: _Rank, window: Window, places: Mapping[int, Place], shown: Sequence[int]) -> RankSpans:
    one = rank.analysis
    exposed = subtract(unite_all(*(collective.span for collective in one.collectives)), one.timeline.compute)
    if one.timeline.recorded is not None:
        exposed = intersect(exposed, one.timeline.recorded)
    return RankSpans(
        analysis=one,
        place=places[one.rank],
        window=window,
        steps=_places_of(one, shown),
        work=rank.work_in(window),
        collectives=rank.collectives_in(window),
        exposed=clip(exposed, window.start_ns, window.end_ns),
        host=rank.host,
        stages=tuple(done for done in rank.stages if done.start_ns < window.end_ns and done.end_ns > window.start_ns),
    )


def _thin_hosts(spans: JobSpans, most_spans: int) -> JobSpans:
    """Keep of hosts what belongs to what is drawn, as much as fits."""
    views = [_view_host(one, one.host) for one in spans.ranks if one.host is not None]
    hosts, notes = thin_hosts(views, most_spans)
    by_rank = {view.rank: host for view, host in zip(views, hosts, strict=True)}
    ranks = tuple(
        replace(one, host=by_rank[one.rank], host_lacks=by_rank[one.rank].lacks)
        if one.rank in by_rank
        else replace(one, host_lacks=NO_HOST if one.analysis.timeline.is_device else ())
        for one in spans.ranks
    )
    lacking = join_ranks(HostNotRecorded((one.rank,), one.host_lacks) for one in ranks if one.host_lacks)
    return replace(spans, ranks=ranks, notes=(*spans.notes, *lacking, *notes))


def _view_host(one: RankSpans, host: Host) -> HostView:
    lengths = [one.analysis.collectives[index].span.length_ns for index in one.collectives]
    calls = np.concatenate((one.work.call, one.collective_calls))
    lengths_ns = np.concatenate((one.work.end_ns - one.work.start_ns, np.array(lengths, dtype=np.int64)))
    is_linked = (calls != NOTHING) & (not one.analysis.clock.is_off)
    return HostView(one.rank, host, one.window, calls[is_linked], lengths_ns[is_linked], not one.analysis.clock.is_off)


def _number_matches(traces: TraceSet) -> dict[tuple[int, int], int]:
    numbered = {}
    number = 0
    for group in traces.over_ranks.matches.groups:
        for row in np.flatnonzero(group.there.any(axis=1)).tolist():
            for column in np.flatnonzero(group.there[row]).tolist():
                numbered[group.ranks[column], int(group.index[row, column])] = number
            number += 1
    return numbered

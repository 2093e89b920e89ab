"""The timeline as a document: compact columns of what a job did, for ``timeline.js`` and for anyone who reads JSON.

Every name is a place in ``strings``; every time is integer ns from ``origin_ns``, which is text because it is larger
than what JavaScript counts exactly. Starts lie on the clock that the ranks share; durations are those of the rank's own
clock, so that they add up to what the tables say. Columns of one object are parallel; None: not known.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from dtbench.base.stage_ranges import COMPUTING
from dtbench.base.vocabulary import CAUSE_PHRASES, Operation, Purpose, Region
from dtbench.report.timeline.host_columns import HostThreadColumns, HostWriter
from dtbench.report.words.causes import name_operation
from dtbench.report.words.visible import spell_controls_of_json
from dtbench.traces.notes.note import say_notes
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.spans import JobSpans, RankSpans
from dtbench.traces.spans.lane_names import axis_words
from dtbench.traces.spans.span_rows import Lane, arrange_lanes
from dtbench.traces.time.intervals import Ints
from dtbench.traces.who.collectives import Collective

FORMAT_VERSION: Final = 1
WORDS: Final = {
    "operation": {str(one): name_operation(one) for one in Operation},
    "purpose": {str(Purpose.GRAD_REDUCE): "gradient reduction"},
    "cause": {str(one): words for one, words in CAUSE_PHRASES.items()},
    "region": {str(Region.STATE_DICT): "state dict"},
}
"""By column of the collectives: its keys in words, where those are others."""
NO_MATCH: Final = -1
"""In place of a match: no other rank's trace has this collective."""


@dataclass(frozen=True)
class StepColumns:
    """Windows of the steps that are drawn, and two numbers of their account."""

    number: list[int]
    start: list[int]
    duration: list[int]
    exposed_comm_ns: list[int | None]
    compute_ns: list[int | None]


@dataclass(frozen=True)
class RegionColumns:
    """What the training loop did on the host."""

    name: list[int]
    start: list[int]
    duration: list[int]


@dataclass(frozen=True)
class ExposedColumns:
    """When communication ran and compute did not."""

    start: list[int]
    duration: list[int]


@dataclass(frozen=True)
class LaneColumns:
    """Spans of one stream or thread in order of start.

    Attributes:
        lane: ``"<process>/<stream or thread>"``.
        name: what a person calls it.
        kind: 0 compute, 1 communication, 2 copy.
        text: name of the span.
        collective: place in the rank's ``collectives``; -1: none.
        call: which of the calls of the rank's host launched it; -1: not known, or not drawn.
    """

    lane: str
    name: str
    start: list[int]
    duration: list[int]
    kind: list[int]
    text: list[int]
    collective: list[int]
    call: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CollectiveColumns:
    """What is known about each collective that is drawn; exposed and hidden time are its shares of the whole trace.

    Attributes:
        index: its row among those of its rank in the table ``collectives``.
        match: a number that the same collective has on every rank; -1: no other trace has it.
        causes: ns by cause; they add up to ``exposed_ns``.
    """

    index: list[int]
    match: list[int]
    start: list[int]
    duration: list[int]
    operation: list[int]
    purpose: list[int]
    owner: list[int]
    group: list[int]
    axis: list[int]
    region: list[int]
    dtype: list[int]
    cause: list[int]
    seq: list[int | None]
    size_bytes: list[int | None]
    group_size: list[int | None]
    issue_ns: list[int | None]
    skew_wait_ns: list[int | None]
    last_rank: list[int | None]
    busbw: list[float | None]
    is_async: list[bool | None]
    exposed_ns: list[int | None]
    hidden_ns: list[int | None]
    causes: list[dict[str, int]]


@dataclass(frozen=True)
class StageWorkColumns:
    """What the stages of a pipeline computed, from first compute to last; as in the table ``stage_work``."""

    stage: list[int | None] = field(default_factory=list)
    batch: list[int | None] = field(default_factory=list)
    action: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class RankColumns:
    """One rank.

    ``clock_offset_ns`` is what its clock was ahead by; None where it is drawn from its own start. ``host_lacks`` says
    what of its host should be in ``host`` and was not recorded.
    """

    rank: int
    is_device: bool
    is_aligned: bool
    clock_offset_ns: int | None
    clock_uncertainty_ns: int | None
    steps: StepColumns
    regions: RegionColumns
    exposed: ExposedColumns
    lanes: list[LaneColumns]
    collectives: CollectiveColumns
    stage_work: StageWorkColumns = field(default_factory=StageWorkColumns)
    host: list[HostThreadColumns] = field(default_factory=list)
    host_lacks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TimelineDocument:
    """What ``timeline.js`` draws.

    Attributes:
        extent_ns: start and end of what is drawn.
        shown_steps: numbers of the steps that are drawn.
        steps: numbers of all steps of the traces.
        notes: what is not drawn, a sentence each.
        words: by column of the collectives, what a person calls its keys where that is not the key.
    """

    format_version: int
    title: str
    strings: list[str]
    origin_ns: str
    extent_ns: tuple[int, int]
    shown_steps: list[int]
    steps: list[int]
    notes: list[str]
    ranks: list[RankColumns]
    words: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the document as JSON."""
        return spell_controls_of_json(msgspec.json.encode(self))

    def without_hosts(self) -> "TimelineDocument":
        """Return the document without rows of hosts, for where it would be too large, and with a note that says so."""
        ranks = [
            replace(one, host=[], host_lacks=[], lanes=[replace(lane, call=[]) for lane in one.lanes])
            for one in self.ranks
        ]
        return replace(self, ranks=ranks, notes=[*self.notes, "rows of hosts are left out: with them it is too large"])


def make_document(spans: JobSpans, title: str = "") -> TimelineDocument:
    """Make the document of what was collected."""
    strings = _Strings()
    ranks = [_RankWriter(one, spans, strings).write() for one in spans.ranks]
    borders = np.concatenate(
        [
            one.place.to_picture(np.array([one.window.start_ns, one.window.end_ns]), spans.origin_ns)
            for one in spans.ranks
        ]
    )
    return TimelineDocument(
        format_version=FORMAT_VERSION,
        title=title,
        strings=strings.all,
        origin_ns=str(spans.origin_ns),
        extent_ns=(int(borders.min()), int(borders.max())),
        shown_steps=list(spans.shown),
        steps=list(spans.steps),
        notes=[*say_notes(spans.notes), *_note_unknown(ranks)],
        ranks=ranks,
        words=WORDS,
    )


def _note_unknown(ranks: Sequence[RankColumns]) -> Iterator[str]:
    """Say of how many collectives it is not known whether anything hid them; the page has no colour for those."""
    unknown = sum(one.collectives.exposed_ns.count(None) for one in ranks)
    if unknown:
        these = "1 collective" if unknown == 1 else f"{unknown} collectives"
        yield f"whether {these} ran hidden or exposed is not known: drawn without hatch, and not as a finding"


class _Strings:
    """Distinct strings, numbered as they come."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, word: str) -> int:
        """Return the number of a string."""
        return self._codes.setdefault(word, len(self._codes))

    def codes(self, words: Iterable[object]) -> list[int]:
        """Return the numbers of many; None is empty text."""
        return [self.code("" if word is None else str(word)) for word in words]

    @property
    def all(self) -> list[str]:
        """By number."""
        return list(self._codes)


@dataclass(frozen=True)
class _RankWriter:
    """Writes one rank's columns."""

    one: RankSpans
    spans: JobSpans
    strings: _Strings

    def write(self) -> RankColumns:
        place, clock = self.one.place, self.one.place.clock
        starts = self._from_origin(self.one.exposed.starts_ns)
        return RankColumns(
            rank=self.one.rank,
            is_device=self.one.analysis.timeline.is_device,
            is_aligned=place.is_aligned,
            clock_offset_ns=clock.offset_ns if place.is_aligned else None,
            clock_uncertainty_ns=clock.uncertainty_ns,
            steps=self._write_steps(),
            regions=self._write_regions(),
            exposed=ExposedColumns(starts, (self.one.exposed.ends_ns - self.one.exposed.starts_ns).tolist()),
            lanes=[self._write_lane(lane) for lane in arrange_lanes(self.one)],
            collectives=self._write_collectives(),
            stage_work=self._write_stage_work(),
            host=[] if self._host is None else self._host.write_threads(),
            host_lacks=list(self.one.host_lacks),
        )

    @cached_property
    def _host(self) -> HostWriter | None:
        if self.one.host is None:
            return None
        is_tied = not self.one.analysis.clock.is_off
        return HostWriter(self.one.host, self.strings.codes, self._from_origin, is_tied=is_tied)

    def _from_origin(self, times_ns: Ints | Sequence[int]) -> list[int]:
        moments = np.asarray(times_ns, dtype=np.int64)
        times: list[int] = self.one.place.to_picture(moments, self.spans.origin_ns).tolist()
        return times

    def _write_steps(self) -> StepColumns:
        accounts = [self.one.analysis.steps[index].overlap for index in self.one.steps]
        windows = [window for _, window in self.one.step_windows]
        return StepColumns(
            number=[number for number, _ in self.one.step_windows],
            start=self._from_origin([window.start_ns for window in windows]),
            duration=[window.length_ns for window in windows],
            exposed_comm_ns=[account.exposed_comm_ns for account in accounts],
            compute_ns=[account.compute_ns for account in accounts],
        )

    def _write_regions(self) -> RegionColumns:
        regions, window = self.one.analysis.timeline.regions, self.one.window
        seen = np.flatnonzero((regions.starts_ns < window.end_ns) & (regions.ends_ns > window.start_ns))
        return RegionColumns(
            name=self.strings.codes(regions.regions[index] for index in seen.tolist()),
            start=self._from_origin(regions.starts_ns[seen]),
            duration=(regions.ends_ns[seen] - regions.starts_ns[seen]).tolist(),
        )

    def _write_stage_work(self) -> StageWorkColumns:
        done = self.one.stages
        return StageWorkColumns(
            stage=[one.action.stage for one in done],
            batch=[one.action.batch for one in done],
            action=self.strings.codes(COMPUTING[one.action.action] for one in done),
            start=self._from_origin([one.start_ns for one in done]),
            duration=[one.end_ns - one.start_ns for one in done],
        )

    def _write_lane(self, lane: Lane) -> LaneColumns:
        used, text = np.unique(lane.text, return_inverse=True)
        codes = np.array(self.strings.codes(lane.names[name] for name in used.tolist()), dtype=np.int64)
        return LaneColumns(
            lane=lane.lane,
            name=lane.name,
            start=self._from_origin(lane.start_ns),
            duration=(lane.end_ns - lane.start_ns).tolist(),
            kind=lane.kind.tolist(),
            text=codes[text].tolist(),
            collective=lane.collective.tolist(),
            call=[] if self._host is None else self._host.number_calls(lane.call.tolist()),
        )

    def _write_collectives(self) -> CollectiveColumns:
        one, shown = self.one.analysis, self.one.collectives
        found = [one.collectives[index] for index in shown]
        skews = [one.skews[index] if one.skews else CollectiveSkew() for index in shown]
        splits = [one.splits[index] if one.splits else None for index in shown]
        axes = axis_words(one)
        codes = self.strings.codes
        return CollectiveColumns(
            index=list(shown),
            match=[self.spans.matches.get((one.rank, index), NO_MATCH) for index in shown],
            start=self._from_origin([collective.start_ns for collective in found]),
            duration=[collective.end_ns - collective.start_ns for collective in found],
            operation=codes(collective.operation for collective in found),
            purpose=codes(collective.purpose for collective in found),
            owner=codes(collective.owner for collective in found),
            group=codes(collective.group for collective in found),
            axis=codes(axes.get(collective.group) or collective.axis for collective in found),
            region=codes(collective.region for collective in found),
            dtype=codes(collective.dtype for collective in found),
            cause=codes(split and split.cause for split in splits),
            seq=[collective.seq for collective in found],
            size_bytes=[collective.size_bytes for collective in found],
            group_size=[collective.group_size for collective in found],
            issue_ns=self._issues(found),
            skew_wait_ns=[skew.skew_wait_ns for skew in skews],
            last_rank=[skew.last_rank for skew in skews],
            busbw=[None if math.isnan(skew.busbw) else skew.busbw for skew in skews],
            is_async=[collective.is_async for collective in found],
            exposed_ns=[one.timeline.exposed_of(index) for index in shown],
            hidden_ns=[one.timeline.hidden_of(index) for index in shown],
            causes=[{str(cause): ns for cause, ns in split.by_cause.items()} if split else {} for split in splits],
        )

    def _issues(self, found: Sequence[Collective]) -> list[int | None]:
        moments = self._from_origin([collective.issue_ns or 0 for collective in found])
        return [
            None if collective.issue_ns is None else moment for collective, moment in zip(found, moments, strict=True)
        ]

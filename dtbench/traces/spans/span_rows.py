"""From the spans of a picture to the tables of what ran, what was exposed and what stages did; and to named lanes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.columns import Column, Table, Unit
from dtbench.base.stage_ranges import COMPUTING
from dtbench.base.vocabulary import Kind
from dtbench.traces.spans.collect import JobSpans, RankSpans
from dtbench.traces.spans.lane_names import BESIDE, name_lanes
from dtbench.traces.spans.stage_work import StageWork
from dtbench.traces.spans.work import KINDS
from dtbench.traces.time.intervals import Bools, Intervals, Ints, intersect, unite, unite_all
from dtbench.traces.who.collectives import Collective

NO_COLLECTIVE = -1
"""In place of a collective, for compute and copies."""


@dataclass(frozen=True)
class Lane:
    """The spans of one lane in order of start; arrays have shape ``(n,)``.

    Attributes:
        lane: ``"<process>/<stream or thread>"``; what a thread sends beside its compute has a lane of its own.
        name: what a person calls it.
        names: distinct names of its spans.
        text: index into ``names``.
        kind: index into ``KINDS``.
        collective: place in the rank's ``collectives``; ``NO_COLLECTIVE``.
        start_ns: the rank's own clock.
        end_ns: likewise.
        call: event of the call that launched it; ``NOTHING``: not known, or not drawn.
    """

    lane: str
    name: str
    names: tuple[str, ...]
    text: Ints
    kind: Ints
    collective: Ints
    start_ns: Ints
    end_ns: Ints
    call: Ints


def arrange_lanes(spans: RankSpans) -> list[Lane]:
    """Put a rank's work and collectives on their lanes, in the order in which they are drawn.

    Communication is called by its operation; a collective of several copies comes once for each of them.
    """
    found = _Lanes(spans)
    names = name_lanes({lane: found.times_ns(lane) for lane in found.lanes}, found.collectives, spans.analysis)
    return [found.arrange(lane, name) for lane, name in names.items()]


class _Lanes:
    """The spans of one rank, asked lane by lane."""

    def __init__(self, spans: RankSpans) -> None:
        work = spans.work
        collectives = [spans.analysis.collectives[index] for index in spans.collectives]
        self._spans = spans
        self._operations = tuple(dict.fromkeys(str(one.operation or Kind.COMM) for one in collectives))
        self._collectives = collectives
        self._calls = spans.collective_calls
        used = [work.lanes[index] for index in np.unique(work.lane).tolist()]
        self._on: dict[str, list[int]] = {}
        for place, one in enumerate(collectives):
            self._on.setdefault(one.lane, []).append(place)
        self._on = {self._place(lane): places for lane, places in self._on.items()}
        self.lanes = list(dict.fromkeys([*used, *self._on]))

    def _place(self, lane: str) -> str:
        """Return the lane on which communication is drawn: beside that of the compute that it would lie on."""
        mine, work = self._work_on(lane), self._spans.work
        compute = unite(work.start_ns[mine], work.end_ns[mine])
        sent = unite_all(*(self._collectives[place].span for place in self._on[lane]))
        return f"{lane}{BESIDE}" if intersect(compute, sent).length_ns else lane

    @property
    def collectives(self) -> dict[str, list[Collective]]:
        """By lane, in order of start."""
        return {lane: [self._collectives[place] for place in places] for lane, places in self._on.items()}

    def times_ns(self, lane: str) -> Mapping[Kind, int]:
        """Return how long each kind ran on a lane."""
        mine = self._work_on(lane)
        work = self._spans.work
        lengths = work.end_ns - work.start_ns
        times = {kind: int(lengths[mine & (work.kind == code)].sum()) for code, kind in enumerate(KINDS)}
        return {**times, Kind.COMM: sum(self._collectives[place].span.length_ns for place in self._on.get(lane, ()))}

    def _work_on(self, lane: str) -> Bools:
        lanes = self._spans.work.lanes
        return np.asarray(self._spans.work.lane == (lanes.index(lane) if lane in lanes else len(lanes)))

    def arrange(self, lane: str, name: str) -> Lane:
        """Return the spans of a lane."""
        work, mine = self._spans.work, self._work_on(lane)
        places = self._on.get(lane, [])
        pieces = [(place, self._collectives[place].span) for place in places]
        counts = [len(span.starts_ns) for _, span in pieces]
        owners = np.repeat(np.array(places, dtype=np.int64), counts)
        operation = np.array(
            [self._operations.index(str(self._collectives[place].operation or Kind.COMM)) for place in owners.tolist()],
            dtype=np.int64,
        )
        number = int(mine.sum())
        start_ns = np.concatenate([work.start_ns[mine], *(span.starts_ns for _, span in pieces)])
        order = np.argsort(start_ns, kind="stable")
        return Lane(
            lane=lane,
            name=name,
            names=(*work.names, *self._operations),
            text=np.concatenate((work.name[mine], len(work.names) + operation))[order],
            kind=np.concatenate((work.kind[mine], np.full(len(owners), KINDS.index(Kind.COMM))))[order],
            collective=np.concatenate((np.full(number, NO_COLLECTIVE), owners))[order],
            start_ns=start_ns[order],
            end_ns=np.concatenate([work.end_ns[mine], *(span.ends_ns for _, span in pieces)])[order],
            call=np.concatenate((work.call[mine], self._calls[owners]))[order],
        )


@dataclass(frozen=True)
class _At:
    """Where a row of a picture is: its rank, and the step in whose window it starts; None: in none."""

    rank: int
    step: int | None


@dataclass(frozen=True)
class _Span:
    """One span of a lane, from the origin of the picture; ``collective`` is None for compute and copies."""

    lane: Lane
    index: int
    start_ns: int
    end_ns: int
    collective: Collective | None
    exposed_ns: int | None


def _find_spans(spans: JobSpans) -> Iterator[tuple[_At, _Span]]:
    for one in spans.ranks:
        for lane in arrange_lanes(one):
            starts_ns = one.place.to_picture(lane.start_ns, spans.origin_ns).tolist()
            lengths_ns = (lane.end_ns - lane.start_ns).tolist()
            exposed_ns = _exposed_parts(one, np.stack((lane.start_ns, lane.end_ns), axis=1))
            steps = _steps_of(one, lane.start_ns)
            for index, place in enumerate(lane.collective.tolist()):
                is_comm = place != NO_COLLECTIVE
                yield (
                    _At(one.rank, steps[index]),
                    _Span(
                        lane,
                        index,
                        start_ns=starts_ns[index],
                        end_ns=starts_ns[index] + lengths_ns[index],
                        collective=one.analysis.collectives[one.collectives[place]] if is_comm else None,
                        exposed_ns=exposed_ns[index] if is_comm else 0,
                    ),
                )


def _exposed_parts(one: RankSpans, borders_ns: Ints) -> list[int | None]:
    """Return how long each window of shape ``(w, 2)`` has no compute; None where what computes was not recorded."""
    timeline = one.analysis.timeline
    lengths = (borders_ns[:, 1] - borders_ns[:, 0]).tolist()
    hidden = timeline.compute.covered_inside(borders_ns)
    known = lengths if timeline.recorded is None else timeline.recorded.covered_inside(borders_ns)
    rows = zip(lengths, hidden, known, strict=True)
    return [length_ns - hidden_ns if known_ns == length_ns else None for length_ns, hidden_ns, known_ns in rows]


def _steps_of(one: RankSpans, moments_ns: Ints) -> list[int | None]:
    numbers = [number for number, _ in one.step_windows]
    windows = [window for _, window in one.step_windows]
    starts = np.array([window.start_ns for window in windows], dtype=np.int64)
    places = np.searchsorted(starts, moments_ns, side="right") - 1
    return [
        numbers[place] if place >= 0 and moment < windows[place].end_ns else None
        for place, moment in zip(places.tolist(), moments_ns.tolist(), strict=True)
    ]


def _find_exposed(spans: JobSpans) -> Iterator[tuple[_At, tuple[int, int]]]:
    for one in spans.ranks:
        pieces = cut_by_steps(one)
        starts = one.place.to_picture(pieces.starts_ns, spans.origin_ns).tolist()
        lengths = (pieces.ends_ns - pieces.starts_ns).tolist()
        for start, length, step in zip(starts, lengths, _steps_of(one, pieces.starts_ns), strict=True):
            yield _At(one.rank, step), (start, start + length)


def cut_by_steps(one: RankSpans) -> Intervals:
    """Return a rank's exposed time, cut wherever a step begins; the pieces may touch."""
    borders = np.array([window.start_ns for _, window in one.step_windows], dtype=np.int64)
    inside = borders[one.exposed.covers(borders) & ~np.isin(borders, one.exposed.starts_ns)]
    return Intervals(
        np.sort(np.concatenate((one.exposed.starts_ns, inside))), np.sort(np.concatenate((one.exposed.ends_ns, inside)))
    )


def _find_stage_work(spans: JobSpans) -> Iterator[tuple[_At, tuple[StageWork, int]]]:
    """Yield what stages computed, and when each began from the origin of the picture."""
    for one in spans.ranks:
        moments = np.array([done.start_ns for done in one.stages], dtype=np.int64)
        starts = one.place.to_picture(moments, spans.origin_ns).tolist()
        for done, start, step in zip(one.stages, starts, _steps_of(one, moments), strict=True):
            yield _At(one.rank, step), (done, start)


_CLOCK: Final = "the picture's, which all its ranks share"

_KEYS: Final = (
    Column[_At]("rank", "int64", None, "which rank", lambda at: at.rank, least=0),
    Column[_At]("step", "Int64", None, "in whose window it starts; NA: in none", lambda at: at.step, least=0),
)

SPANS: Final = Table[JobSpans, _At, _Span](
    name="spans",
    doc="What ran: one row per span, by rank, lane as drawn, and start.",
    find=_find_spans,
    keys=_KEYS,
    columns=(
        Column(
            "lane",
            "string",
            None,
            "`<process>/<stream or thread>`; what a thread sends while it computes has a lane of its own",
            lambda row: row.lane.lane,
        ),
        Column("lane_name", "string", None, "what a person calls it: `stream 7 · compute`", lambda row: row.lane.name),
        Column("kind", "string", None, "compute, comm or copy", lambda row: str(KINDS[int(row.lane.kind[row.index])])),
        Column(
            "name",
            "string",
            None,
            "kernel, copy or operator; of communication the operation",
            lambda row: row.lane.names[int(row.lane.text[row.index])],
        ),
        Column("start_ns", "int64", Unit.NS, "when it began", lambda row: row.start_ns, clock=_CLOCK),
        Column(
            "end_ns",
            "int64",
            Unit.NS,
            "`start_ns` and the duration on the rank's own clock",
            lambda row: row.end_ns,
            clock=_CLOCK,
        ),
        Column(
            "owner",
            "string",
            None,
            "of a collective; empty: unattributed, and for compute and copies",
            lambda row: row.collective.owner if row.collective else "",
        ),
        Column(
            "purpose",
            "string",
            None,
            "of a collective; empty for compute and copies",
            lambda row: str(row.collective.purpose) if row.collective else "",
        ),
        Column(
            "operation",
            "string",
            None,
            "of a collective; empty for compute and copies, and where it is not known",
            lambda row: str(row.collective.operation or "") if row.collective else "",
        ),
        Column(
            "exposed_ns",
            "Int64",
            Unit.NS,
            "of communication, without compute at that time; two at once both count it; NA: not known",
            lambda row: row.exposed_ns,
        ),
    ),
)

EXPOSED: Final = Table[JobSpans, _At, tuple[int, int]](
    name="exposed",
    doc="When communication was exposed: one row per rank and interval, cut where a step ends. The lengths of a step's "
    "rows sum to `exposed_comm_ns` of `overlap`.",
    find=_find_exposed,
    keys=_KEYS,
    columns=(
        Column("start_ns", "int64", Unit.NS, "when it began", lambda row: row[0], clock=_CLOCK),
        Column("end_ns", "int64", Unit.NS, "when it ended", lambda row: row[1], clock=_CLOCK),
    ),
)

STAGE_WORK: Final = Table[JobSpans, _At, tuple[StageWork, int]](
    name="stage_work",
    doc="What each stage of a pipeline computed, one row per rank, stage and micro-batch, by start.",
    find=_find_stage_work,
    keys=_KEYS,
    columns=(
        Column(
            "stage",
            "Int64",
            None,
            "of the pipeline; NA: the schedule names the micro-batch alone",
            lambda row: row[0].action.stage,
            least=0,
        ),
        Column("micro_batch", "Int64", None, "which one; NA: not known", lambda row: row[0].action.batch, least=0),
        Column(
            "action",
            "string",
            None,
            "forward, backward; of zero-bubble schedules input gradients, weight gradients",
            lambda row: COMPUTING[row[0].action.action],
        ),
        Column("start_ns", "int64", Unit.NS, "its first compute", lambda row: row[1], clock=_CLOCK),
        Column(
            "end_ns",
            "int64",
            Unit.NS,
            "its last compute",
            lambda row: row[1] + row[0].end_ns - row[0].start_ns,
            clock=_CLOCK,
        ),
    ),
)

"""From the spans of a picture to the tables ``tables.SPANS`` and ``tables.EXPOSED``, and to lanes with their names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtbench.base.stage_ranges import COMPUTING
from dtbench.base.vocabulary import Kind
from dtbench.traces import tables
from dtbench.traces.spans.collect import JobSpans, RankSpans
from dtbench.traces.spans.lane_names import BESIDE, name_lanes
from dtbench.traces.spans.work import KINDS
from dtbench.traces.time.intervals import Bools, Intervals, Ints, intersect, unite, unite_all
from dtbench.traces.who.collectives import Collective

if TYPE_CHECKING:
    import pandas as pd

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
    """

    lane: str
    name: str
    names: tuple[str, ...]
    text: Ints
    kind: Ints
    collective: Ints
    start_ns: Ints
    end_ns: Ints


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
        used = [work.lanes[index] for index in np.unique(work.lane).tolist()]
        self._on: dict[str, list[int]] = {}
        for place, one in enumerate(collectives):
            self._on.setdefault(one.lane, []).append(place)
        self._on = {self._place(lane): places for lane, places in self._on.items()}
        self.lanes = list(dict.fromkeys([*used, *self._on]))

    def _place(self, lane: str) -> str:
        """Give the lane on which communication is drawn: beside that of the compute that it would lie on."""
        mine, work = self._work_on(lane), self._spans.work
        compute = unite(work.start_ns[mine], work.end_ns[mine])
        sent = unite_all(*(self._collectives[place].span for place in self._on[lane]))
        return f"{lane}{BESIDE}" if intersect(compute, sent).length_ns else lane

    @property
    def collectives(self) -> dict[str, list[Collective]]:
        """By lane, in order of start."""
        return {lane: [self._collectives[place] for place in places] for lane, places in self._on.items()}

    def times_ns(self, lane: str) -> Mapping[Kind, int]:
        """Give how long each kind ran on a lane."""
        mine = self._work_on(lane)
        work = self._spans.work
        lengths = work.end_ns - work.start_ns
        times = {kind: int(lengths[mine & (work.kind == code)].sum()) for code, kind in enumerate(KINDS)}
        return {**times, Kind.COMM: sum(self._collectives[place].span.length_ns for place in self._on.get(lane, ()))}

    def _work_on(self, lane: str) -> Bools:
        lanes = self._spans.work.lanes
        return np.asarray(self._spans.work.lane == (lanes.index(lane) if lane in lanes else len(lanes)))

    def arrange(self, lane: str, name: str) -> Lane:
        """Give the spans of a lane."""
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
        )


def tabulate_spans(spans: JobSpans) -> "pd.DataFrame":
    """Make the table ``tables.SPANS``: by rank, lane as drawn, and start."""
    return _make_table(list(_span_rows(spans)), tables.SPANS)


def _span_rows(spans: JobSpans) -> Iterator[tables.Row]:
    for one in spans.ranks:
        for lane in arrange_lanes(one):
            start_ns = one.place.to_picture(lane.start_ns, spans.origin_ns).tolist()
            length_ns = (lane.end_ns - lane.start_ns).tolist()
            exposed_ns = _exposed_parts(one, np.stack((lane.start_ns, lane.end_ns), axis=1))
            steps = _steps_of(one, lane.start_ns)
            for index, place in enumerate(lane.collective.tolist()):
                is_comm = place != NO_COLLECTIVE
                collective = one.analysis.collectives[one.collectives[place]] if is_comm else None
                yield {
                    "rank": one.rank,
                    "step": steps[index],
                    "lane": lane.lane,
                    "lane_name": lane.name,
                    "kind": str(KINDS[int(lane.kind[index])]),
                    "name": lane.names[int(lane.text[index])],
                    "start_ns": start_ns[index],
                    "end_ns": start_ns[index] + length_ns[index],
                    "owner": collective.owner if collective else "",
                    "purpose": str(collective.purpose) if collective else "",
                    "operation": str(collective.operation or "") if collective else "",
                    "exposed_ns": exposed_ns[index] if is_comm else 0,
                }


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


def tabulate_exposed(spans: JobSpans) -> "pd.DataFrame":
    """Make the table ``tables.EXPOSED``: a row for each interval, cut where a step ends."""
    return _make_table(list(_exposed_rows(spans)), tables.EXPOSED)


def _exposed_rows(spans: JobSpans) -> Iterator[tables.Row]:
    for one in spans.ranks:
        pieces = cut_by_steps(one)
        starts = one.place.to_picture(pieces.starts_ns, spans.origin_ns).tolist()
        lengths = (pieces.ends_ns - pieces.starts_ns).tolist()
        for start, length, step in zip(starts, lengths, _steps_of(one, pieces.starts_ns), strict=True):
            yield {"rank": one.rank, "step": step, "start_ns": start, "end_ns": start + length}


def cut_by_steps(one: RankSpans) -> Intervals:
    """Give a rank's exposed time, cut wherever a step begins; the pieces may touch."""
    borders = np.array([window.start_ns for _, window in one.step_windows], dtype=np.int64)
    inside = borders[one.exposed.covers(borders) & ~np.isin(borders, one.exposed.starts_ns)]
    return Intervals(
        np.sort(np.concatenate((one.exposed.starts_ns, inside))), np.sort(np.concatenate((one.exposed.ends_ns, inside)))
    )


def tabulate_stage_work(spans: JobSpans) -> "pd.DataFrame":
    """Make the table ``tables.STAGE_WORK``: by rank and start."""
    return _make_table(list(_stage_rows(spans)), tables.STAGE_WORK)


def _stage_rows(spans: JobSpans) -> Iterator[tables.Row]:
    for one in spans.ranks:
        moments = np.array([done.start_ns for done in one.stages], dtype=np.int64)
        starts = one.place.to_picture(moments, spans.origin_ns).tolist()
        for done, start, step in zip(one.stages, starts, _steps_of(one, moments), strict=True):
            yield {
                "rank": one.rank,
                "step": step,
                "stage": done.action.stage,
                "micro_batch": done.action.batch,
                "action": COMPUTING[done.action.action],
                "start_ns": start,
                "end_ns": start + done.end_ns - done.start_ns,
            }


def _make_table(rows: list[tables.Row], dtypes: Mapping[str, str]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows, columns=list(dtypes), dtype=object).astype(dict(dtypes))

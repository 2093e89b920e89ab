"""Lines up what several ranks did where no sequence number says which event belongs to which.

::

    rank 0   A  B  B  C          A  B  B  C
    rank 1   A  B     C    ->    A  B  -  C      not the blind  A B C -, and the hole is where the times say it is

Two events may be one collective if operation and size agree. Which of several equal ones it is, the ends say: they
agree on all ranks but for a constant, the distance of the clocks.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from dtbench.traces.time.intervals import Bools, Ints

ABSENT: Final = -1
"""In index arrays: that rank has no such event."""
ENDS_APART_NS: Final = 20_000
"""By which ranks that leave a collective together may be seen to leave it apart: 1 to 7 us on eight V100."""

_REACH: Final = 16  # events by which two ranks may be apart, beside the difference of their numbers
_AS_NARROW: Final = 1.5  # of the narrowest half: no worse
_RARE: Final = 1e-3
_NARROW: Final = 0.1  # spread of ends that belong together, however many say so
_RESOLUTION_NS: Final = 1_000  # traces before 2024 know whole microseconds


@dataclass(frozen=True)
class Series:
    """What one rank did on one process group, in order.

    Attributes:
        token: shape ``(n,)``, equal for events that may be the same collective.
        start_ns: shape ``(n,)``, that rank's own clock.
        end_ns: shape ``(n,)``.
        waits_for_all: shape ``(n,)``: no rank leaves it before all have entered it.
    """

    token: Ints
    start_ns: Ints
    end_ns: Ints
    waits_for_all: Bools

    def __len__(self) -> int:
        """Number of events."""
        return len(self.token)

    def take(self, events: Ints) -> "Series":
        """Keep some events."""
        return Series(self.token[events], self.start_ns[events], self.end_ns[events], self.waits_for_all[events])


@dataclass(frozen=True)
class Lead:
    """How far the clock of one rank is before another's, and how well its ends agree with that.

    Attributes:
        ns: how far.
        tolerance_ns: ends of one collective are no further off.
        spread: width of the half of the differences that lies closest together, as a fraction of what it would be if
            all were spread evenly; near 1 for ranks that have nothing to do with each other.
        chance: largest ``spread`` that ranks which have nothing to do with each other reach in one of a thousand cases.
    """

    ns: int
    tolerance_ns: int
    spread: float = 0.0
    chance: float = 0.0


_Agree: TypeAlias = Callable[[Series, Series, Lead, slice, slice], Bools]


@dataclass(frozen=True)
class _Box:
    """A stretch of two series, each half-open, whose events are still to be paired."""

    first_start: int
    first_end: int
    second_start: int
    second_end: int


@dataclass(frozen=True)
class _Run:
    first: int
    second: int
    length: int


def line_up(series: Sequence[Series]) -> Ints:
    """Line up the events of several ranks.

    Returns:
        Shape ``(m, len(series))``, index into each series or ``ABSENT``; every event is in exactly one row, rows rise
        in time. A row with one event belongs to nothing on other ranks.
    """
    remaining = [np.arange(len(one), dtype=np.int64) for one in series]
    spine = _longest(remaining)
    leads = [estimate_lead(series[spine], one) for one in series]
    blocks = [np.zeros((0, len(series)), dtype=np.int64)]
    while len(remaining[spine]):
        block = np.full((len(remaining[spine]), len(series)), ABSENT, dtype=np.int64)
        block[:, spine] = remaining[spine]
        for other in range(len(series)):
            if other == spine or not len(remaining[other]):
                continue
            lead = Lead(leads[other].ns - leads[spine].ns, max(leads[other].tolerance_ns, leads[spine].tolerance_ns))
            pairs = pair_up(series[spine].take(remaining[spine]), series[other].take(remaining[other]), lead)
            block[pairs[:, 0], other] = remaining[other][pairs[:, 1]]
            remaining[other] = np.delete(remaining[other], pairs[:, 1])
        remaining[spine] = remaining[spine][:0]
        blocks.append(block)
        spine = _longest(remaining)
    return _sort_by_time(np.concatenate(blocks), series, leads)


def _longest(remaining: Sequence[Ints]) -> int:
    return max(range(len(remaining)), key=lambda place: len(remaining[place]))


def _sort_by_time(rows: Ints, series: Sequence[Series], leads: Sequence[Lead]) -> Ints:
    when = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
    for column, (one, lead) in enumerate(zip(series, leads, strict=True)):
        there = rows[:, column] != ABSENT
        when[there] = np.minimum(when[there], one.end_ns[rows[there, column]] - lead.ns)
    return rows[np.argsort(when, kind="stable")]


def estimate_lead(first: Series, second: Series) -> Lead:
    """Estimate how far the second clock is before the first: centre of the shortest half of all differences of ends.

    The half that lies closest together is right as long as half of the events are paired rightly at *some* lag, however
    wild the rest (least median of squares, Rousseeuw 1984). Of several halves as short, as in strictly periodic traces,
    the one nearest to zero counts: clocks are mostly right. Where one lag alone pairs all, and all ran at one time by
    clocks as they are, no other counts: ends may lie apart, as where ranks take turns on a device.
    """
    every = _lags(len(first), len(second))
    pool_ns = _pool(first, second, every)
    if not len(pool_ns):
        return Lead(0, ENDS_APART_NS, spread=1.0)
    half = min(len(pool_ns), (min(len(first), len(second)) + 1) // 2)
    centre_ns, width_ns = _find_narrowest(pool_ns, half)
    even_ns = int(pool_ns[-1] - pool_ns[0]) * half / len(pool_ns)
    spread, chance = width_ns / even_ns if even_ns else 1.0, _narrowest_by_chance(half, len(pool_ns) - half + 1)
    if (sure := _find_sure_lag(first, second)) is not None:
        centre_ns, width_ns = _find_narrowest(_pool(first, second, [sure]), half)
    return Lead(centre_ns, max(2 * width_ns, ENDS_APART_NS), spread, chance)


def _pool(first: Series, second: Series, lags: Iterable[int]) -> Ints:
    return np.sort(np.concatenate([_differences(first, second, lag) for lag in lags]))


def _find_narrowest(pool_ns: Ints, half: int) -> tuple[int, int]:
    """Return centre and width of the narrowest window of so many; of about as narrow ones, of that nearest to zero."""
    widths_ns = pool_ns[half - 1 :] - pool_ns[: len(pool_ns) - half + 1]
    near = np.flatnonzero(widths_ns <= _AS_NARROW * widths_ns.min() + 2 * _RESOLUTION_NS)
    centres_ns = pool_ns[near] + widths_ns[near] // 2
    best = int(np.argmin(np.abs(centres_ns)))
    return int(centres_ns[best]), int(widths_ns[near[best]])


def _find_sure_lag(first: Series, second: Series) -> int | None:
    """Find the only lag at which all of the shorter face equals, if these ran while they did; None: there is none."""
    full = [lag for lag in _lags(len(first), len(second)) if _are_all_equal(first, second, lag)]
    return full[0] if len(full) == 1 and _do_all_meet(first, second, full[0]) else None


def _are_all_equal(first: Series, second: Series, lag: int) -> bool:
    """Tell whether each event of the shorter series faces one that may be the same collective."""
    left, right = _overlap_at(len(first), len(second), lag)
    is_full = left.stop - left.start == min(len(first), len(second))
    return is_full and bool(np.all(first.token[left] == second.token[right]))


def _do_all_meet(first: Series, second: Series, lag: int) -> bool:
    """Tell whether all that wait for all ran, by clocks as they are, while what they face did."""
    left, right = _overlap_at(len(first), len(second), lag)
    waits = first.waits_for_all[left]
    meet = _spans_overlap(first, second, Lead(0, 0), left, right)
    return bool(np.any(waits) and np.all(meet[waits]))


def _narrowest_by_chance(points: int, windows: int) -> float:
    """Return how narrow, of its mean width, the narrowest of many windows of random points is in one of 1000 cases.

    Gaps between random points are exponential, so that the width of ``points`` has the distribution of a sum of
    ``points - 1`` of them, whose lower tail is ``x**k / k!`` (Erlang).
    """
    gaps = points - 1
    if gaps < 1:
        return 0.0
    logarithm = (math.lgamma(gaps + 1) + math.log(_RARE / windows)) / gaps
    return min(math.exp(logarithm) / gaps, _NARROW)


def _lags(first: int, second: int) -> range:
    apart = second - first
    return range(min(0, apart) - min(_REACH, first), max(0, apart) + min(_REACH, second) + 1)


def _overlap_at(first: int, second: int, lag: int) -> tuple[slice, slice]:
    """Return the parts of both that face each other when the second is moved by ``lag`` events."""
    start = max(0, -lag)
    length = max(0, min(first - start, second - start - lag))
    return slice(start, start + length), slice(start + lag, start + lag + length)


def _differences(first: Series, second: Series, lag: int) -> Ints:
    left, right = _overlap_at(len(first), len(second), lag)
    same = first.token[left] == second.token[right]
    return np.asarray(second.end_ns[right][same] - first.end_ns[left][same], dtype=np.int64)


def pair_up(first: Series, second: Series, lead: Lead) -> Ints:
    """Pair the events of two ranks; shape ``(k, 2)``.

    The longest runs whose ends agree are taken first; between them follow events that ran at the same time: no rank
    leaves a collective before the last has entered it, so the spans of one collective overlap. One with a root need
    not: what stands between the same others is one, whenever it ran. What then is left may have begun in another order.
    """
    if (sure := _find_sure_lag(first, second)) is not None:
        left, right = _overlap_at(len(first), len(second), sure)
        return np.stack((np.arange(left.start, left.stop), np.arange(right.start, right.stop)), axis=1)
    whole = _Box(0, len(first), 0, len(second))
    anchors = _pair_in(first, second, lead, [whole], _ends_agree)
    between = _gaps(anchors, whole)
    runs = anchors + _pair_in(first, second, lead, between, _may_be_one if anchors else _spans_overlap)
    pairs = [np.stack((np.arange(run.length) + run.first, np.arange(run.length) + run.second), axis=1) for run in runs]
    ordered = np.concatenate([np.zeros((0, 2), dtype=np.int64), *pairs])
    both = np.concatenate((ordered, _pair_crossed(first, second, lead, ordered)))
    return both[np.lexsort((both[:, 1], both[:, 0]))]


def _pair_crossed(first: Series, second: Series, lead: Lead, pairs: Ints) -> Ints:
    """Pair what is left of equal events that ran at the same time, in whatever order; shape ``(k, 2)``."""
    mine, others = _left(len(first), pairs[:, 0]), _left(len(second), pairs[:, 1])
    others = others[np.argsort(second.start_ns[others], kind="stable")]
    began_ns = second.start_ns[others] - lead.ns - lead.tolerance_ns
    done_ns = np.maximum.accumulate(second.end_ns[others] - lead.ns + lead.tolerance_ns)
    found: dict[int, int] = {}
    for one in mine.tolist():
        low = int(done_ns.searchsorted(first.start_ns[one], side="right"))
        high = min(int(began_ns.searchsorted(first.end_ns[one], side="left")), low + _REACH)
        near = [event for event in others[low:high].tolist() if event not in found]
        equal = [event for event in near if second.token[event] == first.token[one]]
        found.update(dict.fromkeys(equal[:1], one))
    return np.array([(one, other) for other, one in found.items()], dtype=np.int64).reshape(-1, 2)


def _left(length: int, taken: Ints) -> Ints:
    is_left = np.ones(length, dtype=np.bool_)
    is_left[taken] = False
    return np.flatnonzero(is_left)


def _pair_in(first: Series, second: Series, lead: Lead, boxes: list[_Box], agree: _Agree) -> list[_Run]:
    runs: list[_Run] = []
    boxes = list(boxes)
    while boxes:
        box = boxes.pop()
        run = _longest_run(first, second, lead, box, agree)
        if run is None:
            continue
        runs.append(run)
        boxes += _gaps([run], box)
    return runs


def _gaps(runs: Sequence[_Run], box: _Box) -> list[_Box]:
    """Return what lies before, between and after runs, where both have something left."""
    ordered = sorted(runs, key=lambda run: run.first)
    left = [
        (box.first_start, box.second_start),
        *((run.first + run.length, run.second + run.length) for run in ordered),
    ]
    right = [*((run.first, run.second) for run in ordered), (box.first_end, box.second_end)]
    boxes = [_Box(start[0], end[0], start[1], end[1]) for start, end in zip(left, right, strict=True)]
    return [one for one in boxes if one.first_end > one.first_start and one.second_end > one.second_start]


def _longest_run(first: Series, second: Series, lead: Lead, box: _Box, agree: _Agree) -> _Run | None:
    mine = first.take(np.arange(box.first_start, box.first_end))
    others = second.take(np.arange(box.second_start, box.second_end))
    best: _Run | None = None
    for lag in sorted(_lags(len(mine), len(others)), key=abs):
        left, right = _overlap_at(len(mine), len(others), lag)
        if best is not None and left.stop - left.start <= best.length:
            continue
        fits = (mine.token[left] == others.token[right]) & agree(mine, others, lead, left, right)
        start, length = _longest_true(fits)
        if length > (best.length if best else 0):
            best = _Run(box.first_start + left.start + start, box.second_start + right.start + start, length)
    return best


def _longest_true(flags: Bools) -> tuple[int, int]:
    borders = np.concatenate(([-1], np.flatnonzero(~flags), [len(flags)]))
    lengths = np.diff(borders) - 1
    longest = int(np.argmax(lengths))
    return int(borders[longest]) + 1, int(lengths[longest])


def _ends_agree(first: Series, second: Series, lead: Lead, left: slice, right: slice) -> Bools:
    return np.asarray(np.abs(second.end_ns[right] - first.end_ns[left] - lead.ns) <= lead.tolerance_ns, dtype=np.bool_)


def _spans_overlap(first: Series, second: Series, lead: Lead, left: slice, right: slice) -> Bools:
    return np.asarray(
        (second.start_ns[right] - lead.ns < first.end_ns[left] + lead.tolerance_ns)
        & (first.start_ns[left] < second.end_ns[right] - lead.ns + lead.tolerance_ns),
        dtype=np.bool_,
    )


def _may_be_one(first: Series, second: Series, lead: Lead, left: slice, right: slice) -> Bools:
    return _spans_overlap(first, second, lead, left, right) | ~first.waits_for_all[left]

"""Which launches come next, given what is known so far, and what follows at the end: pure functions of samples.

::

    unchanged x 4  ->  forecasts  ->  points that may reach the best, once each  ->  their better third  -> ...
                                                       |
                              the best two and the unchanged one in turns, on launches of their own  ->  conclusion

Without a forecast all points run once. That is successive halving (Jamieson and Talwalkar, Non-stochastic Best Arm
Identification and Hyperparameter Optimization, AISTATS 2016), with thirds in place of halves.

[Note: two samples] The best of many is partly the luckiest of many. So the launches that choose finalists are not those
that judge them: what is said of a finalist goes by launches that ran after it had been chosen, and by these alone. Of
``ALPHA`` each finalist has its part, and of that a part is spent on a look before all launches are there (Bonferroni).
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, stdev
from typing import Final

from dtbench.comparison.statistics import SampleComparison, compare_samples
from dtbench.runs.told_apart import LEAST_LAUNCHES

UNCHANGED: Final = ""
"""Stands for the cell as it is among the samples of a round."""

ALPHA: Final = 0.01
"""How often at most something is recommended where nothing differs, over all finalists and looks."""

LAUNCHES: Final = 6
"""Of each finalist where nobody says how many: four cannot tell 5 % with a spread of 1 % at ``ALPHA``, see docs."""

MOST_FINALISTS: Final = 2

_EARLY: Final = 0.002
"""What of ``ALPHA`` is spent on the look after ``LEAST_LAUNCHES``."""
_KEPT: Final = 3
"""One in so many goes on to the next round."""
_FEW: Final = 3
"""So many are not thinned out further: the first two are finalists."""
_CLEAR: Final = 5.0
"""Standard errors by which the first is ahead of the second where no further round is needed to choose it."""
_MOST_TRIES: Final = 2
"""Launches that choose, of a point of which none tells a step."""


class Stage(StrEnum):
    """What launches of a round are for."""

    UNCHANGED = "unchanged"
    SELECT = "select"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class Round:
    """Launches that take turns in one run.

    Attributes:
        points: by name, the most promising first.
        has_unchanged: the unchanged cell runs beside them.
        launches: of each.
        planned: of a confirmation, launches of each in this and all further rounds of it.
    """

    stage: Stage
    points: tuple[str, ...]
    has_unchanged: bool
    launches: int
    planned: int = 0

    @property
    def count(self) -> int:
        """All its launches."""
        return (len(self.points) + self.has_unchanged) * self.launches


@dataclass(frozen=True)
class Told:
    """What a forecast says of a point: step and what it saves with its interval, ns; None: no interval."""

    step_ns: float
    saving_ns: float
    low_ns: float | None
    high_ns: float | None


@dataclass(frozen=True)
class Out:
    """Why a point can no longer be recommended: in a word or two, and as a clause."""

    word: str
    why: str


@dataclass(frozen=True)
class Ran:
    """What came of a round.

    Attributes:
        times_ns: MEASURED step of each launch, by point (``UNCHANGED``, too), in the order of launches; NaN: that
            launch decides nothing.
        out: points that are out from now on.
        told: forecasts, where it is a round from which there are any.
        not_told: why there are none, where they were asked for; empty: there are, or they were not.
        run: folder of the run.
        duration_ns: that its launches took.
        doubts: why launches decide nothing, a clause each, and how many.
        peak_bytes: of memory of the rank that had most, by point: of its device, where it has one, else of its host.
    """

    round: Round
    times_ns: Mapping[str, Sequence[float]]
    out: Mapping[str, Out] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    not_told: str = ""
    run: str = ""
    duration_ns: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)
    peak_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """What is searched, and what is known so far.

    Attributes:
        points: by name, in the order of the grid; none of them is the unchanged cell.
        launches: of each finalist, at least ``LEAST_LAUNCHES``.
        begins_unchanged: it runs first, by itself: forecasts may be had from it, or how long a launch takes.
        ran: rounds, first to last.
    """

    points: tuple[str, ...]
    launches: int
    begins_unchanged: bool = False
    ran: tuple[Ran, ...] = ()

    @property
    def out(self) -> dict[str, Out]:
        """Points that are out, and why; ``UNCHANGED`` where nothing can be held to the cell as it is."""
        return {point: why for ran in self.ran for point, why in ran.out.items()}

    @property
    def told(self) -> dict[str, Told]:
        """Forecasts by point."""
        return {point: told for ran in self.ran for point, told in ran.told.items()}

    @property
    def used(self) -> int:
        """Launches that ran."""
        return sum(len(times) for ran in self.ran for times in ran.times_ns.values())

    @property
    def finalists(self) -> tuple[str, ...]:
        """Points that were chosen and are not out, the one that was chosen first before the others."""
        chosen = dict.fromkeys(point for ran in self.of(Stage.CONFIRM) for point in ran.round.points)
        return tuple(point for point in chosen if point not in self.out)

    def of(self, stage: Stage) -> tuple[Ran, ...]:
        """Return the rounds of a stage."""
        return tuple(ran for ran in self.ran if ran.round.stage is stage)

    def add(self, ran: Ran) -> "Search":
        """Return the same with one round more."""
        return replace(self, ran=(*self.ran, ran))

    def times_of(self, point: str) -> list[float]:
        """Return the known times of all launches of a point."""
        times = [time for ran in self.ran for time in ran.times_ns.get(point, ())]
        return [time for time in times if not math.isnan(time)]


def count_sweep(points: int, launches: int) -> int:
    """Return the launches that a full sweep of so many points beside the unchanged cell takes."""
    return (points + 1) * launches


def count_least(points: int, *, begins_unchanged: bool) -> int:
    """Return the fewest launches by which anything can be judged: two points tried, one held to the unchanged cell."""
    trying = 0 if points == 1 else 2 if begins_unchanged else 3
    return 2 * LEAST_LAUNCHES + LEAST_LAUNCHES * begins_unchanged + trying


def choose_budget(points: int, launches: int, *, begins_unchanged: bool) -> int:
    """Return how many launches a search may take where nobody says how many.

    A third of a full sweep; where that is too little to try each point once and hold one to the unchanged cell, as many
    as that takes, and never more than the sweep or fewer than ``count_least``.
    """
    sweep = count_sweep(points, launches)
    first = LEAST_LAUNCHES if begins_unchanged else 1
    wanted = min(sweep, first + points + 2 * launches)
    return max(sweep // 3, wanted, count_least(points, begins_unchanged=begins_unchanged))


def find_out_of_reach(told: Mapping[str, Told], out: Container[str] = ()) -> dict[str, float]:
    """Return the points whose interval ends below what another surely saves, or below nothing, with that end in ns.

    Args:
        told: forecasts by point.
        out: points that are out: what they were said to save leaves no other out.
    """
    lows_ns = [one.low_ns for point, one in told.items() if one.low_ns is not None and point not in out]
    surely_ns = max([0.0, *lows_ns])
    return {point: one.high_ns for point, one in told.items() if one.high_ns is not None and one.high_ns < surely_ns}


def next_round(search: Search, left: int) -> Round | None:
    """Return what is to run next; None: nothing more would tell, or may be spent.

    Args:
        search: what is known.
        left: launches that may still be spent.
    """
    if not search.points or _is_hopeless(search):
        return None
    if search.begins_unchanged and not search.ran:
        return Round(Stage.UNCHANGED, (), has_unchanged=True, launches=LEAST_LAUNCHES)
    if search.finalists:
        return _confirm_again(search, left)
    ranked = rank_points(search)
    return (_select(search, ranked, left) or _confirm(search, ranked, left)) if ranked else None


def _is_hopeless(search: Search) -> bool:
    """Tell whether nothing can be judged any more: the unchanged cell is out, or no launch so far tells a step."""
    if UNCHANGED in search.out or (search.of(Stage.UNCHANGED) and not search.times_of(UNCHANGED)):
        return True
    chosen = search.of(Stage.SELECT)
    ranked = rank_points(search)
    return bool(chosen and ranked) and not _score(ranked, chosen) and not _untold(ranked, chosen)


def rank_points(search: Search) -> tuple[str, ...]:
    """Return the points that may still be the best, the most promising first: by launches that chose, else by forecast.

    After a round that chose only those are among them that went on to it; if all are out, those of the round before.
    """
    gone = {*search.out, *find_out_of_reach(search.told, search.out)}
    alive, told = [point for point in search.points if point not in gone], search.told
    ranked = sorted(alive, key=lambda point: -told[point].saving_ns if point in told else math.inf)
    chosen = search.of(Stage.SELECT)
    for ran in reversed(chosen):
        tried = [point for point in ran.round.points if point not in gone]
        if not tried:
            continue
        scores = _score(tried, chosen)
        ranked = sorted(scores, key=lambda point: scores[point]) + _untold(tried, chosen)
        break
    return tuple(ranked)


def _score(points: Sequence[str], rounds: Sequence[Ran]) -> dict[str, float]:
    """Return the mean logarithm of each point's times, of each round relative to what the points took in it.

    So a round in which the machine was slower says nothing against those that ran in it.
    """
    found: dict[str, list[float]] = {}
    for ran in rounds:
        logs = {
            point: fmean(math.log(time) for time in times)
            for point in points
            if (times := _known(ran.times_ns.get(point, ())))
        }
        middle = fmean(logs.values()) if logs else 0.0
        for point, log in logs.items():
            found.setdefault(point, []).append(log - middle)
    return {point: fmean(logs) for point, logs in found.items()}


def _known(times: Sequence[float]) -> list[float]:
    return [time for time in times if time > 0]  # never of NaN


def _untold(points: Sequence[str], rounds: Sequence[Ran]) -> list[str]:
    """Return the points of which no launch told a step, and that may be tried again."""
    tried = {point: [times for ran in rounds if (times := ran.times_ns.get(point))] for point in points}
    return [
        point
        for point, times in tried.items()
        if len(times) < _MOST_TRIES and not any(_known(of_round) for of_round in times)
    ]


def _select(search: Search, ranked: Sequence[str], left: int) -> Round | None:
    """Return a launch of each point that may be a finalist; None: finalists can be named."""
    chosen = search.of(Stage.SELECT)
    if not chosen:
        return _select_first(search, ranked, left)
    untold = _untold(ranked, chosen)
    known = [point for point in ranked if point not in untold]
    if not untold and (len(known) <= _FEW or is_clear(search, known)):
        return None
    kept = (*known[: max(MOST_FINALISTS, len(known) // _KEPT)], *untold)
    if len(kept) <= MOST_FINALISTS and not untold:
        return None  # these are the finalists
    return _select_of(kept, has_unchanged=False) if left - len(kept) >= 2 * search.launches else None


def _select_first(search: Search, ranked: Sequence[str], left: int) -> Round | None:
    at_once = _confirm(search, ranked, left)
    if at_once is not None and len(at_once.points) == len(ranked):
        return None
    is_new = not search.times_of(UNCHANGED)
    fits = left - 2 * LEAST_LAUNCHES - is_new
    if fits < MOST_FINALISTS or len(ranked) < MOST_FINALISTS:
        return None
    return _select_of(tuple(ranked if fits >= len(ranked) else _thin(search, ranked, fits)), has_unchanged=is_new)


def _thin(search: Search, ranked: Sequence[str], fits: int) -> Sequence[str]:
    """Return as many as fit: the most promising by forecast, else some of all parts of the grid."""
    if search.told:
        return ranked[:fits]
    return [ranked[place * len(ranked) // fits] for place in range(fits)]


def _select_of(points: tuple[str, ...], *, has_unchanged: bool) -> Round:
    return Round(Stage.SELECT, points, has_unchanged, launches=1)


def is_clear(search: Search, ranked: Sequence[str]) -> bool:
    """Tell whether the first is so far ahead of the second that no more launches are needed to choose it.

    By the spread of the unchanged cell's launches; without at least four of them nothing is clear.
    """
    chosen, logs = search.of(Stage.SELECT), _log_unchanged(search)
    if len(ranked) < 2 or len(logs) < LEAST_LAUNCHES or not chosen:
        return False
    scores = _score(ranked[:2], chosen)
    error = stdev(logs) * math.sqrt(2 / len(chosen))
    return len(scores) == 2 and scores[ranked[1]] - scores[ranked[0]] > _CLEAR * error > 0


def _log_unchanged(search: Search) -> list[float]:
    return [math.log(time) for ran in search.of(Stage.UNCHANGED) for time in _known(ran.times_ns[UNCHANGED])]


def _confirm(search: Search, ranked: Sequence[str], left: int) -> Round | None:
    """Return the first launches of finalists and the unchanged cell, two of them where there are enough for both."""
    most, chosen = 1 if is_clear(search, ranked) else MOST_FINALISTS, search.of(Stage.SELECT)
    if chosen:
        scores = _score(ranked, chosen)
        ranked = [point for point in ranked if point in scores]
    for count in range(min(most, len(ranked)), 0, -1):
        each = min(search.launches, left // (count + 1))
        if each >= (LEAST_LAUNCHES if count == 1 else min(search.launches, LEAST_LAUNCHES + 1)):
            first = LEAST_LAUNCHES if each > LEAST_LAUNCHES + 1 else each
            return Round(Stage.CONFIRM, tuple(ranked[:count]), has_unchanged=True, launches=first, planned=each)
    return None


def _confirm_again(search: Search, left: int) -> Round | None:
    """Return more launches of the finalists; None: they are clear, all there are to be, or nothing is left."""
    finalists, confirmed = search.finalists, search.of(Stage.CONFIRM)
    done = sum(ran.round.launches for ran in confirmed if set(finalists) & set(ran.round.points))
    planned = max(ran.round.planned for ran in confirmed)
    wanted = planned - done
    if wanted <= 0:
        lacks = LEAST_LAUNCHES - min(_count_whole(search, point) for point in finalists)
        wanted = lacks if done < 2 * planned else 0  # launches that decide nothing are made up for once
    elif _is_settled_early(search):
        return None
    more = min(wanted, left // (len(finalists) + 1))
    return Round(Stage.CONFIRM, finalists, has_unchanged=True, launches=more, planned=planned) if more > 0 else None


def _count_whole(search: Search, point: str) -> int:
    base, changed = _confirmed_times(search, UNCHANGED, point)
    return sum(before > 0 and after > 0 for before, after in zip(base, changed, strict=True))


def _confirmed_times(search: Search, one: str, other: str) -> tuple[list[float], list[float]]:
    """Return the launches of two that took turns with each other, in rounds that confirm."""
    both = [ran.times_ns for ran in search.of(Stage.CONFIRM) if one in ran.times_ns and other in ran.times_ns]
    lengths = [min(len(times[one]), len(times[other])) for times in both]
    pairs = list(zip(both, lengths, strict=True))
    first, second = ([time for times, length in pairs for time in times[of][:length]] for of in (one, other))
    return first, second


def _compare(search: Search, before: str, after: str, level: float) -> SampleComparison:
    """Compare launches that took turns.

    Six to eight rounds one of which lies far off are compared by signed ranks, which reach no level as small as these
    (2 / 2^6 is 3 %): then the launches are compared without their rounds.
    """
    samples = _confirmed_times(search, before, after)
    found = compare_samples(*samples, is_interleaved=True, threshold=0.0, level=level)
    if math.isnan(found.low) and not math.isnan(found.p_value):
        return compare_samples(*samples, is_interleaved=False, threshold=0.0, level=level)
    return found


def _share_alpha(search: Search) -> tuple[float, float]:
    """Return the level of each finalist at the look before all launches are there, and at the end."""
    confirmed = search.of(Stage.CONFIRM)
    count = max(1, len({point for ran in confirmed for point in ran.round.points}))
    early = _EARLY if any(ran.round.launches < ran.round.planned for ran in confirmed[:1]) else 0.0
    return early / count, (ALPHA - early) / count


def _is_settled_early(search: Search) -> bool:
    """Tell whether the first finalist is surely shorter than the unchanged cell, and told apart from the other one."""
    level, _ = _share_alpha(search)
    first, *others = search.finalists
    if level <= 0 or not _compare(search, UNCHANGED, first, level).high < 1:
        return False
    found = [_compare(search, first, other, level) for other in others]
    return all(one.low > 1 or one.high < 1 for one in found)


@dataclass(frozen=True)
class Conclusion:
    """What a search has come to.

    Attributes:
        best: the point that is recommended; None: the cell as it is.
        held: each finalist against the unchanged cell, by launches that did not choose it.
        rivals: the other finalists against the best one.
        level: of each of these comparisons.
    """

    best: str | None
    held: Mapping[str, SampleComparison]
    rivals: Mapping[str, SampleComparison]
    level: float

    @property
    def judged(self) -> tuple[str, ...]:
        """Finalists of which anything follows."""
        return tuple(point for point, one in self.held.items() if not math.isnan(one.low))


def conclude(search: Search) -> Conclusion:
    """Return the first finalist that is surely shorter than the unchanged cell, unless another surely is than it.

    Which of two comes first was chosen by other launches, see [Note: two samples].
    """
    early, level = _share_alpha(search)
    if UNCHANGED in search.out:
        return Conclusion(None, {}, {}, level)
    if len(search.of(Stage.CONFIRM)) == 1 and search.finalists and _is_settled_early(search):
        level = early
    held = {point: _compare(search, UNCHANGED, point, level) for point in search.finalists}
    sure = [point for point, one in held.items() if one.high < 1]
    best = sure[0] if sure else None
    for other in sure[1:]:
        if best is not None and _compare(search, best, other, level).high < 1:
            best = other
    rivals = {} if best is None else {one: _compare(search, best, one, level) for one in held if one != best}
    return Conclusion(best, held, rivals, level)

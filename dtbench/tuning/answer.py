"""What became of every point of a grid, and what is recommended."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from dtbench.base.units import format_fraction, format_ns
from dtbench.comparison.statistics import SampleComparison
from dtbench.runs.settings.candidates import AND
from dtbench.tuning.budget import Budget
from dtbench.tuning.grid import Grid, Point, name_point
from dtbench.tuning.search import (
    UNCHANGED,
    Conclusion,
    Search,
    Stage,
    Told,
    conclude,
    count_sweep,
    find_out_of_reach,
)


class Status(StrEnum):
    """What became of a point."""

    BEST = "best"
    FINALIST = "finalist"
    DROPPED = "run and dropped"
    OUT_OF_REACH = "forecast too long"
    NOT_RUN = "not run"
    OUT = "out"
    SAME = "same as"
    IMPOSSIBLE = "not possible"


@dataclass(frozen=True)
class PointAnswer:
    """One point; times in ns.

    Attributes:
        name: of its cell in the runs.
        change: fields and values; empty: those of the unchanged cell.
        status: what became of it.
        word: the status in a word or two, where it is ``OUT``: why.
        why: a clause; empty: the status says it all.
        forecast: what was said of it; None: nothing.
        measured_ns: median of its launches that tell a step; NaN: none does.
        launches: that ran.
        saving_ns, low_ns, high_ns: of a finalist, what it saves, by launches that did not choose it, with the
            interval; NaN: it is none, or too few launches tell.
    """

    name: str
    change: str
    status: Status
    word: str
    why: str
    forecast: Told | None
    measured_ns: float
    launches: int
    saving_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Tuned:
    """The answer of a search; times in ns.

    Attributes:
        scenario: its name.
        cell: that was tuned.
        best: the change that is recommended; None: the cell as it is.
        unchanged_ns: its step, median of the launches that took turns with finalists, else of all; NaN: not known.
        points: every point, the best first.
        level: of the intervals: they hold ``1 - level``.
        detectable: share of the step by which a finalist must be shorter to be found 8 times of 10; NaN: not known.
        launches: that ran.
        budget: that might have.
        budget_ns: that they might have taken; None: however long.
        sweep: what running every point takes.
        rounds: folder and purpose of each run, first to last.
        forecast_launches: of the unchanged cell, by which forecasts were made; 0: none were.
        not_told: why there are no forecasts; empty: there are, or nobody asked.
        problem: why nothing can be judged; empty: something is.
        doubts: why launches decided nothing, a clause each, and how many.
        peak_bytes: memory at its peak, of the unchanged cell and the best point, on the rank that had most; None: not
            known, or none is recommended.
        is_checked: results are held to a single process's.
    """

    scenario: str
    cell: str
    best: str | None
    unchanged_ns: float
    points: tuple[PointAnswer, ...]
    level: float
    detectable: float
    launches: int
    budget: int
    budget_ns: float | None
    sweep: int
    rounds: tuple[tuple[str, Stage], ...]
    forecast_launches: int
    not_told: str
    problem: str
    doubts: Mapping[str, int]
    peak_bytes: tuple[int, int] | None
    is_checked: bool

    @property
    def best_point(self) -> PointAnswer | None:
        """The point that is recommended."""
        return next((point for point in self.points if point.status is Status.BEST), None)

    def of(self, status: Status) -> tuple[PointAnswer, ...]:
        """Return the points of a status."""
        return tuple(point for point in self.points if point.status is status)


def make_answer(scenario: str, grid: Grid, search: Search, budget: Budget) -> Tuned:
    """Return what a search that has ended has come to."""
    conclusion = conclude(search)
    points = sorted((_answer(point, grid, search, conclusion) for point in grid.points), key=_order)
    confirming = [time for ran in search.of(Stage.CONFIRM) for time in ran.times_ns.get(UNCHANGED, ())]
    unchanged = [time for time in confirming if not math.isnan(time)] or search.times_of(UNCHANGED)
    detectable = [one.detectable for one in conclusion.held.values() if not math.isnan(one.detectable)]
    told_by = [ran for ran in search.ran if ran.told]
    return Tuned(
        scenario=scenario,
        cell=grid.cell,
        best=None if conclusion.best is None else grid.find(conclusion.best).change,
        unchanged_ns=median(unchanged) if unchanged else math.nan,
        points=tuple(points),
        level=conclusion.level,
        detectable=max(detectable, default=math.nan),
        launches=search.used,
        budget=budget.launches,
        budget_ns=budget.duration_ns,
        sweep=count_sweep(len(search.points), search.launches),
        rounds=tuple((ran.run, ran.round.stage) for ran in search.ran),
        forecast_launches=sum(len(ran.times_ns[UNCHANGED]) for ran in told_by),
        not_told=next((ran.not_told for ran in search.ran if ran.not_told), ""),
        problem=_find_problem(search, conclusion),
        doubts=sum((Counter(ran.doubts) for ran in search.ran), Counter()),
        peak_bytes=_find_peaks(search, conclusion.best),
        is_checked=grid.scenario.correctness.enabled,
    )


def _find_peaks(search: Search, best: str | None) -> tuple[int, int] | None:
    """Return the most memory that the unchanged cell and the best point had in rounds with both of them."""
    if best is None:
        return None
    both = [ran.peak_bytes for ran in search.ran if UNCHANGED in ran.peak_bytes and best in ran.peak_bytes]
    return (max(peak[UNCHANGED] for peak in both), max(peak[best] for peak in both)) if both else None


def _find_problem(search: Search, conclusion: Conclusion) -> str:
    """Say why nothing can be judged; empty: something is, or there was nothing to judge."""
    reach = find_out_of_reach(search.told, search.out)
    doubts = sum((Counter(ran.doubts) for ran in search.ran), Counter[str]()).most_common(1)
    why = "".join(f": {doubt}" for doubt, _ in doubts)
    if (out := search.out.get(UNCHANGED)) is not None:
        return f"of the unchanged cell: {out.word}: {out.why}"
    if conclusion.judged or set(search.points) <= set(reach):  # where by forecast nothing is better, that is an answer
        return ""
    if set(search.points) <= {*search.out, *reach}:
        return "every point that may be better is out, see why below"
    if search.ran and not any(search.times_of(point) for point in (UNCHANGED, *search.points)):
        return f"no launch tells a step that nothing speaks against{why}"
    if search.of(Stage.CONFIRM):
        return f"too few launches tell a step that nothing speaks against{why}"
    return "the budget ended before a point could be held to the unchanged cell"


def _answer(point: Point, grid: Grid, search: Search, conclusion: Conclusion) -> PointAnswer:
    status, word, why = _find_status(point, grid, search, conclusion)
    times = search.times_of(point.name)
    held = conclusion.held.get(point.name)
    return PointAnswer(
        name=point.name,
        change=point.change,
        status=status,
        word=word,
        why=why,
        forecast=search.told.get(point.name),
        measured_ns=median(times) if times else math.nan,
        launches=sum(len(ran.times_ns.get(point.name, ())) for ran in search.ran),
        **_find_saving(held),
    )


def _find_saving(held: SampleComparison | None) -> dict[str, float]:
    if held is None or math.isnan(held.low):
        return {"saving_ns": math.nan, "low_ns": math.nan, "high_ns": math.nan}
    base_ns = held.baseline_median
    return {
        "saving_ns": base_ns - held.candidate_median,
        "low_ns": base_ns * (1 - held.high),
        "high_ns": base_ns * (1 - held.low),
    }


def _find_status(point: Point, grid: Grid, search: Search, conclusion: Conclusion) -> tuple[Status, str, str]:
    """Return what became of a point, in a word or two, and why."""
    if point.refused:
        status, why = Status.IMPOSSIBLE, point.refused
    elif point.same_as is not None:
        status, why = Status.SAME, name_point(grid, point.same_as)
    elif (out := search.out.get(point.name)) is not None:
        return Status.OUT, out.word, out.why
    else:
        status, why = _find_rank(point.name, search, conclusion)
    return status, status.value, why


def _find_rank(name: str, search: Search, conclusion: Conclusion) -> tuple[Status, str]:
    """Return what became of a point that could run and is not out, and why."""
    reach = find_out_of_reach(search.told, search.out)
    if name == conclusion.best:
        return Status.BEST, ""
    if name in conclusion.held:
        return Status.FINALIST, _judge_finalist(name, conclusion)
    if name in reach:
        return Status.OUT_OF_REACH, _say_reach(reach[name], search)
    if search.times_of(name):
        return Status.DROPPED, ""
    has_run = any(ran.times_ns.get(name) for ran in search.ran)
    return (Status.DROPPED, "no launch of it tells a step") if has_run else (Status.NOT_RUN, "")


def _say_reach(reach_ns: float, search: Search) -> str:
    step_ns = next(one.step_ns + one.saving_ns for one in search.told.values())
    share = reach_ns / step_ns
    said = f"saves {format_ns(reach_ns)} ({format_fraction(share)})" if reach_ns > 0 else "saves nothing"
    return f"{said} at most"


def _judge_finalist(name: str, conclusion: Conclusion) -> str:
    """Say how a finalist stands to the unchanged cell and to the best point."""
    held, rival = conclusion.held[name], conclusion.rivals.get(name)
    if rival is not None and not math.isnan(rival.low):
        return "surely longer than the best" if rival.low > 1 else "not told apart from the best"
    if math.isnan(held.low):
        return "too few launches tell"
    return "surely longer than as it is" if held.low > 1 else "not told apart from as it is"


_ORDER: Sequence[Status] = tuple(Status)


def _order(point: PointAnswer) -> tuple[int, float]:
    """Sort by status, then by what was measured, then by what was forecast."""
    told = math.inf if point.forecast is None else point.forecast.step_ns
    return _ORDER.index(point.status), told if math.isnan(point.measured_ns) else point.measured_ns


def find_helpless(points: Sequence[PointAnswer], unchanged_ns: float) -> list[tuple[str, float]]:
    """Return single settings whose points took, or were said to take, no shorter step than as it is, mean ns longer.

    Of points that change one setting alone, the one that is said to cost most first.
    """
    found: dict[str, list[float]] = {}
    for point in points:
        step_ns = point.measured_ns
        if math.isnan(step_ns) and point.forecast is not None:
            step_ns = point.forecast.step_ns
        if point.change and AND not in point.change and not math.isnan(step_ns) and step_ns >= unchanged_ns:
            found.setdefault(point.change, []).append(step_ns - unchanged_ns)
    return sorted(((change, fmean(longer)) for change, longer in found.items()), key=lambda one: -one[1])

"""A number over runs, commits or days as one frozen value: what every table, page, plot and ``--json`` shows.

[Note: what is established] Where levels change is found by ``change_points.py``, with one false alarm in a hundred
histories at most. Each change is then tested by itself as ``dtbench compare`` tests one (``statistics.py``), points of
the one level against those of the other, at 5 % over the number of changes: this gives its interval, and one that this
test does not find is none. Interval and size are of levels whose border the same numbers chose, so the size of a change
that was just found is rather too large than too small.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from dtbench.base.columns import Better, Unit
from dtbench.base.record import FloatOrNan, Record
from dtbench.base.units import NS_PER_S, count_launches, count_things, is_or_are
from dtbench.comparison.comparison import ESTABLISHED, MetricChange, Outcome, Sample
from dtbench.comparison.history.change_points import (
    ALPHA,
    LEAST_POINTS,
    LEAST_RUNS,
    Levels,
    find_detectable,
    find_levels,
)
from dtbench.comparison.history.readings import Reading, Readings, find_changes, read_history
from dtbench.comparison.metrics import BY_NAME, spell_metric
from dtbench.comparison.run_list import Wanted
from dtbench.comparison.sentence import spell_interval
from dtbench.comparison.statistics import SampleComparison, compare_samples
from dtbench.runs.cell.shift import LEVEL
from dtbench.runs.environments import EnvironmentChange
from dtbench.store.records.run import shorten_revision

FORMAT_VERSION: Final = 1
_LEAST_TO_CORRELATE: Final = 20
_MANY_ERRORS: Final = 3.0
"""Standard errors of a correlation above which neighbours resemble each other for sure."""


class By(StrEnum):
    """What a point of a history is: one run, or all runs of a commit, of a build of torch, of a day (UTC)."""

    RUN = "run"
    COMMIT = "commit"
    TORCH = "torch"
    DATE = "date"


class HistoryPoint(Record):
    """One point of a history.

    Attributes:
        name: a run's id, a commit, a version of torch, or a day.
        runs: ids of its runs, oldest first.
        started_unix_ns: when the first of them began.
        launches: that tell the number.
        value: of a run the median over its launches, of several the median over them.
        commit: of the user's code, of the first of them; empty: not told.
        torch: its version there; empty: not told.
    """

    name: str
    runs: tuple[str, ...]
    started_unix_ns: int
    launches: int
    value: float
    commit: str = ""
    torch: str = ""


class LevelChange(Record):
    """A place where the level changed.

    Attributes:
        place: of the first point of the new level, from 0.
        last: name of the last point before.
        first: name of the first point after.
        change: points of the level before (``baseline``) and after (``candidate``); its interval and p-value are
            corrected for the number of changes.
        environment: in what machine and software of the last run before and the first after differ.
    """

    place: int
    last: str
    first: str
    change: MetricChange
    environment: tuple[EnvironmentChange, ...] = ()

    @property
    def meaning(self) -> str:
        """Whether it is better or worse, differs where neither is, or is too small to matter, perhaps."""
        is_higher = self.change.candidate.median > self.change.baseline.median
        if self.change.outcome not in ESTABLISHED:
            return "perhaps too small" if self.change.outcome is Outcome.NOT_ESTABLISHED else "too small"
        if self.change.better is Better.NEITHER:
            return "differs"
        return "better" if is_higher is (self.change.better is Better.HIGHER) else "worse"


class LeftOut(Record):
    """Runs that are no point of the history.

    Attributes:
        why: a clause.
        runs: their ids.
    """

    why: str
    runs: tuple[str, ...]


class History(Record):
    """One number of one cell over its runs.

    Attributes:
        results: folder of all runs.
        scenario: whose runs.
        cell: of which cell.
        metric: ``step_time``, ``exposed_comm``, ...: a word that ``--fail-if`` takes.
        subject: what it is of: a purpose, or an owner; empty: the whole step.
        unit: of its values.
        better: the direction in which it is better.
        by: what a point is.
        points: oldest first.
        changes: places where the level changed, oldest first.
        threshold: relative changes below it do not matter to the person who asks.
        alpha: of histories without a change, in how many one is found, at most.
        least_runs: points that a level has at least.
        least_points: below, no change can be told.
        detectable: smallest relative change half-way through the points since the last change that would be found 8
            times of 10; 0: they do not vary; NaN: they are too few to show one.
        detectable_last: likewise of a change in the last ``least_runs`` points.
        left_out: runs that are no points, and why.
        sentence: the answer.
        notes: what must be known of it.
    """

    format_version: Literal[1] = FORMAT_VERSION
    results: str
    scenario: str
    cell: str
    metric: str
    subject: str
    unit: Unit
    better: Better
    by: By
    points: tuple[HistoryPoint, ...]
    changes: tuple[LevelChange, ...]
    threshold: float
    alpha: float
    least_runs: int
    least_points: int
    detectable: FloatOrNan
    detectable_last: FloatOrNan
    left_out: tuple[LeftOut, ...]
    sentence: str
    notes: tuple[str, ...]

    @property
    def last_change(self) -> LevelChange | None:
        """The last change that matters; None: there is none."""
        return next((one for one in reversed(self.changes) if one.change.outcome in ESTABLISHED), None)

    @property
    def borders(self) -> tuple[int, ...]:
        """Where levels begin and end: 0, the place of each change, the number of points."""
        return (0, *(one.place for one in self.changes), len(self.points))


@dataclass(frozen=True)
class _Group:
    """The runs of one point, oldest first."""

    name: str
    readings: tuple[Reading, ...]

    @property
    def value(self) -> float:
        return median(one.value for one in self.readings)


def make_history(results: Path, wanted: Wanted, metric: tuple[str, str], by: By, threshold: float) -> History:
    """Read one number of one cell over runs, and find where its level changed.

    Args:
        results: folder of all runs.
        wanted: which of them.
        metric: name of the metric, and what it is of; empty: the whole step.
        by: what a point is.
        threshold: relative changes below it do not matter.

    Raises:
        StoreError: there is no run that can be read and is asked for.
        ComparisonError: there are several scenarios or cells, and none is named.
    """
    return tell_history(results, read_history(results, wanted, metric), metric, by, threshold)


def tell_history(results: Path, readings: Readings, metric: tuple[str, str], by: By, threshold: float) -> History:
    """Find where the level of a number that was read changed; arguments as ``make_history``."""
    groups = list(_group(readings, by))
    values = np.array([group.value for group in groups], dtype=np.float64)
    levels, tested = _find_established(values, threshold)
    changes = tuple(_describe(groups, metric, borders, one) for borders, one in tested)
    detectable = [_find_relative(values, levels, changes, is_last=is_last) for is_last in (False, True)]
    name, subject = metric
    left_out = tuple(LeftOut(why=why, runs=tuple(runs)) for why, runs in readings.left_out.items())
    found = History(
        results=str(results),
        scenario=readings.scenario,
        cell=readings.cell,
        metric=name,
        subject=subject,
        unit=BY_NAME[name].unit,
        better=BY_NAME[name].better,
        by=by,
        points=tuple(map(_make_point, groups)),
        changes=changes,
        threshold=threshold,
        alpha=ALPHA,
        least_runs=LEAST_RUNS,
        least_points=LEAST_POINTS,
        detectable=detectable[0],
        detectable_last=detectable[1],
        left_out=left_out,
        sentence="",
        notes=tuple(_note(readings, values, changes)),
    )
    return found.model_copy(update={"sentence": _say(found)})


def _group(readings: Readings, by: By) -> Iterator[_Group]:
    """Yield the points, in the order in which the first run of each began; runs without a name are left out."""
    groups: dict[str, list[Reading]] = {}
    for one in readings.counted:
        name = _name(one, by)
        if name:
            groups.setdefault(name, []).append(one)
        else:
            readings.left_out.setdefault(_NAMELESS[by], []).append(one.run_id)
    yield from (_Group(name, tuple(runs)) for name, runs in groups.items())


_NAMELESS: Final = {By.COMMIT: "their commit is not known", By.TORCH: "their torch is not known"}


def _name(one: Reading, by: By) -> str:
    match by:
        case By.RUN:
            return one.run_id
        case By.COMMIT:
            return _name_commit(one)
        case By.TORCH:
            return _name_torch(one)
        case By.DATE:
            return datetime.fromtimestamp(one.started_unix_ns // NS_PER_S, UTC).date().isoformat()


def _name_commit(one: Reading) -> str:
    return "" if one.environment is None or one.environment.commit is None else one.environment.commit.words


def _name_torch(one: Reading) -> str:
    if one.environment is None:
        return ""
    built = one.environment.torch_git
    return one.environment.torch + (f" ({shorten_revision(built)})" if built else "")


def _make_point(group: _Group) -> HistoryPoint:
    first = group.readings[0]
    return HistoryPoint(
        name=group.name,
        runs=tuple(one.run_id for one in group.readings),
        started_unix_ns=first.started_unix_ns,
        launches=sum(len(one.values) for one in group.readings),
        value=group.value,
        commit=_name_commit(first),
        torch=_name_torch(first),
    )


_Borders = tuple[int, int, int]
"""Where a level begins, where the next does, and where that ends."""


def _find_established(
    values: NDArray[np.float64], threshold: float
) -> tuple[Levels, list[tuple[_Borders, SampleComparison]]]:
    """Find the levels, and the test of each change; those that it does not find are taken back, the weakest first."""
    levels, row = find_levels(_lay(values)), values.tolist()
    starts = list(levels.starts)
    while True:
        borders = [0, *starts, len(values)]
        places = list(zip(borders, borders[1:], borders[2:], strict=False))
        level = LEVEL / max(1, len(places))
        tested = [
            compare_samples(row[a:b], row[b:c], is_interleaved=False, threshold=threshold, level=level)
            for a, b, c in places
        ]
        weak = [(one.p_value, at) for at, one in enumerate(tested) if one.test is not None and one.p_value >= level]
        if not weak:
            return levels, list(zip(places, tested, strict=True))
        del starts[max(weak)[1]]


def _lay(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return logarithms, so that a change is a ratio; of what may be zero the values."""
    return np.log(values) if len(values) and values.min() > 0 else values


def _describe(
    groups: Sequence[_Group], metric: tuple[str, str], borders: _Borders, found: SampleComparison
) -> LevelChange:
    start, place, _ = borders
    before, after = ([group.value for group in groups[a:b]] for a, b in pairwise(borders))
    name, subject = metric
    change = MetricChange(
        metric=name,
        subject=subject,
        unit=BY_NAME[name].unit,
        better=BY_NAME[name].better,
        baseline=Sample(values=tuple(before), median=found.baseline_median),
        candidate=Sample(values=tuple(after), median=found.candidate_median),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p_value=found.p_value,
        test=found.test,
        detectable=found.detectable,
        outcome=found.outcome,
        outliers=(
            *(groups[start + at].name for at in found.baseline_outliers),
            *(groups[place + at].name for at in found.candidate_outliers),
        ),
    )
    return LevelChange(
        place=place,
        last=groups[place - 1].name,
        first=groups[place].name,
        change=change,
        environment=find_changes(groups[place - 1].readings[-1], groups[place].readings[0]),
    )


def _find_relative(
    values: NDArray[np.float64], levels: Levels, changes: Sequence[LevelChange], *, is_last: bool
) -> float:
    """Return the smallest relative change that points since the last change would show; NaN: they show none."""
    since = changes[-1].place if changes else 0
    count = len(values) - since
    if count < LEAST_POINTS:
        return math.nan
    if not np.ptp(values[since:]):
        return 0.0
    noise = float(np.std(_lay(values[since:]), ddof=1))
    spreads = find_detectable(levels.bound, count, LEAST_RUNS if is_last else count // 2)
    if values.min() > 0:
        return math.expm1(spreads * noise)
    typical = float(np.median(values[since:]))
    return spreads * noise / typical if typical > 0 else math.nan


def _note(readings: Readings, values: NDArray[np.float64], changes: Sequence[LevelChange]) -> Iterator[str]:
    """Say what must be known of a history beside its numbers."""
    correlation = _correlate(values, [0, *(one.place for one in changes), len(values)])
    if len(values) >= _LEAST_TO_CORRELATE and correlation > _MANY_ERRORS / math.sqrt(len(values)):
        yield (
            f"points resemble their neighbours (correlation {correlation:.2f} within levels): a machine that drifts "
            "may be among these changes, and false alarms are more than stated"
        )
    lacking = [one for one in readings.counted if one.left_out]
    if lacking:
        launches = sum(one.left_out for one in lacking)
        yield f"{count_launches(launches)} of {count_things(len(lacking), 'run')} {is_or_are(launches)} left out"
    unsettled = sum(not one.is_settled for one in readings.counted)
    if unsettled:
        it = "it is" if unsettled == 1 else "they are"
        yield f"the warm-up of {count_things(unsettled, 'run')} had not settled; {it} counted all the same"


def _correlate(values: NDArray[np.float64], borders: Sequence[int]) -> float:
    """Return the correlation of points with the next, both against the median of their level; 0: nothing varies."""
    laid = _lay(values)
    away = np.concatenate([laid[a:b] - np.median(laid[a:b]) for a, b in pairwise(borders) if b > a] or [laid])
    total = float(np.sum(away**2))
    return float(np.sum(away[1:] * away[:-1])) / total if total else 0.0


def _say(history: History) -> str:
    """Say what came of it: the last change that matters, or that there is none, and what would have been seen."""
    what, over = spell_metric(history.metric, history.subject), count_points(len(history.points), history.by)
    if len(history.points) < LEAST_POINTS:
        return f"{over} {is_or_are(len(history.points))} too few to tell a change of {what}: {LEAST_POINTS} are needed"
    last = history.last_change
    if last is None:
        small, unsure = "", ""
        if history.changes:
            small, found = " that matters", count_things(len(history.changes), "change")
            unsure = f" ({found}, not surely of {100 * history.threshold:g} % or more)"
        return f"No change of {what}{small} established over {over}{unsure}; {say_detectable(history)}"
    count = count_things(len(history.changes), "change")
    size = f"{spell_ratio(last.change)}{spell_bars(last.change)}"
    between = f"{last.meaning}: between {last.last} and {last.first}"
    return f"{count} of {what} over {over}; the last that matters, {size}, {between}"


def count_points(count: int, by: By) -> str:
    """Say how many points there are: ``12 runs``, ``1 day``."""
    match by:
        case By.TORCH:
            return count_things(count, "build") + " of torch"
        case By.DATE:
            return count_things(count, "day")
        case _:
            return count_things(count, str(by))


def say_detectable(history: History) -> str:
    """Say how large a change would have been seen."""
    if not history.detectable:
        return "the number does not vary"
    if math.isnan(history.detectable):
        return "so few, or so spread, would have shown none"
    one = f"one of about {100 * history.detectable:.2g} % half-way would have shown"
    if math.isnan(history.detectable_last):
        return f"{one} (8 times of 10)"
    return f"{one}, and one of {100 * history.detectable_last:.2g} % in the last {LEAST_RUNS} (8 times of 10)"


def spell_ratio(change: MetricChange) -> str:
    """Spell how a level changed, relatively; of what was nothing, in words.

    Where the level before is zero there is no ratio.
    """
    if math.isnan(change.ratio):
        return "from nothing" if change.outcome is Outcome.HIGHER else "n/a"
    return f"{100 * (change.ratio - 1):+.1f} %"


def spell_bars(change: MetricChange) -> str:
    """Spell the interval of a change behind it; empty: there is none, or it does not vary."""
    if math.isnan(change.low) or math.isnan(change.high) or change.low == change.high:
        return ""
    return f" (95 % interval {spell_interval(change)})"

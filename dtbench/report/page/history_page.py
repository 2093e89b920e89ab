"""A history as a page: what was left out first, then the answer, every change, and the points, newest first."""

import math
from collections.abc import Iterator
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_things
from dtbench.comparison.comparison import ESTABLISHED
from dtbench.comparison.gate import Gate, spell_number
from dtbench.comparison.history.history import By, History, HistoryPoint, LeftOut, LevelChange, spell_ratio
from dtbench.comparison.metrics import spell_metric
from dtbench.comparison.sentence import spell_interval
from dtbench.report.page.bounds import bounds_part
from dtbench.report.page.page import Cell, Column, Fact, Line, Page, Part, Row, Table, Tone, lines
from dtbench.report.page.runs_page import spell_moment

MOST_POINTS: Final = 20
"""That a narrow medium shows, the newest."""

MOST_CHANGES: Final = 12
_MOST_NAMED: Final = 4
_TONES: Final = {"better": Tone.GOOD, "worse": Tone.BAD}
_CHANGES: Final = (
    Column("last before"),
    Column("first after"),
    Column("before", is_number=True),
    Column("after", is_number=True),
    Column("change", is_number=True),
    Column("95 % interval", is_number=True),
    Column("what it is"),
    Column("what else changed"),
)


def history_page(history: History, gate: Gate | None = None) -> Page:
    """Make the page of a history, with the bounds on it where there are any."""
    what = spell_metric(history.metric, history.subject)
    return Page(
        title=f"History of {what}",
        aside=f"{history.scenario}:{history.cell}",
        facts=tuple(Fact("left out", say_left_out(one), Tone.WARNING) for one in history.left_out),
        answer=(Line(history.sentence, _find_tone(history)),),
        parts=(*bounds_part(gate), *_changes_part(history), *_points_part(history)),
        notes=lines(history.notes, Tone.WARNING),
    )


def say_left_out(one: LeftOut) -> str:
    """Say how many runs are no points, why, and which."""
    named = ", ".join(one.runs[:_MOST_NAMED])
    more = f" and {len(one.runs) - _MOST_NAMED} more" if len(one.runs) > _MOST_NAMED else ""
    return f"{count_things(len(one.runs), 'run')} left out, {one.why} ({named}{more})"


def _find_tone(history: History) -> Tone:
    last = history.last_change
    return Tone.STRONG if last is None else _TONES.get(last.meaning, Tone.STRONG)


def _changes_part(history: History) -> Iterator[Part]:
    if not history.changes:
        return
    note = (
        f"a level is {history.least_runs} points or more; of histories without a change, one in "
        f"{round(1 / history.alpha)} has one found; intervals are corrected for the number of changes"
    )
    rest = len(history.changes) - MOST_CHANGES
    table = Table(
        "Where the level changed",
        _CHANGES,
        [_show_change(one) for one in reversed(history.changes)],
        notes=(note,),
        key="changes",
        first=MOST_CHANGES,
        more=f"and {count_things(rest, 'older change')}: --full",
    )
    yield Part("changes", "", (table,))


def _show_change(one: LevelChange) -> Row:
    change = one.change
    is_known = not math.isnan(change.low) and not math.isnan(change.high)
    return (
        one.last,
        one.first,
        *(
            Cell(spell_number(side.median, change.unit), value=side.median)
            for side in (change.baseline, change.candidate)
        ),
        Cell(spell_ratio(change), value=None if math.isnan(change.ratio) else change.ratio),
        spell_interval(change) if is_known else "n/a",
        Cell(one.meaning, _TONES.get(one.meaning, Tone.PLAIN if change.outcome in ESTABLISHED else Tone.QUIET)),
        say_environment(one),
    )


def say_environment(one: LevelChange) -> str:
    """Say in what machine and software differ where a level changed, first what changes what is measured."""
    changes = sorted(one.environment, key=lambda change: (change.what != "commit of the code", not change.why))
    named = [f"{change.what} {change.baseline} -> {change.candidate}" for change in changes[:_MOST_NAMED]]
    more = [f"{len(changes) - _MOST_NAMED} more"] if len(changes) > _MOST_NAMED else []
    return "; ".join([*named, *more]) or "nothing that is told"


def _points_part(history: History) -> Iterator[Part]:
    if not history.points:
        return
    at_change = {one.place: one for one in history.changes}
    rows = [_show_point(point, at_change.get(place), history) for place, point in enumerate(history.points)][::-1]
    rest = len(rows) - MOST_POINTS
    name = {By.RUN: "run", By.COMMIT: "commit", By.TORCH: "torch", By.DATE: "day"}[history.by]
    columns = (
        Column(name),
        Column("began (UTC)"),
        Column("runs", is_number=True, unit=Unit.COUNT),
        Column("launches", is_number=True, unit=Unit.COUNT),
        Column(spell_metric(history.metric, history.subject), is_number=True, unit=history.unit),
        Column("level"),
        Column("commit"),
        Column("torch"),
    )
    table = Table(
        "Newest first", columns, rows, key="points", first=MOST_POINTS, more=f"and {rest} older: --full, --json"
    )
    yield Part("points", "", (table,))


def _show_point(point: HistoryPoint, change: LevelChange | None, history: History) -> Row:
    level = (
        ""
        if change is None
        else Cell(f"{spell_ratio(change.change)} {change.meaning}", _TONES.get(change.meaning, Tone.PLAIN))
    )
    return (
        point.name,
        spell_moment(point.started_unix_ns).replace("T", " "),
        Cell(str(len(point.runs)), value=len(point.runs)),
        Cell(str(point.launches), value=point.launches),
        Cell(spell_number(point.value, history.unit), value=point.value),
        level,
        point.commit or "n/a",
        point.torch or "n/a",
    )

"""What a search has come to, as a page."""

import math
from collections.abc import Iterable, Iterator
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_launches, count_things, format_bytes, format_fraction, format_ns
from dtbench.report.page.page import Cell, Column, Fact, Facts, Line, Page, Part, Row, Table, Tone, lines, numbers
from dtbench.runs.settings.candidates import AND
from dtbench.tuning.answer import PointAnswer, Status, Tuned, find_helpless
from dtbench.tuning.search import Stage

_MOST_ROWS: Final = 8
_MOST_REASONS: Final = 3
_MORE_MEMORY: Final = 0.02
"""By what part more memory is said to be needed: less is how much a process varies by."""
_USUAL: Final = "parallel."
_TONES: Final = {Status.BEST: Tone.GOOD, Status.OUT: Tone.WARNING}
_COUNTED: Final = (
    *(Status.IMPOSSIBLE, Status.SAME, Status.OUT, Status.OUT_OF_REACH, Status.NOT_RUN),
    *(Status.DROPPED, Status.FINALIST, Status.BEST),
)


def tune_page(tuned: Tuned) -> Page:
    """Make the page."""
    return Page(
        title="Which settings take the shortest step",
        aside=f"{tuned.scenario}, {tuned.cell}",
        answer=tuple(_answer(tuned)),
        parts=(Part("points", "", (_table(tuned), Facts(tuple(_facts(tuned)), key="search"))),),
        notes=lines(_notes(tuned), Tone.QUIET),
    )


def spell_point(change: str) -> str:
    """Spell a point's change for a person, without the section that nearly every field is of."""
    return f" {AND.strip()} ".join(one.removeprefix(_USUAL) for one in change.split(AND)) if change else "as it is"


def _answer(tuned: Tuned) -> Iterator[Line]:
    best, step = tuned.best_point, f"a measured step of {format_ns(tuned.unchanged_ns)}"
    if tuned.problem:
        yield Line(f"nothing can be said: {tuned.problem}", Tone.BAD)
    elif best is not None:
        yield Line(
            f"{tuned.cell}: `{best.change}` saves {format_ns(best.saving_ns)} "
            f"({format_fraction(best.saving_ns / tuned.unchanged_ns)}) of {step}, {_spell_level(tuned)} interval "
            f"{_between(best.low_ns, best.high_ns)}; {_say_rivals(tuned)}",
            Tone.STRONG,
        )
    else:
        yield Line(f"{tuned.cell}: {_say_kept(tuned)}", Tone.STRONG)
    if (left := len(tuned.of(Status.NOT_RUN))) and not tuned.problem:
        yield Line(f"{count_things(left, 'point')} did not fit into the budget: --budget allows more", Tone.WARNING)


def _say_rivals(tuned: Tuned) -> str:
    """Say that no point that was tried beats the best one, and which cannot be told apart from it."""
    near = [point for point in tuned.of(Status.FINALIST) if point.why == "not told apart from the best"]
    if near:
        return f"`{near[0].change}` cannot be told apart from it"
    return "no other point was found that beats it"


def _say_kept(tuned: Tuned) -> str:
    finalists = tuned.of(Status.FINALIST)
    if not finalists:
        if tuned.of(Status.OUT_OF_REACH):
            return "keep it as it is: by forecast no point saves anything; none was run"
        return "keep it as it is: there is no other point that can run"
    if all(point.high_ns < 0 for point in finalists):
        return f"keep it as it is: {_count(finalists)} that came first take surely longer"
    first = finalists[0]
    shown = f"; such launches show a difference of {format_fraction(tuned.detectable)} 8 times of 10"
    return (
        f"no difference detectable: keep it as it is. `{first.change}` saves {format_ns(first.saving_ns)} of a "
        f"measured step of {format_ns(tuned.unchanged_ns)}, {_spell_level(tuned)} interval "
        f"{_between(first.low_ns, first.high_ns)}{'' if math.isnan(tuned.detectable) else shown}"
    )


def _count(points: Iterable[PointAnswer]) -> str:
    count = len(list(points))
    return "the point" if count == 1 else f"the {count} points"


def _spell_level(tuned: Tuned) -> str:
    return format_fraction(1 - tuned.level)


def _between(low_ns: float, high_ns: float) -> str:
    return f"{format_ns(low_ns)} to {format_ns(high_ns)}"


def _table(tuned: Tuned) -> Table:
    others = len(tuned.points) - _MOST_ROWS
    is_told = any(point.forecast is not None for point in tuned.points)
    return Table(
        "Points, the best first",
        (
            Column("setting"),
            Column(""),
            *numbers(Unit.NS, *(["forecast\nstep"] if is_told else []), "measured\nstep"),
            *numbers(Unit.COUNT, "launches"),
            Column("saves, or why"),
        ),
        [_row(point, is_told=is_told) for point in tuned.points],
        key="points",
        first=_MOST_ROWS,
        more=f"{count_things(others, 'more point')}: --html and --json have all",
    )


def _row(point: PointAnswer, *, is_told: bool) -> Row:
    forecast_ns = None if point.forecast is None else point.forecast.step_ns
    saving = f"{format_ns(point.saving_ns)}, {_between(point.low_ns, point.high_ns)}"
    said = [*([] if math.isnan(point.saving_ns) else [saving]), *([_spell_why(point)] if point.why else [])]
    return (
        spell_point(point.change),
        Cell(point.word, _TONES.get(point.status, Tone.PLAIN)),
        *(["" if forecast_ns is None else Cell(format_ns(forecast_ns), value=forecast_ns)] if is_told else []),
        "" if math.isnan(point.measured_ns) else Cell(format_ns(point.measured_ns), value=point.measured_ns),
        Cell(str(point.launches), value=point.launches) if point.launches else "",
        "; ".join(said),
    )


def _spell_why(point: PointAnswer) -> str:
    return spell_point(point.why) if point.status is Status.SAME else point.why


def _facts(tuned: Tuned) -> Iterator[Fact]:
    counts = [
        (len(points), status)
        for status in _COUNTED
        if (points := [point for point in tuned.points if point.status is status])
    ]
    yield Fact("points", f"{len(tuned.points)}: " + ", ".join(f"{count} {status.value}" for count, status in counts))
    for status in (Status.IMPOSSIBLE, Status.SAME, Status.OUT):
        yield from _say_reasons(tuned.of(status), status)
    share = f" ({format_fraction(tuned.launches / tuned.sweep)})" if tuned.sweep else ""
    allowed = f"{tuned.budget} were" if tuned.budget_ns is None else f"{format_ns(tuned.budget_ns)} was"
    yield Fact("launches", f"{tuned.launches} of {tuned.sweep} that a full sweep takes{share}; {allowed} allowed")
    helpless = [] if math.isnan(tuned.unchanged_ns) else find_helpless(tuned.points, tuned.unchanged_ns)
    if helpless:
        named = [f"`{change}` +{format_ns(longer_ns)}" for change, longer_ns in helpless[:_MOST_REASONS]]
        more = len(helpless) - len(named)
        yield Fact("no shorter by itself", ", ".join([*named, *([f"{more} more"] if more else [])]))
    if tuned.peak_bytes is not None:
        before, after = tuned.peak_bytes
        if after > (1 + _MORE_MEMORY) * before:
            yield Fact(
                "memory", f"{format_bytes(after)} at its peak on a rank, {format_bytes(before)} as it is", Tone.WARNING
            )
    if tuned.rounds:
        yield Fact("runs", ", ".join(f"{run} ({_PURPOSES[stage]})" for run, stage in tuned.rounds))


_PURPOSES: Final = {Stage.UNCHANGED: "as it is", Stage.SELECT: "to choose", Stage.CONFIRM: "to judge"}


def _say_reasons(points: Iterable[PointAnswer], status: Status) -> Iterator[Fact]:
    """Say why points are out, those of which the same is said together."""
    reasons: dict[str, list[PointAnswer]] = {}
    for point in points:
        reason = _spell_why(point) if status is not Status.OUT else f"{point.word}, {point.why}"
        if point.change or status is not Status.SAME:  # that the cell as it is is itself goes without saying
            reasons.setdefault(reason, []).append(point)
    if not reasons:
        return
    named = [
        f"{spell_point(of_reason[0].change)}{f' and {len(of_reason) - 1} more' if len(of_reason) > 1 else ''}: {reason}"
        for reason, of_reason in list(reasons.items())[:_MOST_REASONS]
    ]
    more = len(reasons) - len(named)
    yield Fact(status.value, "; ".join([*named, *([f"{count_things(more, 'more reason')}"] if more else [])]))


def _notes(tuned: Tuned) -> Iterator[str]:
    if tuned.of(Status.FINALIST) or tuned.best is not None:
        yield (
            "finalists and the unchanged cell took turns on launches of their own: those that chose a point judge none"
        )
    if tuned.forecast_launches:
        yield (
            f"forecasts are by the closed form, from {tuned.forecast_launches} launches of the unchanged cell; points "
            "whose interval does not reach what the best surely saves were not run"
        )
    elif tuned.not_told:
        yield f"nothing was forecast: {tuned.not_told}"
    if tuned.budget_ns is None and tuned.budget > max(1, tuned.sweep // 3) and tuned.sweep:
        yield f"a third of the sweep is {tuned.sweep // 3}: {tuned.budget} launches were allowed"
    if not tuned.is_checked:
        yield "results were not checked against a single process: correctness.enabled is false"
    for why, count in tuned.doubts.items():
        yield f"{count_launches(count)} {'decides' if count == 1 else 'decide'} nothing: {why}"

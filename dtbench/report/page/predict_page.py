"""Steps at other numbers of ranks, as a page: each cell's curve, the cells side by side, and how far to trust it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dtbench.base.columns import Unit
from dtbench.base.units import format_bytes, format_count, format_fraction, format_ns
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone, lines, numbers
from dtbench.report.page.predict_notes import predict_notes
from dtbench.runs.scaling.curve import Curve, Point, find_fastest
from dtbench.runs.scaling.links import Cluster
from dtbench.runs.settings.forecast import LEVEL

_MOST_WORLDS: Final = 6
"""Numbers of ranks in a table of one column each; the first and the last are among them."""

_MOST_LINES: Final = 4
"""Cells whose curve is a sentence of the answer."""

EXTRAPOLATED: Final = "*"
"""Stands behind what lies beyond all that predictions were ever held against."""


class AskedCurves(NamedTuple):
    """What a page is of.

    Attributes:
        source: what was asked.
        curves: cells of which something is said; at least one.
        refused: by name, why nothing is said of others.
        cluster: where they are asked to run.
    """

    source: str
    curves: Sequence[Curve]
    refused: Mapping[str, str]
    cluster: Cluster


def predict_screen(asked: AskedCurves) -> Page:
    """Make the page for a terminal: of several cells one table over ranks, and one of the cells side by side."""
    return _page(asked, list(_few_parts(asked.curves)))


def predict_page(asked: AskedCurves) -> Page:
    """Make the page with everything: also each cell by itself."""
    parts = list(_few_parts(asked.curves))
    if len(asked.curves) > 1:
        parts += [Part(f"cell:{one.subject.name}", "", (_curve_table(one, one.subject.name),)) for one in asked.curves]
    return _page(asked, parts)


def _page(asked: AskedCurves, parts: Sequence[Part]) -> Page:
    return Page(
        title="Steps at other numbers of ranks",
        aside=asked.source,
        answer=tuple(_answer(asked.curves)),
        parts=tuple(parts),
        notes=(
            *(Line(f"{name}: {why}", Tone.WARNING) for name, why in asked.refused.items()),
            *lines(predict_notes(asked.curves, asked.cluster), Tone.QUIET),
        ),
    )


def _few_parts(curves: Sequence[Curve]) -> Iterator[Part]:
    worlds = sorted({point.world for curve in curves for point in curve.points})
    if len(curves) == 1:
        yield Part("curve", "", (_curve_table(curves[0]),))
        return
    if len(worlds) > 1:
        yield Part("curves", "", (_steps_table(curves, worlds),))
    yield Part("layouts", "", (_layouts_table(curves, worlds[-1]),))


def _answer(curves: Sequence[Curve]) -> Iterator[Line]:
    unknown = [curve for curve in curves if not curve.subject.measured]
    if unknown:
        of = "" if len(unknown) == len(curves) else f" of {', '.join(curve.subject.name for curve in unknown)}"
        yield Line(f"the host's time{of} is not known: taken as none. A run of the scenario tells it.", Tone.WARNING)
    if len(curves) > 1:
        last = max(point.world for curve in curves for point in curve.points)
        yield _say_fastest(find_fastest(curves, last), last)
    for curve in curves[:_MOST_LINES]:
        yield _say_curve(curve, f"{curve.subject.name}: " * (len(curves) > 1), is_only=len(curves) == 1)


def _say_fastest(found: Sequence[tuple[Curve, Point]], world: int) -> Line:
    """Say which cell has most tokens per second, and whether that is sure."""
    (best, first), *others = found
    lead = f"at {world:,} ranks"
    if not others:
        return Line(f"{lead} something can be said of `{best.subject.name}` alone: {_spell_step(first)}", Tone.STRONG)
    next_one, second = others[0]
    each = "" if first.tokens == second.tokens else f" for {second.tokens / first.tokens:.3g} times the tokens"
    behind = f"`{next_one.subject.name}` takes {format_ns(second.step_ns)}{each}"
    if first.high_ns is None or second.low_ns is None:
        return Line(f"{lead} `{best.subject.name}` comes first: {_spell_step(first)}; {behind}", Tone.STRONG)
    if first.high_ns / first.tokens < second.low_ns / second.tokens:
        return Line(f"{lead} `{best.subject.name}` is the fastest: {_spell_step(first)}; {behind}", Tone.STRONG)
    return Line(
        f"{lead} none is surely the fastest: `{best.subject.name}` {_spell_step(first)}; {behind}, and their intervals "
        "overlap",
        Tone.STRONG,
    )


def _say_curve(curve: Curve, lead: str, *, is_only: bool) -> Line:
    tone = Tone.STRONG if is_only else Tone.PLAIN
    first, last = curve.points[0], curve.points[-1]
    if first is last:
        return Line(f"{lead}at {first.world:,} ranks {_spell_step(first)}, {_spell_exposed(first)} of it exposed", tone)
    return Line(
        f"{lead}{_spell_step(first)} at {first.world:,} ranks, {_spell_length(last)} at {last.world:,}; "
        f"communication is exposed for {_spell_exposed(first)} and {_spell_exposed(last)} of it",
        tone,
    )


def _spell_step(point: Point) -> str:
    return f"a step of {_spell_length(point)}"


def _spell_length(point: Point) -> str:
    if point.low_ns is None or point.high_ns is None:
        return format_ns(point.step_ns)
    between = f"{format_ns(point.low_ns)} to {format_ns(point.high_ns)}"
    return f"{format_ns(point.step_ns)} ({format_fraction(LEVEL)} interval {between})"


def _spell_exposed(point: Point) -> str:
    return format_fraction(point.exposed_comm_ns / point.step_ns) if point.step_ns else "n/a"


def _steps_table(curves: Sequence[Curve], worlds: Sequence[int]) -> Table:
    shown = _choose_worlds(worlds)
    left_out = len(worlds) - len(shown)
    return Table(
        "step by number of ranks",
        (Column("cell"), *numbers(Unit.NS, *(f"{world:,}" for world in shown))),
        [(curve.subject.name, *(_step_at(curve, world) for world in shown)) for curve in curves],
        notes=(f"{left_out} more numbers of ranks: --json and --html have all",) if left_out else (),
        key="steps",
    )


def _choose_worlds(worlds: Sequence[int]) -> list[int]:
    """Return so many as fit, the first and the last among them, and the others as far from each other."""
    if len(worlds) <= _MOST_WORLDS:
        return list(worlds)
    last = len(worlds) - 1
    return [worlds[round(place * last / (_MOST_WORLDS - 1))] for place in range(_MOST_WORLDS)]


def _step_at(curve: Curve, world: int) -> str | Cell:
    point = next((one for one in curve.points if one.world == world), None)
    return "n/a" if point is None else _step_cell(point)


def _step_cell(point: Point) -> Cell:
    return Cell(f"{format_ns(point.step_ns)}{EXTRAPOLATED * bool(point.beyond)}", value=point.step_ns)


_COLUMNS: Final = (
    *numbers(Unit.NS, "step", f"{format_fraction(LEVEL)}\nwithin", "exposed"),
    *numbers(Unit.FRACTION, "of\nstep"),
    *numbers(Unit.BYTES, "state\na rank"),
    *numbers(Unit.COUNT, "collec-\ntives"),
    *numbers(Unit.BYTES, "sent"),
)


_LAYOUT_COLUMNS: Final = (*numbers(Unit.PER_SECOND, "tokens\n/ s"), *_COLUMNS[:2], *_COLUMNS[3:])
"""What is exposed in place of its share would be one column too many for 80 characters."""


def _curve_table(curve: Curve, name: str = "") -> Table:
    return Table(
        f"{name}: a step by number of ranks" if name else "a step by number of ranks",
        (*numbers(Unit.COUNT, "ranks"), *_COLUMNS),
        [(Cell(f"{point.world:,}", value=point.world), *_point_row(point)) for point in curve.points],
        notes=tuple(_say_most([(str(point.world), point) for point in curve.points])),
        key="curve",
    )


def _layouts_table(curves: Sequence[Curve], world: int) -> Table:
    found = find_fastest(curves, world)
    return Table(
        f"side by side at {world:,} ranks, fastest first",
        (Column("cell"), *_LAYOUT_COLUMNS),
        [(curve.subject.name, *_layout_row(point)) for curve, point in found],
        notes=tuple(_say_most([(curve.subject.name, point) for curve, point in found])),
        key="layouts",
    )


def _say_most(points: Sequence[tuple[str, Point]]) -> Iterator[str]:
    """Say what most of the exposed communication is for, by what stands in the first column."""
    of: dict[str, list[str]] = {}
    for name, point in points:
        most = max(point.exposed_ns, key=lambda pair: pair[1], default=None)
        if most is not None and most[1]:
            of.setdefault(most[0].value, []).append(name)
    said = [purpose if len(of) == 1 else f"{purpose} ({', '.join(names)})" for purpose, names in of.items()]
    if said:
        yield f"most of what is exposed: {', '.join(said)}"


def _layout_row(point: Point) -> Row:
    row = _point_row(point)
    per_second = point.tokens_per_second
    return (Cell(format_count(per_second), value=per_second), *row[:2], *row[3:])


def _point_row(point: Point) -> Row:
    exposed, sent = point.exposed_comm_ns, point.wire_bytes
    half_ns = None if point.high_ns is None else point.high_ns - point.step_ns
    return (
        _step_cell(point),
        "n/a" if half_ns is None else Cell(f"\u00b1{format_ns(half_ns)}", value=half_ns),
        Cell(format_ns(exposed), value=exposed),
        Cell(_spell_exposed(point), value=exposed / point.step_ns if point.step_ns else None),
        Cell(format_bytes(point.state_bytes), value=point.state_bytes),
        Cell(str(point.collectives), value=point.collectives),
        "n/a" if sent is None else Cell(format_bytes(sent), value=sent),
    )

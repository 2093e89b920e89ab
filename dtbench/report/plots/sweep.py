"""One figure of a sweep: lines over a numeric axis, a map of two axes, or bars where no axis is a number.

Both start at zero: a sweep whose cells hardly differ has to look so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtbench.base.units import NS_PER_MS, count_things, is_or_are
from dtbench.base.vocabulary import Purpose
from dtbench.report.page import looks, sweep
from dtbench.report.page.sweep import SweepAxis
from dtbench.report.plots.drawing import (
    EDGE,
    FAINT,
    LINE_STYLES,
    QUIET,
    Part,
    absent_words,
    add_axes,
    left_out_words,
    literal,
    new_figure,
    say,
    set_heading,
)
from dtbench.report.plots.sweep_map import fits_map, plot_sweep_map
from dtbench.report.words import sentences
from dtbench.report.words.settings import NOT_ON_AXIS
from dtbench.runs.reading.undisturbed import JUDGED
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.axes import UNSET
from dtbench.scenario.sweeps.sweep import name_some

MOST_LINES = len(looks.LINE_COLOURS) * len(LINE_STYLES)
MOST_BARS = 40
_MOST_READABLE = 5
"""Lines over one axis; more of them are a map, where it can be."""

_MOST_TICKS = 12
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_LOGARITHMIC_FROM = 8
"""An axis whose largest value is so many times its smallest is drawn by its logarithm."""

_EXPOSED: Final = {
    purpose: Part(name, purpose.value, looks.PURPOSE_LOOKS[purpose])
    for purpose, name in {
        Purpose.GRAD_REDUCE: "exposed gradient reduction",
        Purpose.UNSHARD: "exposed unshard",
        Purpose.TENSOR: "exposed tensor parallelism",
        Purpose.CONTEXT: "exposed context parallelism",
        Purpose.EXPERT: "exposed expert parallelism",
        Purpose.PIPELINE: "exposed pipeline",
        Purpose.STATE: "exposed training state",
        Purpose.OTHER: "other exposed comm",
    }.items()
}
_UNTOLD: Final = Part("exposed, for what is not known", "untold", looks.EXPOSED_COMM)
_REST: Final = Part("rest of the step", "rest", looks.REST)


@dataclass(frozen=True)
class Line:
    """Cells that differ on the numeric axis only, in the order of that axis."""

    label: str
    colour: str
    style: str
    marker: str
    cells: tuple[CellSummary, ...]
    positions: tuple[float, ...]
    begins_unset: bool


@dataclass(frozen=True)
class Scale:
    """Where the values of a numeric axis lie; ``unset`` is none of the numbers and lies apart, left of them."""

    values: tuple[str, ...]
    positions: tuple[float, ...]

    def __call__(self, value: str) -> float:
        """Return the position of a value."""
        return self.positions[self.values.index(value)]

    @property
    def border(self) -> float | None:
        """Between ``unset`` and the numbers; None where all are numbers."""
        return sum(self.positions[:2]) / 2 if self.values[0] == UNSET else None


def plot_sweep(summary: RunSummary) -> Figure:
    """Draw the cells of a run against each other."""
    axes = sweep.find_axes(summary)
    numeric = find_numeric_axis(axes)
    known = [cell for cell in summary.cells if not math.isnan(cell.step_time.median)]
    if not known:
        figure = new_figure(3.0)
        return say(figure, add_axes(figure), "No step was measured in this run.")
    if fits_map(axes) and not _are_lines(axes, numeric):
        return plot_sweep_map(summary)
    if numeric is None:
        return _plot_bars(summary, known)
    return _plot_lines(summary, numeric, [axis for axis in axes if axis is not numeric])


def _are_lines(axes: Sequence[SweepAxis], numeric: SweepAxis | None) -> bool:
    """Tell whether the cells make few enough lines over the numeric axis to be told apart."""
    return numeric is not None and all(len(set(axis.values)) <= _MOST_READABLE for axis in axes if axis is not numeric)


def find_numeric_axis(axes: Sequence[SweepAxis]) -> SweepAxis | None:
    """Return the axis with most different numbers, the first of several; None: no axis has two and nothing else."""
    numeric = [axis for axis in axes if len(_numbers(axis)) > 1]
    return max(numeric, key=lambda axis: len(_numbers(axis)), default=None)


def _numbers(axis: SweepAxis) -> dict[str, float]:
    """Return the numbers of an axis by their text; empty where one value is neither a number nor left out."""
    numbers = {}
    for text in axis.values:
        if text in (UNSET, NOT_ON_AXIS):
            continue
        try:
            numbers[text] = float(text)
        except ValueError:
            return {}
    return numbers


def make_scale(axis: SweepAxis) -> Scale:
    """Place the values of a numeric axis: by their logarithm where they span much, else as they are."""
    numbers = dict(sorted(_numbers(axis).items(), key=lambda item: item[1]))
    low, high = min(numbers.values()), max(numbers.values())
    is_wide = low > 0 and high / low >= _LOGARITHMIC_FROM
    positions = [math.log2(number) if is_wide else number for number in numbers.values()]
    values = list(numbers)
    if UNSET in axis.values:
        gap = (positions[-1] - positions[0]) / (len(positions) - 1)
        values, positions = [UNSET, *values], [positions[0] - gap, *positions]
    return Scale(tuple(values), tuple(positions))


def _plot_lines(summary: RunSummary, numeric: SweepAxis, others: Sequence[SweepAxis]) -> Figure:
    """Draw the step time with its interval, and beside it the exposed communication, over a numeric axis."""
    scale = make_scale(numeric)
    lines = _find_lines(summary, numeric, others, scale)
    figure = new_figure(4.2, width_in=10.0)
    left, right = figure.subplots(1, 2)
    for axes, name in ((left, "step time, ms"), (right, "exposed communication, ms per step")):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_title(name, loc="left", fontsize=10)
        _draw_scale(axes, scale, numeric.name)
    for line in lines[:MOST_LINES]:
        _draw_step_times(left, line)
        exposed = [sweep.exposed_ns(cell) / NS_PER_MS for cell in line.cells]
        _draw_line(right, line, exposed)
        _mark_doubtful(right, line, exposed, sweep.is_doubted)
    for axes in (left, right):
        axes.set_ylim(0, None)
        top = axes.get_ylim()[1]
        axes.set_ylim(0, top if top > 0 else 1)
    rest = len(lines) - MOST_LINES
    hidden = f"; {count_things(rest, 'more line')} {is_or_are(rest)} not drawn" if rest > 0 else ""
    set_heading(
        figure, sweep.finding(summary) + hidden + _name_unplaced(summary, numeric, scale) + _name_unmeasured(summary)
    )
    if others:
        names = literal(",\n".join(axis.name for axis in others))
        handles = [drawn for drawn in left.lines if str(drawn.get_gid()).startswith("line ")]
        labels = [
            literal(line.label) for line in lines[:MOST_LINES]
        ]  # by hand: one that begins with _ is left out else
        figure.legend(
            handles, labels, loc="outside right center", frameon=False, fontsize=8, title=names, title_fontsize=8
        )
    figure.supxlabel(_footnote(summary), x=0.01, ha="left", fontsize=7, color=QUIET)
    return figure


def _name_unplaced(summary: RunSummary, numeric: SweepAxis, scale: Scale) -> str:
    """Say which cells have no place on the axis, so that they are not drawn."""
    apart = [cell.name for cell, value in zip(summary.cells, numeric.values, strict=True) if value not in scale.values]
    return f"; without {numeric.name}, not drawn: {name_some(apart)}" if apart else ""


def _draw_step_times(axes: Axes, line: Line) -> None:
    medians = [cell.step_time.median / NS_PER_MS for cell in line.cells]
    low = [_length_ms(cell.step_time.median - cell.step_time.low) for cell in line.cells]
    high = [_length_ms(cell.step_time.high - cell.step_time.median) for cell in line.cells]
    _draw_line(axes, line, medians)
    bars = axes.errorbar(line.positions, medians, yerr=(low, high), fmt="none", ecolor=line.colour, capsize=3)
    bars.lines[2][0].set_gid(f"interval {line.label}")
    _mark_doubtful(axes, line, medians, lambda _: False)


def _length_ms(length_ns: float) -> float:
    """Return an arm of an error bar; NaN, which is not drawn, where the interval is unknown."""
    return math.nan if math.isnan(length_ns) else max(0.0, length_ns) / NS_PER_MS


def _draw_line(axes: Axes, line: Line, heights: Sequence[float]) -> None:
    """Join the numbers by a line; what is unset is a point of its own."""
    first = 1 if line.begins_unset else 0
    look: dict[str, Any] = {"color": line.colour, "marker": line.marker, "markersize": 5, "linewidth": 1.4}
    (drawn,) = axes.plot(
        line.positions[first:], heights[first:], linestyle=line.style, label=literal(line.label), **look
    )
    drawn.set_gid(f"line {line.label}")
    if first:
        (point,) = axes.plot(line.positions[:1], heights[:1], linestyle="none", **look)
        point.set_gid(f"unset {line.label}")


def _mark_doubtful(axes: Axes, line: Line, heights: Sequence[float], is_doubted: Callable[[CellSummary], bool]) -> None:
    """Cross out what must not be trusted, and what is doubted beside that."""
    places = [place for place, cell in enumerate(line.cells) if not sentences.is_trusted(cell) or is_doubted(cell)]
    for place in places:
        (cross,) = axes.plot(
            line.positions[place], heights[place], marker="x", markersize=11, color=looks.BAD, zorder=5
        )
        cross.set_gid("doubtful")


def _find_lines(summary: RunSummary, numeric: SweepAxis, others: Sequence[SweepAxis], scale: Scale) -> list[Line]:
    """Group the cells by their place on the other axes: the first gives the colour, the rest the style."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, value in enumerate(numeric.values):
        if value in scale.values:
            groups.setdefault(tuple(axis.values[place] for axis in others), []).append(place)
    colours = list(dict.fromkeys(key[:1] for key in groups))
    styles = list(dict.fromkeys(key[1:] for key in groups))
    lines = []
    for number, (key, places) in enumerate(groups.items()):
        ordered = sorted(places, key=lambda place: scale(numeric.values[place]))
        colour = colours.index(key[:1])
        style = styles.index(key[1:]) + colour // len(looks.LINE_COLOURS)  # colours that come again have another style
        line = Line(
            label=", ".join(sweep.shorten_value(value) for value in key),
            colour=looks.LINE_COLOURS[colour % len(looks.LINE_COLOURS)],
            style=LINE_STYLES[style % len(LINE_STYLES)],
            marker=_MARKERS[number % len(_MARKERS)],
            cells=tuple(summary.cells[place] for place in ordered),
            positions=tuple(_dodge(scale, number, len(groups)) + scale(numeric.values[place]) for place in ordered),
            begins_unset=numeric.values[ordered[0]] == UNSET,
        )
        lines.append(line)
    return lines


def _dodge(scale: Scale, number: int, count: int) -> float:
    """Move the points of a line a little, so that intervals at one value do not lie on each other."""
    width = (scale.positions[-1] - scale.positions[0]) / len(scale.positions)
    return width * 0.16 * (number - (count - 1) / 2) / max(1, count - 1)


def _draw_scale(axes: Axes, scale: Scale, name: str) -> None:
    every = 1 + (len(scale.values) - 1) // _MOST_TICKS
    axes.set_xticks(scale.positions[::every], [literal(value) for value in scale.values[::every]])
    axes.set_xlabel(literal(name))
    if scale.border is not None:
        axes.axvline(scale.border, color=FAINT, linewidth=0.8, linestyle=":")


def _plot_bars(summary: RunSummary, known: Sequence[CellSummary]) -> Figure:
    """Draw a bar for each cell: the profiled step with its exposed communication, and the measured step over it."""
    cells = list(known)[:MOST_BARS]
    figure = new_figure(1.9 + 0.42 * max(2, len(cells)), width_in=9.5)
    axes = add_axes(figure)
    used: list[Part] = []
    for position, cell in enumerate(cells):
        used += _draw_cell(axes, cell, position)
        colour = "black" if sentences.is_trusted(cell) else looks.BAD
        time = cell.step_time
        arms = ([_length_ms(time.median - time.low)], [_length_ms(time.high - time.median)])
        point = axes.errorbar(
            time.median / NS_PER_MS, position, xerr=arms, fmt="D", markersize=4, color=colour, capsize=3
        )
        point.lines[0].set_gid("measured")
    places = [summary.cells.index(cell) for cell in cells]
    found = sweep.find_axes(summary)
    names = [", ".join(sweep.shorten_value(axis.values[place]) for axis in found) for place in places]
    axes.set_title(literal(", ".join(axis.name for axis in found)), loc="left", fontsize=9)
    doubtful = ["" if sentences.is_trusted(cell) else f" ({sentences.check_word(cell)})" for cell in cells]
    labels = [literal(name + doubt) for name, doubt in zip(names, doubtful, strict=True)]
    axes.set_yticks(range(len(cells)), labels, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    axes.set_xlim(0, None)
    untold = (
        "; n/a: where the PROFILED step went is not known"
        if any(one.get_gid() == "not known" for one in axes.texts)
        else ""
    )
    words = f"ms per step; bars: PROFILED, mean over ranks; points: MEASURED, median with interval{untold}"
    limits = _say_limits(summary).removeprefix("; ")
    axes.set_xlabel(f"{words}\n{literal(limits)}" if limits else words, fontsize=8)
    more = f"; the first {MOST_BARS} of {len(known)} cells" if len(known) > MOST_BARS else ""
    set_heading(figure, sweep.finding(summary) + more + _name_unmeasured(summary))
    patches = [
        Patch(facecolor=part.look.colour, hatch=part.look.hatch, edgecolor=EDGE, linewidth=0.5, label=part.name)
        for part in dict.fromkeys(used)
    ]
    if patches:
        figure.legend(handles=patches, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


def _draw_cell(axes: Axes, cell: CellSummary, position: int) -> list[Part]:
    """Draw the parts of a profiled step from the left: exposed communication by purpose, then the rest.

    No bar where the whole, or what of a purpose was exposed, is not known, or of other steps: a word in its place.
    Where nobody says for what it communicated, all that was exposed is one part.
    """
    profiled_ns = sentences.profiled_step_ns(cell)
    is_known = all(not row.count or (row.exposed_ns is not None and row.part == cell.part) for row in cell.purposes)
    if math.isnan(profiled_ns) or not is_known:
        axes.text(0, position, " n/a", va="center", ha="left", fontsize=8, color=QUIET).set_gid("not known")
        return []
    lengths = [(_EXPOSED[row.purpose], float(row.exposed_ns)) for row in cell.purposes if row.exposed_ns]
    if not cell.purposes and (exposed_ns := sweep.exposed_ns(cell)):
        lengths = [(_UNTOLD, exposed_ns)]
    rest_ns = max(0.0, profiled_ns - sum(length for _, length in lengths))
    left_ns = 0.0
    for part, length_ns in [*lengths, (_REST, rest_ns)]:
        bars = axes.barh(
            position,
            length_ns / NS_PER_MS,
            height=0.62,
            left=left_ns / NS_PER_MS,
            color=part.look.colour,
            hatch=part.look.hatch,
            edgecolor=EDGE,
            linewidth=0.5,
        )
        bars.patches[0].set_gid(part.field)
        left_ns += length_ns
    return [part for part, _ in lengths] + [_REST]


def _name_unmeasured(summary: RunSummary) -> str:
    """Name the cells that are not drawn since no step of theirs was measured; empty: there are none."""
    absent = [cell.name for cell in summary.cells if math.isnan(cell.step_time.median)]
    return absent_words(absent, "no MEASURED step, so nothing drawn, of")


def _footnote(summary: RunSummary) -> str:
    crosses = "; red crosses: see the report's column check"
    doubtful = any(not sentences.is_trusted(cell) for cell in summary.cells)
    untold = absent_words(
        [cell.name for cell in summary.cells if math.isnan(sweep.exposed_ns(cell))], "what was exposed is not known of"
    )
    words = sweep.scope_words(summary).replace("`", "") + (crosses if doubtful else "")
    return words + _say_limits(summary) + untold


def _say_limits(summary: RunSummary) -> str:
    """Say of which cells exposed communication is no finding, a bound, or known in part, each after "; "."""
    doubted = [cell.name for cell in summary.cells if sweep.is_doubted(cell)]
    unlike = f"; PROFILED steps of {name_some(doubted)} may not stand for the run" if doubted else ""
    unseen = [cell.name for cell in summary.cells if cell.is_least]
    least = f"; at least so much is exposed of {name_some(unseen)}" if unseen else ""
    shown = [
        (cell.name, *one) for cell in summary.cells for one in (("step time", cell.timed_part), ("bar", cell.part))
    ]
    parts = "".join(f"; {name}: {what} of {part}" for name, what, part in shown if part is not None)
    left_out = "".join(left_out_words(sentences.count_left_out(summary.cells, one), one) for one in JUDGED)
    return left_out + unlike + least + parts

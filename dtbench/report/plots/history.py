"""A number over runs, commits or days: points, the median of each level, and where it changed."""

from itertools import pairwise
from statistics import median
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.columns import Unit
from dtbench.base.units import MIB, NS_PER_MS
from dtbench.comparison.history.history import By, History, LevelChange, spell_ratio
from dtbench.comparison.metrics import spell_metric
from dtbench.report.page import looks
from dtbench.report.page.runs_page import spell_moment
from dtbench.report.plots.drawing import (
    INK,
    QUIET,
    UNSURE,
    add_axes,
    literal,
    new_figure,
    say,
    set_heading,
    shorten_middle,
)

_MOST_TICKS: Final = 8
_SCALES: Final = {
    Unit.NS: (NS_PER_MS, "ms"),
    Unit.BYTES: (MIB, "MiB"),
    Unit.FRACTION: (0.01, "%"),
    Unit.PER_SECOND: (1.0, "per second"),
    Unit.COUNT: (1.0, ""),
}
_LOOKS: Final = {"worse": (looks.BAD, "-"), "better": (looks.GOOD, "-"), "differs": (INK, "-")}
_ELSE: Final = (UNSURE, ":")
"""Of a change that does not matter."""


def plot_history(history: History) -> Figure:
    """Draw every point in the order in which they began, a line for each level, and each change with its size.

    A change that is worse, better or does not matter has a colour and, at its foot, a word.
    """
    figure = new_figure(4.2, width_in=10.0)
    axes = add_axes(figure)
    if not history.points:
        return say(figure, axes, "No run has this number.")
    scale, unit = _SCALES[history.unit]
    values = [point.value / scale for point in history.points]
    (dots,) = axes.plot(range(len(values)), values, color=QUIET, marker="o", markersize=3, linestyle="none")
    dots.set_gid("points")
    for start, stop in pairwise(history.borders):
        level = median(values[start:stop])
        (line,) = axes.plot([start - 0.5, stop - 0.5], [level, level], color=INK, linewidth=1.6)
        line.set_gid(f"level {start}")
    for change in history.changes:
        _draw_change(axes, change)
    _label(axes, history)
    what = spell_metric(history.metric, history.subject)
    axes.set_ylabel(literal(f"{what}, {unit}" if unit else what), fontsize=9)
    axes.margins(y=0.15)
    set_heading(figure, history.sentence)
    return figure


def _draw_change(axes: Axes, one: LevelChange) -> None:
    colour, style = _LOOKS.get(one.meaning, _ELSE)
    line = axes.axvline(one.place - 0.5, color=colour, linestyle=style, linewidth=1.2, zorder=1)
    line.set_gid(f"change {one.place}")
    size = f" {spell_ratio(one.change)}"
    words = f"{literal(size)}\n {literal(one.meaning)}" if one.meaning in _LOOKS else literal(size)
    place = (one.place - 0.5, 0.99)
    said = axes.annotate(words, place, xycoords=("data", "axes fraction"), va="top", fontsize=8, color=colour)
    said.set_annotation_clip(False)


def _label(axes: Axes, history: History) -> None:
    """Name some points below the axis: by the day on which they began, of others than runs and days by their names."""
    count = len(history.points)
    step = max(1, -(-count // _MOST_TICKS))
    places = range(0, count, step)
    axes.set_xticks(places, [literal(shorten_middle(_name(history, at), 24)) for at in places], fontsize=8)
    axes.set_xlabel(
        literal(f"{history.scenario}:{history.cell}, a point for each {history.by}, in their order"), fontsize=8
    )
    axes.set_xlim(-0.8, count - 0.2)


def _name(history: History, at: int) -> str:
    point = history.points[at]
    is_timed = history.by in (By.RUN, By.DATE)
    return spell_moment(point.started_unix_ns).partition("T")[0] if is_timed else point.name

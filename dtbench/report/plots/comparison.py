"""Two sides against each other: each metric's ratio with its interval, and what can be said of it."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFTBASE, CARETRIGHTBASE
from matplotlib.patches import Patch

from dtbench.base.columns import Better
from dtbench.base.units import format_fraction
from dtbench.comparison.comparison import ESTABLISHED, Comparison, MetricChange, Outcome
from dtbench.comparison.gate import spell_number
from dtbench.comparison.metrics import EXPOSED_BY_OWNER, spell_metric
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    BAND,
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

MOST_METRICS = 24
"""Rows of one figure, the first of the comparison."""

_MOST_RATIO = 16.0
"""Ratios and ends of intervals beyond it lie at the edge, with an arrow."""

_PERCENT_BELOW = 1.6
"""Widest ratio whose axis is labelled in percent."""

_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)

_ALIKE: Final = (Outcome.BELOW_THRESHOLD, Outcome.NO_DIFFERENCE, Outcome.SAME)
_LOOKS: Final = {
    "worse": (looks.BAD, "s", looks.BAD),
    "better": (looks.GOOD, "o", looks.GOOD),
    "differs": (INK, "D", INK),
    "no difference that matters": (UNSURE, "o", "white"),
    "not established": (UNSURE, "d", "white"),
}
"""Edge, marker and filling of a point by what its change means."""


def plot_comparison(comparison: Comparison) -> Figure:
    """Draw a row for each metric: candidate over baseline with its 95 % interval, over the band of what is too small.

    The words beside it are the comparison's outcome; a metric whose ratio is not known is only words. Of owners, only
    those whose change is established have a row.
    """
    chosen = _choose(comparison.metrics)
    rows, rest = chosen[:MOST_METRICS], chosen[MOST_METRICS:]
    figure = new_figure(1.9 + 0.36 * max(2, len(rows)), width_in=10.0)
    axes = add_axes(figure)
    if not rows:
        return say(figure, axes, "No metric is known on both sides.")
    limit = _find_limit(rows, comparison.threshold)
    band = (1 - comparison.threshold, 1 + comparison.threshold)
    axes.axvspan(*band, color=BAND, linewidth=0, zorder=0, gid="threshold")
    axes.axvline(1, color=QUIET, linewidth=0.9, zorder=1)
    for position, row in enumerate(rows):
        _draw_metric(axes, row, position, limit)
    names = [shorten_middle(spell_metric(row.metric, row.subject)) for row in rows]
    if rest:
        names.append(f"{len(rest)} more")
        _say_beside(axes, len(rows), f"{_count_meanings(rest)}: see --json")
    axes.set_yticks(range(len(names)), [literal(name) for name in names], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    _set_scale(axes, limit)
    sides = f"{shorten_middle(comparison.candidate.label)} against {shorten_middle(comparison.baseline.label)}"
    bars = "bars: 95 % intervals, wider the more numbers were tested, an arrow where one goes on"
    axes.set_xlabel(literal(f"change, {sides}; {bars}"), fontsize=8)
    set_heading(figure, comparison.sentence)
    _draw_legend(figure, rows, comparison.threshold)
    return figure


def _choose(metrics: tuple[MetricChange, ...]) -> tuple[MetricChange, ...]:
    return tuple(row for row in metrics if row.metric != EXPOSED_BY_OWNER or row.outcome in ESTABLISHED)


def _find_limit(rows: tuple[MetricChange, ...], threshold: float) -> float:
    """Return the largest ratio that is drawn to scale, or one over the smallest: of four ends three fit.

    So one large change hides no other. The first row, which the comparison leads with, always fits below the most.
    """
    ends = [sorted(_distance(end) for end in (row.ratio, row.low, row.high) if end > 0) for row in rows]
    all_ends = sorted(end for of_row in ends for end in of_row)
    most = all_ends[3 * (len(all_ends) - 1) // 4] if all_ends else 1.0
    widest = max([(1 + threshold) ** 2.5, 1.02, most, *ends[0]])
    return min(_MOST_RATIO, float(widest**1.15))


def _distance(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def _set_scale(axes: Axes, limit: float) -> None:
    """Draw ratios by their logarithm, so that twice and half lie alike; small changes are labelled in percent."""
    axes.set_xscale("log")
    axes.set_xlim(limit**-1.08, limit**1.08)
    if limit < _PERCENT_BELOW:
        step = next(step for step in _STEPS if limit - 1 <= 4 * step)
        ticks = [1 + place * step for place in range(-4, 5) if 1 / limit <= 1 + place * step <= limit]
        labels = [f"{100 * (tick - 1):+.3g} %" if tick != 1 else "0" for tick in ticks]
    else:
        ticks = [2.0**power for power in range(-8, 9) if 1 / limit <= 2.0**power <= limit]
        labels = [f"{tick:g} x" if tick >= 1 else f"1/{1 / tick:g} x" for tick in ticks]
    axes.set_xticks(ticks, labels)
    axes.set_xticks([], minor=True)


def _draw_metric(axes: Axes, row: MetricChange, position: int, limit: float) -> None:
    _say_beside(axes, position, _words(row))
    if math.isnan(row.ratio):
        return
    edge, marker, filling = _LOOKS[_meaning(row)]
    place = _clip(row.ratio, limit)
    if not math.isnan(row.low) and not math.isnan(row.high):
        ends = [_clip(end, limit) for end in (row.low, row.high)]
        seen = [place for place, end in enumerate((row.low, row.high)) if ends[place] == end]
        (bar,) = axes.plot(
            ends, [position, position], color=edge, linewidth=1.6, marker="|", markersize=6, markevery=seen
        )
        bar.set_gid(f"interval {row.metric} {row.subject}")
        _draw_beyond(axes, row, position, limit)
    shown = marker if place == row.ratio else ">" if row.ratio > 1 else "<"
    (point,) = axes.plot(
        place, position, marker=shown, markersize=6, markeredgecolor=edge, markerfacecolor=filling, linestyle="none"
    )
    point.set_gid(f"ratio {row.metric} {row.subject}")


def _say_beside(axes: Axes, position: int, words: str) -> None:
    place = (1.01, position)
    said = axes.annotate(literal(words), place, xycoords=("axes fraction", "data"), va="center", fontsize=7.5)
    said.set_annotation_clip(False)


def _count_meanings(rows: Sequence[MetricChange]) -> str:
    """Say how many rows mean what: ``3 worse, 9 not established``."""
    found = Counter(_meaning(row) for row in rows)
    return ", ".join(f"{found[meaning]} {meaning}" for meaning in _LOOKS if found[meaning])


def _draw_beyond(axes: Axes, row: MetricChange, position: int, limit: float) -> None:
    """Draw an arrow where an interval goes on beyond the axis."""
    for end in (row.low, row.high):
        if _clip(end, limit) != end:
            (arrow,) = axes.plot(
                _clip(end, limit),
                position,
                color=_LOOKS[_meaning(row)][0],
                marker=CARETRIGHTBASE if end > 1 else CARETLEFTBASE,
                markersize=6,
                linestyle="none",
            )
            arrow.set_gid(f"beyond {row.metric} {row.subject}")


def _clip(ratio: float, limit: float) -> float:
    return max(1 / limit, min(limit, ratio))


def _meaning(row: MetricChange) -> str:
    if row.outcome not in ESTABLISHED:
        return "no difference that matters" if row.outcome in _ALIKE else "not established"
    if row.better is Better.NEITHER:
        return "differs"
    return "better" if (row.outcome is Outcome.HIGHER) is (row.better is Better.HIGHER) else "worse"


def _words(row: MetricChange) -> str:
    change = "" if math.isnan(row.ratio) else f" ({100 * (row.ratio - 1):+.1f} %)"
    before, after = (spell_number(sample.median, row.unit) for sample in (row.baseline, row.candidate))
    return f"{after} against {before}{change}: {row.outcome.value}"


def _draw_legend(figure: Figure, rows: tuple[MetricChange, ...], threshold: float) -> None:
    used = [meaning for meaning in _LOOKS if any(_meaning(row) == meaning for row in rows)]
    points = [
        Line2D([], [], linestyle="none", marker=marker, markeredgecolor=edge, markerfacecolor=filling, label=meaning)
        for meaning, (edge, marker, filling) in _LOOKS.items()
        if meaning in used
    ]
    band = Patch(facecolor=BAND, label=f"below the threshold of {format_fraction(threshold)}")
    figure.legend(handles=[*points, band], loc="outside lower left", ncols=4, frameon=False, fontsize=8)

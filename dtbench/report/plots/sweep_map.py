"""A sweep over two axes as a map: a field for each cell, darker where a step takes longer."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtbench.base.units import NS_PER_MS, format_ns
from dtbench.report.page import looks, sweep
from dtbench.report.page.sweep import SweepAxis
from dtbench.report.plots.drawing import QUIET, add_axes, left_out_words, literal, new_figure, say, set_finding
from dtbench.report.words import sentences
from dtbench.report.words.marks import Marks
from dtbench.runs.reading.undisturbed import JUDGED
from dtbench.runs.summary import CellSummary, RunSummary

_COLOURS = "cividis_r"
"""Lightness falls evenly along it, for everybody's eyes and in grey (Nunez and others, 2018)."""

_MOST_FIELDS = 16
"""Values of one axis."""


def fits_map(axes: tuple[SweepAxis, ...]) -> bool:
    """Tell whether cells lie in a table of two axes that is neither too thin for a map nor too large to be read."""
    sizes = [len(set(axis.values)) for axis in axes]
    return len(sizes) == 2 and min(sizes) > 2 and max(sizes) <= _MOST_FIELDS


def plot_sweep_map(summary: RunSummary) -> Figure:
    """Draw the cells of a sweep over two axes as fields: step time by colour, and in words with what is exposed.

    A field that the scenario excludes is left empty; one that must not be trusted says why.
    """
    axes_found = sweep.find_axes(summary)
    if len(axes_found) != 2:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "A map needs a sweep over two axes.")
    down, across = axes_found
    rows, columns = (order_values(axis) for axis in (down, across))
    times = np.full((len(rows), len(columns)), np.nan)
    places = {(rows.index(down.values[at]), columns.index(across.values[at])): at for at in range(len(summary.cells))}
    for place, at in places.items():
        times[place] = summary.cells[at].step_time.median / NS_PER_MS
    parts = ((cell, part) for cell in summary.cells for part in (cell.timed_part, cell.part))
    marks = Marks.of(sentences.find_told_part(cell, part) for cell, part in parts)
    figure = new_figure(1.6 + 0.62 * len(rows), width_in=2.6 + 1.15 * max(4, len(columns)))
    axes = add_axes(figure)
    image = axes.imshow(times, cmap=_COLOURS, aspect="auto")
    for (row, column), at in places.items():
        is_dark = _lightness(times, (row, column)) < 0.5
        words = _field_words(summary.cells[at], marks)
        axes.text(column, row, words, ha="center", va="center", fontsize=8, color="white" if is_dark else "black")
        if not sentences.is_trusted(summary.cells[at]):
            frame = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, fill=False, edgecolor=looks.BAD, linewidth=2)
            axes.add_patch(frame).set_gid("doubtful")
    axes.set_xticks(range(len(columns)), [literal(sweep.shorten_value(value)) for value in columns], fontsize=8)
    axes.set_yticks(range(len(rows)), [literal(sweep.shorten_value(value)) for value in rows], fontsize=8)
    axes.set_xlabel(literal(across.name))
    axes.set_ylabel(literal(down.name))
    for side in axes.spines.values():
        side.set_visible(False)
    left_out = "".join(left_out_words(sentences.count_left_out(summary.cells, one), one) for one in JUDGED)
    small = "; ".join([*filter(None, [left_out.removeprefix("; ")]), *sweep.limit_lines(summary, marks)])
    figure.supxlabel(literal(small), x=0.01, ha="left", fontsize=7, color=QUIET)
    figure.colorbar(image, ax=axes, label="step time, ms", pad=0.02)
    set_finding(axes, sweep.finding(summary))
    return figure


def order_values(axis: SweepAxis) -> list[str]:
    """Return the different values of an axis: numbers by size after what is none, words as they come."""
    values = list(dict.fromkeys(axis.values))
    return sorted(values, key=_number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -math.inf


def _lightness(times: np.ndarray, place: tuple[int, int]) -> float:
    """Return how light a field is, from 1 (shortest step) to 0; an empty or only one is light."""
    low, high = float(np.nanmin(times)), float(np.nanmax(times))
    time = float(times[place])
    return 1.0 if math.isnan(time) or high <= low else 1 - (time - low) / (high - low)


def _field_words(cell: CellSummary, marks: Marks) -> str:
    doubt = "" if sentences.is_trusted(cell) else f"\n{sentences.check_word(cell)}"
    exposed = sweep.qualify_exposed(cell, format_ns(sweep.exposed_ns(cell)), marks)
    step = marks.mark(format_ns(cell.step_time.median), sentences.find_told_part(cell, cell.timed_part))
    return f"{step}\n{exposed} exposed{doubt}"

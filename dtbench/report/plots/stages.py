"""What became of a training state: how long each stage took and what of it a link takes, and host memory over time."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import MIB, NS_PER_MS, format_bytes, format_fraction, format_ns
from dtbench.base.vocabulary import StageOutcome, StatePart
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    LINE_STYLES,
    Part,
    add_axes,
    draw_bar,
    legend_patch,
    literal,
    new_figure,
    say,
    set_finding,
)
from dtbench.runs.stage_summary import StageSummary
from dtbench.runs.summary import CellSummary

_LINK: Final = Part("the link", "link_ns", looks.EXPOSED_COMM)
_REST: Final = Part("copies, files and Python", "rest_ns", looks.REST)
_NAMED_FROM: Final = 0.05
"""Of the highest point: a line that stays below has no stage's name."""

_UNKNOWN: Final = Part("not known how much of it the link", "unknown_ns", looks.UNTOLD)
_WHOLE: Final = Part("all of it", "duration_ns", looks.REST)


def plot_stages(cells: Sequence[CellSummary]) -> Figure:
    """Draw a bar for each stage, of each cell a panel: what a link of known cost takes of it, and the rest.

    Args:
        cells: those without stages are left out.
    """
    panels = [cell for cell in cells if cell.stages]
    if not panels:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "No training state went through stages in this run.")
    heights = [0.8 + 0.24 * len(cell.stages) for cell in panels]
    figure = new_figure(0.8 + sum(heights))
    grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    knows_link = any(row.link_ns > 0 for cell in panels for row in cell.stages)
    for axes, cell in zip(grid, panels, strict=True):
        _draw_stages(axes, cell, _UNKNOWN if knows_link else _WHOLE)
        set_finding(axes, _stage_finding(cell), fontsize=10)
    grid[-1].set_xlabel("ms of the slowest rank, median over rounds", fontsize=9)
    lacks_link = knows_link and any(math.isnan(row.link_ns) for cell in cells for row in cell.stages if row.rounds)
    parts = (_LINK, _REST, *([_UNKNOWN] if lacks_link else [])) if knows_link else (_WHOLE,)
    handles = [legend_patch(part, part.name) for part in parts]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


def _draw_stages(axes: Axes, cell: CellSummary, untold: Part) -> None:
    """Draw a bar for each stage; ``untold``: how one looks of which it is not known what a link took."""
    rows = cell.stages
    longest_ms = max((row.duration_ns for row in rows if row.rounds), default=NS_PER_MS) / NS_PER_MS
    for place, row in enumerate(rows):
        end_ms = 0.0
        if row.rounds:
            end_ms = row.duration_ns / NS_PER_MS
            link_ms = min(row.link_ns / NS_PER_MS, end_ms) if row.link_ns > 0 else 0.0
            if link_ms:
                draw_bar(axes, _LINK, (0.0, link_ms), (place, 0.7))
            rest = untold if math.isnan(row.link_ns) else _REST
            draw_bar(axes, rest, (link_ms, end_ms - link_ms), (place, 0.7))
        axes.text(end_ms + longest_ms * 0.01, place, literal(_bar_words(row)), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [literal(f"{row.part}: {row.stage}") for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * longest_ms)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)


def _bar_words(row: StageSummary) -> str:
    words = format_ns(row.duration_ns) if row.rounds else ""
    return words if row.outcome is StageOutcome.EQUAL else f"{words} {row.outcome}".strip()


def _stage_finding(cell: CellSummary) -> str:
    ran = [row for row in cell.stages if row.rounds]
    if not ran:
        return f"{cell.name}: no stage came to its end"
    if cell.is_state_disturbed:
        return (
            f"{cell.name}: others had {format_fraction(cell.state_taken_fraction or 0)} of the cores; no time is judged"
        )
    if cell.rank_doubts:
        return f"{cell.name}: not judged: {cell.rank_doubts[0]}"
    longest = max(ran, key=lambda row: row.duration_ns)
    words = f"{cell.name}: {longest.stage} of the {longest.part} takes longest, {format_ns(longest.duration_ns)}"
    return f"{words}, {longest.link_ns / longest.duration_ns:.0%} of it the link" if longest.link_ns > 0 else words


def plot_stage_memory(cells: Sequence[CellSummary]) -> Figure:
    """Draw host memory over time while each stage ran once, one stage after the other; of each cell and part a line.

    Args:
        cells: those without stages are left out.
    """
    lines = [(cell, part) for cell in cells for part in StatePart if _curves(cell, part)]
    figure = new_figure(3.6 if lines else 2.0)
    axes = add_axes(figure)
    if not lines:
        return say(figure, axes, "Nobody looked at memory while a training state went through stages in this run.")
    highest_bytes = max(_peak(curve) for cell, part in lines for _, curve in _curves(cell, part))
    for number, (cell, part) in enumerate(lines):
        curves = _curves(cell, part)
        ends_ns = [curve[-1][0] for _, curve in curves]
        starts_ns = [0, *accumulate(ends_ns)][:-1]
        points = [
            ((start_ns + at_ns) / NS_PER_MS, size_bytes / MIB)
            for start_ns, (_, curve) in zip(starts_ns, curves, strict=True)
            for at_ns, size_bytes in ((0, 0), *curve)
        ]
        axes.plot(
            [at_ms for at_ms, _ in points],
            [size_mib for _, size_mib in points],
            color=looks.LINE_COLOURS[number % len(looks.LINE_COLOURS)],
            linestyle=LINE_STYLES[number // len(looks.LINE_COLOURS) % len(LINE_STYLES)],
            linewidth=1.3,
            label=literal(f"{cell.name}, {part}"),
        )
        if max(_peak(curve) for _, curve in curves) >= _NAMED_FROM * highest_bytes > 0:
            _name_peak(axes, curves, starts_ns)
    axes.set_xlabel("ms, one round of each stage after the other", fontsize=9)
    axes.set_ylabel("MiB above the start\nof each stage", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    set_finding(axes, _memory_finding([cell for cell in cells if cell.stages]), fontsize=10)
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


_Curve = tuple[StageSummary, tuple[tuple[int, int], ...]]


def _curves(cell: CellSummary, part: StatePart) -> list[_Curve]:
    return [(row, row.memory_curve) for row in cell.stages if row.part is part and row.memory_curve]


def _peak(curve: Sequence[tuple[int, int]]) -> int:
    return max(size_bytes for _, size_bytes in curve)


def _name_peak(axes: Axes, curves: Sequence[_Curve], starts_ns: Sequence[int]) -> None:
    """Write the name of the stage in which a line is highest beside its highest point."""
    place = max(range(len(curves)), key=lambda index: _peak(curves[index][1]))
    row, curve = curves[place]
    at_ns, size_bytes = max(curve, key=lambda point: point[1])
    axes.annotate(
        literal(str(row.stage)),
        ((starts_ns[place] + at_ns) / NS_PER_MS, size_bytes / MIB),
        xytext=(4, 2),
        textcoords="offset points",
        fontsize=8,
    )


def _memory_finding(cells: Sequence[CellSummary]) -> str:
    if doubted := next((one for one in cells if one.rank_doubts), None):
        return f"{doubted.name}: not judged: {doubted.rank_doubts[0]}"
    ran = [(cell, row) for cell in cells for row in cell.stages if row.rounds]
    told = [(peak_bytes, cell, row) for cell, row in ran if (peak_bytes := row.host_peak_bytes) is not None]
    if not told:
        return "The peak of host memory is not known of any stage"
    peak_bytes, cell, row = max(told, key=lambda one: one[0])
    of = "" if len(told) == len(ran) else f" (of the {len(told)} of {len(ran)} stages whose peak is known)"
    grown = format_bytes(peak_bytes)
    return f"{cell.name}: {row.stage} of the {row.part} needs most host memory{of}, {grown} above what was there"

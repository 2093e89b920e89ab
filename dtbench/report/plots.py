"""Figures of a run. Each function takes a table or summary and returns a ``Figure``; nothing is shown, no global state.

Colours are Okabe and Ito's (jfly.uni-koeln.de/color), which people with colour blindness can tell apart; hatches and
lightness tell the parts apart in grey.
"""

import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtbench.analyze.summary import CellSummary, RankBreakdown, RunSummary
from dtbench.report import sentences
from dtbench.units import NS_PER_MS, format_fraction, format_ns
from dtbench.vocabulary import Phase

MOST_CELLS = 12
"""Cells of one figure; a picture of a hundred would be as high as a house."""

MOST_RANKS = 16
"""Bars of one cell; more would be too thin to read."""

DOTS_PER_INCH = 150
_WIDTH_IN = 9.0
_BAR_IN = 0.42
_LABEL_FITS = 0.07
"""A part shorter than this share of the longest step has no room for its label."""


@dataclass(frozen=True)
class Part:
    """How one part of a step is drawn."""

    name: str
    field: str
    colour: str
    hatch: str
    label_colour: str


PARTS: Final = (
    Part("compute", "compute_ns", "#0072B2", "", "white"),
    Part("exposed comm", "exposed_comm_ns", "#E69F00", "///", "black"),
    Part("exposed copy", "exposed_copy_ns", "#CC79A7", "...", "black"),
    Part("idle", "idle_ns", "#E6E6E6", "", "black"),
)
HIDDEN_COMM: Final = Part("hidden comm (beside compute)", "hidden_comm_ns", "#F7DDA4", "///", "black")

LINE_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
LINE_STYLES: Final = ("-", "--", "-.", ":")
PHASE_COLOURS: Final = {Phase.WARMUP: "#EEEEEE", Phase.MEASURED: "#D6EAF5", Phase.PROFILED: "#FBE9C6"}


def plot_step_breakdown(summary: RunSummary) -> Figure:
    """Stack where each rank's profiled step went: a bar per rank, grouped by cell, hidden communication below it."""
    profiled = [cell for cell in summary.cells if cell.ranks]
    cells = profiled[:MOST_CELLS]
    bars = sum(min(len(cell.ranks), MOST_RANKS) + 1 for cell in cells)
    figure = Figure(figsize=(_WIDTH_IN, 1.7 + _BAR_IN * max(2, bars)), dpi=DOTS_PER_INCH, layout="constrained")
    axes = add_axes(figure)
    if not cells:
        return say(figure, axes, "No step was profiled in this run.")
    longest_ns = max(row.step_ns for cell in cells for row in cell.ranks)
    ticks: list[tuple[float, str]] = []
    position = 0.0
    for cell in cells:
        axes.text(0, position + 0.25, _cell_heading(cell), fontweight="bold", va="center", ha="left")
        for row in cell.ranks[:MOST_RANKS]:
            position += 1
            _draw_rank(axes, row, position, longest_ns)
            ticks.append((position, f"rank {row.rank}"))
        position += 1.1
    _finish_breakdown(axes, ticks, longest_ns, profiled)
    _draw_legend(figure, cells)
    return figure


def _draw_rank(axes: Axes, row: RankBreakdown, position: float, longest_ns: int) -> None:
    left_ns = 0
    for part in PARTS:
        length_ns = getattr(row, part.field)
        _draw_bar(axes, part, (left_ns, length_ns), (position - 0.05, 0.56))
        if length_ns >= _LABEL_FITS * longest_ns:
            _label(axes, part, (left_ns + length_ns / 2, position - 0.05), format_fraction(length_ns / row.step_ns))
        left_ns += length_ns
    _draw_bar(axes, HIDDEN_COMM, (0, row.hidden_comm_ns), (position + 0.32, 0.16))
    exposed = format_fraction(sentences.fraction_of(row.exposed_comm_ns, row.step_ns))
    hidden = format_fraction(sentences.fraction_of(row.hidden_comm_ns, row.comm_ns))
    words = f"exposed {exposed} of step\nhidden {hidden} of comm"
    axes.text(1.012 * row.step_ns / NS_PER_MS, position, words, va="center", ha="left", fontsize=7, color="#444444")


def _draw_bar(axes: Axes, part: Part, span_ns: tuple[int, int], span_y: tuple[float, float]) -> None:
    """Draw one part: ``span_ns`` is (start, length), ``span_y`` is (middle, height)."""
    bars = axes.barh(
        span_y[0],
        span_ns[1] / NS_PER_MS,
        height=span_y[1],
        left=span_ns[0] / NS_PER_MS,
        color=part.colour,
        hatch=part.hatch,
        edgecolor="#333333",
        linewidth=0.5,
        label=part.name,
    )
    bars.patches[0].set_gid(part.field)


def _label(axes: Axes, part: Part, centre: tuple[float, float], words: str) -> None:
    """Write a share into its part, on a plain patch so that a hatch does not run through the digits."""
    box = {"facecolor": part.colour, "edgecolor": "none", "pad": 1.0}
    axes.text(
        centre[0] / NS_PER_MS,
        centre[1],
        words,
        ha="center",
        va="center",
        fontsize=7.5,
        color=part.label_colour,
        bbox=box,
    )


def _finish_breakdown(axes: Axes, ticks: list[tuple[float, str]], longest_ns: int, cells: list[CellSummary]) -> None:
    axes.set_yticks([position for position, _ in ticks], [words for _, words in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(ticks[-1][0] + 0.6, -0.2)
    axes.set_xlim(0, 1.2 * longest_ns / NS_PER_MS)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("ms of a profiled step (mean of each rank)")
    axes.set_title(_breakdown_finding(cells), loc="left", fontweight="bold", wrap=True)


def _draw_legend(figure: Figure, cells: list[CellSummary]) -> None:
    idle = " / ".join(dict.fromkeys(sentences.idle_word(cell) for cell in cells))
    legend = [_legend_patch(part, idle if part.name == "idle" else part.name) for part in (*PARTS, HIDDEN_COMM)]
    figure.legend(handles=legend, loc="outside lower left", ncols=len(legend), frameon=False, fontsize=8)


def _legend_patch(part: Part, name: str) -> Patch:
    return Patch(facecolor=part.colour, hatch=part.hatch, edgecolor="#333333", linewidth=0.5, label=name)


def _cell_heading(cell: CellSummary) -> str:
    more = f"; ranks 0 to {MOST_RANKS - 1} of {len(cell.ranks)}" if len(cell.ranks) > MOST_RANKS else ""
    return literal(f"{cell.name}  ({sentences.parallel_words(cell)}{more})")


def _breakdown_finding(cells: list[CellSummary]) -> str:
    """Say the finding: how much of the step communication took alone, for the worst cell and the best one."""
    known = [cell for cell in cells if not math.isnan(cell.exposed_step_fraction)]
    if not known:
        return "No communication was seen"
    worst = max(known, key=lambda cell: cell.exposed_step_fraction)
    best = min(known, key=lambda cell: cell.exposed_step_fraction)
    worst_words = f"{format_fraction(worst.exposed_step_fraction)} of the step in {worst.name}"
    more = f"; the first {MOST_CELLS} of {len(cells)} cells" if len(cells) > MOST_CELLS else ""
    if worst is best:
        return literal(f"Exposed communication takes {worst_words}{more}")
    best_words = f"{format_fraction(best.exposed_step_fraction)} in {best.name}"
    return literal(f"Exposed communication takes {worst_words}, {best_words}{more}")


def plot_step_times(steps: pd.DataFrame) -> Figure:
    """Draw the duration of every step of every rank, with the phases shaded.

    The scale follows the steps after warm-up; slower warm-up steps leave at the top, and the title says how slow.

    Args:
        steps: columns as in ``dtbench.analyze.tables.STEPS``, of one launch.
    """
    figure = Figure(figsize=(_WIDTH_IN, 3.4), dpi=DOTS_PER_INCH, layout="constrained")
    axes = add_axes(figure)
    if steps.empty:
        return say(figure, axes, "No step was recorded.")
    for phase, first, last in _phase_spans(steps):
        axes.axvspan(first - 0.5, last + 0.5, color=PHASE_COLOURS[phase], linewidth=0, zorder=0)
        words = f"{phase.value}\n{format_ns(_slowest_rank_ns(steps, phase))}"
        axes.text(first - 0.3, 0.97, words, transform=axes.get_xaxis_transform(), va="top", fontsize=7)
    ranks = sorted(steps["rank"].unique())
    for index, rank in enumerate(ranks):
        ordered = steps[steps["rank"] == rank].sort_values("step")
        colour, style = LINE_COLOURS[index % len(LINE_COLOURS)], LINE_STYLES[index % len(LINE_STYLES)]
        duration_ms = ordered["duration_ns"] / NS_PER_MS
        axes.plot(ordered["step"], duration_ms, color=colour, linestyle=style, linewidth=1.2, label=f"rank {rank}")
    axes.set_ylim(*_settled_range_ms(steps))
    axes.set_xlim(steps["step"].min() - 0.5, steps["step"].max() + 0.5)
    axes.set_xlabel("step")
    axes.set_ylabel("ms")
    axes.set_title(_times_finding(steps), loc="left", fontweight="bold")
    figure.legend(loc="outside right center", ncols=1 + len(ranks) // 17, frameon=False, fontsize=7)
    return figure


def _settled_range_ms(steps: pd.DataFrame) -> tuple[float, float]:
    """Give the ends of the vertical axis: those of the steps after warm-up, or of all where there are no others."""
    settled = steps[steps["phase"] != Phase.WARMUP.value]
    duration_ms = (steps if settled.empty else settled)["duration_ns"] / NS_PER_MS
    low, high = float(duration_ms.min()), float(duration_ms.max())
    margin = max(high - low, 0.05 * high)
    return max(0.0, low - margin), high + margin


def _slowest_rank_ns(steps: pd.DataFrame, phase: Phase) -> float:
    """Give the median over the steps of a phase of the slowest rank's duration; NaN when there are none."""
    return float(steps[steps["phase"] == phase.value].groupby("step")["duration_ns"].max().median())


def _times_finding(steps: pd.DataFrame) -> str:
    first_ns = steps.loc[steps["step"] == steps["step"].min(), "duration_ns"].max()
    measured_ns = _slowest_rank_ns(steps, Phase.MEASURED)
    if math.isnan(measured_ns):
        return f"No step was measured; the first took {format_ns(first_ns)}"
    return f"A measured step takes {format_ns(measured_ns)} (median, slowest rank), the first {format_ns(first_ns)}"


def _phase_spans(steps: pd.DataFrame) -> Iterator[tuple[Phase, int, int]]:
    """Give (phase, first step, last step), both included."""
    for phase in Phase:
        found = steps.loc[steps["phase"] == phase.value, "step"]
        if not found.empty:
            yield phase, int(found.min()), int(found.max())


def add_axes(figure: Figure) -> Axes:
    """Give the only axes of a figure, without a frame."""
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def say(figure: Figure, axes: Axes, words: str) -> Figure:
    """Give a figure that says why there is nothing to draw."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center")
    return figure


def literal(words: str) -> str:
    """Give text that matplotlib does not read as mathematics."""
    return words.replace("$", r"\$")


def figure_png(figure: Figure) -> bytes:
    """Give a figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG; a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(figure_png(figure))
    unfinished.replace(path)

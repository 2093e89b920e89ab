"""Where each rank's PROFILED step went."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, count_things, format_fraction
from dtbench.base.vocabulary import Phase
from dtbench.report.page import looks
from dtbench.report.page.slowest_ranks import choose_slowest
from dtbench.report.plots.drawing import (
    QUIET,
    Part,
    absent_words,
    add_axes,
    draw_bar,
    left_out_words,
    legend_patch,
    literal,
    new_figure,
    say,
    set_finding,
    shorten_middle,
)
from dtbench.report.words import sentences
from dtbench.runs.plan_notes import is_linked
from dtbench.runs.summary import CellSummary, RankBreakdown, RunSummary

MOST_CELLS = 12
"""Cells of one figure; a picture of a hundred would be as high as a house."""

_BAR_IN = 0.42
_LABEL_FITS = 0.07
"""A part shorter than this share of the longest step has no room for its label."""
_SMALL_FITS = 130
"""Characters of small print in a line."""
_LEAST_OF_KNOBS = 30
_LABEL_LETTERS = 100
"""Letters of a line below the axis."""

PARTS: Final = (
    Part("compute", "compute_ns", looks.COMPUTE),
    Part("exposed comm", "exposed_comm_ns", looks.EXPOSED_COMM),
    Part("exposed copy", "exposed_copy_ns", looks.EXPOSED_COPY),
    Part("idle", "idle_ns", looks.IDLE),
)
HIDDEN_COMM: Final = Part("hidden comm (overlapped with compute)", "hidden_comm_ns", looks.HIDDEN_COMM)


def plot_step_breakdown(summary: RunSummary) -> Figure:
    """Stack where each rank's profiled step went: a bar per rank, grouped by cell, hidden communication below it."""
    profiled = [cell for cell in summary.cells if cell.ranks]
    untold = [cell.name for cell in summary.cells if not cell.ranks]
    cells = profiled[:MOST_CELLS]
    bars = sum(len(_rows_of(cell)) + 1 for cell in cells)
    figure = new_figure(1.7 + _BAR_IN * max(2, bars))
    axes = add_axes(figure)
    if not cells:
        was_profiled = any(not cell.launches or not math.isnan(cell.profiler_cost.median) for cell in summary.cells)
        words = "Where the profiled steps went is not known." if was_profiled else "No step was profiled in this run."
        return say(figure, axes, words)
    longest_ns = max(row.step_ns for cell in cells for row in cell.ranks)
    ticks: list[tuple[float, str]] = []
    position = 0.0
    for cell in cells:
        _draw_heading(axes, cell, position)
        for name, row in _rows_of(cell):
            position += 1
            _draw_rank(axes, cell, row, (position, longest_ns))
            ticks.append((position, name))
        position += 1.1
    _finish_breakdown(axes, ticks, longest_ns, profiled)
    absent = absent_words(untold, "where it went is not known of")
    left_out = left_out_words(sentences.count_left_out(summary.cells, Phase.PROFILED), Phase.PROFILED)
    axes.set_xlabel(fill(f"{axes.get_xlabel()}{absent}{left_out}", _LABEL_LETTERS))
    _draw_legend(figure, cells)
    return figure


def _rows_of(cell: CellSummary) -> list[tuple[str, RankBreakdown]]:
    """Return the bars of a cell, the slowest ranks; others are one bar, their mean, if it is known of the same."""
    shown, rest = choose_slowest(cell)
    rows = [(f"rank {row.rank}", row) for row in shown]
    if rest and len({row.part for row in rest}) == 1:
        rows.append((f"{len(rest)} more, mean", _average(rest)))
    return rows


def _average(rows: Sequence[RankBreakdown]) -> RankBreakdown:
    """Return the mean of ranks; a part that is not known of one is not known."""
    every = ("step_ns", "comm_ns", HIDDEN_COMM.field, *(part.field for part in PARTS))
    parts = {name: [getattr(row, name) for row in rows] for name in every}
    means = {name: None if None in values else round(sum(values) / len(values)) for name, values in parts.items()}
    return rows[0].model_copy(update=means)


def _draw_rank(axes: Axes, cell: CellSummary, row: RankBreakdown, place: tuple[float, int]) -> None:
    """Draw the bars of a rank; ``place``: where, and how long the longest step of the figure is, ns."""
    (position, longest_ns), left_ns = place, 0
    for part in PARTS:
        if (length_ns := getattr(row, part.field)) is None:
            continue
        draw_bar(axes, part, (left_ns / NS_PER_MS, length_ns / NS_PER_MS), (position - 0.05, 0.56))
        if length_ns >= _LABEL_FITS * longest_ns:
            _label(
                axes,
                part,
                (left_ns + length_ns / 2, position - 0.05),
                format_fraction(sentences.fraction_of(length_ns, row.step_ns)),
            )
        left_ns += length_ns
    draw_bar(axes, HIDDEN_COMM, (0, row.hidden_comm_ns / NS_PER_MS), (position + 0.32, 0.16))
    exposed = format_fraction(sentences.fraction_of(row.exposed_comm_ns, row.step_ns))
    shares = (exposed, format_fraction(sentences.fraction_of(row.hidden_comm_ns, row.comm_ns)))
    exposed, hidden = (sentences.bound_below(cell, exposed), "n/a") if cell.is_least else shares
    lacking = [part.name for part in PARTS if getattr(row, part.field) is None]
    left_out = f"\n{' and '.join(lacking)} n/a" if lacking else ""
    words = f"exposed {exposed} of step\nhidden {hidden} of comm{left_out}"
    axes.text(1.012 * row.step_ns / NS_PER_MS, position, words, va="center", ha="left", fontsize=7, color=QUIET)


def _label(axes: Axes, part: Part, centre: tuple[float, float], words: str) -> None:
    """Write a share into its part, on a plain patch so that a hatch does not run through the digits."""
    box = {"facecolor": part.look.colour, "edgecolor": "none", "pad": 1.0}
    axes.text(
        centre[0] / NS_PER_MS,
        centre[1],
        words,
        ha="center",
        va="center",
        fontsize=7.5,
        color=part.look.ink,
        bbox=box,
    )


def _finish_breakdown(axes: Axes, ticks: list[tuple[float, str]], longest_ns: int, cells: list[CellSummary]) -> None:
    axes.set_yticks([position for position, _ in ticks], [words for _, words in ticks])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(ticks[-1][0] + 0.6, -0.2)
    axes.set_xlim(0, 1.2 * longest_ns / NS_PER_MS)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"ms of a profiled step (mean of each rank){_link_words(cells)}")
    set_finding(axes, _breakdown_finding(cells))


def _link_words(cells: list[CellSummary]) -> str:
    """Say that an emulated link carried the communication, of all cells or of some."""
    linked = sum(is_linked(cell) for cell in cells)
    whose = "" if linked == len(cells) else " of some cells"
    return f", communication{whose} {sentences.LINKED}" if linked else ""


def _draw_legend(figure: Figure, cells: list[CellSummary]) -> None:
    idle = " / ".join(dict.fromkeys(sentences.idle_word(cell) for cell in cells))
    legend = [legend_patch(part, idle if part.name == "idle" else part.name) for part in (*PARTS, HIDDEN_COMM)]
    figure.legend(handles=legend, loc="outside lower left", ncols=len(legend), frameon=False, fontsize=8)


def _draw_heading(axes: Axes, cell: CellSummary, position: float) -> None:
    """Name a cell above its ranks; below that, in small print, why its steps may stand for no others, and its knobs."""
    rest = choose_slowest(cell)[1]
    is_mixed = len({row.part for row in rest}) > 1
    more = f"; {count_things(len(rest), 'more rank')} not drawn: known of different steps" if is_mixed else ""
    lack = "" if cell.part is None else f"; known of {cell.part}"
    heading = literal(f"{cell.name}  ({sentences.mesh_words(cell)}{more}{lack})")
    doubt = sentences.doubts_of_cells([cell]).get(cell.name)
    knobs = ", ".join(sentences.knob_words(cell))
    room = _SMALL_FITS if doubt is None else max(_LEAST_OF_KNOBS, _SMALL_FITS - len(doubt))
    small = "; ".join(words for words in (doubt, shorten_middle(knobs, most=room)) if words)
    axes.text(0, position + (0.12 if small else 0.25), heading, fontweight="bold", va="center", ha="left")
    if small:
        axes.text(0, position + 0.44, literal(small), va="center", ha="left", fontsize=7.5, color=QUIET)


def _breakdown_finding(cells: list[CellSummary]) -> str:
    """Say how much of the step communication took alone, in the worst cell and the best of those that are findings.

    A cell of which only a bound is known is neither, beside others.
    """
    known = [cell for cell in cells if not math.isnan(cell.exposed_step_fraction)]
    trusted = [cell for cell in known if sentences.has_findings(cell)]
    findings = [cell for cell in trusted if not (cell.is_least and len(known) > 1)]
    if not known:
        return "How much of the step communication took alone is not known"
    if not findings and len(known) > 1:
        bounds = ", or a bound is all that is known" if any(cell.is_least for cell in known) else ""
        return f"Nothing is compared: the profiled steps of no cell may stand for others{bounds}"
    step = "step" if findings else "profiled step"  # which stands for no others
    findings = findings or known
    worst = max(findings, key=lambda cell: cell.exposed_step_fraction)
    best = min(findings, key=lambda cell: cell.exposed_step_fraction)
    aside = f", of {len(findings)} of {len(cells)} cells" if len(findings) < len(cells) else ""
    more = f"; the first {MOST_CELLS} of {len(cells)} cells" if len(cells) > MOST_CELLS else ""
    worst_words, best_words = (
        f"{sentences.least_word(cell)}{format_fraction(cell.exposed_step_fraction)}" for cell in (worst, best)
    )
    words = f"Exposed communication takes {worst_words} of the {step} in {worst.name}"
    if worst is not best:
        words += f", {best_words} in {best.name}"
    return f"{words}{aside}{more}"

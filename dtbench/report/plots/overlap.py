"""How much communication each step hid and left exposed."""

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtbench.base.units import NS_PER_MS, count_things, format_fraction, format_ns, is_or_are
from dtbench.base.vocabulary import Phase
from dtbench.report.page import looks
from dtbench.report.plots.breakdown import HIDDEN_COMM
from dtbench.report.plots.drawing import (
    EDGE,
    INK,
    Part,
    add_axes,
    left_out_words,
    legend_patch,
    literal,
    new_figure,
    say,
    set_finding,
)
from dtbench.report.plots.panels import (
    Wholes,
    cut_words,
    find_doubt,
    find_drawn_part,
    find_whole,
    name_cell,
    split_panels,
)
from dtbench.report.words.sentences import fraction_of
from dtbench.runs.cell.summarize_overlap import keep_known
from dtbench.runs.reading.undisturbed import keep_steps
from dtbench.traces.known_part import KnownPart, name_part

MOST_STEPS = 60
"""Bars of one cell over steps; the mean of what is left over is one more."""

_WINDOW: Final = ("cell", "launch", "step")
"""Columns that tell steps apart, as far as a table has them."""

_EXPOSED: Final = Part("exposed comm", "exposed_comm_ns", looks.EXPOSED_COMM)


def plot_overlap(
    overlap: pd.DataFrame,
    doubts: Mapping[str, str] | None = None,
    cells: Sequence[str] = (),
    wholes: Wholes | None = None,
) -> Figure:
    """Draw how much communication each step hid and left exposed: means over ranks, and a dot for each rank.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where they are of
            several; launches of a cell follow each other. Rows that ``is_left_out`` names, if it is a column, are
            counted, not drawn; nor are steps that are known of fewer ranks than others of their cell.
        doubts: as those of ``plot_exposed_owners``; told below the panel.
        cells: as those of ``plot_exposed_owners``.
        wholes: ranks and launches that there are: those of which nothing is known are named; None: those of the table.
    """
    kept = keep_steps(overlap)
    left_out = left_out_words(_count_steps(overlap) - _count_steps(kept), Phase.PROFILED)
    known = _keep_of_all_ranks(keep_known(kept))
    every = list(dict.fromkeys([*cells, *overlap.get("cell", [])]))
    panels = split_panels(known, every)
    if not panels:
        figure = new_figure(2.0)
        why = "No step was profiled" if overlap.empty else "What was hidden and exposed is not known of any step"
        return say(figure, add_axes(figure), f"{why}{left_out}.")
    figure = new_figure(0.9 + 2.0 * len(panels))
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (cell, rows) in zip(grid, panels, strict=True):
        _draw_steps(axes, rows)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_ylabel("ms", fontsize=9)
        of_cell = kept if "cell" not in rows else kept[kept["cell"] == rows["cell"].iloc[0]]
        part = find_drawn_part(rows, of_cell, find_whole(wholes, of_cell))
        set_finding(axes, name_cell(cell, _overlap_finding(rows, part)), fontsize=10)
        axes.set_xlabel(literal(find_doubt(doubts, rows) or ""), fontsize=9)
    unknown = _count_steps(kept) - _count_steps(known)
    more = (
        f"; {count_things(unknown, 'step')} {is_or_are(unknown)} not drawn: not known of every rank" if unknown else ""
    )
    more = f"{left_out}{more}"
    last = [
        words
        for words in (grid[-1].get_xlabel(), f"PROFILED step, of the trace{cut_words(known, every)}{more}")
        if words
    ]
    grid[-1].set_xlabel("\n".join(last), fontsize=9)
    dot = Line2D([], [], linestyle="none", marker="o", markersize=3.5, color=INK, label="exposed, of one rank")
    handles = [*(legend_patch(part, part.name) for part in (_EXPOSED, HIDDEN_COMM)), dot]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


def _count_steps(overlap: pd.DataFrame) -> int:
    """Count steps over all cells and launches, each once for all its ranks."""
    return len(overlap[[name for name in _WINDOW if name in overlap]].drop_duplicates())


def _keep_of_all_ranks(known: pd.DataFrame) -> pd.DataFrame:
    """Leave out steps that are known of fewer ranks than others of their cell: theirs are means over other ranks."""
    if known.empty:
        return known
    ranks = known.groupby([name for name in _WINDOW if name in known])["rank"].transform("nunique")
    most = ranks.groupby(known["cell"]).transform("max") if "cell" in known else ranks.max()
    return known[ranks == most]


def _draw_steps(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw exposed communication from the ground and hidden on top of it, a bar for each step of each launch."""
    key = _step_key(rows)
    means = rows.groupby(key)[[_EXPOSED.field, HIDDEN_COMM.field]].mean() / NS_PER_MS
    shown, rest = means.iloc[:MOST_STEPS], means.iloc[MOST_STEPS:]
    heights = pd.concat([shown, rest.mean().to_frame().T]) if len(rest) else shown
    places = range(len(heights))
    bottom = [0.0] * len(heights)
    for part in (_EXPOSED, HIDDEN_COMM):
        bars = axes.bar(
            places,
            heights[part.field],
            bottom=bottom,
            width=0.7,
            color=part.look.colour,
            hatch=part.look.hatch,
            edgecolor=EDGE,
            linewidth=0.5,
        )
        for bar in bars.patches:
            bar.set_gid(part.field)
        bottom = list(heights[part.field])
    for place, index in enumerate(shown.index):
        mine = rows.set_index(key).loc[[index], _EXPOSED.field] / NS_PER_MS
        (dots,) = axes.plot([place] * len(mine), mine, linestyle="none", marker="o", markersize=2.8, color=INK)
        dots.set_gid("exposed of a rank")
    many = rows["launch"].nunique() > 1 if "launch" in rows else False
    labels = [f"{index[-1]}\nlaunch {index[0]}" if many else f"{index[-1]}" for index in _tuples(shown.index)]
    every = 1 + (len(shown) - 1) // 20
    named = [*list(enumerate(labels))[::every], *([(MOST_STEPS, f"{len(rest)} more,\nmean")] if len(rest) else [])]
    axes.set_xticks([place for place, _ in named], [words for _, words in named], fontsize=8)
    axes.tick_params(axis="x", length=0)


def _step_key(rows: pd.DataFrame) -> list[str]:
    return ["launch", "step"] if "launch" in rows else ["step"]


def _tuples(index: pd.Index) -> list[tuple[object, ...]]:
    return [one if isinstance(one, tuple) else (one,) for one in index]


def _overlap_finding(rows: pd.DataFrame, part: KnownPart | None) -> str:
    """Say how much was hidden and how much exposed, and of which ranks, launches and steps, where not of all."""
    comm_ns, exposed_ns = float(rows["comm_ns"].sum()), float(rows[_EXPOSED.field].sum())
    is_least = bool(rows.get("is_least", pd.Series(dtype="boolean")).any())
    least, why = ("at least ", ": more communication was launched than was seen to run") if is_least else ("", "")
    if not comm_ns:
        return f"{name_part(part)}no communication{' was seen' if is_least else ''}{why}"
    share = format_fraction(fraction_of(exposed_ns, float(rows["step_ns"].sum())))
    exposed = f"{least}{format_ns(exposed_ns / len(rows))} of a step exposed ({least}{share}){why}"
    hidden = format_fraction(fraction_of(float(rows[HIDDEN_COMM.field].sum()), comm_ns))
    return f"{name_part(part)}{'' if is_least else f'{hidden} of the communication is hidden, '}{exposed}"

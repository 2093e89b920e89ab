"""What communication was exposed: whose and why, and how much of each step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtbench.base.units import NS_PER_MS, count_things, format_fraction, format_ns, is_or_are
from dtbench.base.vocabulary import Cause, Operation
from dtbench.report.page.looks import CAUSE_LOOKS
from dtbench.report.plots.breakdown import HIDDEN_COMM, MOST_CELLS
from dtbench.report.plots.drawing import (
    EDGE,
    Part,
    absent_words,
    add_axes,
    draw_bar,
    legend_patch,
    literal,
    new_figure,
    say,
    set_finding,
    shorten_middle,
)
from dtbench.report.words.causes import UNATTRIBUTED, describe_cause, name_collective, name_operation, spell_owner
from dtbench.report.words.sentences import fraction_of
from dtbench.runs.cell.summarize_overlap import keep_known

MOST_OWNERS = 14
"""Bars of one cell; what is left over is summed in words."""

MOST_STEPS = 60
"""Bars of one cell over steps; of more the first are drawn."""

_SHARED_BELOW = 6
"""Cells whose longest bars differ by less have one scale; beyond, the shorter would not be seen."""

CAUSE_PARTS: Final = {
    cause: Part(cause.value, cause.value, look.colour, look.hatch, "white" if look.is_dark else "black")
    for cause, look in CAUSE_LOOKS.items()
}
"""How each cause is drawn."""

_EXPOSED: Final = Part("exposed comm", "exposed_comm_ns", "#E69F00", "///", "black")


def plot_exposed_owners(
    owners: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = ()
) -> Figure:
    """Draw a bar for each owner's exposed communication, split by cause, longest first.

    Args:
        owners: columns as in the table ``owners``, and ``cell`` where they are of several.
        doubts: by cell (empty: of a table without cells), why its steps may not stand for others: told in place of
            the finding.
        cells: of the run, of which some may have nothing in the table.
    """
    panels = _panels(owners, cells)
    if not panels:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "No exposed communication with an owner and a cause is in this table.")
    bars = [_rank_owners(rows) for _, rows in panels]
    longest = [_longest(of_panel) for of_panel in bars]
    shares_scale = max(longest) <= _SHARED_BELOW * min(longest)
    heights = [0.75 + 0.3 * max(2, min(len(of_panel), MOST_OWNERS + 1)) for of_panel in bars]
    figure = new_figure(0.9 + sum(heights))
    grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, (cell, rows), of_panel in zip(grid, panels, bars, strict=True):
        _draw_owners(axes, of_panel)
        axes.set_xlim(0, 1.14 * (max(longest) if shares_scale else _longest(of_panel)) / NS_PER_MS)
        _bare(axes)
        doubt = _find_doubt(doubts, rows)
        set_finding(axes, _owner_finding(cell, rows) if doubt is None else _name_cell(cell, doubt), fontsize=10)
    grid[-1].set_xlabel(f"ms exposed per step and rank{_cut_words(owners, cells)}", fontsize=9)
    used = [cause for cause in Cause if any(cause in parts for of_panel in bars for _, parts in of_panel)]
    handles = [legend_patch(CAUSE_PARTS[cause], describe_cause(cause)) for cause in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)), frameon=False, fontsize=8)
    return figure


_Bar = tuple[str, dict[Cause, float]]
"""What a bar is of, and its parts in ns."""


def _panels(table: pd.DataFrame, every: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Split a table by cell; the panel of an only cell has no name."""
    if table.empty:
        return []
    if "cell" not in table:
        return [("", table)]
    cells = list(dict.fromkeys(table["cell"]))[:MOST_CELLS]
    is_named = len({*cells, *every}) > 1
    return [(str(cell) if is_named else "", table[table["cell"] == cell]) for cell in cells]


def _cut_words(table: pd.DataFrame, every: Sequence[str]) -> str:
    """Say of which cells nothing is drawn."""
    cells = table["cell"].nunique() if "cell" in table else 1
    cut = f"; the first {MOST_CELLS} of {cells} cells" if cells > MOST_CELLS else ""
    absent = [cell for cell in every if "cell" in table and cell not in set(table["cell"])]
    return cut + absent_words(absent)


def _find_doubt(doubts: Mapping[str, str] | None, rows: pd.DataFrame) -> str | None:
    """Return why the steps of a panel may stand for no others; None: nothing speaks against them."""
    return (doubts or {}).get(str(rows["cell"].iloc[0]) if "cell" in rows else "")


def _name_cell(cell: str, words: str) -> str:
    return f"{cell}: {words}" if cell else words


def _rank_owners(rows: pd.DataFrame) -> list[_Bar]:
    bars: dict[tuple[str, str, str], dict[Cause, float]] = {}
    for row in rows.itertuples():
        parts = bars.setdefault((str(row.owner), str(row.operation), str(row.purpose)), {})
        parts[Cause(str(row.cause))] = parts.get(Cause(str(row.cause)), 0.0) + float(str(row.exposed_ns))
    ordered = sorted(bars.items(), key=lambda item: -sum(item[1].values()))
    names = Counter(_name_owner(owner, operation) for owner, operation, _ in bars)
    named = []
    for (owner, operation, purpose), parts in ordered:
        name = _name_owner(owner, operation)
        named.append((f"{name} ({purpose})" if names[name] > 1 else name, parts))
    return named


def _longest(bars: Sequence[_Bar]) -> float:
    return max(sum(parts.values()) for _, parts in bars)


def _name_owner(owner: str, operation: str) -> str:
    what = name_operation(Operation(operation) if operation else None)
    return f"{spell_owner(owner) if owner else UNATTRIBUTED}, {what}"


def _draw_owners(axes: Axes, bars: Sequence[_Bar]) -> None:
    shown, rest = bars[:MOST_OWNERS], bars[MOST_OWNERS:]
    for position, (_, parts) in enumerate(shown):
        left = 0.0
        for cause in (one for one in Cause if one in parts):
            length = parts[cause] / NS_PER_MS
            draw_bar(axes, CAUSE_PARTS[cause], (left, length), (position, 0.66))
            left += length
        words = f" {format_ns(sum(parts.values()))}"
        axes.text(left, position, words, va="center", ha="left", fontsize=7.5, color="#444444")
    names = [name for name, _ in shown]
    if rest:
        rest_ns = sum(sum(parts.values()) for _, parts in rest)
        axes.text(0, len(shown), f" {format_ns(rest_ns)} together", va="center", fontsize=7.5, color="#444444")
        names.append(f"{len(rest)} more")
    axes.set_yticks(range(len(names)), [literal(shorten_middle(name)) for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _owner_finding(cell: str, rows: pd.DataFrame) -> str:
    by_owner = rows.groupby(["owner", "operation", "purpose"])["exposed_ns"].sum()
    total_ns, longest = float(by_owner.sum()), by_owner.idxmax()
    owner, operation, _ = longest if isinstance(longest, tuple) else (longest, "", "")
    share = format_fraction(fraction_of(float(by_owner.max()), total_ns))
    who = name_collective(str(owner) or None, Operation(operation) if operation else None)
    words = f"{who} leaves most exposed: {share} of {format_ns(total_ns)}"
    return f"{cell}: {words}" if cell else words


def plot_overlap(overlap: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = ()) -> Figure:
    """Draw how much communication each step hid and left exposed: means over ranks, and a dot for each rank.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where they are of
            several; launches of a cell follow each other.
        doubts: as those of ``plot_exposed_owners``; told below the panel.
        cells: as those of ``plot_exposed_owners``.
    """
    known = keep_known(overlap)
    every = list(dict.fromkeys([*cells, *overlap.get("cell", [])]))
    panels = _panels(known, every)
    if not panels:
        figure = new_figure(2.0)
        why = "No step was profiled." if overlap.empty else "What was hidden and exposed is not known of any step."
        return say(figure, add_axes(figure), why)
    figure = new_figure(0.9 + 2.0 * len(panels))
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (cell, rows) in zip(grid, panels, strict=True):
        _draw_steps(axes, rows)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_ylabel("ms", fontsize=9)
        steps = len(rows.groupby(_step_key(rows)))
        cut = f"; the first {MOST_STEPS} of {steps} steps" if steps > MOST_STEPS else ""
        set_finding(axes, _overlap_finding(cell, rows) + cut, fontsize=10)
        axes.set_xlabel(literal(_find_doubt(doubts, rows) or ""), fontsize=9)
    unknown = len(overlap) - len(known)
    more = f"; {count_things(unknown, 'step')} of a rank {is_or_are(unknown)} not drawn: not known" if unknown else ""
    last = [
        words
        for words in (grid[-1].get_xlabel(), f"PROFILED step, of the trace{_cut_words(known, every)}{more}")
        if words
    ]
    grid[-1].set_xlabel("\n".join(last), fontsize=9)
    dot = Line2D([], [], linestyle="none", marker="o", markersize=3.5, color="black", label="exposed, of one rank")
    handles = [*(legend_patch(part, part.name) for part in (_EXPOSED, HIDDEN_COMM)), dot]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


def _draw_steps(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw exposed communication from the ground and hidden on top of it, a bar for each step of each launch."""
    key = _step_key(rows)
    means = rows.groupby(key)[[_EXPOSED.field, HIDDEN_COMM.field]].mean() / NS_PER_MS
    shown = means.iloc[:MOST_STEPS]
    places = range(len(shown))
    bottom = [0.0] * len(shown)
    for part in (_EXPOSED, HIDDEN_COMM):
        bars = axes.bar(
            places,
            shown[part.field],
            bottom=bottom,
            width=0.7,
            color=part.colour,
            hatch=part.hatch,
            edgecolor=EDGE,
            linewidth=0.5,
        )
        for bar in bars.patches:
            bar.set_gid(part.field)
        bottom = list(shown[part.field])
    for place, index in zip(places, shown.index, strict=True):
        mine = rows.set_index(key).loc[[index], _EXPOSED.field] / NS_PER_MS
        (dots,) = axes.plot([place] * len(mine), mine, linestyle="none", marker="o", markersize=2.8, color="black")
        dots.set_gid("exposed of a rank")
    many = rows["launch"].nunique() > 1 if "launch" in rows else False
    labels = [f"{index[-1]}\nlaunch {index[0]}" if many else f"{index[-1]}" for index in _tuples(shown.index)]
    every = 1 + (len(shown) - 1) // 20
    axes.set_xticks(list(places)[::every], labels[::every], fontsize=8)
    axes.tick_params(axis="x", length=0)


def _step_key(rows: pd.DataFrame) -> list[str]:
    return ["launch", "step"] if "launch" in rows else ["step"]


def _tuples(index: pd.Index) -> list[tuple[object, ...]]:
    return [one if isinstance(one, tuple) else (one,) for one in index]


def _overlap_finding(cell: str, rows: pd.DataFrame) -> str:
    comm_ns, exposed_ns = float(rows["comm_ns"].sum()), float(rows[_EXPOSED.field].sum())
    if not comm_ns:
        return f"{cell}: no communication" if cell else "No communication"
    share = format_fraction(fraction_of(exposed_ns, float(rows["step_ns"].sum())))
    exposed = f"{format_ns(exposed_ns / len(rows))} of a step exposed ({share})"
    if rows.get("is_least", pd.Series(dtype="boolean")).any():
        words = f"at least {exposed}: more communication was launched than was seen to run"
    else:
        hidden = format_fraction(fraction_of(float(rows[HIDDEN_COMM.field].sum()), comm_ns))
        words = f"{hidden} of the communication is hidden, {exposed}"
    return f"{cell}: {words}" if cell else words


def _bare(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)

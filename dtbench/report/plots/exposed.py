"""What communication was exposed: whose and why, and how much of each step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtbench.base.units import NS_PER_MS, count_things, format_fraction, format_ns, is_or_are
from dtbench.base.vocabulary import Cause, Operation, Phase
from dtbench.report.page import looks
from dtbench.report.plots.breakdown import HIDDEN_COMM, MOST_CELLS
from dtbench.report.plots.drawing import (
    EDGE,
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
from dtbench.report.words.causes import UNATTRIBUTED, describe_cause, name_collective, name_operation, spell_owner
from dtbench.report.words.marks import Marks
from dtbench.report.words.sentences import NAN, fraction_of
from dtbench.runs.cell.summarize_overlap import keep_known
from dtbench.runs.reading.undisturbed import keep_steps

MOST_OWNERS = 14
"""Bars of one cell; what is left over is summed in words."""

MOST_STEPS = 60
"""Bars of one cell over steps; of more the first are drawn."""

_SHARED_BELOW = 6
"""Cells whose longest bars differ by less have one scale; beyond, the shorter would not be seen."""

CAUSE_PARTS: Final = {cause: Part(cause.value, cause.value, look) for cause, look in looks.CAUSE_LOOKS.items()}
"""How each cause is drawn."""

_WINDOW: Final = ("cell", "launch", "step")
"""Columns that tell steps apart, as far as a table has them."""

_EXPOSED: Final = Part("exposed comm", "exposed_comm_ns", looks.EXPOSED_COMM)


def plot_exposed_owners(
    owners: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = (), left_out: int = 0
) -> Figure:
    """Draw a bar for each owner's exposed communication, split by cause, longest first.

    An owner that is known of some steps alone has a mark, and a line below the panel says which; owners that are known
    of different steps are not summed, nor is one said to have most.

    Args:
        owners: columns as in the table ``owners``, and ``cell`` where they are of several.
        doubts: by cell (empty: of a table without cells), why its steps may not stand for others: told in place of
            the finding.
        cells: of the run, of which some may have nothing in the table.
        left_out: PROFILED steps that others disturbed, of which the table has nothing.
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
        axes.set_xlabel(literal("\n".join(_draw_owners(axes, of_panel))), fontsize=9)
        axes.set_xlim(0, 1.14 * (max(longest) if shares_scale else _longest(of_panel)) / NS_PER_MS)
        _bare(axes)
        doubt = _find_doubt(doubts, rows)
        set_finding(axes, _owner_finding(cell, rows) if doubt is None else _name_cell(cell, doubt), fontsize=10)
    aside = left_out_words(left_out, Phase.PROFILED)
    below = [grid[-1].get_xlabel(), f"ms exposed per step and rank{_cut_words(owners, cells)}{aside}"]
    grid[-1].set_xlabel("\n".join(filter(None, below)), fontsize=9)
    used = [cause for cause in Cause if any(cause in bar.parts_ns for of_panel in bars for bar in of_panel)]
    handles = [legend_patch(CAUSE_PARTS[cause], describe_cause(cause)) for cause in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)), frameon=False, fontsize=8)
    return figure


@dataclass(frozen=True)
class _Bar:
    """One owner's bar; ``known_of``: of which steps it is a mean; empty: of all."""

    name: str
    parts_ns: Mapping[Cause, float]
    known_of: str

    @property
    def length_ns(self) -> float:
        return sum(self.parts_ns.values())


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
    known_of: dict[tuple[str, str, str], str] = {}
    for row, part in zip(rows.itertuples(), _known_of(rows), strict=True):
        key = (str(row.owner), str(row.operation), str(row.purpose))
        parts, known_of[key] = bars.setdefault(key, {}), part
        parts[Cause(str(row.cause))] = parts.get(Cause(str(row.cause)), 0.0) + float(str(row.exposed_ns))
    ordered = sorted(bars.items(), key=lambda item: -sum(item[1].values()))
    names = Counter(_name_owner(owner, operation) for owner, operation, _ in bars)
    named = []
    for (owner, operation, purpose), parts in ordered:
        name = _name_owner(owner, operation)
        shown = f"{name} ({purpose})" if names[name] > 1 else name
        named.append(_Bar(shown, parts, known_of[owner, operation, purpose]))
    return named


def _known_of(rows: pd.DataFrame) -> list[str]:
    """Return of which steps each row is a mean; empty: of all."""
    return rows["known_of"].fillna("").astype(str).tolist() if "known_of" in rows else [""] * len(rows)


def _longest(bars: Sequence[_Bar]) -> float:
    return max(bar.length_ns for bar in bars)


def _name_owner(owner: str, operation: str) -> str:
    what = name_operation(Operation(operation) if operation else None)
    return f"{spell_owner(owner) if owner else UNATTRIBUTED}, {what}"


def _draw_owners(axes: Axes, bars: Sequence[_Bar]) -> list[str]:
    """Draw the bars of a panel; return what its marks say."""
    shown, rest = bars[:MOST_OWNERS], bars[MOST_OWNERS:]
    marks = Marks.of(bar.known_of or None for bar in bars)
    for position, bar in enumerate(shown):
        left = 0.0
        for cause in (one for one in Cause if one in bar.parts_ns):
            length = bar.parts_ns[cause] / NS_PER_MS
            draw_bar(axes, CAUSE_PARTS[cause], (left, length), (position, 0.66))
            left += length
        words = f" {marks.mark(format_ns(bar.length_ns), bar.known_of or None)}"
        axes.text(left, position, words, va="center", ha="left", fontsize=7.5, color=QUIET)
    names = [bar.name for bar in shown]
    if rest:
        is_sum = len({bar.known_of for bar in rest}) == 1
        rest_ns = sum(bar.length_ns for bar in rest) if is_sum else NAN
        words = f" {marks.mark(format_ns(rest_ns), rest[0].known_of or None)} together"
        axes.text(0, len(shown), words, va="center", fontsize=7.5, color=QUIET)
        names.append(f"{len(rest)} more")
    axes.set_yticks(range(len(names)), [literal(shorten_middle(name)) for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    return list(marks.lines)


def _owner_finding(cell: str, rows: pd.DataFrame) -> str:
    known_of = sorted(set(_known_of(rows)))
    if len(known_of) > 1:
        return _name_cell(cell, "Which owner leaves most exposed is not told: they are known of different steps")
    by_owner = rows.groupby(["owner", "operation", "purpose"])["exposed_ns"].sum()
    total_ns, longest = float(by_owner.sum()), by_owner.idxmax()
    owner, operation, _ = longest if isinstance(longest, tuple) else (longest, "", "")
    share = format_fraction(fraction_of(float(by_owner.max()), total_ns))
    who = name_collective(str(owner) or None, Operation(operation) if operation else None)
    of = f"of {known_of[0]}: " if known_of[0] else ""
    return _name_cell(cell, f"{of}{who} leaves most exposed: {share} of {format_ns(total_ns)}")


def plot_overlap(overlap: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = ()) -> Figure:
    """Draw how much communication each step hid and left exposed: means over ranks, and a dot for each rank.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where they are of
            several; launches of a cell follow each other. Rows that ``is_left_out`` names, if it is a column, are
            counted, not drawn; nor are steps that are known of fewer ranks than others of their cell.
        doubts: as those of ``plot_exposed_owners``; told below the panel.
        cells: as those of ``plot_exposed_owners``.
    """
    kept = keep_steps(overlap)
    left_out = left_out_words(_count_steps(overlap) - _count_steps(kept), Phase.PROFILED)
    known = _keep_of_all_ranks(keep_known(kept))
    every = list(dict.fromkeys([*cells, *overlap.get("cell", [])]))
    panels = _panels(known, every)
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
        steps = len(rows.groupby(_step_key(rows)))
        cut = f"; the first {MOST_STEPS} of {steps} steps" if steps > MOST_STEPS else ""
        set_finding(axes, _overlap_finding(cell, rows) + cut, fontsize=10)
        axes.set_xlabel(literal(_find_doubt(doubts, rows) or ""), fontsize=9)
    unknown = _count_steps(kept) - _count_steps(known)
    more = (
        f"; {count_things(unknown, 'step')} {is_or_are(unknown)} not drawn: not known of every rank" if unknown else ""
    )
    more = f"{left_out}{more}"
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
    shown = means.iloc[:MOST_STEPS]
    places = range(len(shown))
    bottom = [0.0] * len(shown)
    for part in (_EXPOSED, HIDDEN_COMM):
        bars = axes.bar(
            places,
            shown[part.field],
            bottom=bottom,
            width=0.7,
            color=part.look.colour,
            hatch=part.look.hatch,
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
    is_least = bool(rows.get("is_least", pd.Series(dtype="boolean")).any())
    least = "at least " if is_least else ""
    exposed = f"{least}{format_ns(exposed_ns / len(rows))} of a step exposed ({least}{share})"
    if is_least:
        words = f"{exposed}: more communication was launched than was seen to run"
    else:
        hidden = format_fraction(fraction_of(float(rows[HIDDEN_COMM.field].sum()), comm_ns))
        words = f"{hidden} of the communication is hidden, {exposed}"
    return f"{cell}: {words}" if cell else words


def _bare(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)

"""What communication was exposed and why: by what it was for, and by whose it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, format_fraction, format_ns
from dtbench.base.vocabulary import Cause, Operation, Phase
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    QUIET,
    Part,
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
from dtbench.report.plots.panels import bare_axes, cut_words, find_doubt, name_cell, split_panels
from dtbench.report.words.causes import UNATTRIBUTED, describe_cause, name_collective, name_operation, spell_owner
from dtbench.report.words.marks import Marks
from dtbench.report.words.sentences import fraction_of

MOST_BARS = 14
"""Bars of one cell; what is left over is one more."""

_SHARED_BELOW = 6
"""Cells whose longest bars differ by less have one scale; beyond, the shorter would not be seen."""

CAUSE_PARTS: Final = {cause: Part(cause.value, cause.value, look) for cause, look in looks.CAUSE_LOOKS.items()}
"""How each cause is drawn."""

_OWNER: Final = ["owner", "operation", "purpose"]
_PURPOSE: Final = ["purpose"]


@dataclass(frozen=True)
class _Bar:
    """What rows of one key left exposed; ``known_of``: of which steps it is a mean; empty: of all."""

    name: str
    parts_ns: Mapping[Cause, float]
    known_of: str

    @property
    def length_ns(self) -> float:
        return sum(self.parts_ns.values())


def plot_exposed(
    owners: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = (), left_out: int = 0
) -> Figure:
    """Draw a bar for what each purpose left exposed, split by cause, longest first; otherwise as each owner's.

    Args:
        owners: columns as in the table ``owners``, and ``cell`` where they are of several.
        doubts: by cell, why its steps may not stand for others.
        cells: of the run.
        left_out: PROFILED steps that others disturbed.
    """
    return _plot(owners, (_PURPOSE, _name_purposes), doubts, cells, left_out)


def plot_exposed_owners(
    owners: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = (), left_out: int = 0
) -> Figure:
    """Draw a bar for each owner's exposed communication, split by cause, longest first.

    What is known of some steps alone has a mark, and a line below the panel says which; what is known of different
    steps is not summed, nor is one of those said to have most.

    Args:
        owners: columns as in the table ``owners``, and ``cell`` where they are of several.
        doubts: by cell (empty: of a table without cells), why its steps may not stand for others: told in place of
            the finding.
        cells: of the run, of which some may have nothing in the table.
        left_out: PROFILED steps that others disturbed, of which the table has nothing.
    """
    return _plot(owners, (_OWNER, _name_owners), doubts, cells, left_out)


_Key = tuple[str, ...]
_By = tuple[list[str], Callable[[Sequence[_Key]], list[str]]]
"""Columns that say of what a bar is, and what bars are called."""


def _plot(
    owners: pd.DataFrame, by: _By, doubts: Mapping[str, str] | None, cells: Sequence[str], left_out: int
) -> Figure:
    panels = split_panels(owners, cells)
    if not panels:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "No exposed communication with an owner and a cause is in this table.")
    bars = [_sum_up(rows, by) for _, rows in panels]
    longest = [max(bar.length_ns for bar in of_panel) for of_panel in bars]
    shares_scale = max(longest) <= _SHARED_BELOW * min(longest)
    heights = [0.75 + 0.3 * max(2, min(len(of_panel), MOST_BARS + 1)) for of_panel in bars]
    figure = new_figure(0.9 + sum(heights))
    grid = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, (cell, rows), of_panel in zip(grid, panels, bars, strict=True):
        drawn = _cut(of_panel)
        axes.set_xlabel(literal("\n".join(_draw_bars(axes, drawn))), fontsize=9)
        mine = [bar.length_ns for bar in drawn]
        axes.set_xlim(0, 1.14 * max([*mine, *(longest if shares_scale else [])]) / NS_PER_MS)
        bare_axes(axes)
        doubt = find_doubt(doubts, rows)
        set_finding(axes, name_cell(cell, doubt or _finding(rows, by[0])), fontsize=10)
    aside = left_out_words(left_out, Phase.PROFILED)
    below = [grid[-1].get_xlabel(), f"ms exposed per step and rank{cut_words(owners, cells)}{aside}"]
    grid[-1].set_xlabel("\n".join(filter(None, below)), fontsize=9)
    used = [cause for cause in Cause if any(cause in bar.parts_ns for of_panel in bars for bar in of_panel)]
    handles = [legend_patch(CAUSE_PARTS[cause], describe_cause(cause)) for cause in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)), frameon=False, fontsize=8)
    return figure


def _sum_up(rows: pd.DataFrame, by: _By) -> list[_Bar]:
    """Return the bars of a panel, longest first; what is known of different steps is in different bars."""
    columns, name = by
    bars: dict[tuple[_Key, str], dict[Cause, float]] = {}
    keys = [tuple(map(str, key)) for key in rows[columns].itertuples(index=False, name=None)]
    for row, key, part in zip(rows.itertuples(), keys, _known_of(rows), strict=True):
        _add(bars.setdefault((key, part), {}), {Cause(str(row.cause)): float(str(row.exposed_ns))})
    ordered = sorted(bars.items(), key=lambda item: -sum(item[1].values()))
    names = name([key for (key, _), _ in ordered])
    return [_Bar(shown, parts, part) for shown, ((_, part), parts) in zip(names, ordered, strict=True)]


def _cut(bars: Sequence[_Bar]) -> list[_Bar]:
    """Return the longest, and the rest as one bar: without length where they are known of different steps."""
    shown, rest = bars[:MOST_BARS], bars[MOST_BARS:]
    if not rest:
        return list(shown)
    is_sum = len({bar.known_of for bar in rest}) == 1
    parts: dict[Cause, float] = {}
    for bar in rest if is_sum else ():
        _add(parts, bar.parts_ns)
    return [*shown, _Bar(f"{len(rest)} more", parts, rest[0].known_of if is_sum else "")]


def _add(parts_ns: dict[Cause, float], more_ns: Mapping[Cause, float]) -> None:
    for cause, time_ns in more_ns.items():
        parts_ns[cause] = parts_ns.get(cause, 0.0) + time_ns


def _known_of(rows: pd.DataFrame) -> list[str]:
    """Return of which steps each row is a mean; empty: of all."""
    return rows["known_of"].fillna("").astype(str).tolist() if "known_of" in rows else [""] * len(rows)


def _name_purposes(keys: Sequence[_Key]) -> list[str]:
    return [purpose for (purpose,) in keys]


def _name_owners(keys: Sequence[_Key]) -> list[str]:
    """Return whose collectives they are and of which kind; and for what, where that alone tells some apart."""
    plain = [_name_owner(owner, operation) for owner, operation, _ in keys]
    purposes: dict[str, set[str]] = {}
    for name, (_, _, purpose) in zip(plain, keys, strict=True):
        purposes.setdefault(name, set()).add(purpose)
    return [
        f"{name} ({purpose})" if len(purposes[name]) > 1 else name
        for name, (_, _, purpose) in zip(plain, keys, strict=True)
    ]


def _name_owner(owner: str, operation: str) -> str:
    what = name_operation(Operation(operation) if operation else None)
    return f"{spell_owner(owner) if owner else UNATTRIBUTED}, {what}"


def _draw_bars(axes: Axes, bars: Sequence[_Bar]) -> list[str]:
    """Draw the bars of a panel; return what its marks say."""
    marks = Marks.of(bar.known_of or None for bar in bars)
    for position, bar in enumerate(bars):
        left = 0.0
        for cause in (one for one in Cause if one in bar.parts_ns):
            length = bar.parts_ns[cause] / NS_PER_MS
            draw_bar(axes, CAUSE_PARTS[cause], (left, length), (position, 0.66))
            left += length
        told = format_ns(bar.length_ns) if bar.parts_ns else "n/a together: known of different steps"
        words = f" {marks.mark(told, bar.known_of or None)}"
        axes.text(left, position, words, va="center", ha="left", fontsize=7.5, color=QUIET)
    axes.set_yticks(range(len(bars)), [literal(shorten_middle(bar.name)) for bar in bars], fontsize=8)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    return list(marks.lines)


def _finding(rows: pd.DataFrame, columns: Sequence[str]) -> str:
    known_of = sorted(set(_known_of(rows)))
    what = "owner" if "owner" in columns else "purpose"
    if len(known_of) > 1:
        return f"Which {what} leaves most exposed is not told: they are known of different steps"
    sums = rows.groupby(list(columns))["exposed_ns"].sum()
    largest = sums.idxmax()
    key = largest if isinstance(largest, tuple) else (largest,)
    share = format_fraction(fraction_of(float(sums.max()), float(sums.sum())))
    of = f"of {known_of[0]}: " if known_of[0] else ""
    if len(sums) == 1:
        return f"{of}{_who(key)} leaves {format_ns(float(sums.sum()))} exposed, and nothing else does"
    return f"{of}{_who(key)} leaves most exposed: {share} of {format_ns(float(sums.sum()))}"


def _who(key: Sequence[object]) -> str:
    """Name what a bar is of, in a sentence."""
    if len(key) == 1:
        return str(key[0])
    owner, operation = str(key[0]), str(key[1])
    return name_collective(owner or None, Operation(operation) if operation else None)

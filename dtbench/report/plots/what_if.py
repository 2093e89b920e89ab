"""What each change would save of a step, with the least and the most of single steps."""

from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, count_things, format_fraction, format_ns
from dtbench.replay.changes.change import ChangeKind
from dtbench.replay.what_if import is_visibly_off
from dtbench.report.page import looks
from dtbench.report.plots.drawing import EDGE, add_axes, literal, new_figure, say, set_finding, shorten_middle
from dtbench.runs.settings.forecast import SETTING

_FITS_BELOW = 110
"""Letters of a line below the axes."""
MOST_CHANGES = 10
"""Bars of one cell; the others are one more, as long as the longest of them."""
_COLOURS = {
    str(ChangeKind.HIDDEN): looks.EXPOSED_COMM.colour,
    **dict.fromkeys(map(str, (ChangeKind.LINK, ChangeKind.LATENCY, ChangeKind.BANDWIDTH)), looks.HIDDEN_COMM.colour),
    **dict.fromkeys(map(str, (ChangeKind.KERNEL, ChangeKind.OVERLAP_TAX)), looks.COMPUTE.colour),
}


def plot_what_if(answers: pd.DataFrame) -> Figure:
    """Draw a bar for each change, largest saving first; of a run the cell with the largest.

    Args:
        answers: columns as in the table ``what_if``; what its ``attrs["left_out"]`` says stands below.
    """
    if answers.empty:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "There is nothing that may be changed.")
    cell = str(answers["cell"].iloc[int(answers["saving_fraction"].argmax())])
    kept = answers[answers["cell"] == cell].sort_values("saving_ns", ascending=False, kind="stable")
    shown, more = kept.head(MOST_CHANGES), kept.iloc[MOST_CHANGES:]
    figure = new_figure(1.3 + 0.34 * (len(shown) + bool(len(more))))
    axes = add_axes(figure)
    saving_ms = shown["saving_ns"] / NS_PER_MS
    lowest_ms, highest_ms = (_find_end(shown, *names) for names in (("low_ns", "lowest_ns"), ("high_ns", "highest_ns")))
    colours = [_COLOURS.get(str(kind), looks.REST.colour) for kind in shown["kind"]]
    whiskers = ((saving_ms - lowest_ms).clip(lower=0.0), (highest_ms - saving_ms).clip(lower=0.0))
    axes.barh(
        range(len(shown)),
        saving_ms,
        xerr=whiskers,
        color=colours,
        edgecolor=EDGE,
        linewidth=0.5,
        error_kw={"elinewidth": 1, "ecolor": EDGE, "capsize": 3},
    )
    names = [shorten_middle(literal(str(name))) for name in shown["what"]]
    if len(more):
        axes.barh(
            len(shown), more["saving_ns"].max() / NS_PER_MS, color=looks.REST.colour, edgecolor=EDGE, linewidth=0.5
        )
        names.append(f"{count_things(len(more), 'more change')}, at most")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("ms of a step saved; whiskers: single steps, of settings the 90 % interval; not run")
    set_finding(axes, _find_words(shown, cell, several=answers["cell"].nunique() > 1))
    if left_out := answers.attrs.get("left_out"):
        others = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        words = fill(literal(f"left out: {left_out[0]}{others}"), _FITS_BELOW)
        figure.supxlabel(words, x=0.01, ha="left", fontsize=8)
    return figure


def _find_end(shown: pd.DataFrame, of_interval: str, of_steps: str) -> "pd.Series[float]":
    """Return where whiskers end, ms: of settings with their interval, else with single steps; else with the bar."""
    ends_ns = shown[of_interval].fillna(shown[of_steps].astype("Float64")).fillna(shown["saving_ns"])
    return ends_ns.astype("float64") / NS_PER_MS


def _find_words(shown: pd.DataFrame, cell: str, *, several: bool) -> str:
    first = shown.iloc[0]
    lead = f"{cell}: " if several else ""
    if first["doubt"]:
        return f"{lead}{first['doubt']}"
    saving_ns, off_ns = float(first["saving_ns"]), first["off_ns"]
    off = "" if pd.isna(off_ns) or not is_visibly_off(saving_ns, off_ns) else f", give or take {format_ns(off_ns)},"
    saving = f"saves {format_ns(saving_ns)} ({format_fraction(float(first['saving_fraction']))}){off}"
    unsure = "; no interval: one launch" if first["kind"] == SETTING and pd.isna(first["low_ns"]) else ""
    return f"{lead}it {saving} of a step of {format_ns(float(first['step_ns']))} where {first['what']}{unsure}"

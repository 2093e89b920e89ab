"""A cell's step against its number of ranks, with its interval; what is extrapolated is dashed and hatched."""

from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtbench.base.units import NS_PER_MS, format_ns
from dtbench.report.page import looks
from dtbench.report.plots.drawing import add_axes, literal, new_figure, say, set_finding

MOST_LINES: Final = len(looks.LINE_COLOURS)
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_BAND: Final = 0.18
_HATCH: Final = "//"


def plot_predicted(predicted: pd.DataFrame) -> Figure:
    """Draw a line for each cell over the number of ranks, logarithmic, with its 90 % interval as a band.

    Args:
        predicted: columns as in the table ``predicted``.
    """
    if predicted.empty:
        figure = new_figure(2.0)
        return say(figure, add_axes(figure), "Nothing can be said of other numbers of ranks.")
    figure = new_figure(4.2)
    axes = add_axes(figure)
    cells = list(dict.fromkeys(predicted["cell"]))
    for place, cell in enumerate(cells[:MOST_LINES]):
        _draw_cell(axes, predicted[predicted["cell"] == cell].sort_values("world"), place)
    axes.set_xscale("log", base=2)
    worlds = sorted(set(predicted["world"]))
    axes.set_xticks(worlds, [f"{world:,}" for world in worlds])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    left = f"; {len(cells) - MOST_LINES} more cells are not drawn" if len(cells) > MOST_LINES else ""
    axes.set_xlabel(f"ranks; bands: 90 % interval; dashed and hatched: extrapolated; not run{left}")
    axes.set_ylabel("ms of a step")
    if len(cells) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    set_finding(axes, _find_words(predicted, cells))
    return figure


def _draw_cell(axes: Axes, rows: pd.DataFrame, place: int) -> None:
    """Draw one cell: what was scored with a whole line, from its last point on what is extrapolated."""
    colour, marker = looks.LINE_COLOURS[place], _MARKERS[place % len(_MARKERS)]
    cell = str(rows["cell"].iloc[0])
    beyond = (rows["extrapolated"] != "").to_numpy()
    sure = int(beyond.argmax()) if beyond.any() else len(rows)  # more ranks are never less extrapolated
    known, far = rows.iloc[:sure], rows.iloc[max(0, sure - 1) :]
    axes.plot([], [], color=colour, marker=marker, label=literal(cell))
    for part, style, hatch in ((known, "-", ""), (far, "--", _HATCH)):
        if part.empty or (part is far and sure == len(rows)):
            continue
        axes.plot(part["world"], part["step_ns"] / NS_PER_MS, style, color=colour, marker=marker, markersize=4)
        banded = part.dropna(subset=["low_ns", "high_ns"])
        low, high = (banded[name].astype("float64") / NS_PER_MS for name in ("low_ns", "high_ns"))
        band = axes.fill_between(banded["world"], low, high, alpha=_BAND, linewidth=0, facecolor=colour, hatch=hatch)
        band.set_edgecolor(colour)


def _find_words(predicted: pd.DataFrame, cells: list[object]) -> str:
    last = predicted[predicted["world"] == predicted["world"].max()].sort_values("step_ns", kind="stable")
    best, world = last.iloc[0], int(last["world"].iloc[0])
    step = format_ns(float(best["step_ns"]))
    if len(cells) == 1:
        share = float(best["exposed_comm_ns"]) / float(best["step_ns"])
        return f"{best['cell']}: a step of {step} at {world:,} ranks, {100 * share:.0f} % of it exposed communication"
    return f"at {world:,} ranks {best['cell']} comes first: a step of {step}"

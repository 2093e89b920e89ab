"""Ranks below each other and steps beside each other: how much each left exposed, and how long others waited for it.

::

               exposed                others waited
               steps 0 1 2 3          steps 0 1 2 3
    rank 0           . . : .                . . . .
    rank 1           . . : .                . . # .        rank 1 came late in step 2
    rank 2           . . : .                . . . .

Where ranks are many, a row is some of them and shows the most of theirs, so that no late rank is lost between two rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtbench.base.units import NS_PER_MS, count_things, format_ns, three_digits
from dtbench.base.vocabulary import Phase
from dtbench.report.page import looks
from dtbench.report.plots.drawing import (
    EDGE,
    FAINT,
    left_out_words,
    literal,
    new_figure,
    say,
    set_finding,
    set_heading,
)
from dtbench.report.plots.panels import find_doubt, name_cell, split_panels
from dtbench.runs.reading.undisturbed import keep_steps

MOST_CELLS = 4
"""Cells of one figure; of more the first are drawn."""

MOST_ROWS = 256
"""Rows of one map; of more ranks, several share a row."""

_LEAST_IN, _MOST_IN = 1.6, 6.0
_ROW_IN = 0.16
_MOST_TICKS = 16
_MOST_WORDS = 8
"""Ranks and steps of a map whose fields have their numbers."""


_SCALES: Final = {
    "exposed": LinearSegmentedColormap.from_list("exposed", looks.EXPOSED_SCALE).with_extremes(bad=FAINT),
    "waited": LinearSegmentedColormap.from_list("waited", looks.WAITED_SCALE).with_extremes(bad=FAINT),
}
_HEADING: Final = "Each rank in each PROFILED step"


@dataclass(frozen=True)
class RankMap:
    """Numbers of each rank and step.

    Attributes:
        key: columns that tell steps apart.
        ranks: shape ``(r,)``.
        steps: shape ``(s,)``, what each is called.
        times_ns: shape ``(r, s)``, NaN: not known.
    """

    key: Sequence[str]
    ranks: Sequence[int]
    steps: Sequence[str]
    times_ns: np.ndarray

    def fold(self, most: int) -> tuple[np.ndarray, int]:
        """Return at most so many rows, each the most of the ranks that share it, and how many share one."""
        share = math.ceil(len(self.ranks) / most)
        padding = -len(self.ranks) % share
        padded = np.pad(self.times_ns, ((0, padding), (0, 0)), constant_values=np.nan)
        filled = np.where(np.isnan(padded), -np.inf, padded).reshape(-1, share, len(self.steps)).max(axis=1)
        return np.where(np.isneginf(filled), np.nan, filled), share

    @property
    def finding(self) -> str:
        """Say where most of it is."""
        if np.isnan(self.times_ns).all():
            return "not known"
        rank, step = divmod(int(np.nanargmax(self.times_ns)), len(self.steps))
        most_ns = float(self.times_ns[rank, step])
        where = f"rank {self.ranks[rank]}, step {self.steps[step]}".replace("\n", ", ")
        return f"most {format_ns(most_ns)} ({where})" if most_ns else "none"


def map_exposed(overlap: pd.DataFrame) -> RankMap:
    """Return how much communication each rank left exposed in each step.

    Args:
        overlap: columns as in the table ``overlap``, and ``launch`` where it is of several.
    """
    is_one = "launch" not in overlap or overlap["launch"].nunique() == 1
    key = ["step"] if is_one else ["launch", "step"]
    times = overlap.assign(time=overlap["exposed_comm_ns"].astype("Float64").astype(float))
    wide = times.pivot_table(index="rank", columns=key, values="time", aggfunc="max", dropna=False)
    names = [_name_step(one if isinstance(one, tuple) else (one,)) for one in wide.columns]
    return RankMap(key, [int(rank) for rank in wide.index], names, wide.to_numpy(dtype=float))


def map_waited(collectives: pd.DataFrame, like: RankMap) -> tuple[RankMap, int]:
    """Return how long others waited for each rank in each step: the rank that waited longest for it, all its waits.

    A rank has no number in a step in which no wait of its collectives is known, nor where nobody is known to have
    waited for it and it is not known for whom others of its groups did.

    Args:
        collectives: columns as in the table ``collectives``, and ``launch`` where it is of several.
        like: which ranks and steps; collectives of no step are left out.

    Returns:
        The map, and of how many waits it is not known for whom they were: with any, numbers are lower bounds.
    """
    key = [*like.key]
    known = collectives.dropna(subset=["step", "skew_wait_ns"])
    by_waiter = known.groupby([*key, "last_rank", "rank"])["skew_wait_ns"].sum()
    longest = by_waiter.groupby(level=[*key, "last_rank"]).max().to_dict()
    untold = known[known["last_rank"].isna() & (known["skew_wait_ns"] > 0)]
    groups = set(untold[[*key, "group"]].itertuples(index=False, name=None))
    times_ns = np.full(like.times_ns.shape, np.nan)
    rows = {rank: place for place, rank in enumerate(like.ranks)}
    columns = {name: place for place, name in enumerate(like.steps)}
    for at, mine in known.groupby([*key, "rank"]):
        *step, rank = (int(str(one)) for one in at)
        row, column = rows.get(rank), columns.get(_name_step(step))
        time_ns = longest.get((*step, rank), 0)
        is_untold = any((*step, group) in groups for group in mine["group"].unique())
        if row is not None and column is not None and (time_ns or not is_untold):
            times_ns[row, column] = float(time_ns)
    return replace(like, times_ns=times_ns), len(untold)


def _name_step(at: Sequence[object]) -> str:
    """Return what a step is called: its number, below it its launch where there are several."""
    return str(at[-1]) if len(at) == 1 else f"{at[-1]}\nlaunch {at[0]}"


def plot_ranks(
    overlap: pd.DataFrame, collectives: pd.DataFrame, doubts: Mapping[str, str] | None = None, cells: Sequence[str] = ()
) -> Figure:
    """Draw maps of ranks and steps: what each left exposed, and how long others waited for it.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where it is of several; rows that
            ``is_left_out`` names are counted, not drawn.
        collectives: columns as in the table ``collectives``, of the same.
        doubts: by cell (empty: of tables without cells), why its steps may not stand for others.
        cells: of the run.
    """
    kept = keep_steps(overlap)
    panels = split_panels(kept, cells)
    if not panels:
        figure = new_figure(2.0)
        return say(figure, figure.add_subplot(), "No step was profiled.")
    shown = [(name, rows, map_exposed(rows)) for name, rows in panels[:MOST_CELLS]]
    heights = [min(_MOST_IN, max(_LEAST_IN, _ROW_IN * len(one.ranks))) for _, _, one in shown]
    figure = new_figure(1.3 + sum(heights) + 0.7 * len(heights), width_in=10.0)
    grid = figure.subplots(len(shown), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
    untold = 0
    for (exposed_axes, waited_axes), (name, rows, exposed) in zip(grid, shown, strict=True):
        mine = collectives if "cell" not in rows else collectives[collectives["cell"] == rows["cell"].iloc[0]]
        where = f"{name}: " if name else ""
        _draw(figure, exposed_axes, exposed, "exposed")
        set_finding(exposed_axes, f"{where}exposed: {exposed.finding}", fontsize=9)
        waited, of_rank = map_waited(mine, exposed)
        untold += of_rank
        _draw(figure, waited_axes, waited, "waited")
        set_finding(waited_axes, f"{where}others waited for it: {waited.finding}", fontsize=9)
    said = [name_cell(name, doubt) for name, rows in panels[:MOST_CELLS] if (doubt := find_doubt(doubts, rows))]
    set_heading(figure, "; ".join(said) or _HEADING)
    figure.supxlabel(_footnote(overlap, kept, len(panels), untold), x=0.01, ha="left", fontsize=8)
    return figure


def _draw(figure: Figure, axes: Axes, one: RankMap, meaning: str) -> None:
    """Draw a map; what is not known is grey."""
    times_ns, share = one.fold(MOST_ROWS)
    scale = _SCALES[meaning]
    highest = np.nanmax(times_ns) / NS_PER_MS if not np.isnan(times_ns).all() else 0.0
    image = axes.imshow(
        times_ns / NS_PER_MS, cmap=scale, aspect="auto", interpolation="nearest", vmin=0, vmax=highest or 1.0
    )
    image.set_gid(meaning)
    rows = len(times_ns)
    every = max(1, math.ceil(rows / _MOST_TICKS))
    named = range(0, rows, every)
    axes.set_yticks(named, [f"rank {one.ranks[row * share]}" for row in named], fontsize=7)
    between = max(1, math.ceil(len(one.steps) / 10))
    places = range(0, len(one.steps), between)
    axes.set_xticks(places, [one.steps[place] for place in places], fontsize=7)
    axes.set_xlabel("step" + (f"; each row is {share} ranks, the most of theirs" if share > 1 else ""), fontsize=8)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.colorbar(image, ax=axes, pad=0.02).set_label("ms", fontsize=8)
    if max(times_ns.shape) <= _MOST_WORDS:
        _write(axes, times_ns / NS_PER_MS, scale, highest or 1.0)
    if np.isnan(times_ns).any():
        patch = Patch(facecolor=FAINT, edgecolor=EDGE, linewidth=0.5, label="not known")
        axes.legend(handles=[patch], loc="upper right", fontsize=7, frameon=True)


def _write(axes: Axes, times_ms: np.ndarray, scale: Colormap, highest_ms: float) -> None:
    """Write each number into its field."""
    for (row, column), ms in np.ndenumerate(times_ms):
        if not math.isnan(ms):
            red, green, blue, _ = scale(float(ms) / highest_ms)
            ink = looks.Look(to_hex((red, green, blue))).ink
            axes.text(column, row, three_digits(ms), ha="center", va="center", fontsize=7, color=ink)


def _footnote(overlap: pd.DataFrame, kept: pd.DataFrame, panels: int, untold: int) -> str:
    key = [name for name in ("cell", "launch", "step") if name in overlap]
    left_out = len(overlap[key].drop_duplicates()) - len(kept[key].drop_duplicates())
    is_least = bool(kept.get("is_least", pd.Series(dtype="boolean")).any())
    said = [
        "others waited for it: all waits of the rank that waited longest",
        f"at least so much: of {count_things(untold, 'wait')} it is not known for whom" if untold else "",
        "exposed: at least so much where collectives were launched and not seen to run" if is_least else "",
        f"{count_things(panels - MOST_CELLS, 'more cell')} not drawn" if panels > MOST_CELLS else "",
    ]
    return literal("; ".join(filter(None, said)) + left_out_words(left_out, Phase.PROFILED))

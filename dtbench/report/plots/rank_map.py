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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtbench.base.units import NS_PER_MS, count_things, format_ns, name_ranges, name_ranks, three_digits
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
from dtbench.report.plots.panels import Whole, Wholes, find_doubt, find_whole, name_cell, say_absent, split_panels
from dtbench.runs.reading.undisturbed import keep_steps

MOST_CELLS = 4
"""Cells of one figure; of more the first are drawn."""

MOST_ROWS = 256
"""Rows of one map; of more ranks, several share a row."""

_LEAST_IN, _MOST_IN = 1.6, 6.0
_ROW_IN = 0.16
_MOST_TICKS = 16
_FITS, _FITS_BELOW = 58, 140
"""Characters of a line above a map, where more would run into the map beside it, and below all."""
_MOST_WORDS = 8
"""Ranks and steps of a map whose fields have their numbers."""


_SCALES: Final = {
    "exposed": LinearSegmentedColormap.from_list("exposed", looks.EXPOSED_SCALE).with_extremes(bad=FAINT),
    "waited": LinearSegmentedColormap.from_list("waited", looks.WAITED_SCALE).with_extremes(bad=FAINT),
}
_HEADING: Final = "Each rank in each PROFILED step"


@dataclass(frozen=True)
class Field:
    """What a map shows.

    Attributes:
        times_ns: shape ``(rows, columns)``, NaN: not known.
        rows: what each row is called.
        columns: what each column is called.
        below: what columns are, and how many ranks share a row.
        most_columns: that are called by name; of more, some are.
    """

    times_ns: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    below: str
    most_columns: int = 10


@dataclass(frozen=True)
class RankMap:
    """Numbers of each rank and step.

    Attributes:
        key: columns that tell steps apart.
        ranks: shape ``(r,)``.
        steps: shape ``(s,)``, what each is called.
        times_ns: shape ``(r, s)``, NaN: not known.
        lacking: ranks and launches that there are, and that are not in the map; empty: none.
        is_least: numbers are lower bounds.
    """

    key: Sequence[str]
    ranks: Sequence[int]
    steps: Sequence[str]
    times_ns: np.ndarray
    lacking: str = ""
    is_least: bool = False

    def fold(self, most: int) -> tuple[np.ndarray, int]:
        """Return at most so many rows, each the most of the ranks that share it, and how many share one."""
        share = math.ceil(len(self.ranks) / most)
        padding = -len(self.ranks) % share
        padded = np.pad(self.times_ns, ((0, padding), (0, 0)), constant_values=np.nan)
        filled = np.where(np.isnan(padded), -np.inf, padded).reshape(-1, share, len(self.steps)).max(axis=1)
        return np.where(np.isneginf(filled), np.nan, filled), share

    @property
    def finding(self) -> str:
        """Say where most of it is, as far as is known."""
        is_unknown = np.isnan(self.times_ns)
        if is_unknown.all():
            return "not known"
        known = ", of what is known" if is_unknown.any() or self.lacking else ""
        rank, step = divmod(int(np.nanargmax(self.times_ns)), len(self.steps))
        most_ns = float(self.times_ns[rank, step])
        if not most_ns:
            return f"none{' was seen' if self.is_least else ''}{known}"
        where = f"rank {self.ranks[rank]}, step {self.steps[step]}".replace("\n", ", ")
        return f"most {'at least ' if self.is_least else ''}{format_ns(most_ns)} ({where}){known}"


def map_exposed(overlap: pd.DataFrame, whole: Whole | None = None) -> RankMap:
    """Return how much communication each rank left exposed in each step.

    Args:
        overlap: columns as in the table ``overlap``, and ``launch`` where it is of several.
        whole: ranks and launches that there are; None: those of the table.
    """
    whole = whole or find_whole(None, overlap)
    is_one = "launch" not in overlap or overlap["launch"].nunique() == 1
    key = ["step"] if is_one else ["launch", "step"]
    times = overlap.assign(time=overlap["exposed_comm_ns"].astype("Float64").astype(float))
    wide = times.groupby(["rank", *key])["time"].max().unstack(key).sort_index(axis="columns")
    return RankMap(
        key=key,
        ranks=[int(rank) for rank in wide.index],
        steps=[_name_step(one if isinstance(one, tuple) else (one,)) for one in wide.columns],
        times_ns=wide.to_numpy(dtype=float),
        lacking=_name_lacking(overlap, whole),
        is_least=bool(overlap.get("is_least", pd.Series(dtype="boolean")).any()),
    )


def _name_lacking(overlap: pd.DataFrame, whole: Whole) -> str:
    """Name the ranks and launches that have no place in a map, as the table has nothing of them."""
    ranks = sorted(set(whole.ranks) - set(overlap["rank"]))
    launches = sorted(set(whole.launches) - set(overlap["launch"])) if "launch" in overlap else []
    named = [f"launch{'' if len(launches) == 1 else 'es'} {name_ranges(launches)}"] if launches else []
    return " and ".join([*([name_ranks(ranks)] if ranks else []), *named])


def map_waited(collectives: pd.DataFrame, like: RankMap) -> tuple[RankMap, int]:
    """Return how long others waited for each rank in each step: the rank that waited longest for it, all its waits.

    A rank has no number in a step in which no wait of its collectives is known, nor where nobody is known to have
    waited for it and it is not known for whom, or how long, others of its groups did.

    Args:
        collectives: columns as in the table ``collectives``, and ``launch`` where it is of several.
        like: which ranks and steps; ranks that others waited for have a row, too, and collectives of no step are left
            out.

    Returns:
        The map, and of how many waits it is not known how long they were or for whom: with any, numbers are lower
        bounds.
    """
    key = [*like.key]
    issued = collectives.dropna(subset=["step"])
    known = issued.dropna(subset=["skew_wait_ns"])
    by_waiter = known.groupby([*key, "last_rank", "rank"])["skew_wait_ns"].sum()
    of_waits = by_waiter.groupby(level=[*key, "last_rank"]).max().reset_index()
    longest = {_to_place(at): int(str(time_ns)) for *at, time_ns in _keys(of_waits, [*of_waits])}
    untold = issued[issued["skew_wait_ns"].isna() | (issued["last_rank"].isna() & (issued["skew_wait_ns"] > 0))]
    open_groups = {*_keys(untold, [*key, "group"]), *_find_silent(issued, key)}
    columns = {name: place for place, name in enumerate(like.steps)}
    late = {rank for *step, rank in longest if _name_step(step) in columns}
    ranks = sorted({*like.ranks, *late})
    times_ns = np.full((len(ranks), len(like.steps)), np.nan)
    rows = {rank: place for place, rank in enumerate(ranks)}
    groups: dict[tuple[int, ...], set[str]] = {}
    for *at, group in _keys(known[[*key, "rank", "group"]].drop_duplicates(), [*key, "rank", "group"]):
        groups.setdefault(_to_place(at), set()).add(str(group))
    for place in {*groups, *longest}:
        *step, rank = place
        row, column = rows.get(rank), columns.get(_name_step(step))
        time_ns = longest.get(place, 0)
        is_open = any((*step, group) in open_groups for group in groups.get(place, ()))
        if row is not None and column is not None and (time_ns or not is_open):
            times_ns[row, column] = float(time_ns)
    return replace(like, ranks=ranks, times_ns=times_ns, is_least=bool(open_groups)), len(untold)


def _to_place(at: Sequence[object]) -> tuple[int, ...]:
    """Return a launch where there are several, a step and a rank as numbers."""
    return tuple(int(str(one)) for one in at)


def _keys(rows: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return rows[[*columns]].itertuples(index=False, name=None)


def _find_silent(issued: pd.DataFrame, key: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Yield steps and groups in which fewer ranks tell of collectives than take part: what others waited is lost."""
    if "group_size" not in issued or issued.empty:
        return
    of_groups = issued.groupby([*key, "group"]).agg(ranks=("rank", "nunique"), size=("group_size", "max"))
    yield from of_groups.index[(of_groups["ranks"] < of_groups["size"]).fillna(value=False).to_numpy(dtype=bool)]


def _name_step(at: Sequence[object]) -> str:
    """Return what a step is called: its number, below it its launch where there are several."""
    return str(at[-1]) if len(at) == 1 else f"{at[-1]}\nlaunch {at[0]}"


def plot_ranks(
    overlap: pd.DataFrame,
    collectives: pd.DataFrame,
    doubts: Mapping[str, str] | None = None,
    cells: Sequence[str] = (),
    wholes: Wholes | None = None,
) -> Figure:
    """Draw maps of ranks and steps: what each left exposed, and how long others waited for it.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where it is of several; rows that
            ``is_left_out`` names are counted, not drawn.
        collectives: columns as in the table ``collectives``, of the same.
        doubts: by cell (empty: of tables without cells), why its steps may not stand for others.
        cells: of the run.
        wholes: ranks and launches that there are: those of which nothing is known are named; None: those of the table.
    """
    kept = keep_steps(overlap)
    panels = split_panels(kept, cells)
    if not panels:
        figure = new_figure(2.0)
        return say(figure, figure.add_subplot(), "No step was profiled.")
    shown = [(name, rows, map_exposed(rows, find_whole(wholes, rows))) for name, rows in panels[:MOST_CELLS]]
    heights = [min(_MOST_IN, max(_LEAST_IN, _ROW_IN * len(one.ranks))) for _, _, one in shown]
    figure = new_figure(1.3 + sum(heights) + 0.7 * len(heights), width_in=10.0)
    grid = figure.subplots(len(shown), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
    untold, is_bound = 0, False
    for (exposed_axes, waited_axes), (name, rows, exposed) in zip(grid, shown, strict=True):
        mine = collectives if "cell" not in rows else collectives[collectives["cell"] == rows["cell"].iloc[0]]
        where = f"{name}: " if name else ""
        _draw(figure, exposed_axes, exposed, "exposed")
        set_finding(exposed_axes, fill(f"{where}exposed: {exposed.finding}", _FITS), fontsize=9)
        waited, of_rank = map_waited(mine, exposed)
        untold, is_bound = untold + of_rank, is_bound or waited.is_least
        _draw(figure, waited_axes, waited, "waited")
        set_finding(waited_axes, fill(f"{where}others waited for it: {waited.finding}", _FITS), fontsize=9)
    said = [name_cell(name, doubt) for name, rows in panels[:MOST_CELLS] if (doubt := find_doubt(doubts, rows))]
    set_heading(figure, "; ".join(said) or _HEADING)
    lacking = [
        name_cell(name, f"what was exposed is not known of {one.lacking}") for name, _, one in shown if one.lacking
    ]
    bounds = ["at least so much: not every rank of a group tells how long it waited"] if is_bound and not untold else []
    said = [_footnote(overlap, kept, len(panels), untold), *bounds, *lacking]
    words = "; ".join(said) + say_absent(kept, cells)
    figure.supxlabel(fill(literal(words), _FITS_BELOW), x=0.01, ha="left", fontsize=8)
    return figure


def _draw(figure: Figure, axes: Axes, one: RankMap, meaning: str) -> None:
    times_ns, share = one.fold(MOST_ROWS)
    rows = [f"rank {one.ranks[row * share]}" for row in range(len(times_ns))]
    draw_field(figure, axes, Field(times_ns, rows, one.steps, f"step{say_share(share)}"), meaning)


def say_share(ranks: int) -> str:
    """Say how many ranks share a row of a map; nothing where each has its own."""
    return f"; each row is {ranks} ranks, the most of theirs" if ranks > 1 else ""


def draw_field(figure: Figure, axes: Axes, field: Field, meaning: str) -> None:
    """Draw a map; what is not known is grey.

    Args:
        figure: that gets a scale beside the map.
        axes: of the map.
        field: what it shows.
        meaning: ``exposed`` or ``waited``.
    """
    times_ns, scale = field.times_ns, _SCALES[meaning]
    highest = np.nanmax(times_ns) / NS_PER_MS if not np.isnan(times_ns).all() else 0.0
    image = axes.imshow(
        times_ns / NS_PER_MS, cmap=scale, aspect="auto", interpolation="nearest", vmin=0, vmax=highest or 1.0
    )
    image.set_gid(meaning)
    every = max(1, math.ceil(len(times_ns) / _MOST_TICKS))
    named = range(0, len(times_ns), every)
    axes.set_yticks(named, [field.rows[row] for row in named], fontsize=7)
    between = max(1, math.ceil(len(field.columns) / field.most_columns))
    places = range(0, len(field.columns), between)
    axes.set_xticks(places, [field.columns[place] for place in places], fontsize=7)
    axes.set_xlabel(field.below, fontsize=8)
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
        f"at least so much: of {count_things(untold, 'wait')} it is not known how long or for whom" if untold else "",
        "exposed: at least so much where collectives were launched and not seen to run" if is_least else "",
        f"{count_things(panels - MOST_CELLS, 'more cell')} not drawn" if panels > MOST_CELLS else "",
    ]
    return "; ".join(filter(None, said)) + left_out_words(left_out, Phase.PROFILED)

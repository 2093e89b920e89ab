"""Ranks below each other and causes beside each other: how much each rank left exposed for which cause, per step.

::

                 waited for other ranks   issued late   bandwidth
    node0   0              #                   .            :
            1              #                   .            :
    node1   8              #                   #            :       rank 8 issues late
            9              .                   .            :       rank 9 is the one that others wait for

Where ranks are more than a picture can show, a row is a host, or ranks that follow each other, and shows the most of
theirs. Ranks far from the others are named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dtbench.base.units import count_things, format_ns, name_ranks
from dtbench.base.vocabulary import CAUSE_PHRASES, Cause, Phase
from dtbench.report.plots.drawing import left_out_words, literal, new_figure, say, set_finding, set_heading
from dtbench.report.plots.panels import find_doubt, name_cell, say_absent, split_panels
from dtbench.report.plots.rank_map import MOST_ROWS, Field, draw_field, say_share
from dtbench.runs.cell.summarize_overlap import keep_known, keep_of_steps
from dtbench.runs.reading.undisturbed import keep_steps

MOST_CELLS = 4
"""Cells of one figure; of more the first are drawn."""

_LEAST_IN, _MOST_IN = 1.6, 6.0
_ROW_IN = 0.16
_LETTERS: Final = 12
"""Of a line of a cause's name."""
_FITS, _FITS_BELOW = 120, 140
_MOST_NAMED: Final = 3
_FAR: Final = 8  # times the median deviation from the median: no accident
_LEAST_FAR: Final = 0.05  # part of what ranks leave exposed in all, in the median
_HEADING: Final = "Each rank's exposed communication by cause, per PROFILED step"


@dataclass(frozen=True)
class CauseMap:
    """Mean times of each rank and cause.

    Attributes:
        ranks: shape ``(r,)``, rising.
        causes: shape ``(c,)``, those of which there is any, in the order in which causes take their part.
        times_ns: shape ``(r, c)``, per step; NaN: not known.
        untold: collectives of which some cause is not known, so that times are at least these.
    """

    ranks: Sequence[int]
    causes: Sequence[Cause]
    times_ns: np.ndarray
    untold: int = 0

    def find_outliers(self) -> list[tuple[Cause, int, float, float]]:
        """Return what lies far from the other ranks': cause, rank, its time and the median, furthest first."""
        if len(self.ranks) < 4 or not len(self.causes):
            return []
        middle_ns = np.nanmedian(self.times_ns, axis=0)
        off_ns = self.times_ns - middle_ns
        least_ns = _LEAST_FAR * float(np.nanmedian(np.nansum(self.times_ns, axis=1)))
        reach_ns = np.maximum(_FAR * np.nanmedian(np.abs(off_ns), axis=0), max(least_ns, 1.0))
        far = [(abs(off_ns[place]), *place) for place in zip(*np.nonzero(np.abs(off_ns) > reach_ns), strict=True)]
        return [
            (self.causes[column], self.ranks[row], float(self.times_ns[row, column]), float(middle_ns[column]))
            for _, row, column in sorted(far, key=lambda one: -one[0])
        ]

    @property
    def finding(self) -> str:
        """Name the ranks that lie far from the others, else that none does."""
        found = self.find_outliers()
        if not found:
            return "no rank lies far from the others"
        named = [
            f"rank {rank} {CAUSE_PHRASES[cause]} {format_ns(time_ns)} (median {format_ns(middle_ns)})"
            for cause, rank, time_ns, middle_ns in found[:_MOST_NAMED]
        ]
        rest = {rank for _, rank, *_ in found[_MOST_NAMED:]} - {rank for _, rank, *_ in found[:_MOST_NAMED]}
        more = [f"{count_things(len(rest), 'more rank')} far from the others"] if rest else []
        return "; ".join([*named, *more])

    def fold(self, hosts: Mapping[int, str], most: int) -> Field:
        """Return what is drawn: a row for each rank; where these are more than fit, for each host, or for several."""
        columns = [fill(CAUSE_PHRASES[cause], _LETTERS) for cause in self.causes]
        of_hosts: dict[str, list[int]] = {}
        for row, rank in enumerate(self.ranks):
            of_hosts.setdefault(hosts.get(rank, ""), []).append(row)
        if len(self.ranks) <= most:
            return Field(self.times_ns, [f"rank {rank}" for rank in self.ranks], columns, "cause", len(columns))
        if "" not in of_hosts and 1 < len(of_hosts) <= most:
            below = "cause; each row is a host, the most of its ranks"
            return Field(self._fold_rows(list(of_hosts.values())), list(of_hosts), columns, below, len(columns))
        share = math.ceil(len(self.ranks) / most)
        parts = [list(range(at, min(at + share, len(self.ranks)))) for at in range(0, len(self.ranks), share)]
        rows = [name_ranks([self.ranks[row] for row in part]) for part in parts]
        return Field(self._fold_rows(parts), rows, columns, f"cause{say_share(share)}", len(columns))

    def _fold_rows(self, parts: Sequence[Sequence[int]]) -> np.ndarray:
        filled = np.where(np.isnan(self.times_ns), -np.inf, self.times_ns)
        folded = np.array([filled[list(part)].max(axis=0) for part in parts])
        return np.where(np.isneginf(folded), np.nan, folded)


def map_causes(overlap: pd.DataFrame, collectives: pd.DataFrame) -> CauseMap:
    """Return how much each rank left exposed for which cause, mean over its steps of which that is known.

    Args:
        overlap: columns as in the table ``overlap``, and ``launch`` where it is of several: which steps there are.
        collectives: columns as in the table ``collectives``, of the same.
    """
    known = keep_known(overlap)
    ranks = sorted({int(rank) for rank in overlap["rank"]})
    steps = known.groupby("rank").size()
    mine = keep_of_steps(collectives, known)
    names = {cause: f"exposed_{cause}_ns" for cause in Cause}
    columns = [name for name in names.values() if name in mine]
    sums = mine.groupby("rank")[columns].sum(min_count=1).reindex(ranks)
    sums[~sums.index.isin(set(mine["rank"]))] = 0  # whose steps issued nothing
    times = {name: sums[name].astype("Float64").to_numpy(dtype=float, na_value=math.nan) for name in columns}
    counts = steps.reindex(ranks).to_numpy(dtype=float)
    causes = [cause for cause, name in names.items() if name in times and (np.nan_to_num(times[name]) > 0).any()]
    means = [times[names[cause]] / counts for cause in causes]
    untold = int(mine[[names[cause] for cause in causes]].isna().any(axis="columns").sum())
    return CauseMap(ranks, causes, np.array(means).reshape(len(causes), len(ranks)).T, untold)


def plot_causes(
    overlap: pd.DataFrame,
    collectives: pd.DataFrame,
    doubts: Mapping[str, str] | None = None,
    cells: Sequence[str] = (),
    hosts: Mapping[int, str] | None = None,
) -> Figure:
    """Draw a map of ranks and causes: how much each rank left exposed for which cause, per step.

    Args:
        overlap: columns as in the table ``overlap``, and ``cell`` and ``launch`` where it is of several; rows that
            ``is_left_out`` names are counted, not drawn.
        collectives: columns as in the table ``collectives``, of the same.
        doubts: by cell (empty: of tables without cells), why its steps may not stand for others.
        cells: of the run.
        hosts: of each rank, where it is known.
    """
    kept = keep_steps(overlap)
    panels = split_panels(kept, cells)
    shown = []
    for name, rows in panels[:MOST_CELLS]:
        mine = collectives if "cell" not in rows else collectives[collectives["cell"] == rows["cell"].iloc[0]]
        shown.append((name, rows, map_causes(rows, mine)))
    shown = [(name, rows, one) for name, rows, one in shown if one.causes]
    if not shown:
        figure = new_figure(2.0)
        return say(figure, figure.add_subplot(), "Of no step it is known why communication is exposed.")
    fields = [one.fold(hosts or {}, MOST_ROWS) for *_, one in shown]
    heights = [min(_MOST_IN, max(_LEAST_IN, _ROW_IN * len(field.rows))) for field in fields]
    figure = new_figure(1.6 + sum(heights) + 0.9 * len(heights), width_in=10.0)
    grid = figure.subplots(len(shown), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for (axes,), (name, _, one), field in zip(grid, shown, fields, strict=True):
        draw_field(figure, axes, field, "exposed")
        set_finding(axes, fill(name_cell(name, one.finding), _FITS), fontsize=9)
    said = [name_cell(name, doubt) for name, rows, _ in shown if (doubt := find_doubt(doubts, rows))]
    set_heading(figure, "; ".join(said) or _HEADING)
    more = f"{count_things(len(panels) - MOST_CELLS, 'more cell')} not drawn" if len(panels) > MOST_CELLS else ""
    key = [name for name in ("cell", "launch", "step") if name in overlap]
    left_out = len(overlap[key].drop_duplicates()) - len(kept[key].drop_duplicates())
    untold = sum(one.untold for *_, one in shown)
    bound = f"at least so much: of {count_things(untold, 'collective')} not every cause is known" if untold else ""
    limits = "; ".join(filter(None, (bound, more)))
    words = f"{limits}{left_out_words(left_out, Phase.PROFILED)}{say_absent(kept, cells)}".removeprefix("; ")
    figure.supxlabel(fill(literal(words), _FITS_BELOW), x=0.01, ha="left", fontsize=8)
    return figure

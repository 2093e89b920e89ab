"""Panels of a figure, one for each cell: how a table is split into them, and what is said of cells without one."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from dtbench.report.plots.breakdown import MOST_CELLS
from dtbench.report.plots.drawing import absent_words
from dtbench.runs.cell.summarize_overlap import STEP, are_among, find_part
from dtbench.runs.summary import CellSummary
from dtbench.traces.known_part import KnownPart


@dataclass(frozen=True)
class Whole:
    """What a cell, or a job of which there are traces, has, whatever tables tell of it.

    Attributes:
        ranks: all of them.
        launches: their indices; empty: of tables without launches.
    """

    ranks: Collection[int]
    launches: Collection[int] = ()


Wholes = Mapping[str, Whole]
"""By cell; empty: of tables without cells."""


def split_panels(table: pd.DataFrame, every: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Split a table by cell; the panel of an only cell has no name."""
    if table.empty:
        return []
    if "cell" not in table:
        return [("", table)]
    cells = list(dict.fromkeys(table["cell"]))[:MOST_CELLS]
    is_named = len({*cells, *every}) > 1
    return [(str(cell) if is_named else "", table[table["cell"] == cell]) for cell in cells]


def cut_words(table: pd.DataFrame, every: Sequence[str]) -> str:
    """Say of which cells nothing is drawn."""
    cells = table["cell"].nunique() if "cell" in table else 1
    cut = f"; the first {MOST_CELLS} of {cells} cells" if cells > MOST_CELLS else ""
    return cut + say_absent(table, every)


def say_absent(table: pd.DataFrame, every: Sequence[str]) -> str:
    """Say of which cells a table has nothing."""
    return absent_words([cell for cell in every if "cell" in table and cell not in set(table["cell"])])


def find_doubt(doubts: Mapping[str, str] | None, rows: pd.DataFrame) -> str | None:
    """Return why the steps of a panel may stand for no others; None: nothing speaks against them."""
    return (doubts or {}).get(str(rows["cell"].iloc[0]) if "cell" in rows else "")


def wholes_of(cells: Iterable[CellSummary]) -> Wholes:
    """Return what each cell of a run has."""
    return {cell.name: Whole(range(cell.plan.ranks), cell.launches) for cell in cells}


def find_whole(wholes: Wholes | None, rows: pd.DataFrame) -> Whole:
    """Return what the cell of a panel has; where that is not told, what its table has."""
    there = Whole(set(rows["rank"]), set(rows["launch"]) if "launch" in rows else ())
    return (wholes or {}).get(str(rows["cell"].iloc[0]) if "cell" in rows else "", there)


def find_drawn_part(drawn: pd.DataFrame, rows: pd.DataFrame, whole: Whole) -> KnownPart | None:
    """Return of what a panel is drawn; None: of all that the cell has.

    Args:
        drawn: the rows that are, of one cell: columns ``rank`` and ``step``, and ``launch`` where it is of several.
        rows: all that its table has.
        whole: what the cell has: a rank or launch of which the table has no row should have as many steps as others.
    """
    key = [name for name in STEP if name in rows]
    every = rows[key].drop_duplicates()
    steps = pd.DataFrame({"step": every["step"].unique()})
    pairs = pd.DataFrame({"rank": sorted(whole.ranks)})
    if "launch" in key:
        pairs = pairs.merge(pd.DataFrame({"launch": sorted(whole.launches)}), how="cross")
    absent = pairs[~are_among(pairs, every[list(pairs)].drop_duplicates())]
    return find_part(drawn, pd.concat([every, absent.merge(steps, how="cross")[key]], ignore_index=True))


def name_cell(cell: str, words: str) -> str:
    """Begin a sentence with the cell that it is of; empty: it is the only one."""
    return f"{cell}: {words}" if cell else words


def bare_axes(axes: Axes) -> None:
    """Leave bars without a frame."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)

"""Panels of a figure, one for each cell: how a table is split into them, and what is said of cells without one."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from dtbench.report.plots.breakdown import MOST_CELLS
from dtbench.report.plots.drawing import absent_words


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
    absent = [cell for cell in every if "cell" in table and cell not in set(table["cell"])]
    return cut + absent_words(absent)


def find_doubt(doubts: Mapping[str, str] | None, rows: pd.DataFrame) -> str | None:
    """Return why the steps of a panel may stand for no others; None: nothing speaks against them."""
    return (doubts or {}).get(str(rows["cell"].iloc[0]) if "cell" in rows else "")


def name_cell(cell: str, words: str) -> str:
    """Begin a sentence with the cell that it is of; empty: it is the only one."""
    return f"{cell}: {words}" if cell else words


def bare_axes(axes: Axes) -> None:
    """Leave bars without a frame."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)

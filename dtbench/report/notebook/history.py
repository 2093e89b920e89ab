"""What a notebook gets of a history: its answer, its points and changes, its plot."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dtbench.base.columns import ANY, Column, Table, Unit
from dtbench.base.units import NS_PER_S
from dtbench.comparison.gate import read_metric
from dtbench.comparison.history.history import By, History, HistoryPoint, LevelChange, make_history
from dtbench.comparison.run_list import Wanted
from dtbench.report.page.history_page import history_page, say_environment, say_left_out
from dtbench.report.render.html import page_html
from dtbench.report.words.visible import spell_controls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THRESHOLD: Final = 0.01

POINTS: Final = Table[History, None, HistoryPoint](
    name="history_points",
    doc="A number over runs, oldest first. It is `.points` of a history.",
    find=lambda history: ((None, point) for point in history.points),
    keys=(),
    columns=(
        Column("name", "str", None, "a run's id, a commit, a version of torch, or a day", lambda row: row.name),
        Column(
            "started_unix_ns", "int64", Unit.NS, "when its first run began", lambda row: row.started_unix_ns, least=0
        ),
        Column("runs", "object", None, "a list: ids of its runs", lambda row: list(row.runs)),
        Column("launches", "int64", Unit.COUNT, "that tell the number", lambda row: row.launches, least=0),
        Column("value", "float64", None, "the number, in its own unit", lambda row: row.value, least=ANY),
        Column("commit", "str", None, "of the user's code; empty: not told", lambda row: row.commit),
        Column("torch", "str", None, "its version; empty: not told", lambda row: row.torch),
    ),
)

CHANGES: Final = Table[History, None, LevelChange](
    name="history_changes",
    doc="Where its level changed, oldest first. It is `.changes` of a history.",
    find=lambda history: ((None, change) for change in history.changes),
    keys=(),
    columns=(
        Column("last", "str", None, "name of the last point before", lambda row: row.last),
        Column("first", "str", None, "name of the first point after", lambda row: row.first),
        Column(
            "before", "float64", None, "median of the level before", lambda row: row.change.baseline.median, least=ANY
        ),
        Column(
            "after", "float64", None, "median of the level after", lambda row: row.change.candidate.median, least=ANY
        ),
        Column(
            "ratio",
            "float64",
            None,
            "after over before; NaN: before is nothing",
            lambda row: row.change.ratio,
            least=ANY,
        ),
        Column(
            "low",
            "float64",
            None,
            "of its 95 % interval, corrected for the changes",
            lambda row: row.change.low,
            least=ANY,
        ),
        Column("high", "float64", None, "of that interval", lambda row: row.change.high, least=ANY),
        Column("meaning", "str", None, "better, worse, ...", lambda row: row.meaning),
        Column("environment", "str", None, "what else changed there", say_environment),
    ),
)


@dataclass(frozen=True, repr=False)
class HistoryReport:
    """A number over runs; ``print`` it for the answer in words.

    Attributes:
        history: all of it as one frozen value, as ``dtbench history --json`` prints it.
    """

    history: History

    @property
    def sentence(self) -> str:
        """The answer."""
        return self.history.sentence

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and why, then what must be known of the numbers."""
        return (*map(say_left_out, self.history.left_out), *self.history.notes)

    @cached_property
    def points(self) -> pd.DataFrame:
        """The table ``history_points``."""
        return POINTS.tabulate(self.history)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """The table ``history_changes``; no row: none is established."""
        return CHANGES.tabulate(self.history)

    def plot(self) -> "Figure":
        """Draw every point, each level, and where it changed."""
        from dtbench.report.plots.names import plot_history

        return plot_history(self.history)

    def __str__(self) -> str:
        return spell_controls("\n".join([self.sentence, *(f"Note: {note}" for note in self.notes)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page_html(history_page(self.history), headless=True)


def load_history(
    results: Path, scenario: str | None, cell: str | None, metric: str, by: str, since: datetime | None
) -> HistoryReport:
    """Read one number of one cell over runs; raises as ``make_history``, and ``ValueError`` of words that are none."""
    begin = None if since is None else int(since.timestamp()) * NS_PER_S
    wanted = Wanted(scenario=scenario, cell=cell, since_unix_ns=begin)
    return HistoryReport(make_history(results, wanted, read_metric(metric), By(by), _THRESHOLD))

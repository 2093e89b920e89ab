"""The table of a sweep on a terminal, one row per cell, in one piece or two as the width allows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table

from dtbench.report.page import sentences, sweep
from dtbench.report.render.plain_text import Plain
from dtbench.runs.summary import RunSummary

WAIT_EXPLAINED = (
    "wait: how long a rank stood still for it; more than comm where waking up takes long, less than exposed where the "
    "rank had other host work to do"
)


@dataclass(frozen=True)
class SweepTable:
    """One row per cell; where the console is too narrow for all columns, a second table takes the communication."""

    summary: RunSummary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give one table or two."""
        columns = sweep.sweep_columns(self.summary)
        whole = self._table("All cells, per step; times in ms", columns)
        if Measurement.get(console, options.update(width=_ANY_WIDTH), whole).maximum <= options.max_width:
            yield whole
            return
        of_comm = [column for column in columns if column.header in _OF_COMM]
        yield self._table("All cells, per step; times in ms", [column for column in columns if column not in of_comm])
        yield Plain()
        yield self._table("Their communication", of_comm)

    def _table(self, title: str, columns: Sequence[sweep.Column]) -> Table:
        axes = sweep.find_axes(self.summary)
        table = headed_table(title, tuple(_break(axis.name) for axis in axes))
        for of_axis in table.columns[1:]:
            of_axis.justify = "left"
        for column in columns:
            justify: Literal["left", "right"] = "left" if column.header in sweep.OF_WORDS else "right"
            header = column.header.replace(" ", "\n", 1) if "%" not in column.header else "95 %\ninterval"
            table.add_column(header, justify=justify, no_wrap=True, vertical="bottom")
        for place, cell in enumerate(self.summary.cells):
            style = "" if sentences.is_trusted(cell) else "bold red"
            table.add_row(
                *(Plain(sweep.shorten_value(axis.values[place]), style="bold") for axis in axes),
                *(
                    Plain(column.words[place], style=style if column.header == sweep.CHECK else "")
                    for column in columns
                ),
            )
        return table


_ANY_WIDTH = 10_000
_OF_COMM = ("gradient wait", "unshard wait", "exposed comm", "hidden share", sweep.ESTIMATES)


def _break(name: str) -> str:
    """Break a long name at its underscores and dots, into lines of about ten letters."""
    lines = [""]
    for part in re.findall(r"[^_.]+[_.]*|[_.]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > 14:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def render_sweep(summary: RunSummary) -> RenderableType:
    """Give the cells against each other: the table, what it shows, and over what its intervals hold."""
    marks = (Plain(line, style="yellow") for line in sweep.mark_lines(summary))
    parts: list[RenderableType] = [SweepTable(summary), *marks, Plain(sweep.finding(summary), style="bold")]
    constant = sweep.constant_words(summary)
    if constant:
        parts.append(Plain(f"in all cells: {constant}", style="dim"))
    is_all = len(summary.cells) > sweep.MOST_CELLS  # else each cell explains its own waits
    told = f"{sweep.scope_words(summary)}; {WAIT_EXPLAINED}" if is_all else sweep.scope_words(summary)
    return Group(*parts, Plain(told, style="dim"), Plain())


def headed_table(title: str, headers: tuple[str, ...]) -> Table:
    """Give a table that fits ten columns into 80: the first column left, the numbers right, headers broken by hand."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), header_style="dim"
    )
    for index, header in enumerate(headers):
        table.add_column(header, justify="left" if index == 0 else "right", overflow="fold", vertical="bottom")
    return table

"""The tables of a run or of traces, as loaded, by their names, as CSV or Markdown.

CSV has numbers in full, ns and bytes, each column with its unit in its name; what is not known is empty. It has the
columns of ``docs/reference/tables.md`` where the name is one of these, else those of the report. Markdown reads as the
report does, where that has a table of the name.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from dtbench.base.columns import Unit
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.notebook.trace_report import TraceReport
from dtbench.report.page.page import Cell, Chart, Column, Page, Table, words_of
from dtbench.report.page.run_page import run_page
from dtbench.report.page.trace_page import traces_page
from dtbench.report.render.markdown import block_markdown, markdown_table
from dtbench.report.words.visible import spell_controls

_CELL: Final = "cell:"
_SUFFIXES: Final[Mapping[Unit, str]] = {
    Unit.NS: "_ns",
    Unit.BYTES: "_bytes",
    Unit.FRACTION: "_fraction",
    Unit.PER_SECOND: "_per_s",
}
_NOT_KNOWN: Final = "n/a"


@dataclass(frozen=True)
class NamedTable:
    """A table of a report, in one form or in both.

    Attributes:
        frame: every row with full numbers; None: there is no such DataFrame.
        shown: as the report shows it: by the cell that it is of, empty where it is of none.
    """

    frame: pd.DataFrame | None = None
    shown: Mapping[str, Table] = field(default_factory=dict)

    def of_cell(self, cell: str) -> "NamedTable":
        """Return what of it is of a cell."""
        frame = self.frame
        if frame is not None and "cell" in frame:
            frame = frame[frame["cell"] == cell]
        shown = {name: table for name, table in self.shown.items() if name in ("", cell)}
        return NamedTable(frame, shown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the report says below it; of a DataFrame nothing."""
        if self.frame is not None:
            return ()
        return tuple(dict.fromkeys(note for table in self.shown.values() for note in table.said))

    def csv(self) -> str:
        """Return it with full numbers, a header first; what is not known is empty."""
        frame = self.frame
        if frame is None:
            frame = pd.concat([_frame_of(cell, table) for cell, table in self.shown.items()], ignore_index=True)
        words = [str(name) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
        spelled = frame.assign(**{name: frame[name].map(_visible, na_action="ignore") for name in words})
        return spelled.to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """Return it as the report shows it, a title for each cell; else every row."""
        if not self.shown and self.frame is not None:
            rows = self.frame.astype(object).map(_spell).to_numpy().tolist()
            return f"{markdown_table([*self.frame.columns], rows)}\n"
        several = len(self.shown) > 1
        parts = [
            "\n\n".join([*([f"## {cell}"] if several else []), block_markdown(table)])
            for cell, table in self.shown.items()
        ]
        return "\n\n".join(parts) + "\n"


def list_tables(report: RunReport | TraceReport) -> dict[str, NamedTable]:
    """Return every table of a report by its name, those without rows too, in order of their names."""
    match report:
        case RunReport():
            page = run_page(report.summary)
            frames = {
                "cells": report.metrics(),
                "launches": report.launches,
                "steps": report.steps,
                "owners": report.owners,
                "estimates": report.estimates,
                **report.tables,
            }
        case TraceReport():
            page = traces_page(report.traces)
            names = ("overlap", "whole", "purposes", "collectives", "lanes", "groups", "gaps", "comm_waits")
            frames = {name: getattr(report, name) for name in (*names, "overlap_tax", "probes", "owners")}
    shown: dict[str, dict[str, Table]] = {}
    for name, cell, table in _list_shown(page):
        shown.setdefault(name, {})[cell] = table
    return {name: NamedTable(frames.get(name), shown.get(name, {})) for name in sorted({*frames, *shown})}


def _list_shown(page: Page) -> Iterator[tuple[str, str, Table]]:
    """Yield the tables of a page: name, the cell that it is of, and the table; of a chart the table behind it."""
    for part in page.parts:
        cell = part.key.removeprefix(_CELL) if part.key.startswith(_CELL) else ""
        for block in part.blocks:
            table = block.table if isinstance(block, Chart) else block
            if isinstance(table, Table) and block.key:
                yield block.key, cell, table


def _frame_of(cell: str, table: Table) -> pd.DataFrame:
    """Return the full numbers of a table that a report shows, and the words of what is none."""
    names = [_name_column(column) for column in table.columns]
    rows = [
        [_value_of(one, is_number=column.is_number) for one, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    if cell and "cell" not in frame:
        frame.insert(0, "cell", cell)
    return frame


def _name_column(column: Column) -> str:
    name = "_".join("".join(letter if letter.isalnum() else " " for letter in column.plain_title).split())
    suffix = "" if column.unit is None else _SUFFIXES.get(column.unit, "")
    return name if name.endswith(suffix.removeprefix("_")) and suffix else f"{name}{suffix}"


def _value_of(cell: str | Cell, *, is_number: bool) -> object:
    value = None if isinstance(cell, str) else cell.value
    if value is not None and is_number:
        return None if math.isnan(value) else int(value) if float(value).is_integer() else value
    words = words_of(cell)
    return None if words == _NOT_KNOWN else words


def _spell(value: object) -> str:
    is_unknown = value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return _NOT_KNOWN if is_unknown else str(value)


def _visible(value: object) -> object:
    return spell_controls(value) if isinstance(value, str) else value

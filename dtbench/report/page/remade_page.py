"""The tables that were made again of a run's traces, as a page: each cell's answer, then what each launch gave."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.units import count_things, format_fraction, is_or_are
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Prose, Row, Table, Tone, lines
from dtbench.report.words.sentences import answer_sentence
from dtbench.runs.cell.summarize_overlap import fraction
from dtbench.runs.summary import RunSummary
from dtbench.traces.rows.launch_tables import LaunchTables

_COLUMNS: Final = (
    Column("cell"),
    Column("launch"),
    Column("ranks", is_number=True),
    Column("profiled steps", is_number=True),
    Column("hidden share", is_number=True),
    Column("exposed share", is_number=True),
)


def remade_page(run: Path, made: Mapping[tuple[str, int], LaunchTables], summary: RunSummary) -> Page:
    """Make the page of tables that were made again.

    Args:
        run: its folder.
        made: the tables of each launch, by cell and index.
        summary: the run's answer, of these tables.
    """
    answers = ((cell.name, answer_sentence(cell)) for cell in summary.cells)
    rows = [_launch_row(cell, launch, tables) for (cell, launch), tables in made.items()]
    launches = (_launch_lines(cell, launch, tables) for (cell, launch), tables in made.items())
    places = (
        f"The tables are in {run}",
        f"Owners, causes and what would change them: dtbench report {spell_word(summary.path)}",
    )
    return Page(
        title=summary.name,
        aside=summary.run_id,
        answer=tuple(Line(f"{name}: exposed {answer}", Tone.STRONG) for name, answer in answers if answer is not None),
        parts=(
            Part("launches", "", (Table("Tables", _COLUMNS, rows, key="launches"), *map(Prose, map(tuple, launches)))),
            Part("places", "", (Prose(lines(places)),)),
        ),
        notes=tuple(
            Line(f"{cell.name}, launch {index} is left out: {reason}")
            for cell in summary.cells
            for index, reason in cell.unreadable.items()
        ),
    )


def _launch_row(cell: str, launch: int, tables: LaunchTables) -> Row:
    overlap, is_least = tables.overlap, tables.unseen_collectives > 0
    hidden = math.nan if is_least else fraction(overlap, "hidden_comm_ns", "comm_ns")
    exposed = fraction(overlap, "exposed_comm_ns", "step_ns")
    least = "at least " if is_least and not math.isnan(exposed) else ""
    return (
        cell,
        str(launch),
        str(overlap["rank"].nunique()),
        str(overlap["step"].nunique()),
        Cell(format_fraction(hidden), value=hidden),
        Cell(f"{least}{format_fraction(exposed)}", value=exposed),
    )


def _launch_lines(cell: str, launch: int, tables: LaunchTables) -> Iterator[Line]:
    """Yield how many rows a launch gave, and what a reader of them must know."""
    if len(tables.overlap):
        rows = ", ".join(f"{len(table)} of {name}" for name, table in tables.tables.items())
        yield Line(f"{cell}, launch {launch}: made rows of tables: {rows}")
    else:
        yield Line(f"{cell}, launch {launch}: no table was made, no step of a trace could be read")
    unread = tables.unread_events
    if unread:
        yield Line(f"Note: {count_things(unread, 'event')} could not be read and {is_or_are(unread)} in no number")
    for name, count in tables.unknown_names:
        yield Line(f"Note: counted as compute, may be communication ({count_things(count, 'time')}): {name}")
    for note in tables.notes:
        yield Line(f"Note: {note}")

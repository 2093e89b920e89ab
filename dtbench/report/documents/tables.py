"""The tables that were made again of a run's traces, as one JSON document: every step's account, by rank."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dtbench.base.columns import Column, Row
from dtbench.base.document import (
    COUNT,
    TEXT,
    VERSION,
    WHOLE,
    Always,
    Holds,
    Key,
    Many,
    OrNan,
    OrNull,
    Schema,
    Shape,
    keys_inside,
    keys_of_columns,
    make_schema,
)
from dtbench.runs.summary import RunSummary
from dtbench.traces.rows.launch_tables import LaunchTables
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION: Final = 1


@dataclass(frozen=True)
class RemadeTables:
    """The tables of each launch, by cell and index, and the summary of the run that they are of."""

    run: Path
    made: Mapping[tuple[str, int], LaunchTables]
    summary: RunSummary


@dataclass(frozen=True)
class _Step:
    """One step of one rank: its row of ``overlap``, and those of ``purposes``."""

    row: Row
    purposes: tuple[Row, ...]


@dataclass(frozen=True)
class _Launch:
    """One launch."""

    cell: str
    index: int
    tables: LaunchTables

    @property
    def ranks(self) -> dict[int, list[_Step]]:
        """The steps of each rank."""
        purposes: dict[tuple[object, object], list[Row]] = {}
        for row in _read_rows(self.tables.purposes):
            purposes.setdefault((row["rank"], row["step"]), []).append(row)
        found: dict[int, list[_Step]] = {}
        for row in _read_rows(self.tables.overlap):
            step = _Step(row, tuple(purposes.get((row["rank"], row["step"]), ())))
            found.setdefault(int(str(row["rank"])), []).append(step)
        return dict(sorted(found.items()))


def _read_rows(frame: "pd.DataFrame") -> Iterator[Row]:
    """Yield the rows of a DataFrame; what is NA is None."""
    known = frame.astype(object).where(frame.notna(), None)
    return ({str(name): value for name, value in row.items()} for row in known.to_dict("records"))


def _or_null(holds: Holds) -> Holds:
    """Return the same with null for what is not known, as this document has it."""
    return OrNull(holds.known) if isinstance(holds, OrNan) else holds


def _columns(columns: tuple[Column[Any], ...]) -> tuple[Key[Row], ...]:
    """Return columns as keys of a row that has been made."""
    return tuple(
        Key(key.name, _or_null(key.holds), key.doc, lambda row, name=key.name: row[name])  # type: ignore[misc]
        for key in keys_of_columns(columns)
    )


_PURPOSE: Final = Shape[Row]("Purpose", "What communication of a step was for.", _columns(PURPOSES.columns))
_STEP: Final = Shape[_Step](
    "Step",
    "Where the time of one step of one rank went.",
    (
        *keys_inside(_columns((OVERLAP["step"], *OVERLAP.columns)), lambda step: step.row),
        Key("purposes", Many(_PURPOSE), "what its communication was for", lambda step: step.purposes),
    ),
)
_RANK: Final = Shape[tuple[int, list[_Step]]](
    "Rank",
    "One rank of a launch.",
    (
        Key("rank", WHOLE, "which", lambda pair: pair[0]),
        Key("steps", Many(_STEP), "its PROFILED steps", lambda pair: pair[1]),
    ),
)
_NAME: Final = Shape[tuple[str, int]](
    "UnknownName",
    "A kernel's name that sounds like communication, and that no rule knows: counted as compute.",
    (
        Key("name", TEXT, "as in the trace", lambda pair: pair[0]),
        Key("count", COUNT, "its kernels", lambda pair: pair[1]),
    ),
)
_LAUNCH: Final = Shape[_Launch](
    "Launch",
    "One launch of a cell.",
    (
        Key("cell", TEXT, "whose", lambda one: one.cell),
        Key("launch", WHOLE, "its number in the cell, from 0", lambda one: one.index),
        Key("ranks", Many(_RANK), "in order of rank", lambda one: one.ranks.items()),
        Key("unread", COUNT, "events that could not be read, summed over ranks", lambda one: one.tables.unread_events),
        Key(
            "unknown_names",
            Many(_NAME),
            "kernels counted as compute that may be communication, summed over ranks",
            lambda one: one.tables.unknown_names,
        ),
        Key("notes", Many(TEXT), "what a reader of the numbers must know", lambda one: one.tables.notes),
    ),
)
_LEFT_OUT: Final = Shape[tuple[str, int, str]](
    "LeftOut",
    "A launch of which no tables were made.",
    (
        Key("cell", TEXT, "whose", lambda one: one[0]),
        Key("launch", WHOLE, "its number in the cell, from 0", lambda one: one[1]),
        Key("reason", TEXT, "what is wrong with it", lambda one: one[2]),
    ),
)
_DOCUMENT: Final = Shape[RemadeTables](
    "RemadeTables",
    "The tables that were made again of a run's traces.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _one: FORMAT_VERSION),
        Key("run", TEXT, "its folder", lambda one: str(one.run)),
        Key(
            "launches",
            Many(_LAUNCH),
            "each launch whose traces were read",
            lambda one: [_Launch(cell, index, tables) for (cell, index), tables in one.made.items()],
        ),
        Key(
            "left_out",
            Many(_LEFT_OUT),
            "each launch that was not read",
            lambda one: [
                (cell.name, index, why) for cell in one.summary.cells for index, why in cell.unreadable.items()
            ],
        ),
    ),
)


def document(remade: RemadeTables) -> dict[str, object]:
    """Return the document."""
    return _DOCUMENT.write(remade)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench analyze RUN --json", _DOCUMENT)

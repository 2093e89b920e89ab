"""Collectives and owners of many runs as one DataFrame each: ``load_collectives`` and ``load_owners``."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from dtbench.base.columns import Column, Table
from dtbench.base.vocabulary import CAUSE_PHRASES, Cause
from dtbench.report.page.run_tables import OWNERS, tabulate_run_owners
from dtbench.report.words.sentences import has_findings
from dtbench.report.words.visible import spell_controls
from dtbench.runs.reading.cell_data import stack
from dtbench.runs.reading.knobs import find_knobs, put_behind
from dtbench.runs.reading.many_runs import NOTES
from dtbench.runs.reading.many_tables import ManyRuns, as_knob_cell, read_many_runs
from dtbench.runs.run import summarize_data
from dtbench.traces.rows.collective_table import COLLECTIVES

_PLACE: Final[tuple[Column[Any], ...]] = (
    Column("scenario", "string", None, "its name", lambda of: of.scenario),
    Column("run", "string", None, "its id, as its folder is called", lambda of: of.run),
    Column("cell", "string", None, "its name", lambda of: of.cell),
)
_KNOBS: Final = (
    " After `{after}` comes a column for each axis of any run's sweep, and for each field in which runs of one "
    "scenario differ in one cell, named as the scenario does; NA: of a run that does not vary it."
)
_WHY: Final = Column[Any]("why", "string", None, "the cause in the words of reports; NA: none", lambda of: of.why)

RUN_COLLECTIVES: Final = Table[Any, Any, Any](
    name="run_collectives",
    doc="Every collective of every launch that counts, of many runs: what `dtbench.load_collectives` returns."
    + _KNOBS.format(after="launch"),
    find=lambda rows: rows,
    keys=(*_PLACE, Column("launch", "int64", None, "which one of the cell", lambda of: of.launch, least=0)),
    columns=(*COLLECTIVES.all_columns, _WHY),
)

RUN_OWNERS: Final = Table[Any, Any, Any](
    name="run_owners",
    doc="Whose communication was exposed and why, of many runs: what `dtbench.load_owners` returns. One row per run, "
    "cell, owner, operation, purpose and cause, means per PROFILED step and rank." + _KNOBS.format(after="cell"),
    find=lambda rows: rows,
    keys=_PLACE,
    columns=(
        Column(
            "is_doubted",
            "bool",
            None,
            "owners and causes are no findings, as the report says and why: steps may not stand for the run, others "
            "had the cores, or records or launches are lost",
            lambda of: of.is_doubted,
        ),
        *OWNERS.columns,
    ),
)


def load_collectives(results: Path) -> pd.DataFrame:
    """Read the collectives of all runs below a folder; warns where something is left out.

    Raises:
        StoreError: there is no run.
    """
    many = read_many_runs(results)
    tables = []
    for data in many.runs:
        table = stack(data.launches, COLLECTIVES.name)
        table.insert(0, "scenario", data.record.name)
        tables.append(table)
    words = {str(cause): CAUSE_PHRASES[cause] for cause in Cause}
    found = _stack(tables, RUN_COLLECTIVES)
    found["why"] = found["cause"].map(words).astype("string")
    return _finish(_add_knobs(found, many, "launch"), many)


def load_owners(results: Path) -> pd.DataFrame:
    """Read whose communication was exposed, of all runs below a folder; warns where something is left out.

    Raises:
        StoreError: there is no run.
    """
    many = read_many_runs(results)
    tables = []
    for data in many.runs:
        summary = summarize_data(data)
        table = tabulate_run_owners(summary)
        doubted = {cell.name: not has_findings(cell) for cell in summary.cells}
        table.insert(0, "scenario", data.record.name)
        table["is_doubted"] = table["cell"].map(doubted)
        tables.append(table)
    return _finish(_add_knobs(_stack(tables, RUN_OWNERS), many, "cell"), many)


def _stack(tables: Sequence[pd.DataFrame], table: Table[Any, Any, Any]) -> pd.DataFrame:
    """Put tables below each other, each column of the type that is written down."""
    filled = [one for one in tables if len(one)]
    stacked = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*table.dtypes])
    return stacked.reindex(columns=[*table.dtypes]).astype(table.dtypes)


def _add_knobs(frame: pd.DataFrame, many: ManyRuns, after: str) -> pd.DataFrame:
    """Put a column for each knob that varies behind a column."""
    cells = {
        (data.record.run_id, cell.cell.name): as_knob_cell(data, cell) for data in many.runs for cell in data.cells
    }
    knobs = find_knobs([*cells.values()], [*frame.columns])
    place = {key: at for at, key in enumerate(cells)}
    rows = [place[key] for key in zip(frame["run"].tolist(), frame["cell"].tolist(), strict=True)]
    return put_behind(frame, after, {name: [values[at] for at in rows] for name, values in knobs.items()})


def _finish(frame: pd.DataFrame, many: ManyRuns) -> pd.DataFrame:
    frame.attrs[NOTES] = [*many.notes]
    if many.notes:
        more = f" and {len(many.notes) - 1} more, see .attrs[{NOTES!r}]" if len(many.notes) > 1 else ""
        warnings.warn(spell_controls(f"left out: {many.notes[0]}{more}"), stacklevel=4)
    return frame

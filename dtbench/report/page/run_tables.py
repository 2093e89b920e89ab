"""Tables that are made of answers: whose communication was exposed and why, and exposed by which estimate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from dtbench.base.columns import ANY, Better, Column, Table, Unit
from dtbench.report.words.causes import describe_cause
from dtbench.runs.exposure.unjudged import judge_row
from dtbench.runs.summary import CellSummary, Estimated, ExposureRow, ExposureSummary, OwnerSummary, RunSummary
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.known_part import KnownPart


@dataclass(frozen=True)
class OwnedRows:
    """Rows whose times are sums over so many windows; those of traces are all of one ``part``, those of runs say it."""

    rows: Sequence[ExposedOwner | OwnerSummary]
    windows: int = 1
    part: KnownPart | None = None


def _describe(row: ExposedOwner | OwnerSummary) -> str:
    behind = row.behind if isinstance(row, ExposedOwner) else None
    return describe_cause(row.cause, waited_for=row.waited_for, behind=behind)


_Owned = tuple[ExposedOwner | OwnerSummary, OwnedRows]


def _find_part(of: _Owned) -> KnownPart | None:
    row, owned = of
    return row.part if isinstance(row, OwnerSummary) else owned.part


OWNERS: Final = Table[OwnedRows, None, _Owned](
    name="owners",
    doc="Whose communication was exposed and why, most exposed owner first: one row per owner, operation, purpose and "
    "cause, means per profiled step and rank.",
    find=lambda owned: ((None, (row, owned)) for row in owned.rows),
    keys=(),
    columns=(
        Column("owner", "string", None, "as in `collectives`; empty: unattributed", lambda of: of[0].owner or ""),
        Column("operation", "string", None, "all_gather, ...; empty: not known", lambda of: str(of[0].operation or "")),
        Column("purpose", "string", None, "what it was for", lambda of: str(of[0].purpose)),
        Column("cause", "string", None, "why it was exposed", lambda of: str(of[0].cause)),
        Column("why", "string", None, "the same in the words of reports", lambda of: _describe(of[0])),
        Column(
            "exposed_ns",
            "float64",
            Unit.NS,
            "for this cause",
            lambda of: of[0].exposed_ns / of[1].windows,
            better=Better.LOWER,
        ),
        Column(
            "owner_exposed_ns",
            "float64",
            Unit.NS,
            "for all causes of this owner, operation and purpose",
            lambda of: of[0].owner_exposed_ns / of[1].windows,
            better=Better.LOWER,
        ),
        Column(
            "waited_for",
            "Int64",
            None,
            "for skew, the rank that nearly all of it waited for; NA: several, or not known",
            lambda of: of[0].waited_for,
            least=0,
        ),
        Column(
            "known_of",
            "string",
            None,
            "over what ranks, launches and steps the means are; NA: over all",
            lambda of: None if (part := _find_part(of)) is None else str(part),
            may_be_na=True,
        ),
    ),
)


def tabulate_run_owners(summary: RunSummary) -> pd.DataFrame:
    """Return the table of all cells of a run: ``run``, ``cell``, then those of ``owners``."""
    of_cells = [
        OWNERS.tabulate(OwnedRows(cell.owners)).assign(run=summary.run_id, cell=cell.name) for cell in summary.cells
    ]
    none = OWNERS.tabulate(OwnedRows(())).assign(run="", cell="")
    stacked = pd.concat(of_cells, ignore_index=True) if of_cells else none
    return stacked[["run", "cell", *OWNERS.dtypes]]


@dataclass(frozen=True)
class _Told:
    """One estimate of one cell, and the row that it stands in."""

    summary: RunSummary
    cell: CellSummary
    exposure: ExposureSummary
    row: ExposureRow
    one: Estimated


def _find_told(summary: RunSummary) -> Iterator[tuple[None, _Told]]:
    for cell in summary.cells:
        if (exposure := cell.exposure) is not None:
            told = [(row, one) for row in exposure.rows for one in row.estimates]
            yield from ((None, _Told(summary, cell, exposure, row, one)) for row, one in told)


ESTIMATES: Final = Table[RunSummary, None, _Told](
    name="estimates",
    doc="Exposed communication per step of a run, estimated independently several ways: one row per cell, rank and "
    "estimate.",
    find=_find_told,
    keys=(),
    columns=(
        Column("run", "string", None, "its id", lambda row: row.summary.run_id),
        Column("cell", "string", None, "its name", lambda row: row.cell.name),
        Column("rank", "Int64", None, "which rank; NA: the mean over ranks", lambda row: row.row.rank, least=0),
        Column("estimate", "string", None, "trace, ablation, wait or logger", lambda row: str(row.one.estimate)),
        Column(
            "mean_ns",
            "float64",
            Unit.NS,
            "may be negative; NaN: not known",
            lambda row: row.one.mean_ns,
            least=ANY,
            better=Better.LOWER,
        ),
        Column("standard_error_ns", "float64", Unit.NS, "of the mean", lambda row: row.one.standard_error_ns),
        Column("count", "int64", Unit.COUNT, "independent values behind it", lambda row: row.one.count),
        Column(
            "known_of",
            "string",
            None,
            "of what ranks and launches it is; NA: of all",
            lambda row: str(row.one.part) if row.one.part else None,
            may_be_na=True,
        ),
        Column("is_least", "bool", None, "it may have been more", lambda row: row.one.is_least),
        Column(
            "agreement",
            "string",
            None,
            "of the rank's row: agree, disputed, unknown",
            lambda row: judge_row(row.exposure, row.row).value,
        ),
    ),
)

"""The rows of a cell's tables as words, for the terminal, Markdown and the browser; what is known in part is marked.

See ``marks.py`` for the marks.
"""

import math
from collections import Counter
from collections.abc import Sequence

from dtbench.base.units import decimals_for, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import PURPOSE_TIMES, Cause, MissingInput
from dtbench.report.page.page import Cell, Row
from dtbench.report.words import causes, sentences
from dtbench.report.words.marks import Marks
from dtbench.runs.summary import CellSummary, OwnerSummary, PurposeSummary, RankBreakdown
from dtbench.runs.wrong_results import why_no_total
from dtbench.traces.known_part import KnownPart, name_part


def mark_owners(cell: CellSummary) -> Marks:
    """Return the marks of ``owner_rows``."""
    return Marks.of(row.part for row in cell.owners)


def owner_rows(cell: CellSummary) -> list[Row]:
    """Return owner, collective, purpose, cause, exposed milliseconds and share of each row, most exposed first."""
    return [
        (
            causes.spell_owner(row.owner) if row.owner else causes.UNATTRIBUTED,
            causes.name_operation(row.operation),
            row.purpose.value,
            causes.describe_cause(row.cause, waited_for=row.waited_for),
            *_exposed_cells(cell, row.exposed_ns, row.part),
        )
        for row in _by_exposed(cell)
    ]


def rest_of_owners(cell: CellSummary, first: int) -> Row:
    """Return the row that sums up all but the first of ``owner_rows``; n/a where these are of different steps."""
    rest = _by_exposed(cell)[first:]
    is_sum = len({row.part for row in rest}) == 1
    exposed_ns = sum(row.exposed_ns for row in rest) if is_sum else math.nan
    figures = _exposed_cells(cell, exposed_ns, rest[0].part if is_sum else None)
    return (f"{len(rest)} more", "", "", "", *figures)


def _by_exposed(cell: CellSummary) -> list[OwnerSummary]:
    return sorted(cell.owners, key=lambda row: -row.exposed_ns)


def total_owners(cell: CellSummary) -> float:
    """Return what all owners left exposed, ns, that each has a share of; NaN where they do not add up to it."""
    return sentences.NAN if why_no_total(cell) else sum(row.exposed_ns for row in cell.owners)


def _exposed_cells(cell: CellSummary, exposed_ns: float, part: KnownPart | None) -> tuple[Cell, Cell]:
    decimals, marks = decimals_for(row.exposed_ns for row in cell.owners), mark_owners(cell)
    share = sentences.fraction_of(exposed_ns, total_owners(cell))
    return (
        Cell(marks.mark(format_ms(exposed_ns, decimals), part), value=exposed_ns),
        Cell(marks.mark(format_fraction(share), part), value=share),
    )


def sum_causes(cell: CellSummary) -> str:
    """Say what each cause explains, over all owners, and of what that is known where it is not of all."""
    if not cell.is_least and (why := why_no_total(cell)) is not None:
        return f"by cause: n/a, {why}"
    return f"{name_part(cell.owners[0].part)}{causes.describe_causes(cell.owners, 1)}"


def missing_lines(cell: CellSummary) -> tuple[str, ...]:
    """Say what would tell the causes that are unknown, and how much exposed time lacks it first of all."""
    lacking_ns = Counter[MissingInput]()
    for row in cell.owners:
        if row.cause is Cause.UNKNOWN and row.missing:
            lacking_ns[row.missing[0]] += row.exposed_ns
    told = [f"{causes.MISSING_WORDS[one]} ({format_ns(time_ns)})" for one, time_ns in lacking_ns.most_common()]
    return (f"cause unknown, missing: {'; '.join(told)}",) if told else ()


def owner_lines(cell: CellSummary) -> tuple[str, ...]:
    """Say why no owner has a share of what is exposed; nothing where each has."""
    why = why_no_total(cell)
    return () if why is None else (f"shares n/a: {why}",)


def mark_purposes(cell: CellSummary) -> Marks:
    """Return the marks of ``purpose_times``."""
    return Marks.of(part for row in cell.purposes for part in (row.part, row.wait_part))


def purpose_times(cell: CellSummary, row: PurposeSummary) -> tuple[Cell, ...]:
    """Return what one purpose took, hid, exposed and waited, ms, and its hidden share."""
    decimals, marks = decimals_for(one.comm_ns for one in cell.purposes), mark_purposes(cell)
    wait = sentences.bound_wait(cell, row.purpose, format_ms(row.wait_ns, decimals))
    return (
        *(
            Cell(marks.mark(format_ms(time_ns, decimals), row.part), value=time_ns)
            for time_ns in (getattr(row, name) for name in PURPOSE_TIMES)
        ),
        Cell(marks.mark(wait, row.wait_part), value=row.wait_ns),
        Cell(marks.mark(format_fraction(row.hidden_fraction), row.part), value=row.hidden_fraction),
    )


def mark_ranks(ranks: Sequence[RankBreakdown]) -> Marks:
    """Return the marks of ranks whose means are over some of their steps."""
    return Marks.of(row.part for row in ranks)

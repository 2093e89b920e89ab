"""The rows of a cell's tables as words, for the terminal, Markdown and the browser; what is known in part is marked.

See ``marks.py`` for the marks.
"""

from collections.abc import Sequence

from dtbench.base.units import format_fraction
from dtbench.report.page import causes, sentences
from dtbench.report.page.marks import Marks
from dtbench.runs.summary import CellSummary, PurposeSummary, RankBreakdown
from dtbench.traces.known_part import name_part


def mark_owners(cell: CellSummary) -> Marks:
    """Return the marks of ``owner_rows``."""
    return Marks.of(row.part for row in cell.owners)


def owner_rows(cell: CellSummary) -> list[tuple[str, ...]]:
    """Give owner, collective, purpose, cause, exposed milliseconds and share of each row, most exposed first."""
    rows = sorted(cell.owners, key=lambda row: -row.exposed_ns)
    total_ns = sum(row.exposed_ns for row in rows)
    decimals, marks = sentences.decimals_for(row.exposed_ns for row in rows), mark_owners(cell)
    return [
        (
            causes.spell_owner(row.owner) if row.owner else causes.UNATTRIBUTED,
            causes.name_operation(row.operation),
            row.purpose.value,
            causes.describe_cause(row.cause, waited_for=row.waited_for),
            marks.mark(sentences.format_ms(row.exposed_ns, decimals), row.part),
            marks.mark(format_fraction(sentences.fraction_of(row.exposed_ns, total_ns)), row.part),
        )
        for row in rows
    ]


def sum_causes(cell: CellSummary) -> str:
    """Say what each cause explains, over all owners, and of what that is known where it is not of all."""
    part = next((row.part for row in cell.owners if row.part), None)
    return f"{name_part(part)}{causes.describe_causes(cell.owners, 1)}"


def mark_purposes(cell: CellSummary) -> Marks:
    """Return the marks of ``purpose_times``."""
    return Marks.of(part for row in cell.purposes for part in (row.part, row.wait_part))


def purpose_times(cell: CellSummary, row: PurposeSummary) -> tuple[str, ...]:
    """Give what one purpose took, hid, exposed and waited, ms, and its hidden share."""
    decimals, marks = sentences.decimals_for(one.comm_ns for one in cell.purposes), mark_purposes(cell)
    times_ns = (row.comm_ns, row.hidden_ns, row.exposed_ns)
    return (
        *(marks.mark(sentences.format_ms(time_ns, decimals), row.part) for time_ns in times_ns),
        marks.mark(sentences.bound_wait(cell, row.purpose, sentences.format_ms(row.wait_ns, decimals)), row.wait_part),
        marks.mark(format_fraction(row.hidden_fraction), row.part),
    )


def mark_ranks(ranks: Sequence[RankBreakdown]) -> Marks:
    """Return the marks of ranks whose means are over some of their steps."""
    return Marks.of(row.part for row in ranks)

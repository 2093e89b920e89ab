"""The rows of a cell's tables as words, for the terminal, Markdown and the browser; what is known in part is marked.

A number that is a mean over some ranks, launches or steps has a mark behind it, and a line below the table says which.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from dtbench.analyze.known_part import KnownPart, name_part
from dtbench.analyze.summary import CellSummary, PurposeSummary, RankBreakdown
from dtbench.report import causes, sentences
from dtbench.units import format_fraction


@dataclass(frozen=True)
class Marks:
    """The marks of one table: ``*``, ``**`` and so on by what a number is known of."""

    by_part: Mapping[KnownPart, str]

    @classmethod
    def of(cls, parts: Iterable[KnownPart | None]) -> Self:
        """Give each of these parts a mark, in their order."""
        known = dict.fromkeys(part for part in parts if part is not None)
        return cls({part: "*" * (place + 1) for place, part in enumerate(known)})

    def mark(self, words: str, part: KnownPart | None) -> str:
        """Return a number with its mark; as it is where it is known of all, or of nothing."""
        return words if part is None or words in ("n/a", "none") else f"{words}{self.by_part[part]}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What each mark says."""
        return tuple(f"{mark} of {part}: not known of the others" for part, mark in self.by_part.items())


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
        marks.mark(sentences.format_ms(row.wait_ns, decimals), row.wait_part),
        marks.mark(format_fraction(row.hidden_fraction), row.part),
    )


def mark_ranks(ranks: Sequence[RankBreakdown]) -> Marks:
    """Return the marks of ranks whose means are over some of their steps."""
    return Marks.of(row.part for row in ranks)

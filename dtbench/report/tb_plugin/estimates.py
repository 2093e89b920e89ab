"""What the tab Overview says of exposed communication that was estimated several ways."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dtbench.report.page.estimates import LABEL, dispute_sentences, estimates_section, lead_rows
from dtbench.report.tb_plugin.shapes import Column, Fact, Table, Tone
from dtbench.runs.exposure.agreement import Agreement, judge
from dtbench.runs.summary import CellSummary, ExposureSummary

_TONES: Final = {Agreement.AGREE: Tone.GOOD, Agreement.DISPUTED: Tone.WARNING, Agreement.UNKNOWN: Tone.PLAIN}


@dataclass(frozen=True)
class CellEstimates:
    """Whether the estimates agree, in a sentence; the estimates; what does not agree."""

    lead: tuple[Fact, ...]
    table: Table
    disputes: tuple[Fact, ...]


def make_estimates(cell: CellSummary) -> CellEstimates | None:
    """Give the part on estimates; None where only the trace was asked."""
    if cell.exposure is None:
        return None
    section = estimates_section(cell.exposure)
    return CellEstimates(
        lead=tuple(_lead_facts(cell, cell.exposure)),
        table=Table(
            title=section.title,
            columns=tuple(Column(column.title, is_number=column.is_number) for column in section.columns),
            rows=tuple(tuple(row) for row in section.rows),
            note="; ".join(section.notes),
        ),
        disputes=tuple(Fact("disputed", said, Tone.WARNING) for said in dispute_sentences(cell.exposure)),
    )


def _lead_facts(cell: CellSummary, exposure: ExposureSummary) -> Iterator[Fact]:
    tone = Tone.WARNING if any(row.disputes for row in exposure.rows) else _TONES[judge(exposure.rows[0])]
    for label, words in lead_rows(cell):
        yield Fact(label, words, tone if label == LABEL else Tone.PLAIN)

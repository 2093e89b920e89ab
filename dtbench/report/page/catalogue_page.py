"""A catalogue of scenarios as a page: how many passed, then what became of each, its answer, and how long it took."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.units import count_things, format_ns
from dtbench.report.page.checklist import TONES, answer_line, failure_words, mark_outcome
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone, lines
from dtbench.report.words.sentences import check_word, is_trusted
from dtbench.runs.summary import RunSummary
from dtbench.store.records.checks import CheckOutcome

SCOPE: Final = "a scenario is judged on one launch of each cell; `--repeat N` gives statistics over launches"
CAN_RUN: Final = "can run here"
"""What is told of a scenario that was only listed, and that nothing keeps from running."""


@dataclass(frozen=True)
class CatalogueRow:
    """One scenario of a catalogue.

    Attributes:
        outcome: None: it was not run.
        told: its answer, or why there is none.
        run: the folder, where it was run.
        launches: of the cell that has fewest.
        duration_ns: None: it was not run, or did not end.
    """

    scenario: str
    question: str
    outcome: CheckOutcome | None
    told: str
    run: str | None = None
    launches: int = 0
    duration_ns: int | None = None


@dataclass(frozen=True)
class Catalogue:
    """A catalogue that was run, or that would be.

    Attributes:
        rows: in the order in which scenarios ran, or would.
        coverage: how many functions under study the runs' probes saw, a sentence; None: they had none.
        coverage_notes: what is to be known about that, as ``dtbench coverage`` says it.
        is_only_listed: nothing was run.
    """

    rows: tuple[CatalogueRow, ...]
    coverage: str | None = None
    coverage_notes: tuple[str, ...] = ()
    is_only_listed: bool = False


def judge_run(summary: RunSummary, duration_ns: int) -> CatalogueRow:
    """Return the row of a run: failed, too, where the numbers of a cell must not be trusted."""
    doubts = [f"cell {cell.name}: {check_word(cell)}" for cell in summary.cells if not is_trusted(cell)]
    checks = summary.checks
    if doubts:
        outcome, told = CheckOutcome.FAILED, f"no answer, do not trust its numbers: {', '.join(doubts)}"
    elif checks is None:
        outcome, told = CheckOutcome.NOT_JUDGED, "it claims nothing"
    else:
        outcome, told = checks.outcome, "; ".join([answer_line(checks), *failure_words(checks)])
    launches = min((len(cell.launches) for cell in summary.cells), default=0)
    return CatalogueRow(summary.name, summary.question, outcome, told, summary.path, launches, duration_ns)


def catalogue_page(found: Catalogue) -> Page:
    """Make the page of a catalogue."""
    if found.is_only_listed:
        runnable = sum(row.told == CAN_RUN for row in found.rows)
        answer = f"{runnable} of {count_things(len(found.rows), 'scenario')} with checks can run here"
        return Page("Catalogue", (Line(answer, Tone.STRONG),), (Part("scenarios", "", (_runnable_table(found.rows),)),))
    return Page(
        title="Catalogue",
        answer=(Line(_sum_up(found.rows), _tone_of(found.rows)),),
        parts=(Part("scenarios", "", (_outcomes_table(found.rows),)),),
        notes=() if found.coverage is None else (Line(found.coverage), *lines(found.coverage_notes)),
    )


def _tone_of(rows: Sequence[CatalogueRow]) -> Tone:
    """Return how a catalogue's answer is meant: well only where all that ran passed."""
    return Tone.STRONG if all(row.outcome in (None, CheckOutcome.PASSED) for row in rows) else Tone.BAD


def _sum_up(rows: Sequence[CatalogueRow]) -> str:
    """Say how many scenarios passed, and name those that did not."""
    ran = [row for row in rows if row.outcome is not None]
    passed = sum(row.outcome is CheckOutcome.PASSED for row in ran)
    rest = [f"not run here: {len(rows) - len(ran)}"] if len(ran) < len(rows) else []
    return "; ".join([f"{passed} of {count_things(len(ran), 'scenario')} passed", *_name_others(ran), *rest])


def _name_others(ran: Sequence[CatalogueRow]) -> Iterator[str]:
    for outcome in (CheckOutcome.FAILED, CheckOutcome.NOT_JUDGED):
        names = [row.scenario for row in ran if row.outcome is outcome]
        if names:
            yield f"{mark_outcome(outcome)}: {', '.join(names)}"


def _outcomes_table(rows: Sequence[CatalogueRow]) -> Table:
    headers = ("scenario", "question", "outcome", "answer")
    columns = (*map(Column, headers), Column("took", is_number=True))
    return Table("Catalogue", columns, list(map(_outcome_row, rows)), (SCOPE,), key="scenarios")


def _outcome_row(row: CatalogueRow) -> Row:
    took = "" if row.duration_ns is None else Cell(format_ns(row.duration_ns), value=row.duration_ns)
    return (row.scenario, row.question, _outcome_cell(row), row.told, took)


def _outcome_cell(row: CatalogueRow) -> Cell:
    if row.outcome is None:
        return Cell("not run", Tone.QUIET)
    word = mark_outcome(row.outcome)
    scope = "1 launch" if row.launches == 1 else f"{row.launches} launches"
    return Cell(f"{word} ({scope})" if row.run else word, TONES[row.outcome])


def _runnable_table(rows: Sequence[CatalogueRow]) -> Table:
    """Return the scenarios that would run, and why the others cannot."""
    columns = tuple(map(Column, ("scenario", "question", "here")))
    shown = [(row.scenario, row.question, row.told) for row in rows]
    return Table("Scenarios with checks", columns, shown, key="scenarios")

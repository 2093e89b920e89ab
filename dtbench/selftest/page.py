"""A selftest as a page: how many rows passed, then the analyser's answer, the estimates and the closed form of each."""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.units import NS_PER_MS, count_things, format_fraction
from dtbench.base.vocabulary import Estimate
from dtbench.machine.disturbance import DISTURBED
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone
from dtbench.selftest.records import CellOutcome, RowOutcome, SelftestRecord

_COLUMNS: Final = (
    Column("row, cell  cause"),
    Column("trace", is_number=True),
    Column("ablation", is_number=True),
    Column("waits", is_number=True),
    Column("agree"),
    Column("closed\nform", is_number=True),
    Column("step", is_number=True),
    Column("closed\nform", is_number=True),
    Column(""),
)
_NOTHING: Final = "-"
"""Where there is nothing to know: nothing is exposed, an estimate was not asked for, there is no closed form."""
_UNKNOWN: Final = "n/a"


def selftest_page(record: SelftestRecord) -> Page:
    """Make the page of a selftest, as far as it came."""
    passed = sum(row.passed for row in record.rows)
    answer = f"seed {record.seed}: {passed} of {count_things(len(record.rows), 'row')} passed"
    tone = Tone.STRONG if record.passed else Tone.BAD
    return Page(
        title="Selftest",
        answer=(Line(f"{answer}; `dtbench report {spell_word(record.run)}`", tone),),
        parts=(Part("rows", "", (rows_table(record.rows),)),),
    )


def rows_table(rows: Sequence[RowOutcome]) -> Table:
    """Return a line for each cell of each row, and below them why rows failed."""
    lines = [line for row in rows for line in _lines_of(row)]
    earlier = tuple(f"{row.row} failed before: {reason}" for row in rows for reason in row.earlier)
    reasons = tuple(Line(f"{row.row} FAILED: {reason}", Tone.BAD) for row in rows for reason in row.reasons)
    title = "Exposed communication and steps, ms: what was found and what was injected"
    disturbed = tuple(Line(_describe_disturbance(row), Tone.WARNING) for row in rows if row.disturbed)
    return Table(title, _COLUMNS, lines, (*earlier, *reasons, *disturbed), key="rows")


def _describe_disturbance(row: RowOutcome) -> str:
    shares = ", ".join(
        f"{format_fraction(share)} in {cell}" if share >= DISTURBED else f"in too many steps of {cell}"
        for cell, share in row.disturbed.items()
    )
    return (
        f"{row.row} cannot be judged: others had part of the machine ({shares}); run "
        f"`dtbench selftest --only {spell_word(row.row)}` when they are gone"
    )


def result_word(row: RowOutcome) -> str:
    """Return the word that a row ends with, and that it is not its first try."""
    word = "PASS" if row.passed else "FAIL"
    return f"{word}, tried again" if row.earlier else word


def _result_cell(row: RowOutcome) -> Cell:
    return Cell(result_word(row), Tone.GOOD if row.passed else Tone.BAD)


def _lines_of(row: RowOutcome) -> Iterator[Row]:
    """Yield a line for each cell below one for the row; the only cell of a row of the same name is one line with it."""
    if [cell.cell for cell in row.cells] == [row.row]:
        (cell,) = row.cells
        yield [f"{row.row}  {_name_cause(cell)}", *_number_cells(cell), _result_cell(row)]
        return
    yield [row.row, *[""] * (len(_COLUMNS) - 2), _result_cell(row)]
    for cell in row.cells:
        yield [f" {cell.cell}  {_name_cause(cell)}", *_number_cells(cell), ""]


def _name_cause(cell: CellOutcome) -> str:
    answer = cell.answer
    if answer.cause is None:
        return _UNKNOWN if answer.exposed_ns is None else _NOTHING
    return f"{answer.cause} of {answer.owner}" if answer.owner else answer.cause.value


def _number_cells(cell: CellOutcome) -> Iterator[str | Cell]:
    estimates = {one.estimate: one.mean_ns for one in cell.estimates}
    yield _ms(cell.answer.exposed_ns)
    for asked in (Estimate.ABLATION, Estimate.WAIT):
        yield _ms(estimates[asked]) if asked in estimates else _NOTHING
    yield {True: "yes", False: "no", None: _UNKNOWN if estimates else _NOTHING}[cell.agree]
    yield _NOTHING if cell.foretold is None else _ms(cell.foretold.exposed_ns.expected_ns)
    yield _ms(cell.step_ns)
    yield _NOTHING if cell.foretold is None else _ms(cell.foretold.step_ns.expected_ns)


def _ms(time_ns: int | None) -> str | Cell:
    return _UNKNOWN if time_ns is None else Cell(f"{time_ns / NS_PER_MS:.1f}", value=time_ns)

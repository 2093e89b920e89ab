"""The rows of a selftest as a table of words: the analyser's answer, the estimates and the closed form side by side."""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.commands import spell_word
from dtbench.base.units import NS_PER_MS, format_fraction
from dtbench.base.vocabulary import Estimate
from dtbench.report.page.page import Column, Table
from dtbench.selftest.records import CellOutcome, RowOutcome

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


def tabulate_rows(rows: Sequence[RowOutcome]) -> Table:
    """Return a line for each cell of each row, and below them why rows failed."""
    lines = [line for row in rows for line in _lines_of(row)]
    earlier = tuple(f"{row.row} failed before: {reason}" for row in rows for reason in row.earlier)
    reasons = tuple(f"{row.row} FAILED: {reason}" for row in rows for reason in row.reasons)
    title = "Exposed communication and steps, ms: what was found beside what was injected"
    disturbed = tuple(_describe_disturbance(row) for row in rows if row.disturbed)
    return Table(title, _COLUMNS, lines, (*earlier, *reasons, *disturbed))


def _describe_disturbance(row: RowOutcome) -> str:
    shares = ", ".join(f"{format_fraction(share)} in {cell}" for cell, share in row.disturbed.items())
    return (
        f"{row.row} cannot be judged: other virtual machines had part of the machine's cores ({shares}); run "
        f"`dtbench selftest --only {spell_word(row.row)}` when they are gone"
    )


def result_word(row: RowOutcome) -> str:
    """Return the word that a row ends with, and that it is not its first try."""
    word = "PASS" if row.passed else "FAIL"
    return f"{word}, tried again" if row.earlier else word


def _lines_of(row: RowOutcome) -> Iterator[list[str]]:
    """Yield a line for each cell below one for the row; the only cell of a row of the same name is one line with it."""
    if [cell.cell for cell in row.cells] == [row.row]:
        (cell,) = row.cells
        yield [f"{row.row}  {_name_cause(cell)}", *_give_numbers(cell), result_word(row)]
        return
    yield [row.row, *[""] * (len(_COLUMNS) - 2), result_word(row)]
    for cell in row.cells:
        yield [f" {cell.cell}  {_name_cause(cell)}", *_give_numbers(cell), ""]


def _name_cause(cell: CellOutcome) -> str:
    answer = cell.answer
    if answer.cause is None:
        return _NOTHING
    return f"{answer.cause} of {answer.owner}" if answer.owner else answer.cause.value


def _give_numbers(cell: CellOutcome) -> Iterator[str]:
    estimates = {one.estimate: one.mean_ns for one in cell.estimates}
    yield _ms(cell.answer.exposed_ns)
    yield _ms(estimates.get(Estimate.ABLATION))
    yield _ms(estimates.get(Estimate.WAIT))
    yield {True: "yes", False: "no", None: _NOTHING}[cell.agree]
    yield _NOTHING if cell.foretold is None else _ms(cell.foretold.exposed_ns.expected_ns)
    yield _ms(cell.step_ns)
    yield _NOTHING if cell.foretold is None else _ms(cell.foretold.step_ns.expected_ns)


def _ms(time_ns: int | None) -> str:
    return _NOTHING if time_ns is None else f"{time_ns / NS_PER_MS:.1f}"

"""Whether a row passed: its evidence against what was injected and what the closed form foretells. Pure functions.

Every cell is checked for the same things: it ran, it can be judged, its receipts and its traffic agree, its estimates
agree, and both its step and what it exposes lie within the bounds of its closed form, on either side. Then come the
row's expectations.
"""

from collections.abc import Iterator

from dtbench.base.vocabulary import Purpose
from dtbench.machine.disturbance import DISTURBED
from dtbench.selftest.answers import do_agree, find_answer, find_disputes, find_estimates, to_whole_ns
from dtbench.selftest.cell_checks import check_cell, check_closed_form, check_ran
from dtbench.selftest.evidence import Found
from dtbench.selftest.expectation_checks import check_expectation
from dtbench.selftest.expectations import Expectation, ForwardTook, Named, Ordered
from dtbench.selftest.records import Answer, CellOutcome, Check, RowOutcome
from dtbench.selftest.row import Row


def judge_row(row: Row, found: Found) -> RowOutcome:
    """Check everything about a row."""
    checks = [check for cell in row.cells for check in _check_one(cell, row, found)]
    ran = {check.cell for check in checks if check.what == "ran" and check.passed}
    for expected in row.expectations:
        if ran.issuperset(_cells_of(expected)):  # that a cell did not run is told already
            checks += check_expectation(expected, found)
    passed = all(check.passed for check in checks)
    return RowOutcome(
        row=row.name,
        claim=row.claim,
        passed=passed,
        cells=tuple(_describe_cell(cell, row, found) for cell in row.cells),
        checks=tuple(checks),
        disturbed={} if passed else _find_disturbed(row, found),
    )


def _find_disturbed(row: Row, found: Found) -> dict[str, float]:
    """Return cells of which no step can be gone by, with what others had of the machine in those that count."""
    told = {cell: found.evidence[cell] for cell in row.cells if cell in found.evidence}
    return {
        cell: one.disturbance for cell, one in told.items() if one.disturbance >= DISTURBED or one.summary.disturbed
    }


def _check_one(cell: str, row: Row, found: Found) -> Iterator[Check]:
    evidence = found.evidence.get(cell)
    ran = check_ran(cell, evidence)
    yield ran
    if not ran.passed or evidence is None:
        return
    yield from check_cell(cell, evidence.summary)
    if cell not in row.fed_by:  # it has no link of known cost
        yield from check_closed_form(cell, evidence.summary, found.foretold.get(cell))


def _cells_of(expected: Expectation) -> tuple[str, ...]:
    match expected:
        case Ordered(cells=cells):
            return cells
        case ForwardTook(cell=cell, unlinked=unlinked):
            return cell, unlinked
        case _:
            return (expected.cell,)


def _describe_cell(cell: str, row: Row, found: Found) -> CellOutcome:
    """Put what was found in a cell side by side."""
    foretold = found.foretold.get(cell)
    if cell not in found.evidence:
        nothing = Answer(exposed_ns=None)
        return CellOutcome(cell=cell, step_ns=None, answer=nothing, agree=None, foretold=foretold)
    summary = found.evidence[cell].summary
    return CellOutcome(
        cell=cell,
        step_ns=to_whole_ns(summary.step_time.median),
        answer=find_answer(summary, _purpose_of(cell, row)),
        estimates=find_estimates(summary),
        agree=do_agree(summary),
        disputes=find_disputes(summary),
        foretold=foretold,
    )


def _purpose_of(cell: str, row: Row) -> Purpose | None:
    """Return the purpose of what was injected into a cell; None where it is none, or several."""
    purposes = {one.purpose for one in row.expectations if isinstance(one, Named) and one.cell == cell}
    return purposes.pop() if len(purposes) == 1 else None

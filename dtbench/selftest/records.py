"""What a selftest found, row by row: the analyser's answer, the estimates and the closed form side by side.

Times are integer nanoseconds; None where a number is not known.
"""

from typing import Literal

from dtbench.base.record import FloatOrNan, Record
from dtbench.base.vocabulary import Cause, Estimate, Operation


class Answer(Record):
    """What the analyser says of a cell's PROFILED steps, means over steps and ranks.

    Attributes:
        exposed_ns: of all communication.
        cause: of most exposed time among the collectives that the row is about; None: nothing of them is exposed.
        cause_ns: exposed time of that cause.
        owner: that has most of it; empty: unattributed.
        operation: of that owner's collectives.
        waited_for: for ``skew``, the rank that most of it waited for.
    """

    exposed_ns: int | None
    cause: Cause | None = None
    cause_ns: int | None = None
    owner: str = ""
    operation: Operation | None = None
    waited_for: int | None = None


class EstimateRow(Record):
    """One estimate of exposed communication per step, mean over ranks.

    Attributes:
        estimate: by which method.
        mean_ns: exposed communication of a step; None: not known.
        standard_error_ns: of the mean; None: not known.
    """

    estimate: Estimate
    mean_ns: int | None
    standard_error_ns: int | None


class Bounds(Record):
    """What the closed form says of a number, and the bounds outside of which a run is wrong, both included.

    Attributes:
        expected_ns: what the closed form says.
        low_ns: less is wrong.
        high_ns: more is wrong.
    """

    expected_ns: int
    low_ns: int
    high_ns: int


class ExpectedBounds(Record):
    """The closed form of a cell.

    Attributes:
        step_ns: MEASURED step, slowest rank.
        exposed_ns: mean over ranks.
        source: what it was fed with.
        is_disputed: by its own account the trace and the step without communication tell different numbers.
    """

    step_ns: Bounds
    exposed_ns: Bounds
    source: str
    is_disputed: bool = False


class CellOutcome(Record):
    """What was found in one cell of a row.

    Attributes:
        cell: its name.
        step_ns: MEASURED step, slowest rank, median.
        answer: what the analyser says.
        agree: no two of the three estimates differ, means over ranks; None: there are no two, or they are too unsure.
        estimates: one for each method.
        disputes: between any two of them, and DDP's own logger, also of single ranks: a sentence each.
        foretold: None where no closed form speaks about the cell.
    """

    cell: str
    step_ns: int | None
    answer: Answer
    agree: bool | None
    foretold: ExpectedBounds | None
    estimates: tuple[EstimateRow, ...] = ()
    disputes: tuple[str, ...] = ()


class Check(Record):
    """One thing that was checked.

    Attributes:
        cell: where.
        what: is looked at, in a few words.
        expected: what should be there.
        got: what is there.
        passed: it is as expected.
        reason: why it failed, a sentence; empty where it passed.
    """

    cell: str
    what: str
    expected: str
    got: str
    passed: bool
    reason: str = ""


class RowOutcome(Record):
    """One row: what was injected, what was found in its cells, and whether every check passed.

    Attributes:
        row: its name.
        claim: what is injected and must be found.
        passed: every check passed.
        cells: what was found in each.
        checks: everything that was checked.
        run: folder of the run whose cells these are, where it is not the selftest's first.
        earlier: why the tries before this one failed, a sentence for each check; empty where this is the first.
        disturbed: where it failed, the cells in whose steps others had too much of the machine for any answer, and what
            they had of it in those that were kept; NaN: not known.
    """

    row: str
    claim: str
    passed: bool
    cells: tuple[CellOutcome, ...]
    checks: tuple[Check, ...]
    run: str | None = None
    earlier: tuple[str, ...] = ()
    disturbed: dict[str, FloatOrNan] = {}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it failed."""
        return tuple(check.reason for check in self.checks if not check.passed)


class SelftestRecord(Record):
    """A selftest, as far as it came.

    Attributes:
        seed: that the numbers were drawn from.
        run: folder of the first run, whose cells are the cells of all rows that were tried once.
        is_complete: all rows that were asked for are there.
        passed: every row passed, and none is missing.
        rows: each row that was judged.
    """

    format_version: Literal[1] = 1
    seed: int
    run: str
    is_complete: bool
    passed: bool
    rows: tuple[RowOutcome, ...]

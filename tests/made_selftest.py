"""A cell of a selftest with all that one can tell, a check that failed, and the record of rows made of them."""

from typing import Final

from dtbench.base.vocabulary import Cause, Estimate
from dtbench.selftest.records import (
    Answer,
    Bounds,
    CellOutcome,
    Check,
    EstimateRow,
    ExpectedBounds,
    RowOutcome,
    SelftestRecord,
)

_MS: Final = 1_000_000


def _bounds(expected_ms: int) -> Bounds:
    return Bounds(expected_ns=expected_ms * _MS, low_ns=0, high_ns=2 * expected_ms * _MS)


CELL: Final = CellOutcome(
    cell="tail",
    step_ns=round(130.44 * _MS),
    answer=Answer(exposed_ns=15 * _MS, cause=Cause.TAIL, cause_ns=15 * _MS, owner="bucket 3"),
    estimates=(
        EstimateRow(estimate=Estimate.TRACE, mean_ns=15 * _MS, standard_error_ns=_MS),
        EstimateRow(estimate=Estimate.ABLATION, mean_ns=-2 * _MS, standard_error_ns=_MS),
        EstimateRow(estimate=Estimate.WAIT, mean_ns=None, standard_error_ns=None),
    ),
    agree=True,
    foretold=ExpectedBounds(step_ns=_bounds(128), exposed_ns=_bounds(14), source="written down"),
)
FAILED: Final = Check(cell="tail", what="step", expected="", got="", passed=False, reason="cell tail: it took too long")


def record_of(*rows: RowOutcome) -> SelftestRecord:
    passed = all(row.passed for row in rows)
    return SelftestRecord(seed=3, run="results/selftest/1", is_complete=True, passed=passed, rows=rows)

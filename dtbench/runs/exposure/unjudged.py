"""Estimates by which nothing may be judged: neither that they agree, nor that they do not, nor why."""

from dtbench.base.vocabulary import DeviceKind, Estimate
from dtbench.runs.exposure.agreement import Agreement, judge
from dtbench.runs.summary import CellSummary, Estimated, ExposureRow, ExposureSummary
from dtbench.runs.wrong_results import why_unjudged


def leave_unjudged(cell: CellSummary) -> ExposureSummary | None:
    """Return the estimates of a cell; without disputes, and with why, where nothing may be judged by them.

    Those that were read off its traces are bounds where what communication took is one.
    """
    why, found = why_unjudged(cell), cell.exposure
    if found is None or why is None:
        return found
    rows = tuple(
        row.model_copy(update={"disputes": (), "estimates": tuple(_bound(cell, one) for one in row.estimates)})
        for row in found.rows
    )
    return found.model_copy(update={"rows": rows, "unjudged": why})


def _bound(cell: CellSummary, one: Estimated) -> Estimated:
    is_of_trace = one.estimate is Estimate.TRACE or (
        one.estimate is Estimate.WAIT and cell.plan.device is not DeviceKind.CPU
    )
    return one.model_copy(update={"is_least": True}) if cell.is_least and is_of_trace else one


def judge_row(exposure: ExposureSummary, row: ExposureRow) -> Agreement:
    """Say whether the estimates of one of these rows agree; of a cell by which nothing is judged, that is unknown."""
    return Agreement.UNKNOWN if exposure.unjudged else judge(row)

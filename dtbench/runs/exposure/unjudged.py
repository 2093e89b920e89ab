"""Estimates by which nothing may be judged: neither that they agree, nor that they do not, nor why."""

from dtbench.runs.exposure.agreement import Agreement, judge
from dtbench.runs.summary import CellSummary, ExposureRow, ExposureSummary
from dtbench.runs.wrong_results import why_unjudged


def leave_unjudged(cell: CellSummary) -> ExposureSummary | None:
    """Return the estimates of a cell; without disputes, and with why, where nothing may be judged by them."""
    why, found = why_unjudged(cell), cell.exposure
    if found is None or why is None:
        return found
    rows = tuple(row.model_copy(update={"disputes": ()}) for row in found.rows)
    return found.model_copy(update={"rows": rows, "unjudged": why})


def judge_row(exposure: ExposureSummary, row: ExposureRow) -> Agreement:
    """Say whether the estimates of one of these rows agree; of a cell by which nothing is judged, that is unknown."""
    return Agreement.UNKNOWN if exposure.unjudged else judge(row)

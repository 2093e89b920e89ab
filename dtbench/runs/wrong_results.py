"""Whether a cell computed what it should: nothing is found out from the times of one that did not."""

from dtbench.runs.summary import CellSummary


def find_wrong_results(cell: CellSummary) -> str | None:
    """Say what is wrong with what a cell computed, as a clause; None: nothing is, as far as it was checked."""
    if cell.correctness is not None and not cell.correctness.passed:
        return "its results differ from those of a single process"
    if cell.canary is not None and cell.canary.passed is False:
        return "it reads a collective's result before it is done"
    if cell.state_steps is not None and cell.state_steps.mismatched:
        return "its training state is not what it should be"
    return None

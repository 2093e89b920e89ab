"""Whether a cell computed and sent what it should, and whether anything may be judged by its numbers."""

from collections.abc import Collection
from dataclasses import dataclass

from dtbench.base.units import count_things, is_or_are
from dtbench.base.vocabulary import StageOutcome
from dtbench.runs.cell.cell_notes import say_taken
from dtbench.runs.summary import CellSummary
from dtbench.store.records.outline import RESULTS_DIFFER, STATE_DIFFERS, WAIT_MISSING
from dtbench.store.records.run import RunStatus
from dtbench.traces.known_part import name_launches


@dataclass(frozen=True)
class WrongResult:
    """What is wrong with what was computed: in a word or two, and as a clause."""

    word: str
    clause: str


_RESULTS = WrongResult("results differ", RESULTS_DIFFER)
_STATE = WrongResult("state differs", STATE_DIFFERS)
_RAISED = WrongResult("stage raised", "torch raised in a stage of its training state")
_CANARY = WrongResult("missing wait", WAIT_MISSING)
_TRAFFIC = WrongResult("traffic differs", "what it communicated differs from its plan")


def find_wrong_result(cell: CellSummary) -> WrongResult | None:
    """Return what is wrong with what a cell computed or sent, most important first; None: nothing, as far as checked.

    Nothing is found out from the times of one that did something else.
    """
    if cell.correctness is not None and not cell.correctness.passed:
        return _RESULTS
    if cell.state_steps is not None and cell.state_steps.mismatched:
        return _STATE
    if (state := find_wrong_state({row.outcome for row in cell.stages})) is not None:
        return state
    if cell.canary is not None and cell.canary.passed is False:
        return _CANARY
    return _TRAFFIC if is_other_than_planned(cell) else None


def is_other_than_planned(cell: CellSummary) -> bool:
    """Tell whether a step, or a stage of the training state, is known to have sent other than its plan says."""
    return False in (*(row.matches_plan for row in cell.purposes), *(row.matches_plan for row in cell.stages))


def find_wrong_state(outcomes: Collection[StageOutcome]) -> WrongResult | None:
    """Return what is wrong with a training state by what became of its stages; what is known to be broken is not."""
    if StageOutcome.WRONG in outcomes:
        return _STATE
    return _RAISED if StageOutcome.RAISED in outcomes else None


def find_wrong_results(cell: CellSummary) -> str | None:
    """Say what is wrong with what a cell computed or sent, as a clause."""
    found = find_wrong_result(cell)
    return None if found is None else found.clause


def why_unreliable(cell: CellSummary) -> str | None:
    """Say, as a clause, why no number of a cell may be gone by: others had the machine, or its results are wrong."""
    return say_taken(cell.disturbed) if cell.disturbed else find_wrong_results(cell)


def why_not_whole(cell: CellSummary) -> str | None:
    """Say, as a clause, why a cell's numbers are of some of its launches, or of some that did not end; None: of all."""
    if cell.unreadable:
        return f"{name_launches(sorted(cell.unreadable))} {is_or_are(len(cell.unreadable))} left out"
    if cell.status is RunStatus.COMPLETE:
        return None
    return "it did not end well" if cell.status is RunStatus.FAILED else "it is not finished"


def say_unseen(cell: CellSummary) -> str | None:
    """Say that collectives were launched that nobody saw run; None: all were seen."""
    if not cell.is_least:
        return None
    were = "was" if cell.unseen_collectives == 1 else "were"
    return f"{count_things(cell.unseen_collectives, 'collective')} {were} launched and not seen to run"


def why_no_total(cell: CellSummary) -> str | None:
    """Say, as a clause, why owners' times do not add up to what was exposed, so that none is a share; None: they do."""
    if cell.unknown_owners:
        owner = "more owner" if cell.owners else "owner"
        return f"what {count_things(cell.unknown_owners, owner)} left exposed is not known"
    if len({row.part for row in cell.owners}) > 1:
        return "what owners left exposed is known of different steps"
    return say_unseen(cell)


def why_unjudged(cell: CellSummary) -> str | None:
    """Say, as a clause, why estimates of a cell are not held against each other; None: nothing speaks against it."""
    return why_unreliable(cell) or next(iter(cell.rank_doubts), None) or say_unseen(cell)

"""What was held against what, of a run on one screen: in one line where all is as it should be."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from dtbench.plan.plan import Plan
from dtbench.report.page.brief.notes import MOST_NOTES
from dtbench.report.page.checklist import CHANGED, failure_words, mark_outcome
from dtbench.report.page.page import Fact, Facts, Tone
from dtbench.report.words import sentences
from dtbench.runs.exposure.agreement import Agreement
from dtbench.runs.exposure.unjudged import judge_row
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.runs.wrong_results import is_other_than_planned, why_not_whole
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.rank import ReceiptOutcome


def check_facts(summary: RunSummary) -> Facts:
    """Return the scenario's checks, in one line where all passed, and what was verified of each cell."""
    return Facts(tuple(_check_facts(summary)), key="verified")


def _check_facts(summary: RunSummary) -> Iterator[Fact]:
    checks = summary.checks
    if checks is not None:
        told = checks
        if any(cell.disturbed for cell in summary.cells):
            judged = tuple(one for one in checks.results if one.outcome is not CheckOutcome.NOT_JUDGED)
            unjudged = len(checks.results) - len(judged)
            yield Fact("checks", f"{unjudged} of {len(checks.results)} are not judged: see above", Tone.WARNING)
            told = checks.model_copy(update={"results": judged})
        failed = failure_words(told, mark_outcome)
        yield from (Fact("checks", words, Tone.BAD) for words in failed[:MOST_NOTES])
        if (rest := len(failed) - MOST_NOTES) > 0:
            yield Fact("", f"and {rest} more that did not pass: --full", Tone.BAD)
        if passed := sum(result.outcome is CheckOutcome.PASSED for result in checks.results):
            whole = "all" if passed == len(checks.results) else "the other"
            said = f"{whole} {passed} passed"
            if passed == len(checks.results) and not checks.changed and _holds(summary.cells):
                yield Fact("checks", ", ".join([said, *_verified(summary.cells)]), Tone.GOOD)
                return
            yield Fact("checks", said, Tone.GOOD)
        if checks.changed:
            yield Fact("", CHANGED)
    yield Fact("verified", ", ".join(_verified(summary.cells)))


_HOLDS: Final = ""
_FAILS: Final = "NOT"
_NOT_KNOWN: Final = "not known"
_NOT_LOOKED_AT: Final = "not looked at"
_NO_EFFECT: Final = "none has an effect"
_IN: Final = {_NOT_KNOWN: "of"}
"""What stands between an outcome and the cells that it is of, where that is not ``in``."""


def _holds(cells: Sequence[CellSummary]) -> bool:
    """Tell whether all that was held against what it should be is so, in every cell."""
    return all(judge(cell) == _HOLDS for judge in _find_kinds(cells).values() for cell in cells)


def _find_kinds(cells: Sequence[CellSummary]) -> dict[str, Callable[[CellSummary], str]]:
    """Return by its words what is held against what it should be, and what says whether it is so in a cell."""
    kinds: dict[str, Callable[[CellSummary], str]] = {
        "results equal one process's": _are_results,
        "no wait missing": _are_waits,
        "traffic as planned": _is_planned,
        "knobs as asked": _are_knobs,
    }
    if any(cell.exposure is not None for cell in cells):
        kinds["estimates of exposed time agree"] = _are_estimates
    return kinds


def _verified(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield what was held against what, and in which cells it is not so, is known in part, or was not looked at."""
    for words, judge in _find_kinds(cells).items():
        told: dict[str, list[str]] = {}
        for cell in cells:
            told.setdefault(judge(cell), []).append(cell.name)
        if len(told) == 1 and not told.keys() & {_HOLDS, _FAILS}:
            only = next(iter(told))
            yield f"{words} ({only})" if only.startswith("of ") else f"{words}: {only}"
            continue
        where = [f"{one} {_IN.get(one, 'in')} {name_some(told[one])}" for one in _order(told) if one != _HOLDS]
        yield f"{words} ({', '.join(where)})" if where else words


def _order(outcomes: Iterable[str]) -> list[str]:
    return sorted(outcomes, key=lambda one: one != _FAILS)


def _find_outcome(cell: CellSummary, *, passed: bool | None, is_asked: bool) -> str:
    """Return what is said of one thing that ranks tell: of which of them, where that is not all.

    That all is well is not known where a rank does not tell all that it should, or a launch did not end well.
    """
    if passed is None:
        return _NOT_KNOWN if is_asked else _NOT_LOOKED_AT
    if not passed:
        return _FAILS
    if (part := sentences.find_told_part(cell, cell.records_part)) is not None:
        return f"of {part}"
    return _NOT_KNOWN if cell.rank_doubts or why_not_whole(cell) is not None else _HOLDS


def _are_results(cell: CellSummary) -> str:
    passed = None if cell.correctness is None else cell.correctness.passed
    return _find_outcome(cell, passed=passed, is_asked=cell.scenario is not None and cell.scenario.correctness.enabled)


def _are_waits(cell: CellSummary) -> str:
    is_asked = cell.canary is not None or (cell.scenario is not None and cell.scenario.wants_canary)
    return _find_outcome(cell, passed=None if cell.canary is None else cell.canary.passed, is_asked=is_asked)


def _is_planned(cell: CellSummary) -> str:
    """Say whether a cell communicated what its plan says, in steps and in stages of its training state."""
    if is_other_than_planned(cell):
        return _FAILS
    is_known = bool(cell.ranks) and all(row.matches_plan is not None for row in cell.purposes)
    is_asked = isinstance(cell.plan, Plan) and (
        cell.plan.traffic is not None or any(row.planned_count is not None for row in cell.purposes)
    )
    return _find_outcome(cell, passed=True if is_known and is_asked else None, is_asked=is_asked)


def _are_knobs(cell: CellSummary) -> str:
    outcomes = {one.outcome for one in cell.receipts}
    if outcomes == {ReceiptOutcome.NO_EFFECT}:
        return _NO_EFFECT
    passed = None if not outcomes or cell.contested_knobs else ReceiptOutcome.DISAGREES not in outcomes
    return _find_outcome(cell, passed=passed, is_asked=cell.scenario is not None)


def _are_estimates(cell: CellSummary) -> str:
    return _find_outcome(cell, passed=_do_agree(cell), is_asked=cell.exposure is not None)


def _do_agree(cell: CellSummary) -> bool | None:
    if cell.exposure is None:
        return None
    if any(row.disputes for row in cell.exposure.rows):
        return False
    return True if judge_row(cell.exposure, cell.exposure.rows[0]) is Agreement.AGREE else None

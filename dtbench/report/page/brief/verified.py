"""What was held against what, of a run on one screen: in one line where all is as it should be."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from dtbench.report.page.brief.notes import MOST_NOTES
from dtbench.report.page.checklist import CHANGED, failure_words, mark_outcome
from dtbench.report.page.page import Fact, Facts, Tone
from dtbench.report.words import sentences
from dtbench.runs.exposure.agreement import Agreement
from dtbench.runs.exposure.unjudged import judge_row
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.rank import ReceiptOutcome


def check_facts(summary: RunSummary) -> Facts:
    """Return the scenario's checks, in one line where all passed, and what was verified of each cell."""
    return Facts(tuple(_check_facts(summary)), key="checks")


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
            yield Fact("checks", f"{whole} {passed} passed", Tone.GOOD)
        if checks.changed:
            yield Fact("", CHANGED)
    yield Fact("verified", ", ".join(_verified(summary.cells)))


def _verified(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield what was held against what, and in which cells it is not so, or was not looked at."""
    kinds: dict[str, Callable[[CellSummary], bool | None]] = {
        "results equal one process's": lambda cell: None if cell.correctness is None else cell.correctness.passed,
        "no wait missing": lambda cell: None if cell.canary is None else cell.canary.passed,
        "traffic as planned": _is_planned,
        "knobs as asked": _are_knobs,
    }
    if any(cell.exposure is not None for cell in cells):
        kinds["estimates of exposed time agree"] = _do_agree
    for words, judge in kinds.items():
        outcomes = {cell.name: _of_all(cell, judge(cell)) for cell in cells}
        told = {one: [name for name, outcome in outcomes.items() if outcome is one] for one in (True, False, None)}
        if told[None] and not told[True] and not told[False]:
            yield f"{words}: not looked at"
            continue
        where = [f"NOT in {name_some(told[False])}"] if told[False] else []
        where += [f"not known of {name_some(told[None])}"] if told[None] else []
        aside = f" ({', '.join(where)})" if where else ""
        yield f"{words}{aside}"


def _of_all(cell: CellSummary, outcome: Literal[True, False, None]) -> bool | None:
    """Return an outcome; that all is well is not known where a rank does not tell all that it should."""
    return None if outcome and (cell.rank_doubts or cell.records_part is not None) else outcome


def _is_planned(cell: CellSummary) -> bool | None:
    """Tell whether a cell communicated what its plan says; None: there is no plan, or nothing was traced."""
    if sentences.plan_words(cell) is not None or not cell.ranks:
        return None
    told = {row.matches_plan for row in cell.purposes}
    return False if False in told else None if None in told else True


def _are_knobs(cell: CellSummary) -> bool | None:
    if not cell.receipts or cell.contested_knobs:
        return None
    return all(one.outcome is not ReceiptOutcome.DISAGREES for one in cell.receipts)


def _do_agree(cell: CellSummary) -> bool | None:
    if cell.exposure is None:
        return None
    if any(row.disputes for row in cell.exposure.rows):
        return False
    return True if judge_row(cell.exposure, cell.exposure.rows[0]) is Agreement.AGREE else None

"""What every cell is checked for, whatever its row is about."""

import math
from collections.abc import Iterator

from dtbench.base.units import count_things, format_bytes, format_ns
from dtbench.runs.cell.cell_notes import describe_disturbed
from dtbench.runs.summary import CellSummary
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.selftest.answers import do_agree, find_disputes, find_estimates, find_exposed_ns, find_unsure, to_whole_ns
from dtbench.selftest.evidence import Evidence
from dtbench.selftest.records import Bounds, Check, ExpectedBounds
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import RunStatus

_LINK_KNOB = "network.kind"
_INCOMPLETE = "not every rank tells all that it should"


def make_check(cell: str, what: str, expected: str, got: str, *, reason: str | None = None) -> Check:
    """Return a check, which passed where there is no reason for which it failed."""
    return Check(cell=cell, what=what, expected=expected, got=got, passed=reason is None, reason=reason or "")


def check_ran(cell: str, evidence: Evidence | None) -> Check:
    """Look whether the cell ran to its end."""
    if evidence is None:
        reason = f"cell {cell} did not run: nothing of it can be read"
        return make_check(cell, "ran", "complete", "nothing", reason=reason)
    summary = evidence.summary
    why = f"cell {cell} did not run to its end: {summary.reason or summary.status}"
    is_complete = summary.status is RunStatus.COMPLETE and bool(evidence.ranks)
    return make_check(cell, "ran", "complete", str(summary.status), reason=None if is_complete else why)


def check_cell(cell: str, summary: CellSummary) -> Iterator[Check]:
    """Look at what holds for every run: that it can be judged, its receipts, its traffic, its link."""
    yield _check_evidence(cell, summary)
    yield _check_receipts(cell, summary)
    yield _check_link(cell, summary)
    yield _check_traffic(cell, summary)


def check_closed_form(cell: str, summary: CellSummary, foretold: ExpectedBounds | None) -> Iterator[Check]:
    """Look whether the estimates agree, and whether step and exposed communication lie within their bounds."""
    if summary.scenario is None or len(summary.scenario.measure.exposure) > 1:  # one alone has nothing to agree with
        yield _check_estimates(cell, summary, foretold)
    if foretold is None:
        yield make_check(cell, "closed form", "known", "unknown", reason=f"cell {cell}: there is no closed form of it")
        return
    yield check_bounds(cell, "step", foretold.step_ns, to_whole_ns(summary.step_time.median))
    yield check_bounds(cell, "exposed communication", foretold.exposed_ns, find_exposed_ns(summary))


def _check_evidence(cell: str, summary: CellSummary) -> Check:
    """Look whether every rank tells all that it should, and others left enough of it alone: else nothing is judged."""
    taken = [describe_disturbed(summary.disturbed)] if summary.disturbed else []
    why = [*taken, *summary.rank_doubts, *(f"launch{index}: {said}" for index, said in summary.unreadable.items())]
    reason = f"cell {cell}: nothing can be judged: {'; '.join(why)}" if why else None
    return make_check(cell, "evidence", "whole", "disturbed" if taken else "lost" if why else "whole", reason=reason)


def _check_receipts(cell: str, summary: CellSummary) -> Check:
    if not summary.receipts:
        return make_check(cell, "receipts", "agree", "none", reason=f"cell {cell}: no knob has a receipt")
    wrong = [one for one in summary.receipts if one.outcome is ReceiptOutcome.DISAGREES]
    if not wrong and summary.rank_doubts:
        return make_check(cell, "receipts", "agree", "unknown", reason=f"cell {cell}: receipts: {_INCOMPLETE}")
    told = "; ".join(f"{one.knob} was asked as {one.asked} and is {one.got} ({one.note})" for one in wrong)
    return make_check(cell, "receipts", "agree", told or "agree", reason=f"cell {cell}: {told}" if wrong else None)


def _check_link(cell: str, summary: CellSummary) -> Check:
    """Look whether every collective went over the link, and gloo kept up with it."""
    is_linked = summary.scenario is not None and isinstance(summary.scenario.network, EmulatedNetwork)
    expected = ReceiptOutcome.AGREES.value if is_linked else "no receipt"
    receipt = next((one for one in summary.receipts if one.knob == _LINK_KNOB), None)
    got = "no receipt" if receipt is None else receipt.outcome.value
    reason = f"cell {cell}: {_LINK_KNOB}: {got}{'' if receipt is None else f', {receipt.note}'}"
    return make_check(cell, "link", expected, got, reason=None if got == expected else reason)


def _check_traffic(cell: str, summary: CellSummary) -> Check:
    if not summary.purposes:
        why = f"cell {cell}: it is not known what its collectives were for"
        return make_check(cell, "traffic", "as planned", "unknown", reason=why)
    told = "; ".join(
        f"{count_things(row.count, 'collective')} of {row.purpose} with {format_bytes(row.size_bytes)} a step, "
        f"the plan has {row.planned_count} with {format_bytes(row.planned_size_bytes or math.nan)}"
        for row in summary.purposes
        if row.matches_plan is False
    )
    if not told and (summary.rank_doubts or any(row.matches_plan is None for row in summary.purposes)):
        return make_check(cell, "traffic", "as planned", "unknown", reason=f"cell {cell}: traffic: {_INCOMPLETE}")
    reason = f"cell {cell}: {told}" if told else None
    return make_check(cell, "traffic", "as planned", told or "as planned", reason=reason)


def _check_estimates(cell: str, summary: CellSummary, foretold: ExpectedBounds | None) -> Check:
    """Look whether all estimates are known and agree; what the closed form itself disputes may be disputed."""
    asked = () if summary.scenario is None else summary.scenario.measure.exposure
    known = {one.estimate for one in find_estimates(summary) if one.mean_ns is not None}
    lacking = [estimate for estimate in asked if estimate not in known]
    if lacking:
        notes = "; ".join(summary.exposure.notes) if summary.exposure is not None else ""
        reason = f"cell {cell}: no estimate by {', '.join(lacking)}{f': {notes}' if notes else ''}"
        return make_check(cell, "estimates", "agree", "unknown", reason=reason)
    if unsure := find_unsure(summary):
        reason = f"cell {cell}: estimates say nothing: {'; '.join(unsure)}; is the machine busy with something else?"
        return make_check(cell, "estimates", "agree", "unsure", reason=reason)
    do_they = do_agree(summary)
    if do_they is None:
        why = () if summary.exposure is None else (summary.exposure.unjudged, *summary.exposure.notes)
        reason = f"cell {cell}: estimates are not judged: {'; '.join(filter(None, why)) or 'nothing to compare'}"
        return make_check(cell, "estimates", "agree", "unknown", reason=reason)
    if do_they:
        return make_check(cell, "estimates", "agree", "agree")
    if foretold is not None and foretold.is_disputed:
        return make_check(cell, "estimates", "agree", "disputed, as foretold")
    reason = f"cell {cell}: estimates differ: {'; '.join(find_disputes(summary))}"
    return make_check(cell, "estimates", "agree", "disputed", reason=reason)


def check_bounds(cell: str, what: str, bounds: Bounds, got_ns: int | None) -> Check:
    """Look whether a number lies within its bounds: below is as wrong as above."""
    expected = f"{format_ns(bounds.low_ns)} to {format_ns(bounds.high_ns)}"
    if got_ns is None:
        return make_check(cell, what, expected, "unknown", reason=f"cell {cell}: {what}: nobody knows")
    if bounds.low_ns <= got_ns <= bounds.high_ns:
        return make_check(cell, what, expected, format_ns(got_ns))
    side = "less than it can be" if got_ns < bounds.low_ns else "more than it should be"
    reason = (
        f"cell {cell}: {what} {format_ns(got_ns)} is {side}: the closed form says {format_ns(bounds.expected_ns)}, and "
        f"{expected} would pass"
    )
    return make_check(cell, what, expected, format_ns(got_ns), reason=reason)

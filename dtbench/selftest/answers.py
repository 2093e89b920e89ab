"""What the analyser answers about a cell, in the few numbers that rows are judged by."""

import math
from itertools import combinations
from typing import Final

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Cause, Estimate, Purpose
from dtbench.runs.exposure.agreement import Agreement, compare, find_doubts, known_votes
from dtbench.runs.summary import CellSummary, OwnerSummary
from dtbench.selftest.records import Answer, EstimateRow

_SURE_NS: Final = 20 * NS_PER_MS
_SURE_SHARE: Final = 0.25
"""Estimates known to within the smallest unit of a selftest, or a quarter of their value, say something; on a quiet
machine three standard errors were 4 to 6 ms; where others had most of it up to 1.9 s, which agrees with anything."""


def find_answer(summary: CellSummary, purpose: Purpose | None) -> Answer:
    """Return whose communication of a purpose is exposed most, and why; None: of all purposes.

    The cause is the one with most exposed time over all owners, the owner the one that has most of it.
    """
    rows = [row for row in summary.owners if purpose is None or row.purpose is purpose]
    totals: dict[Cause, int] = {}
    for row in rows:
        totals[row.cause] = totals.get(row.cause, 0) + row.exposed_ns
    exposed_ns = find_exposed_ns(summary)
    if not totals:
        return Answer(exposed_ns=exposed_ns)
    cause = max(totals, key=totals.__getitem__)
    largest = max((row for row in rows if row.cause is cause), key=_exposed_of)
    return Answer(
        exposed_ns=exposed_ns,
        cause=cause,
        cause_ns=totals[cause],
        owner=largest.owner,
        operation=largest.operation,
        waited_for=largest.waited_for,
    )


def _exposed_of(row: OwnerSummary) -> int:
    return row.exposed_ns


def find_exposed_ns(summary: CellSummary) -> int | None:
    """Return what a PROFILED step exposes, mean over steps and ranks; None where none was profiled."""
    if not summary.ranks:
        return None
    return round(sum(rank.exposed_comm_ns for rank in summary.ranks) / len(summary.ranks))


def find_estimates(summary: CellSummary) -> tuple[EstimateRow, ...]:
    """Return every estimate of exposed communication that was asked for, mean over ranks; None: what is not known."""
    rows = () if summary.exposure is None else summary.exposure.rows
    found = [
        EstimateRow(
            estimate=one.estimate,
            mean_ns=to_whole_ns(one.mean_ns),
            standard_error_ns=to_whole_ns(one.standard_error_ns),
        )
        for one in (rows[0].estimates if rows else ())
    ]
    asked = [Estimate(one) for one in (() if summary.scenario is None else summary.scenario.measure.exposure)]
    lost = [one for one in asked if len(asked) > 1 and one not in {row.estimate for row in found}]
    return (*found, *(EstimateRow(estimate=one, mean_ns=None, standard_error_ns=None) for one in lost))


def find_disputes(summary: CellSummary) -> tuple[str, ...]:
    """Return a sentence for each two estimates that differ, of the mean over ranks first, then of each rank."""
    rows = () if summary.exposure is None else summary.exposure.rows
    return tuple(sentence for row in rows for sentence in row.disputes)


def find_unsure(summary: CellSummary) -> tuple[str, ...]:
    """Return a sentence for each two estimates, means over ranks, whose agreement says nothing: they are too unsure."""
    rows = () if summary.exposure is None else summary.exposure.rows[:1]
    return tuple(told for row in rows for told in find_doubts(row, sure_ns=_SURE_NS, sure_share=_SURE_SHARE))


def do_agree(summary: CellSummary) -> bool | None:
    """Tell whether no two estimates differ, of the mean over ranks.

    None: two cannot be compared, or are not sure enough, or nothing may be judged by them.

    That mean is what a closed form speaks of; a single rank's steps also depend on how ranks share the cores. DDP's own
    logger has no vote: it checks one of the others (MEASUREMENT.md, section 3). Both are told among the disputes.
    """
    if summary.exposure is None or summary.exposure.unjudged:
        return None
    votes = known_votes(summary.exposure.rows[0])
    outcomes = {compare(one, other) for one, other in combinations(votes, 2)}
    if Agreement.DISPUTED in outcomes:
        return False
    return True if outcomes == {Agreement.AGREE} and not find_unsure(summary) else None


def to_whole_ns(time_ns: float) -> int | None:
    """Round a time; None for one that is not known."""
    return None if math.isnan(time_ns) else round(time_ns)

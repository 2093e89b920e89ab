"""When estimates of exposed communication agree.

``|a - b| <= max(3 x combined standard error, 10 % of the larger, 2 ms)``, for every pair of those that vote.
"""

import math
from enum import StrEnum
from itertools import combinations
from typing import Final

from dtbench.base.units import NS_PER_MS, format_ns
from dtbench.base.vocabulary import ESTIMATE_PHRASES, Estimate
from dtbench.runs.summary import Estimated, ExposureRow

VOTES: Final = (Estimate.TRACE, Estimate.ABLATION, Estimate.WAIT)
"""Independent of each other; DDP's logger checks ``wait`` only."""

ERRORS: Final = 3.0
"""Combined standard errors that two estimates may lie apart."""

SHARE: Final = 0.10
"""Part of the larger one that they may lie apart, however sure they are."""

LEAST_NS: Final = 2 * NS_PER_MS
"""They may always lie as far apart."""


class Agreement(StrEnum):
    """What can be said of two estimates, or of all of a row."""

    AGREE = "agree"
    DISPUTED = "disputed"
    UNKNOWN = "unknown"


def compare(one: Estimated, other: Estimated) -> Agreement:
    """Hold two estimates against each other.

    ``UNKNOWN`` where one is not known, where they are not of the same launches and ranks, and where they lie further
    apart than 10 % and 2 ms while nobody knows how sure one of them is: that is neither agreement nor dispute.
    """
    apart_ns = abs(one.mean_ns - other.mean_ns)
    if math.isnan(apart_ns) or one.part != other.part:
        return Agreement.UNKNOWN
    if apart_ns <= allowed_ns(one, other):
        return Agreement.AGREE
    return Agreement.UNKNOWN if math.isnan(_combined_error_ns(one, other)) else Agreement.DISPUTED


def allowed_ns(one: Estimated, other: Estimated) -> float:
    """Return how far two known estimates may lie apart; a standard error that is not known allows nothing."""
    error_ns = _combined_error_ns(one, other)
    return max(0.0 if math.isnan(error_ns) else ERRORS * error_ns, _always_allowed_ns(one, other))


def _always_allowed_ns(one: Estimated, other: Estimated) -> float:
    return max(SHARE * max(abs(one.mean_ns), abs(other.mean_ns)), LEAST_NS)


def _combined_error_ns(one: Estimated, other: Estimated) -> float:
    return math.hypot(one.standard_error_ns, other.standard_error_ns)


def known_votes(row: ExposureRow) -> tuple[Estimated, ...]:
    """Return those that vote and are known."""
    return tuple(one for one in row.estimates if one.estimate in VOTES and not math.isnan(one.mean_ns))


def leans_on_errors(row: ExposureRow) -> bool:
    """Tell whether two estimates lie further apart than 10 % and 2 ms: only how unsure they are lets them agree."""
    pairs = combinations(known_votes(row), 2)
    return any(abs(one.mean_ns - other.mean_ns) > _always_allowed_ns(one, other) for one, other in pairs)


def find_doubts(row: ExposureRow, *, sure_ns: float, sure_share: float) -> list[str]:
    """Return a sentence for each two estimates that lie apart and agree only because nobody is sure of them.

    Args:
        row: its estimates that vote.
        sure_ns: three combined standard errors of this and less say something.
        sure_share: likewise, as a part of the larger estimate.
    """
    return [
        f"{ESTIMATE_PHRASES[one.estimate]} {format_ns(one.mean_ns)} and {ESTIMATE_PHRASES[other.estimate]} "
        f"{format_ns(other.mean_ns)} agree only because "
        f"they are known to within {format_ns(allowed_ns(one, other))}"
        for one, other in combinations(known_votes(row), 2)
        if compare(one, other) is Agreement.AGREE
        and abs(one.mean_ns - other.mean_ns) > _always_allowed_ns(one, other)
        and allowed_ns(one, other) > max(sure_ns, sure_share * max(abs(one.mean_ns), abs(other.mean_ns)))
    ]


def judge(row: ExposureRow) -> Agreement:
    """Say of a row that all estimates agree, that two do not, or that it is not known.

    They agree where each that was asked for is known, of every rank and launch, and as more than a bound.
    """
    if row.disputes:
        return Agreement.DISPUTED
    votes = [one for one in row.estimates if one.estimate in VOTES]
    if any(math.isnan(one.mean_ns) or one.part is not None or one.is_least for one in votes):
        return Agreement.UNKNOWN
    outcomes = [compare(one, other) for one, other in combinations(known_votes(row), 2)]
    agrees = bool(outcomes) and all(outcome is Agreement.AGREE for outcome in outcomes)
    return Agreement.AGREE if agrees else Agreement.UNKNOWN

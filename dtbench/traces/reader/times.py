"""Microseconds as Kineto writes them, to integer nanoseconds, exactly.

[Note: exact times] A float64 below 2**43 us still knows three decimals, but ``rint(us * 1000)`` does not: it is off by
1 ns for a quarter of one real trace. Whole and fraction apart are exact: the subtraction loses nothing, and a small
product rounds right. Kineto of March and April 2024 wrote absolute microseconds with three decimals, which no float64
holds: these are read from their text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.time.intervals import Ints

_EXACT_BELOW_US: Final = float(2**43)  # above it neighbouring float64 are more than 0.001 us apart
_LARGEST_US: Final = 2**52  # 142 years, a start in Unix time before 2112
_LONGEST_US: Final = 2**45  # 13 months: a duration, and how far before its zero a trace may begin
"""So that int64 holds, in ns, any end, the time between any two of them, and a time on another rank's clock."""


class Problem(IntEnum):
    """Why an event's times cannot be read."""

    NONE = 0
    MISSING = 1
    NEGATIVE = 2
    TOO_LARGE = 3


REASONS: Final = {
    Problem.MISSING: "no start or duration",
    Problem.NEGATIVE: "negative duration",
    Problem.TOO_LARGE: "time out of range",
}


@dataclass(frozen=True)
class Times:
    """Times of events.

    Attributes:
        start_ns: shape ``(n,)``, int64; anything where there is a problem.
        duration_ns: shape ``(n,)``, int64; likewise.
        problem: shape ``(n,)``, int8, a ``Problem``.
    """

    start_ns: Ints
    duration_ns: Ints
    problem: NDArray[np.int8]


def read_floats(start_us: NDArray[np.float64], duration_us: NDArray[np.float64]) -> Times:
    """Convert float64 microseconds; exact unless ``may_be_inexact``."""
    with np.errstate(invalid="ignore"):
        problem = np.where(duration_us < 0, np.int8(Problem.NEGATIVE), np.int8(Problem.NONE))
        too_large = (start_us >= _LARGEST_US) | (start_us <= -_LONGEST_US) | (duration_us >= _LONGEST_US)
        problem[too_large] = Problem.TOO_LARGE
        problem[~np.isfinite(start_us) | ~np.isfinite(duration_us)] = Problem.MISSING
        if problem.any():
            start_us, duration_us = np.where(problem, 0.0, start_us), np.where(problem, 0.0, duration_us)
    return Times(_to_ns(start_us), _to_ns(duration_us), problem)


def _to_ns(microseconds: NDArray[np.float64]) -> Ints:
    """See [Note: exact times]."""
    whole = np.floor(microseconds)
    fraction = microseconds - whole
    result = whole.astype(np.int64) * 1000
    if fraction.any():
        result += np.rint(fraction * 1000).astype(np.int64)
    return result


def are_beyond_floats(times_us: NDArray[np.float64]) -> bool:
    """Tell whether some of these are so large that a float64 does not hold three decimals."""
    with np.errstate(invalid="ignore"):
        return bool((np.abs(times_us) >= _EXACT_BELOW_US).any())


def have_fractions(times_us: NDArray[np.float64]) -> bool:
    """Tell whether some are not whole microseconds."""
    finite = times_us[np.isfinite(times_us)]
    return bool((finite != np.floor(finite)).any())


def read_decimals(start_us: Sequence[Decimal | None], duration_us: Sequence[Decimal | None]) -> Times:
    """Convert decimal microseconds; exact."""
    rows = [_read_decimal(start, duration) for start, duration in zip(start_us, duration_us, strict=True)]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Times(columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int8))


def _read_decimal(start_us: Decimal | None, duration_us: Decimal | None) -> tuple[int, int, int]:
    if start_us is None or duration_us is None or not start_us.is_finite() or not duration_us.is_finite():
        return 0, 0, Problem.MISSING
    if duration_us < 0:
        return 0, 0, Problem.NEGATIVE
    if not -_LONGEST_US < start_us < _LARGEST_US or duration_us >= _LONGEST_US:  # abs() may overflow
        return 0, 0, Problem.TOO_LARGE
    return round(start_us * 1000), round(duration_us * 1000), Problem.NONE

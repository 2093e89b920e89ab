"""A clock that was set while a trace was recorded: from some collective on, ends lie elsewhere than before.

::

    late by   ........            ........          a drift moves them evenly, and a late rank is late now and then:
                      ''''''''            ..''''    a jump is between two ends, and stays

A clock is compared as an offset and a drift; neither follows a jump, which would be taken for waiting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.analyze.ranks.times import GroupTimes, ends_about_median
from dtbench.units import count_things, format_ns, name_ranks

_FEWEST: Final = 4  # ends on either side: fewer late ones in a row are an accident
_FAR: Final = 12  # times the scatter of ends; two halves of an even drift lie 6 times theirs apart
_LEAST_NS: Final = 100_000  # threads that are woken late lie less apart, or not for long
_AS_FAR: Final = 0.99  # of two ranks alone, ends jump alike: nobody knows whose clock it was
_TOGETHER_NS: Final = 1_000_000  # a third of the ends of ranks that meet lies closer together; others never met
_MOST: Final = 0.75  # of the ends of either side lie on theirs


@dataclass(frozen=True)
class Jump:
    """Between which two ends a clock was set.

    Attributes:
        after: place of the first end behind it.
        by_ns: how much later ends are there.
    """

    after: int
    by_ns: float


def find_jump(late_ns: NDArray[np.float64]) -> Jump | None:
    """Return from where on ends lie elsewhere, and stay there; None: there is no such place.

    It is where values divide best into low and high ones; or their ranks do, which single wild ones do not lead
    (Pettitt 1979).

    Args:
        late_ns: how much later than another clock's each end is, in order of time.
    """
    if len(late_ns) < 2 * _FEWEST or np.ptp(late_ns) < _LEAST_NS:
        return None
    for place in (_divide(late_ns), _divide(_rank(late_ns))):
        before, after = late_ns[:place], late_ns[place:]
        if _are_two_levels(before, after):
            return Jump(place, _find_core(after)[0] - _find_core(before)[0])
    return None


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2


def _divide(values: NDArray[np.float64]) -> int:
    """Return where values are best divided into lower and higher ones, with enough of them on either side."""
    number = np.arange(1, len(values))
    apart = np.abs(np.cumsum(values - values.mean())[:-1]) / np.sqrt(number * (len(values) - number))
    return _FEWEST + int(np.argmax(apart[_FEWEST - 1 : len(values) - _FEWEST]))


def _are_two_levels(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    (low, low_ns), (high, high_ns) = sorted((_find_core(before), _find_core(after)))
    width_ns = max(low_ns, high_ns)
    if width_ns > _TOGETHER_NS or high - low <= max(_LEAST_NS, _FAR * width_ns):
        return False
    is_above = [side > (low + high) / 2 for side in (before, after)]
    shares = sorted(float(np.mean(above)) for above in is_above)
    return shares[0] <= 1 - _MOST and shares[1] >= _MOST


def _find_core(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return middle and half width of the third that lies closest together: many ends may be late by milliseconds."""
    ordered, third = np.sort(values), max(_FEWEST, len(values) // 3 + 1)
    widths = ordered[third - 1 :] - ordered[: len(ordered) - third + 1]
    narrowest = int(np.argmin(widths))
    return float(ordered[narrowest] + widths[narrowest] / 2), float(widths[narrowest] / 2)


@dataclass(frozen=True)
class JumpedRanks:
    """Ranks that are not in step with the others because a clock was set.

    Attributes:
        ranks: where nobody knows whose clock it was, all that it may have been.
        notes: a sentence each.
    """

    ranks: frozenset[int]
    notes: tuple[str, ...]


def find_jumped_ranks(common: Sequence[GroupTimes]) -> JumpedRanks:
    """Find the ranks whose clocks were set, those whose ends jump furthest first.

    Args:
        common: times of the ranks, on one clock as far as offsets and drifts are known.
    """
    found: set[int] = set()
    notes: list[str] = []
    while True:
        jumps = _find_furthest([one.without(found) for one in common])
        if not jumps:
            return JumpedRanks(frozenset(found), tuple(notes))
        furthest_ns = max(abs(jump.by_ns) for jump in jumps.values())
        own = {rank: jump for rank, jump in jumps.items() if abs(jump.by_ns) >= _AS_FAR * furthest_ns}
        found |= own.keys()
        notes.append(_describe(own))


def _find_furthest(common: Sequence[GroupTimes]) -> dict[int, Jump]:
    """Return, by rank, the jump of the group in which it is furthest."""
    furthest: dict[int, Jump] = {}
    for one in common:
        for rank, late_ns in ends_about_median([one], least_ranks=2).items():
            jump = find_jump(late_ns)
            if jump is not None and abs(jump.by_ns) > abs(furthest[rank].by_ns if rank in furthest else 0):
                furthest[rank] = jump
    return furthest


def _describe(jumps: Mapping[int, Jump]) -> str:
    by_ns = [0.0, *(jump.by_ns for jump in jumps.values())]
    whose = "its clock jumps" if len(jumps) == 1 else "the clock of some of them jumps"
    jump = max(jumps.values(), key=lambda jump: abs(jump.by_ns))
    far = f"{format_ns(max(by_ns) - min(by_ns))} after about {count_things(jump.after, 'common collective')}"
    return (
        f"{name_ranks(jumps)}: {whose} by {far} (was it set?), as the ends of all that follow say; not in step from"
        " there on, and nothing is said about skew there. What was under way then is in that trace so much longer, or"
        " shorter, than it was"
    )

"""Which launches of two sides took turns: those of one round are compared in pairs, so a drift hits them alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dtbench.runs.reading.copies import Marks, find_copies, mark
from dtbench.store.records.baseline import MeasuredLaunch


@dataclass(frozen=True)
class Rounds:
    """The launches of two sides in rounds: at equal places those that took turns, None where a side has none there.

    Where they did not take turns, the launches of each side in the order in which they ran.
    """

    baseline: tuple[MeasuredLaunch | None, ...]
    candidate: tuple[MeasuredLaunch | None, ...]
    are_interleaved: bool


def arrange(baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]) -> Rounds:
    """Put launches into rounds: of the same run, and they really took turns, as their starts say."""
    before, after = (_in_order(side) for side in (baseline, candidate))
    rounds = [{launch.round: launch for launch in side if launch.round is not None} for side in (before, after)]
    if not _took_turns(before, after) or not set(rounds[0]) & set(rounds[1]):
        return Rounds(tuple(before), tuple(after), are_interleaved=False)
    names = dict.fromkeys(launch.round or "" for launch in _in_order([*before, *after]))
    first, second = (tuple(side.get(name) for name in names) for side in rounds)
    return Rounds(first, second, are_interleaved=True)


def find_copy(
    baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]
) -> tuple[MeasuredLaunch, MeasuredLaunch] | None:
    """Return a launch of the candidate that the baseline has, too, and what it is a copy of; None: they share none."""
    both = (*baseline, *candidate)
    copies = find_copies(map(_mark, both))
    shared = ((at, first) for at, first in copies.items() if first < len(baseline) <= at)
    return next(((both[at], both[first]) for at, first in shared), None)


def _mark(launch: MeasuredLaunch) -> Marks:
    return mark(launch.first_start_ns, launch.round, launch.started_unix_ns)


def _in_order(launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    return sorted(launches, key=lambda launch: launch.started_unix_ns or 0)


def _took_turns(before: Sequence[MeasuredLaunch], after: Sequence[MeasuredLaunch]) -> bool:
    """Tell whether the sides' launches alternate at least once per round: ABBA and ABAB do, AABB does not."""
    if any(launch.started_unix_ns is None or launch.round is None for launch in (*before, *after)):
        return False
    started = sorted(
        [(launch.started_unix_ns or 0, 0) for launch in before] + [(launch.started_unix_ns or 0, 1) for launch in after]
    )
    streaks = 1 + sum(one[1] != other[1] for one, other in pairwise(started))
    fewest = min(len(before), len(after))
    return fewest > 1 and streaks > fewest

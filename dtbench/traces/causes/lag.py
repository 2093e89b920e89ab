"""Time in a collective that one rank spent there alone, and not for data: what kept it, no rank's trace says.

::

    rank 0   [wwwwwwwww]                 w  waits for the last rank
    rank 1            []                 and all may leave: a barrier carries nothing, a sum all it has by about then
    rank 2     [wwwwwww]llllllllllll]    l  lag: its thread was woken late, or had no core

How long data may keep one rank after another, ``ranks/skew.py`` says.
"""

from collections.abc import Iterator, Sequence

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.traces.causes.skew_share import share_before
from dtbench.traces.causes.split import CausePart, CauseSplit, leave_unknown
from dtbench.traces.timeline import RankTimeline

_BEFORE: tuple[Cause, ...] = (Cause.SKEW, Cause.BUBBLE)
"""Causes whose time ends before the first rank leaves."""


def withhold_lag(
    timeline: RankTimeline, splits: Sequence[CauseSplit], lags_ns: Sequence[int | None]
) -> tuple[CauseSplit, ...]:
    """Return the splits, with what was exposed on the host after the first rank left unknown, where that was no data.

    Args:
        timeline: of one rank.
        splits: of each of its collectives.
        lags_ns: of each, how much later than the first rank it left, where data took no part of that; None: not known.

    Raises:
        ValueError: the three differ in length.
    """
    left_ns = [
        one.end_ns - lag_ns if lag_ns else None for one, lag_ns in zip(timeline.collectives, lags_ns, strict=True)
    ]
    before_ns = share_before(timeline, left_ns)
    return tuple(
        split if moment_ns is None else CauseSplit(tuple(_withhold(split, exposed_ns - own_ns)))
        for split, moment_ns, exposed_ns, own_ns in zip(splits, left_ns, timeline.exposed_ns, before_ns, strict=True)
    )


def _withhold(split: CauseSplit, lag_ns: int) -> Iterator[CausePart]:
    """Take the last so many ns from the causes, in their order, but for those that come before; give them to none."""
    known_ns = sum(part.exposed_ns for part in split.parts if part.cause not in _BEFORE) - lag_ns
    lacking_ns: dict[MissingInput, int] = {}
    unknown_ns = lag_ns
    for part in split.parts:
        kept_ns = part.exposed_ns if part.cause in _BEFORE else min(part.exposed_ns, max(0, known_ns))
        if part.cause not in _BEFORE:
            known_ns -= kept_ns
        if part.cause is Cause.UNKNOWN:
            unknown_ns += kept_ns
            lacking_ns = {one: min(kept_ns, part.lacking_ns(one)) for one in part.missing}
        elif kept_ns:
            yield CausePart(part.cause, kept_ns, part.behind)
    if unknown_ns > 0:
        yield leave_unknown(unknown_ns, lacking_ns | {MissingInput.WAKING: lag_ns})

"""Exposed time on the host in which nobody stood still for a collective: nothing that is told of it made it so.

::

    thread       issue ██ compute ██  numpy, a file, Python      wait░░░░░░░░|
    collective     ├─────────────────────────────────────────────────────────┤
    last rank                                                       ├────────┤
    exposed                         uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuusssaaaaaaaa
                                    u  the host did what no operator shows   s, a  its consumer stood still

Of what is its last rank's doing, ``s`` was waited for; of all else, be it a queue, a late issue or its length, ``a``.
Of ``u`` the trace does not say what the host did; where no consumer was seen at all, it does not even say that there is
one.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.traces.causes.split import CausePart, CauseSplit, leave_unknown
from dtbench.traces.time.intervals import Intervals, clip, intersect, subtract, unite, unite_all
from dtbench.traces.time.shares import share_time
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective

_OF_LAST: Final = (Cause.SKEW, Cause.BUBBLE)
"""Causes that say that a consumer stood still until the last rank began; all others say that it did from then on."""
_ORDER: Final = {cause: place for place, cause in enumerate(Cause)}
_NEARLY_ALL: Final = 10
"""Less than one part in so many of the exposed time is what calls take before they wait, and no time of its own."""


class _Stood(NamedTuple):
    """Exposed ns of one collective in which consumers stood still for it."""

    for_last_ns: int
    """Before the last rank began."""
    for_all_ns: int
    """From then until the first rank left."""
    alone_ns: int
    """After that, where data took no part of it; see ``lag.py``."""


def withhold_unwaited(
    timeline: RankTimeline,
    splits: Sequence[CauseSplit],
    last_starts_ns: Sequence[int | None],
    lags_ns: Sequence[int | None],
) -> tuple[CauseSplit, ...]:
    """Return the splits, with what was exposed on the host while nobody stood still for it unknown.

    Args:
        timeline: of one rank; a device's is left as it is, whose waits ``split.py`` asks for itself.
        splits: of each of its collectives.
        last_starts_ns: of each, the last start over all ranks of its group; None: not known.
        lags_ns: of each, how much later than the first rank it left, where data took no part of that; None: not known.

    Raises:
        ValueError: they differ in length.
    """
    if timeline.is_device:
        return tuple(splits)
    stood = _share_stood(timeline, last_starts_ns, lags_ns)
    return tuple(
        CauseSplit(tuple(_withhold(split, of_one, _missing_of(one))))
        for split, of_one, one in zip(splits, stood, timeline.collectives, strict=True)
    )


def _share_stood(
    timeline: RankTimeline, last_starts_ns: Sequence[int | None], lags_ns: Sequence[int | None]
) -> list[_Stood]:
    """Return each collective's share of exposed time in which consumers stood still, by the rule of ``shares.py``."""
    spans: list[Intervals] = []
    for one, last_ns, lag_ns in zip(timeline.collectives, last_starts_ns, lags_ns, strict=True):
        stood = intersect(one.span, _find_waits(one))
        begun_ns = one.start_ns if last_ns is None else min(max(one.start_ns, last_ns), one.end_ns)
        left_ns = max(begun_ns, one.end_ns - (lag_ns or 0))
        borders = (one.start_ns, begun_ns, left_ns, one.end_ns)
        spans += [clip(stood, *window) for window in pairwise(borders)]
        spans.append(subtract(one.span, stood))
    exposed_ns = share_time(spans, timeline.compute, []).exposed_ns[:, 0].reshape(-1, 4).tolist()
    return [_Stood(*parts[:3]) for parts in exposed_ns]


def _find_waits(one: Collective) -> Intervals:
    """Return when consumers stood still for it, or would have; the call that issues it blocking is one of them."""
    if not one.is_blocking:
        return one.waited
    return unite_all(one.waited, unite([one.start_ns if one.issue_ns is None else one.issue_ns], [one.end_ns]))


def _missing_of(one: Collective) -> MissingInput:
    return MissingInput.CONSUMER if one.first_wait_ns is None and not one.is_blocking else MissingInput.HOST


def _withhold(split: CauseSplit, stood: _Stood, missing: MissingInput) -> Iterator[CausePart]:
    """Leave each cause what consumers stood still for of the time that it speaks of, and give the rest to none.

    Of several they take it in the order of ``Cause``, whatever that of the parts: behind a queue that costs all of a
    wait nothing is left that its length could have cost. Where they hardly stood still at all, what else was missing
    would decide nothing.
    """
    exposed_ns = sum(part.exposed_ns for part in split.parts)
    unwaited_ns = exposed_ns - sum(stood)
    if unwaited_ns * _NEARLY_ALL < exposed_ns or unwaited_ns <= 0:
        yield from split.parts
        return
    left_ns = {True: stood.for_last_ns, False: stood.for_all_ns}
    kept_ns = 0
    lacking_ns = {missing: unwaited_ns}
    for part in sorted(split.parts, key=lambda part: _ORDER[part.cause]):
        if part.cause is Cause.UNKNOWN:
            if sum(stood) * _NEARLY_ALL >= exposed_ns:
                lacking_ns = {one: part.lacking_ns(one) for one in part.missing} | lacking_ns
            continue
        part_ns = min(part.exposed_ns, left_ns[part.cause in _OF_LAST])
        left_ns[part.cause in _OF_LAST] -= part_ns
        kept_ns += part_ns
        if part_ns:
            yield CausePart(part.cause, part_ns, part.behind)
    if exposed_ns > kept_ns:
        yield leave_unknown(exposed_ns - kept_ns, lacking_ns)

"""Exposed time on the host in which nobody stood still for a collective: neither its length nor its place made it so.

::

    thread       issue ██ compute ██  numpy, a file, Python      wait░░░░░░|
    collective     ├──────────────────────────────────────────────────────┤
    exposed                         uuuuuuuuuuuuuuuuuuuuuuuuuuuuuussssssssss
                                    u  the host did what no operator shows   s  its consumer stood still

What ends or shortens such a collective saves at most ``s``. Of ``u`` the trace does not say what the host did; where
no consumer was seen at all, it does not even say that there is one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.analyze.causes.split import CausePart, CauseSplit
from dtbench.analyze.collectives import Collective
from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Intervals, clip, subtract, unite
from dtbench.analyze.shares import share_time
from dtbench.analyze.timeline import RankTimeline
from dtbench.vocabulary import Cause, MissingInput

_BY_LENGTH: Final = (Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH)
"""Causes that say that a consumer stood still for as long as it took."""
_NEARLY_ALL: Final = 10
"""Less than one part in so many of the exposed time is what calls take before they wait, and no time of its own."""


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
    rows = zip(timeline.collectives, splits, last_starts_ns, lags_ns, strict=True)
    stood = [
        _find_stood(one, last_ns, lag_ns or 0) if any(part.cause in _BY_LENGTH for part in split.parts) else None
        for one, split, last_ns, lag_ns in rows
    ]
    stood_ns = _share_within(timeline, stood)
    return tuple(
        CauseSplit(tuple(_withhold(split, time_ns, _missing_of(one))))
        for split, time_ns, one in zip(splits, stood_ns, timeline.collectives, strict=True)
    )


def _find_stood(one: Collective, last_start_ns: int | None, lag_ns: int) -> Window | None:
    """Give when its first consumer stood still for it alone, no longer for another rank; None: it did not."""
    if one.first_wait_ns is None or one.first_wait_end_ns is None:
        return None
    start_ns = max(one.first_wait_ns, one.start_ns, one.start_ns if last_start_ns is None else last_start_ns)
    end_ns = min(one.first_wait_end_ns, one.end_ns - lag_ns)
    return Window(start_ns, end_ns) if end_ns > start_ns else None


def _share_within(timeline: RankTimeline, windows: Sequence[Window | None]) -> list[int]:
    """Give each collective's share of exposed time inside a window of its own, by the rule of ``shares.py``."""
    spans: list[Intervals] = []
    for one, window in zip(timeline.collectives, windows, strict=True):
        if window is None:
            spans += [unite([], []), one.span]
            continue
        inside = clip(one.span, window.start_ns, window.end_ns)
        spans += [inside, subtract(one.span, inside)]
    return [int(time_ns) for time_ns in share_time(spans, timeline.compute, []).exposed_ns[::2, 0]]


def _missing_of(one: Collective) -> MissingInput:
    return MissingInput.CONSUMER if one.first_wait_ns is None else MissingInput.HOST


def _withhold(split: CauseSplit, stood_ns: int, missing: MissingInput) -> Iterator[CausePart]:
    """Leave causes of its length the time that a consumer stood still, and what was taken beyond to none."""
    exposed_ns = sum(part.exposed_ns for part in split.parts)
    unwaited_ns = sum(part.exposed_ns for part in split.parts if part.cause in _BY_LENGTH) - stood_ns
    if unwaited_ns * _NEARLY_ALL < exposed_ns or unwaited_ns <= 0:
        yield from split.parts
        return
    missings: tuple[MissingInput, ...] = (missing,)
    left_ns = unwaited_ns
    for part in split.parts:
        if part.cause is Cause.UNKNOWN:
            unwaited_ns += part.exposed_ns
            missings = tuple(dict.fromkeys((*part.missing, missing)))
            continue
        taken_ns = min(part.exposed_ns, left_ns) if part.cause in _BY_LENGTH else 0
        left_ns -= taken_ns
        if part.exposed_ns > taken_ns:
            yield CausePart(part.cause, part.exposed_ns - taken_ns, part.behind)
    yield CausePart(Cause.UNKNOWN, unwaited_ns, missing=missings)

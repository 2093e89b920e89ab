"""Each collective's share of exposed time before the last rank of its group started.

::

    this rank    ├──────────────┤
    last rank           ├───────┤
    skew         ░░░░░░░            the exposed part, 1/k of it where k collectives run at once
"""

from collections.abc import Sequence

from dtbench.traces.time.intervals import Intervals, clip, unite
from dtbench.traces.time.shares import share_time
from dtbench.traces.timeline import RankTimeline


def share_before(timeline: RankTimeline, last_starts_ns: Sequence[int | None]) -> list[int]:
    """Return each collective's share of exposed time before its last start, at most its whole share; 0 where unknown.

    Spans are cut in two and shared by the rule of ``shares.py``. A cut makes one more piece to round, so that a share
    of 1/k may differ by a nanosecond per cut from that of the whole span.

    Raises:
        ValueError: the two differ in length.
    """
    spans: list[Intervals] = []
    nothing = unite([], [])
    for collective, last_ns in zip(timeline.collectives, last_starts_ns, strict=True):
        if last_ns is None or last_ns <= collective.start_ns:
            spans += [nothing, collective.span]
            continue
        cut_ns = min(last_ns, collective.end_ns)
        spans += [clip(collective.span, collective.start_ns, cut_ns), clip(collective.span, cut_ns, collective.end_ns)]
    if all(span is nothing for span in spans[::2]):
        return [0] * len(timeline.collectives)
    before = share_time(spans, timeline.compute, []).exposed_ns[::2, 0].tolist()
    return [min(int(part), whole) for part, whole in zip(before, timeline.exposed_ns, strict=True)]

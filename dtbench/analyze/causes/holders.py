"""Who held a collective's lane while it could have run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import unite
from dtbench.analyze.timeline import RankTimeline


@dataclass(frozen=True)
class Holders:
    """What others did to one collective.

    Attributes:
        held_ns: time in which others held its lane, from the first moment at which it could run to its start.
        longest: index of the one that held it longest, the later of equals; None: nobody did.
    """

    held_ns: int
    longest: int | None


_NOBODY = Holders(0, None)


def find_holders(timeline: RankTimeline) -> tuple[Holders, ...]:
    """Find who held the lane of each collective between its issue (or, if later, its readiness) and its start.

    ::

        A        ├──────────────┤
        B               ├──┤  issue, ready
        lane     AAAAAAAAAAAAAAA BBBBB
        held                ░░░░               from max(issue, ready) to B's start

    A lane is a stream of the device, or one of gloo's threads: a work goes to the thread of its group that is free
    first, so that the thread it runs on was held for as long as it queued. On CPU nothing queues unless its place in
    its group is known, as it is in our own runs.
    """
    found = [_NOBODY] * len(timeline.collectives)
    lanes: dict[str, list[int]] = {}
    for index, collective in enumerate(timeline.collectives):
        if len(collective.span.starts_ns) and (timeline.is_device or collective.seq is not None):
            lanes.setdefault(collective.lane, []).append(index)
    for members in lanes.values():
        for index, holders in zip(members, _find_on_lane(timeline.collectives, members), strict=True):
            found[index] = holders
    return tuple(found)


def _find_on_lane(collectives: Sequence[Collective], members: list[int]) -> list[Holders]:
    order = sorted(range(len(members)), key=lambda at: collectives[members[at]].start_ns)
    starts = np.array([collectives[members[at]].start_ns for at in order], dtype=np.int64)
    ends = np.array([collectives[members[at]].end_ns for at in order], dtype=np.int64)
    latest_ends = np.maximum.accumulate(ends)
    found = [_NOBODY] * len(members)
    for place, at in enumerate(order):
        collective = collectives[members[at]]
        if collective.issue_ns is None:
            continue
        could_ns = collective.issue_ns if collective.ready_ns is None else max(collective.issue_ns, collective.ready_ns)
        first = int(latest_ends[:place].searchsorted(could_ns, side="right"))
        if first == place:
            continue
        lefts = np.maximum(starts[first:place], could_ns)
        rights = np.minimum(ends[first:place], collective.start_ns)
        held_ns = unite(lefts, rights).length_ns
        if held_ns:
            lengths = rights - lefts
            longest = first + int(np.flatnonzero(lengths == lengths.max())[-1])
            found[at] = Holders(held_ns, members[order[longest]])
    return found

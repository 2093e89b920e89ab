"""When a rank began a collective whose event its trace lost: its launch says that it was not earlier.

::

    rank 0   [wwwwwwwwwwtttt]        w  waits for rank 1, which its own trace does not show there
    rank 1   ...launch|  ?  |        a kernel starts after its launch: the others wait until then

Without that, a lost event of the rank that everybody waited for would turn waiting into transfer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes
from dtbench.traces.ranks.match import MatchedGroup
from dtbench.traces.skeleton import OPERATIONS, Skeleton
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.who.collectives import Launch


@dataclass(frozen=True)
class LostStarts:
    """What launches say about lost events; both of shape ``(m, r)``.

    Attributes:
        is_known: that rank's trace lacks the event and has one launch that can only be its.
        start_ns: end of that launch, or of the rank's collective before, on the common clock: a kernel starts after its
            launch, and after what is before it on its stream; means nothing elsewhere.
    """

    is_known: Bools
    start_ns: Ints


def find_lost_starts(
    group: MatchedGroup, common: GroupTimes, timelines: Mapping[int, Skeleton], clocks: Clocks
) -> LostStarts:
    """Look for the launches of the events that a matched group lacks.

    A launch fits if it was made between those of the rank's collectives before and after, ended before the collective
    did, and says no other operation, group or number. Where several fit, none is taken; of a rank that is not in step
    nothing is believed.

    Args:
        group: which collectives.
        common: their times on the common clock.
        timelines: by rank.
        clocks: of all ranks.
    """
    is_known, start_ns = np.zeros_like(group.there), np.zeros(group.index.shape, dtype=np.int64, order="F")
    if not any(timelines[rank].unseen for rank in group.ranks):
        return LostStarts(is_known, start_ns)
    ends_ns = common.last_end_ns
    for column, rank in enumerate(group.ranks):
        timeline, clock = timelines[rank], clocks.by_rank.get(rank, Clock())
        if not timeline.unseen or rank in clocks.out_of_step:
            continue
        launched_ns = clock.to_common(np.array([launch.end_ns for launch in timeline.unseen], dtype=np.int64))
        for row in np.flatnonzero(~common.there[:, column] & (group.index[:, column] == ABSENT)).tolist():
            fits = _fit(group, (row, column), timelines) & (launched_ns <= ends_ns[row])
            if fits.sum() == 1 and not clocks.astray.has(rank, timeline.unseen[int(fits.argmax())].end_ns):
                is_known[row, column] = True
                start_ns[row, column] = max(int(launched_ns[fits][0]), _end_before(group, common, (row, column)))
    return LostStarts(is_known, start_ns)


def _fit(group: MatchedGroup, place: tuple[int, int], timelines: Mapping[int, Skeleton]) -> Bools:
    """Tell which of a rank's launches without kernel can be this event, shape ``(launches,)``."""
    row, column = place
    timeline = timelines[group.ranks[column]]
    other = int(np.flatnonzero(group.there[row])[0])
    example, event = timelines[group.ranks[other]].columns, int(group.index[row, other])
    operation, seq = OPERATIONS[example.operation[event]], example.seq.at(event)
    after_ns, before_ns = _neighbours(group.index[:, column], row, timeline)

    def fits(launch: Launch) -> bool:
        return (
            after_ns < launch.start_ns < before_ns
            and launch.operation in (None, operation)
            and (not launch.group or not group.name or launch.group == group.name)
            and (launch.seq is None or seq is None or launch.seq == seq)
        )

    return np.array([fits(launch) for launch in timeline.unseen], dtype=np.bool_)


def _end_before(group: MatchedGroup, common: GroupTimes, place: tuple[int, int]) -> int:
    """Return the end of the rank's collective before, on the common clock; far in the past: there is none."""
    row, column = place
    before = np.flatnonzero(group.index[:row, column] != ABSENT)
    return int(common.end_ns[before[-1], column]) if len(before) else int(np.iinfo(np.int64).min)


def _neighbours(index: Ints, row: int, timeline: Skeleton) -> tuple[float, float]:
    """Return when the rank issued its collectives before and after a row of its own column; infinite: none is there."""
    before = [event for event in index[:row].tolist() if event != ABSENT]
    after = [event for event in index[row + 1 :].tolist() if event != ABSENT]
    return _issue_ns(timeline, before[-1:], -np.inf), _issue_ns(timeline, after[:1], np.inf)


def _issue_ns(timeline: Skeleton, events: Sequence[int], otherwise: float) -> float:
    issues = [timeline.columns.issue_ns.at(event) for event in events]
    return next((float(issue_ns) for issue_ns in issues if issue_ns is not None), otherwise)

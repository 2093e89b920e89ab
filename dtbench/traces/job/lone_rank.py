"""What one rank of several does not tell of its causes."""

from collections.abc import Sequence

from dtbench.base.vocabulary import Cause
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.notes.job import LoneRank
from dtbench.traces.timeline import RankTimeline


def find_lone(timelines: Sequence[RankTimeline], owners: Sequence[ExposedOwner]) -> tuple[LoneRank, ...]:
    """Return that one rank of several does not tell its waiting for the others apart from its causes, where it has any.

    What it queued behind may have waited, and what nothing hides may be long for that alone. A size that no trace tells
    is not one: the job may have other ranks.

    Args:
        timelines: of the ranks that are there; of several nothing is said here.
        owners: whose communication is exposed and why, over these.
    """
    if len(timelines) != 1 or all(row.cause is Cause.UNKNOWN for row in owners):
        return ()
    (one,) = timelines
    size = one.told_size or 1
    if size > 1:
        return (LoneRank(one.rank, size, is_least=not one.world_size),)
    if one.world_size or all(found.group_size or found.group_ranks for found in one.collectives):
        return ()  # alone in its job, or in all groups that are told
    return (LoneRank(one.rank, None, is_least=False),)

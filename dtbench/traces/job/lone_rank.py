"""What one rank of several does not tell of its causes, in one sentence."""

from collections.abc import Sequence

from dtbench.base.vocabulary import Cause
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.timeline import RankTimeline


def describe_lone(timelines: Sequence[RankTimeline], owners: Sequence[ExposedOwner]) -> tuple[str, ...]:
    """Say that one rank of several does not tell its waiting for the others apart from its causes, where it has any.

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
        least, others = ("", _name_others(size)) if one.world_size else ("at least ", "the others")
        who = f"alone of {least}{size}"
    elif one.world_size or all(found.group_size or found.group_ranks for found in one.collectives):
        return ()  # alone in its job, or in all groups that are told
    else:
        who, others = "alone, and no trace says of how many", "others"
    what = f"whatever its cause, any of it may be waiting for {others}"
    return (f"rank {one.rank} {who}: {what}; only all ranks' traces tell",)


def _name_others(size: int) -> str:
    return "the other" if size == 2 else f"the other {size - 1}"

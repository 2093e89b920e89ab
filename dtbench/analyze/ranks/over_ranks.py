"""Everything that is asked of several ranks at once, in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtbench.analyze.ranks.clocks import Clocks, estimate_clocks
from dtbench.analyze.ranks.job import check_job, is_one_job, keep_distinct_ranks
from dtbench.analyze.ranks.match import Matches, match_collectives
from dtbench.analyze.ranks.point_to_point import Transfers, match_transfers
from dtbench.analyze.ranks.skew import CollectiveSkew, describe_collectives, measure_skew
from dtbench.analyze.ranks.stragglers import Waiting, sum_waiting
from dtbench.analyze.ranks.times import read_times
from dtbench.analyze.timeline import RankTimeline


@dataclass(frozen=True)
class OverRanks:
    """What several ranks say together.

    Attributes:
        matches: which of their collectives are one.
        clocks: how far their clocks are apart.
        collectives: by rank, one entry per collective of its timeline.
        waiting: who waits for whom.
        transfers: sends and receives.
        notes: what a reader of the numbers must know, a sentence each.
        is_one_job: nothing speaks against these being ranks of one job.
    """

    matches: Matches
    clocks: Clocks
    collectives: Mapping[int, tuple[CollectiveSkew, ...]]
    waiting: Waiting
    transfers: Transfers
    notes: tuple[str, ...]
    is_one_job: bool


def compare_ranks(timelines: Sequence[RankTimeline]) -> OverRanks:
    """Compare the ranks of one job; of a rank that is there twice, the first counts."""
    distinct, notes = keep_distinct_ranks(timelines)
    matches = match_collectives(distinct)
    times = read_times(matches, distinct)
    clocks = estimate_clocks(times, {timeline.rank: timeline.host for timeline in distinct})
    skews = measure_skew(matches, times, clocks, distinct)
    return OverRanks(
        matches=matches,
        clocks=clocks,
        collectives=describe_collectives(skews, distinct),
        waiting=sum_waiting(skews, matches),
        transfers=match_transfers(distinct, clocks),
        notes=(*notes, *check_job(distinct, matches), *clocks.notes),
        is_one_job=is_one_job(distinct, matches),
    )

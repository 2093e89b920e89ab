"""From single ranks' accounts to what only all of them together say: skew, causes, whose communication is exposed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dtbench.analyze.causes.exposed_owners import ExplainedRank, ExposedOwner, rank_exposed_owners
from dtbench.analyze.causes.split import split_exposed
from dtbench.analyze.ranks.late import LateRank, find_late_ranks
from dtbench.analyze.ranks.over_ranks import OverRanks, compare_ranks
from dtbench.analyze.trace_analysis import TraceAnalysis


@dataclass(frozen=True)
class Explained:
    """Several ranks' analyses with everything that was found over ranks.

    Attributes:
        analyses: as given, each with its ``skews`` and ``splits``.
        over_ranks: matches, clocks, stragglers, sends and receives.
        owners: whose communication is exposed and why, over all ranks, most exposed first.
        late_ranks: what those did that the others waited for longest.
    """

    analyses: tuple[TraceAnalysis, ...]
    over_ranks: OverRanks
    owners: tuple[ExposedOwner, ...]
    late_ranks: tuple[LateRank, ...] = ()


def explain(analyses: Sequence[TraceAnalysis]) -> Explained:
    """Match collectives over ranks and split every rank's exposed time into causes.

    Args:
        analyses: one per rank of one job; where ranks are missing, what needs them is unknown.
    """
    over_ranks = compare_ranks([one.timeline for one in analyses])
    explained = tuple(_explain_rank(one, over_ranks) for one in analyses)
    ranks = [
        ExplainedRank(
            timeline=one.timeline,
            splits=one.splits,
            last_ranks=[skew.last_rank for skew in one.skews],
            skew_waits_ns=[skew.skew_wait_ns for skew in one.skews],
        )
        for one in explained
    ]
    hosts = {one.rank: one.host_steps for one in explained}
    return Explained(
        analyses=explained,
        over_ranks=over_ranks,
        owners=rank_exposed_owners(ranks),
        late_ranks=find_late_ranks(over_ranks, [one.timeline for one in explained], hosts),
    )


def _explain_rank(one: TraceAnalysis, over_ranks: OverRanks) -> TraceAnalysis:
    skews = over_ranks.collectives[one.rank]
    return replace(one, skews=skews, splits=split_exposed(one.timeline, [skew.last_start_ns for skew in skews]))

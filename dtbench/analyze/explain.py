"""From single ranks' accounts to what only all of them together say: skew, causes, whose communication is exposed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dtbench.analyze.causes.exposed_owners import ExplainedRank, ExposedOwner, rank_exposed_owners
from dtbench.analyze.causes.split import CausePart, CauseSplit, split_exposed
from dtbench.analyze.collectives import Collective
from dtbench.analyze.ranks.late import LateRank, find_late_ranks
from dtbench.analyze.ranks.misfits import Misfits
from dtbench.analyze.ranks.over_ranks import OverRanks, compare_fitting_ranks
from dtbench.analyze.ranks.point_to_point import Partner
from dtbench.analyze.ranks.skew import CollectiveSkew
from dtbench.analyze.ranks.times import END_TOGETHER
from dtbench.analyze.trace_analysis import TraceAnalysis
from dtbench.vocabulary import Cause, MissingInput


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


def explain(analyses: Sequence[TraceAnalysis], mistaken: Misfits | None = None) -> Explained:
    """Match collectives over ranks and split every rank's exposed time into causes.

    Args:
        analyses: one per rank of one job; where ranks are missing, what needs them is unknown.
        mistaken: ranks that are known not to fit the others; None: none is.
    """
    over_ranks = compare_fitting_ranks([one.timeline for one in analyses], mistaken)
    compared = {one.rank for one in analyses} - over_ranks.clocks.out_of_step
    explained = tuple(_explain_rank(one, over_ranks, compared) for one in analyses)
    ranks = [
        ExplainedRank(
            timeline=one.timeline,
            splits=one.splits,
            last_ranks=[skew.last_rank for skew in one.skews],
            skew_waits_ns=[skew.skew_wait_ns for skew in one.skews],
            transfers_ns=[skew.transfer_ns for skew in one.skews],
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


def _explain_rank(one: TraceAnalysis, over_ranks: OverRanks, compared: Collection[int]) -> TraceAnalysis:
    partners = over_ranks.partners.get(one.rank, {})
    skews = tuple(
        _wait_for(partner, skew) if (partner := partners.get(index)) else skew
        for index, skew in enumerate(over_ranks.collectives[one.rank])
    )
    last_starts_ns = [
        partner.start_ns if (partner := partners.get(index)) else skew.last_start_ns for index, skew in enumerate(skews)
    ]
    splits = split_exposed(one.timeline, last_starts_ns)
    if len(over_ranks.collectives) > 1:
        splits = tuple(
            _withhold(split) if skew.last_start_ns is None and _lacks_ranks(collective, one, compared) else split
            for collective, skew, split in zip(one.collectives, skews, splits, strict=True)
        )
    return replace(one, skews=skews, splits=splits)


def _wait_for(partner: Partner, skew: CollectiveSkew) -> CollectiveSkew:
    """Give how long a send or receive waited, and for whom: of those nothing else is known."""
    return replace(skew, last_rank=partner.rank if partner.waited_ns else None, skew_wait_ns=partner.waited_ns)


def _lacks_ranks(collective: Collective, one: TraceAnalysis, compared: Collection[int]) -> bool:
    """Tell whether a collective has ranks that are not compared, any of which all its time may be waiting for.

    Where some ranks are there, and the last of a group may not be among them, a cause that one rank alone would show is
    no more likely than that.
    """
    if collective.operation not in END_TOGETHER or collective.group_size == 1:
        return False
    if collective.group_ranks:
        return not set(collective.group_ranks) <= set(compared)
    return one.rank not in compared or (collective.group_size or one.timeline.world_size or 0) > len(compared)


def _withhold(split: CauseSplit) -> CauseSplit:
    """Leave open why a collective is exposed."""
    exposed_ns = sum(part.exposed_ns for part in split.parts)
    return CauseSplit((CausePart(Cause.UNKNOWN, exposed_ns, missing=(MissingInput.RANKS,)),) if split.parts else ())

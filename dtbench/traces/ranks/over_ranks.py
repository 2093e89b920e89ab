"""Everything that is asked of several ranks at once, in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtbench.traces.notes.note import Note
from dtbench.traces.ranks.clocks.clocks import Clocks, estimate_clocks
from dtbench.traces.ranks.clocks.machines import Host
from dtbench.traces.ranks.clocks.times import read_times
from dtbench.traces.ranks.elsewhere import find_elsewhere
from dtbench.traces.ranks.groups import GroupEvents, find_groups
from dtbench.traces.ranks.handed_on import find_handed_on
from dtbench.traces.ranks.job import check_job, check_transfers, is_one_job, keep_distinct_ranks
from dtbench.traces.ranks.match import Matches, match_collectives
from dtbench.traces.ranks.misfits import Misfits, find_misfits
from dtbench.traces.ranks.point_to_point import Partner, Transfers, find_partners, match_transfers
from dtbench.traces.ranks.skew import CollectiveSkew, describe_collectives, measure_skew
from dtbench.traces.ranks.stragglers import Waiting, sum_waiting
from dtbench.traces.skeleton import Skeleton


@dataclass(frozen=True)
class OverRanks:
    """What several ranks say together.

    Attributes:
        matches: which of their collectives are one.
        clocks: how far their clocks are apart.
        collectives: by rank, one entry per collective of its timeline.
        waiting: who waits for whom.
        transfers: sends and receives.
        partners: by rank and index of its send or receive, the other end, where clocks can be compared.
        notes: what a reader of the numbers must know.
        is_one_job: nothing speaks against these being ranks of one job.
        misfits: what speaks against comparing some ranks; they are among ``clocks.out_of_step``.
    """

    matches: Matches
    clocks: Clocks
    collectives: Mapping[int, Sequence[CollectiveSkew]]
    waiting: Waiting
    transfers: Transfers
    notes: tuple[Note, ...]
    is_one_job: bool
    misfits: Misfits = field(default_factory=Misfits)
    partners: Mapping[int, Mapping[int, Partner]] = field(default_factory=dict)


def compare_fitting_ranks(timelines: Sequence[Skeleton], mistaken: Misfits | None = None) -> OverRanks:
    """Compare the ranks of one job, and leave out of what is said over ranks those that do not fit the others.

    Args:
        timelines: of the ranks.
        mistaken: ranks that are known not to fit; None: none is.
    """
    distinct, notes = keep_distinct_ranks(timelines)
    groups = find_groups(distinct)
    compared = _compare(distinct, groups, Misfits(), notes)
    misfits = find_misfits(distinct, groups, compared.clocks, mistaken or Misfits())
    if not misfits.ranks:
        return compared
    fitting = _compare(distinct, groups, misfits, notes)
    drawn = {rank: compared.clocks.by_rank[rank] for rank in misfits.ranks}  # by which a picture places them
    return replace(fitting, clocks=replace(fitting.clocks, by_rank={**fitting.clocks.by_rank, **drawn}))


def compare_ranks(timelines: Sequence[Skeleton], misfits: Misfits | None = None) -> OverRanks:
    """Compare the ranks of one job; of a rank that is there twice, the first counts.

    Args:
        timelines: of the ranks.
        misfits: of which nothing is said over ranks.
    """
    distinct, notes = keep_distinct_ranks(timelines)
    return _compare(distinct, find_groups(distinct), misfits or Misfits(), notes)


def _compare(
    distinct: Sequence[Skeleton], groups: Sequence[GroupEvents], misfits: Misfits, notes: Sequence[Note]
) -> OverRanks:
    matches = match_collectives(distinct, groups)
    times = read_times(matches, distinct)
    fitting = {timeline.rank for timeline in distinct} - misfits.ranks
    hosts = {timeline.rank: Host(timeline.host, timeline.kernel) for timeline in distinct}
    clocks = estimate_clocks([own for one in times if (own := one.among(fitting)) is not None], hosts)
    clocks = replace(clocks, out_of_step=clocks.out_of_step | misfits.ranks)
    transfers = match_transfers(distinct, clocks)
    partners = find_partners(transfers, clocks)
    skews = measure_skew(matches, times, clocks, distinct)
    elsewhere = find_elsewhere(skews, partners, distinct, clocks)
    skews = find_handed_on(skews, elsewhere)
    return OverRanks(
        matches=matches,
        clocks=clocks,
        collectives=describe_collectives(skews, distinct),
        waiting=sum_waiting(skews, matches, distinct, elsewhere.ranks),
        transfers=transfers,
        notes=(
            *notes,
            *misfits.notes,
            *check_job(distinct, matches, transfers),
            *clocks.notes,
            *check_transfers(distinct, transfers, clocks),
        ),
        is_one_job=is_one_job(distinct, matches, transfers) and not misfits.strangers,
        misfits=misfits,
        partners=partners,
    )

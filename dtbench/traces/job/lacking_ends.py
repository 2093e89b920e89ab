"""Sends and receives that one rank's trace lacks, as its peers' traces hold their other ends.

::

    rank 0   step 2 [ send send send ]     to rank 1
    rank 1   step 2 [ recv           ]     from rank 0: it received two more, and what they took is in no time of it
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dtbench.base.vocabulary import POINT_TO_POINT, Operation
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.rank.analysis import StepAccount, TraceAnalysis
from dtbench.traces.rank.doubt import doubt_account, doubt_device_purposes, doubt_overlap, doubt_purposes
from dtbench.traces.timeline import RankTimeline


def find_lacking_ends(timelines: Sequence[RankTimeline]) -> dict[int, dict[int, int]]:
    """Count, by rank and number of step, how many fewer it received than its peers sent it, or sent than they got.

    None of ranks that number steps unlike, and none where it may be what no step issued, or what names no peer.

    Args:
        timelines: distinct ranks of one job.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    counts, spare = Counter[tuple[int, int, int, Operation]](), Counter[tuple[int, Operation]]()
    for rank, timeline in by_rank.items():
        for one, step in zip(timeline.collectives, timeline.step_of, strict=True):
            if one.operation not in POINT_TO_POINT or one.operation is None or (one.is_issue_untold and one.is_seen):
                continue
            if one.peer is None or step is None:
                spare[rank, one.operation] += 1
            else:
                counts[rank, one.peer, timeline.step_numbers[step], one.operation] += 1
    found = defaultdict[int, Counter[int]](Counter)
    for (peer, rank, number, operation), count in list(counts.items()):
        if rank in by_rank and by_rank[rank].step_numbers == by_rank[peer].step_numbers:
            other = Operation.RECV if operation is Operation.SEND else Operation.SEND
            found[rank][number] += max(0, count - counts[rank, peer, number, other] - spare[rank, other])
    return {rank: dict(+own) for rank, own in found.items() if +own}


def doubt_lacking(one: TraceAnalysis, lacking: Mapping[int, int]) -> TraceAnalysis:
    """Return a rank that communicated at least what its trace shows: so many more were in its steps, by number."""
    doubt = doubt_device_purposes if one.timeline.is_device else doubt_purposes
    is_lossy = [step.step in lacking for step in one.steps]
    accounts = one.accounts
    return replace(
        one,
        steps=tuple(
            _doubt_step(step, lacking[step.step], doubt) if lossy else step
            for step, lossy in zip(one.steps, is_lossy, strict=True)
        ),
        whole=doubt_overlap(one.whole),
        whole_purposes=doubt(one.whole_purposes),
        whole_unattributed_ns=one.whole_unattributed_ns or None,
        accounts=replace(
            accounts,
            steps=tuple(
                doubt_account(account) if lossy else account
                for account, lossy in zip(accounts.steps, is_lossy, strict=True)
            ),
            whole=doubt_account(accounts.whole),
        ),
        lacking=lacking,
    )


def _doubt_step(
    step: StepAccount, lacking: int, doubt: Callable[[Iterable[PurposeTime]], tuple[PurposeTime, ...]]
) -> StepAccount:
    return replace(
        step,
        overlap=doubt_overlap(step.overlap),
        purposes=doubt(step.purposes),
        unattributed_ns=step.unattributed_ns or None,
        lost=step.lost + lacking,
    )

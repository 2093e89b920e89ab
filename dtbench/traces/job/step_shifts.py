"""Steps that one rank numbers otherwise than the others: what is one step, the collectives in it say.

::

    rank 0   step 1 [ 3 4 5 ]   step 2 [ 6 7 8 ]     numbers of the collectives of one process group
    rank 1   step 2 [ 3 4 5 ]   step 3 [ 6 7 8 ]     its profiler counted one step more: its 2 is the others' 1
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dtbench.traces.notes.job import StepsRenumbered
from dtbench.traces.notes.note import join_ranks
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.match import MatchedGroup, Matches
from dtbench.traces.timeline import RankTimeline

_NEARLY_ALL: Final = 0.9  # of a rank's collectives; one that lies on a border may be in another step


def find_step_shifts(matches: Matches, timelines: Sequence[RankTimeline]) -> dict[int, int]:
    """Find by how much higher than most others' the steps of a rank are numbered, by rank; of two, than the first's.

    Only collectives that bear a number tell: which of several equal ones belong together is else read from times.

    Args:
        matches: of these ranks.
        timelines: distinct ranks.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    shifts: dict[int, Counter[int]] = defaultdict(Counter)
    for group in matches.groups:
        for numbers in _read_steps(group, by_rank):
            usual = Counter(numbers.values()).most_common(1)[0][0]  # of several as common the first rank's
            for rank, number in numbers.items():
                shifts[rank][number - usual] += 1
    most = {rank: (counts.most_common(1)[0], counts.total()) for rank, counts in sorted(shifts.items())}
    return {rank: shift for rank, ((shift, count), total) in most.items() if shift and count >= _NEARLY_ALL * total}


def _read_steps(group: MatchedGroup, by_rank: Mapping[int, RankTimeline]) -> Iterator[dict[int, int]]:
    """Give, for each numbered collective of several ranks that have steps, the number of the step of each."""
    for row, there in zip(group.index.tolist(), group.there.tolist(), strict=True):
        numbers = {}
        for rank, index, is_there in zip(group.ranks, row, there, strict=True):
            timeline = by_rank[rank]
            if is_there and timeline.collectives[index].seq is not None:
                step = timeline.step_of[index]
                numbers.update({} if step is None else {rank: timeline.step_numbers[step]})
        if len(numbers) > 1:
            yield numbers


def renumber_steps(one: TraceAnalysis, by: int) -> TraceAnalysis:
    """Number the steps of a rank lower by so many."""
    return replace(
        one,
        timeline=replace(one.timeline, step_numbers=tuple(number - by for number in one.timeline.step_numbers)),
        steps=tuple(replace(step, step=step.step - by) for step in one.steps),
        host_steps=tuple(replace(step, number=step.number - by) for step in one.host_steps),
        lost=replace(
            one.lost,
            steps=tuple(number - by for number in one.lost.steps),
            copy_steps=tuple(number - by for number in one.lost.copy_steps),
            absent=tuple((number - by, count) for number, count in one.lost.absent),
            skipped=tuple((first - by, last - by) for first, last in one.lost.skipped),
        ),
    )


def note_step_shifts(shifts: Mapping[int, int]) -> tuple[StepsRenumbered, ...]:
    """Return whose steps bear the others' numbers instead of their own."""
    return join_ranks(StepsRenumbered((rank,), shift) for rank, shift in shifts.items())

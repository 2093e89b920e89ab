"""What a collective was for where one rank's trace does not tell: as the traces of the other ranks say.

::

    rank 0   all_reduce 7   grad_reduce   below the reducer's autograd hook
    rank 1   all_reduce 7   other         its operators were not recorded: it is the same collective, so grad_reduce

What is sent from stage to stage is so at both ends: a worker that gets parameters and sends gradients looks like a
pipeline's last stage, and the server at the other end like none.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import Purpose
from dtbench.traces.notes.job import PurposesDisputed, PurposesFollowed
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.match import Matches
from dtbench.traces.ranks.point_to_point import Transfers
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class ToldPurposes:
    """What other ranks say of the collectives of purpose ``other`` of one rank, by their index.

    Attributes:
        given: what each is for.
        disputed: of what it may be, as the others disagree.
    """

    given: Mapping[int, Purpose] = field(default_factory=dict)
    disputed: Mapping[int, frozenset[Purpose]] = field(default_factory=dict)

    def note(self, rank: int) -> Iterator[PurposesFollowed | PurposesDisputed]:
        """Yield how many are for what the other ranks say, and of how many that is not known."""
        if self.given:
            yield PurposesFollowed((rank,), len(self.given))
        if self.disputed:
            yield PurposesDisputed((rank,), len(self.disputed), frozenset().union(*self.disputed.values()))


def find_told_purposes(matches: Matches, timelines: Sequence[RankTimeline]) -> dict[int, ToldPurposes]:
    """Find, by rank, collectives of purpose ``other`` that are of another on ranks whose traces tell more of them.

    No less is told where all names around the issue are around it there, too, and all names around any issue are around
    some: what says that a collective is for nothing else, as clipping or FSDP's ranges elsewhere do, is then on both.

    Args:
        matches: of these ranks.
        timelines: distinct ranks.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    names = {rank: frozenset().union(*map(_read_names, one.collectives)) for rank, one in by_rank.items()}
    given: dict[int, dict[int, Purpose]] = defaultdict(dict)
    disputed: dict[int, dict[int, frozenset[Purpose]]] = defaultdict(dict)
    for match in matches:
        ones = {rank: by_rank[rank].collectives[index] for rank, index in match.members.items()}
        if len({one.purpose for one in ones.values()}) == 1:
            continue
        for rank, one in ones.items():
            if one.purpose is not Purpose.OTHER:
                continue
            others = {
                other.purpose
                for at, other in ones.items()
                if at != rank and names[rank] <= names[at] and _read_names(one) <= _read_names(other)
            }
            told, index = others - {Purpose.OTHER}, match.members[rank]
            if len(others) == 1 and told:
                given[rank][index] = others.pop()
            elif told:
                disputed[rank][index] = frozenset(told)
    return {rank: ToldPurposes(given[rank], disputed[rank]) for rank in sorted({*given, *disputed})}


def find_one_sided(transfers: Transfers, timelines: Sequence[RankTimeline]) -> dict[int, ToldPurposes]:
    """Find, by rank, sends and receives that look like a pipeline's on it, and not on the rank at their other end.

    Args:
        transfers: of these ranks.
        timelines: distinct ranks.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    given: dict[int, dict[int, Purpose]] = defaultdict(dict)
    for one in transfers.matched:
        ends = ((one.sender, one.send), (one.receiver, one.receive))
        purposes = [by_rank[rank].collectives[index].purpose for rank, index in ends]
        if set(purposes) == {Purpose.PIPELINE, Purpose.OTHER}:
            rank, index = ends[purposes.index(Purpose.PIPELINE)]
            given[rank][index] = Purpose.OTHER
    return {rank: ToldPurposes(mine) for rank, mine in given.items()}


def _read_names(one: Collective) -> frozenset[str]:
    """Return the names around an issue, without the step's."""
    return frozenset(name for name in one.above if not name.startswith(STEP_PREFIX))


def give_purposes(one: TraceAnalysis, told: ToldPurposes) -> TraceAnalysis:
    """Return collectives the purposes that other ranks tell, and account for them anew."""
    collectives = tuple(
        replace(collective, purpose=told.given.get(index, collective.purpose))
        for index, collective in enumerate(one.collectives)
    )
    untold = {**{index: may_be for index, may_be in one.untold.items() if index not in told.given}, **told.disputed}
    *of_steps, of_whole = one.purpose_sources.account(collectives, untold)
    return replace(
        one,
        timeline=replace(one.timeline, collectives=collectives, unasked=one.timeline.unasked | told.disputed.keys()),
        whole_purposes=of_whole,
        steps=tuple(
            replace(step, purposes=rows, untold=may_be)
            for step, rows, may_be in zip(
                one.steps, of_steps, one.purpose_sources.place(collectives, untold), strict=True
            )
        ),
        untold=untold,
    )

"""One owner of what ranks did together: a collective that all of them issued is one, whatever each of them calls it.

::

    rank 0   all_gather 7   layers.2
    rank 1   all_gather 7   _orig_mod.layers.2     its model is wrapped: the same collective, so layers.2

Else each name had the part of the time that its ranks saw, and a rank that is called otherwise elsewhere were a change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtbench.base.units import count_things, name_ranks
from dtbench.base.vocabulary import Purpose
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class MatchedOwners:
    """The analyses of the ranks of one job, with one owner of each collective that several of them have.

    Attributes:
        analyses: as given, but for owners.
        names: by rank and its own name of an owner, the one that its collectives, or some of them, have instead.
    """

    analyses: tuple[TraceAnalysis, ...]
    names: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def give_matched_owners(traces: TraceSet) -> MatchedOwners:
    """Give what ranks did together one name: that of those that know what it was for and tell most owners apart.

    Of these what most of them call it, and of equals the lowest rank's. Nothing is changed where traces are not surely
    of one job, nor of what ranks have by themselves. A rank that knows no owner follows those that do.
    """
    if not traces.over_ranks.is_one_job:
        return MatchedOwners(traces.analyses)
    collectives = {one.rank: one.collectives for one in traces.analyses}
    told_apart = {rank: len({one.owner for one in of_rank}) for rank, of_rank in collectives.items()}
    given: dict[int, dict[int, str]] = {}
    for match in traces.over_ranks.matches:
        ones = {rank: collectives[rank][index] for rank, index in sorted(match.members.items()) if rank in collectives}
        if len({one.owner for one in ones.values()}) > 1:
            owner = _choose(ones, told_apart)
            for rank, one in ones.items():
                if one.owner != owner:
                    given.setdefault(rank, {})[match.members[rank]] = owner
    return MatchedOwners(
        analyses=tuple(_give(one, given.get(one.rank, {})) for one in traces.analyses),
        names={
            rank: {collectives[rank][index].owner: owner for index, owner in of_rank.items()}
            for rank, of_rank in sorted(given.items())
        },
    )


def _choose(ones: Mapping[int, Collective], told_apart: Mapping[int, int]) -> str:
    """Return the owner of one collective, by rank, of which ranks have several names, one of which may be none."""
    named = {rank: one for rank, one in ones.items() if one.owner}
    told = {rank: one for rank, one in named.items() if one.purpose is not Purpose.OTHER} or named
    most = max(told_apart[rank] for rank in told)
    (owner, _), *_ = Counter(one.owner for rank, one in told.items() if told_apart[rank] == most).most_common(1)
    return owner


def _give(one: TraceAnalysis, owners: Mapping[int, str]) -> TraceAnalysis:
    if not owners:
        return one
    collectives = tuple(
        replace(collective, owner=owners.get(index, collective.owner))
        for index, collective in enumerate(one.collectives)
    )
    return replace(one, timeline=replace(one.timeline, collectives=collectives))


def say_matched_owners(found: MatchedOwners) -> Iterator[str]:
    """Say which ranks call an owner otherwise than others do, a clause for each way of doing so."""
    ranks_of: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, names in found.names.items():
        ranks_of.setdefault(tuple(sorted(names.items())), []).append(rank)
    for pairs, ranks in ranks_of.items():
        yield f"{name_ranks(ranks)}: {_spell(pairs)}"


def _spell(pairs: Sequence[tuple[str, str]]) -> str:
    own, owner = pairs[0]
    what = f"what is called `{own}` there" if own else "what has no owner there"
    more = f", and so for {count_things(len(pairs) - 1, 'more owner')}" if len(pairs) > 1 else ""
    return f"{what} is `{owner}` of the other ranks, as they issued it together, and counts as that{more}"

"""One owner of what ranks did together: a collective that several of them issued is one, whatever each calls it.

::

    rank 0   all_gather 7   layers.2
    rank 1   all_gather 7   _orig_mod.layers.2     its model is wrapped: the same collective, so layers.2

Else each name had the part of the time that its ranks saw, as if it were an owner of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.purpose_times import sum_unattributed
from dtbench.traces.notes.job import OwnersFollowed
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.match import MatchedGroup, Matches
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.owners import split_owner

_Given = dict[int, dict[int, str]]
_TellsApart = Mapping[int, Mapping[int | None, int]]
"""By rank and index of its step, how many owners its collectives there have, none not being one."""


def find_matched_owners(matches: Matches, timelines: Sequence[RankTimeline]) -> _Given:
    """Find, by rank and index, collectives that other ranks that issued them call otherwise, with the one owner of all.

    It is that of the ranks that know what it was for, which say no less than others (``layers.0`` less than
    ``Redistribute of layers.0``), and tell most owners apart in its step; of these what most of them call it, and of
    equals the lowest rank's. A rank that knows no owner follows those that do.

    Args:
        matches: of these ranks, which are of one job.
        timelines: distinct ranks.
    """
    by_rank = {one.rank: one for one in timelines}
    codes: dict[str, int] = {}
    coded = {
        rank: np.array([codes.setdefault(each.owner, len(codes)) for each in one.collectives], dtype=np.int64)
        for rank, one in by_rank.items()
    }
    told_apart = {rank: _count_owners(one) for rank, one in by_rank.items()}
    given: _Given = defaultdict(dict)
    for group in matches.groups:
        for row in _find_disputed(group, coded):
            members = {rank: index for rank, index in zip(group.ranks, row, strict=True) if index != ABSENT}
            owner = _choose(members, by_rank, told_apart)
            for rank, index in members.items():
                if by_rank[rank].collectives[index].owner != owner:
                    given[rank][index] = owner
    return dict(sorted(given.items()))


def _count_owners(one: RankTimeline) -> dict[int | None, int]:
    owners = defaultdict[int | None, set[str]](set)
    for each, step in zip(one.collectives, one.step_of, strict=True):
        owners[step] |= {each.owner} if each.owner else set()
    return {step: len(found) for step, found in owners.items()}


def _find_disputed(group: MatchedGroup, coded: Mapping[int, Ints]) -> list[list[int]]:
    """Return the rows of a group whose ranks have several owners, none being one."""
    owners = np.stack([coded[rank][group.index[:, column]] for column, rank in enumerate(group.ranks)], axis=1)
    first = owners[np.arange(len(owners)), group.there.argmax(axis=1)]
    rows: list[list[int]] = group.index[(group.there & (owners != first[:, None])).any(axis=1)].tolist()
    return rows


def _choose(members: Mapping[int, int], by_rank: Mapping[int, RankTimeline], told_apart: _TellsApart) -> str:
    """Return the owner of one collective, by rank its index, of which ranks have several names."""
    named = {rank: one for rank, index in members.items() if (one := by_rank[rank].collectives[index]).owner}
    told = {rank: one for rank, one in named.items() if one.purpose is not Purpose.OTHER} or named
    parts = {one.owner: split_owner(one.owner) for one in told.values()}
    owners = {rank: one.owner for rank, one in sorted(told.items())}
    full = {rank: owner for rank, owner in owners.items() if not any(parts[owner] < other for other in parts.values())}
    apart = {rank: told_apart[rank][by_rank[rank].step_of[members[rank]]] for rank in full}
    most = max(apart.values())
    (owner, _), *_ = Counter(owner for rank, owner in full.items() if apart[rank] == most).most_common(1)
    return owner


def note_matched_owners(one: TraceAnalysis, owners: Mapping[int, str]) -> Iterator[OwnersFollowed]:
    """Yield which owners a rank calls otherwise; ``owners``: of its collectives, by index, those that count."""
    counts = Counter((one.collectives[index].owner, owner) for index, owner in owners.items())
    if counts:
        yield OwnersFollowed((one.rank,), tuple((own, owner, count) for (own, owner), count in counts.items()))


def give_owners(one: TraceAnalysis, owners: Mapping[int, str]) -> TraceAnalysis:
    """Return some collectives of a rank, by index, these owners, and account anew for those that have none."""
    collectives = tuple(
        replace(each, owner=owners.get(index, each.owner)) for index, each in enumerate(one.collectives)
    )
    whole_ns, *steps_ns = _sum_anew(one, collectives)
    return replace(
        one,
        timeline=replace(one.timeline, collectives=collectives),
        steps=tuple(replace(step, unattributed_ns=time_ns) for step, time_ns in zip(one.steps, steps_ns, strict=True)),
        whole_unattributed_ns=whole_ns,
    )


def _sum_anew(one: TraceAnalysis, collectives: Sequence[Collective]) -> list[int | None]:
    """Return the exposed time of collectives without an owner, of the whole trace and each step.

    What was not known is not; of a window of which something may be missing none is no zero.
    """
    *steps_ns, outside_ns = sum_unattributed(collectives, one.purpose_sources.shares)
    rows = [
        (one.whole_unattributed_ns, sum(time_ns or 0 for time_ns in (*steps_ns, outside_ns)), one.whole.is_least),
        *(
            (step.unattributed_ns, time_ns, step.overlap.is_least)
            for step, time_ns in zip(one.steps, steps_ns, strict=True)
        ),
    ]
    return [None if before is None else now_ns or None if is_least else now_ns for before, now_ns, is_least in rows]

"""Which collectives of several ranks lie on one process group.

torch names groups by counters, so the same name may mean another group on another rank, and the same group may have
another name: where the traces say the ranks of a group, these decide. Traces of 2023 say nothing; there the stream
stands for the group, and only ranks whose ends agree are taken together. Groups that were inferred from gloo's threads
are groups where ranks agree on them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT, WAIT_FOR_ALL, Operation
from dtbench.traces.ranks.align import Series
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import INFERRED_PREFIX, Collective

_UNEVEN: Final = (Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)
"""Of which each rank may send another size, and a rank that has a part may not say of what."""


_Form: TypeAlias = tuple[Operation | None, int | None]
"""Operation and size: what is equal on all ranks."""


@dataclass(frozen=True)
class GroupEvents:
    """The collectives of one process group on every rank that has some.

    Attributes:
        name: as torch calls it on the first rank; empty: the traces do not say.
        ranks: all its global ranks, as the traces say; empty: they do not.
        size: number of its ranks; None: the traces do not say.
        events: by rank, indices into that rank's collectives, in order of issue.
        is_told: collectives that these ranks have in common by their ids say that they are one group.
    """

    name: str
    ranks: tuple[int, ...]
    size: int | None
    events: Mapping[int, Ints]
    is_told: bool = False


@dataclass(frozen=True)
class _Key:
    """One group as one rank knows it."""

    name: str
    ranks: tuple[int, ...]
    stream: str


def find_groups(timelines: Sequence[RankTimeline], *, point_to_point: bool = False) -> list[GroupEvents]:
    """Collect the events of each group over ranks, either of the collectives or of the sends and receives.

    Collectives whose span was not found are left out: they have no times to compare. Not so sends and receives over
    gloo, which belong together by their order.
    """
    doubtful = _find_doubtful(timelines)
    known = {timeline.rank: _keys_of(timeline, doubtful, point_to_point=point_to_point) for timeline in timelines}
    known = _complete_ranks(known)
    sizes = {timeline.rank: _sizes_of(timeline) for timeline in timelines}
    shared: dict[_Key, dict[int, Ints]] = defaultdict(dict)
    for rank, keys in _unify_streams(_unify_names(known)).items():
        for key, events in keys.items():
            shared[key][rank] = events
    by_rank = {timeline.rank: timeline for timeline in timelines}
    return [
        GroupEvents(
            name=key.name,
            ranks=key.ranks,
            size=len(key.ranks) or max((sizes[rank].get(key.name, 0) for rank in members), default=0) or None,
            events={rank: events[rank] for rank in members},
            is_told=is_told,
        )
        for key, events in sorted(shared.items(), key=lambda item: (item[0].name, item[0].ranks, item[0].stream))
        for members, is_told in ([(list(events), False)] if point_to_point else _tell_apart(key, events, by_rank))
    ]


def _tell_apart(
    key: _Key, events: Mapping[int, Ints], by_rank: Mapping[int, RankTimeline]
) -> list[tuple[list[int], bool]]:
    """Divide the ranks that give one name to groups of which no trace says the ranks, and say whether ids did it.

    Those that have the id of a collective in common share a group; where a rank's trace has no ids, nothing is told.
    """
    ids = {
        rank: {one.comms_id for one in (by_rank[rank].collectives[event] for event in own.tolist()) if one.comms_id}
        for rank, own in events.items()
    }
    if key.ranks or not all(ids.values()):
        return [(list(events), False)]
    part_of = {rank: [rank] for rank in ids}
    first: dict[str, int] = {}
    for rank, own in ids.items():
        for other in {first.setdefault(one, rank) for one in own}:
            if part_of[other] is not part_of[rank]:
                part_of[other] += part_of[rank]
                part_of.update(dict.fromkeys(part_of[rank], part_of[other]))
    parts = {id(part): part for part in part_of.values()}
    return [(sorted(part), True) for part in parts.values()]


def _find_doubtful(timelines: Sequence[RankTimeline]) -> frozenset[str]:
    """Find the inferred groups of which ranks do not agree what ran on them: no evidence of what a group is.

    What only some ranks ran contradicts nobody.
    """
    groups_of: dict[_Form, set[frozenset[str]]] = defaultdict(set)
    for timeline in timelines:
        found: dict[_Form, set[str]] = defaultdict(set)
        for one in timeline.collectives:
            is_guess = not one.group or one.group.startswith(INFERRED_PREFIX)
            if is_guess and not timeline.is_device and len(one.span.starts_ns):
                found[_describe(one)].add(one.group)
        for form, groups in found.items():
            groups_of[form].add(frozenset(groups))
    return frozenset().union(*(groups for told in groups_of.values() if len(told) > 1 for groups in told))


def _keys_of(timeline: RankTimeline, doubtful: frozenset[str], *, point_to_point: bool) -> dict[_Key, Ints]:
    found: dict[_Key, list[int]] = defaultdict(list)
    ranks = {one.group: one.group_ranks for one in timeline.collectives if one.group_ranks}
    for index, one in enumerate(timeline.collectives):
        is_there = len(one.span.starts_ns) > 0 or (point_to_point and not timeline.is_device)
        if (one.operation in POINT_TO_POINT) is point_to_point and is_there:
            stream = one.lane.rpartition("/")[2] if timeline.is_device and not one.group else ""
            name = "" if one.group in doubtful else one.group
            found[_Key(name, tuple(sorted(ranks.get(name, ()))), stream)].append(index)
    return {key: _in_order(timeline.collectives, events) for key, events in found.items()}


def _in_order(collectives: Sequence[Collective], events: Sequence[int]) -> Ints:
    """Sort by issue: gloo's threads start what was issued first a moment after the next.

    What has no known issue comes where it started, before what was issued with all that started later.
    """
    issued = sorted((one.issue_ns, event) for event in events if (one := collectives[event]).issue_ns is not None)
    known = np.array([event for _, event in issued], dtype=np.int64)
    others = [(one.start_ns, event) for event in events if (one := collectives[event]).issue_ns is None]
    begun_ns = np.maximum.accumulate(np.array([collectives[event].start_ns for event in known], dtype=np.int64))
    places = begun_ns.searchsorted([start_ns for start_ns, _ in sorted(others)])
    return np.insert(known, places, [event for _, event in sorted(others)])


def _sizes_of(timeline: RankTimeline) -> dict[str, int]:
    return {one.group: one.group_size for one in timeline.collectives if one.group_size and one.group}


def _complete_ranks(known: Mapping[int, dict[_Key, Ints]]) -> dict[int, dict[_Key, Ints]]:
    """Fill a group that a rank names without its ranks with those that others say, if only one such group has it."""
    said: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for keys in known.values():
        for key in keys:
            if key.ranks:
                said[key.name].add(key.ranks)

    def complete(key: _Key, rank: int) -> _Key:
        fitting = [ranks for ranks in said[key.name] if rank in ranks]
        return _Key(key.name, fitting[0], key.stream) if not key.ranks and len(fitting) == 1 else key

    return {rank: {complete(key, rank): events for key, events in keys.items()} for rank, keys in known.items()}


def _unify_names(known: Mapping[int, dict[_Key, Ints]]) -> dict[int, dict[_Key, Ints]]:
    """Return groups of the same ranks that ranks name differently the names of the first rank, in order of name."""
    names: dict[tuple[int, ...], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for rank, keys in known.items():
        for key in sorted(keys, key=lambda key: (len(key.name), key.name)):
            if key.ranks:
                names[key.ranks][rank].append(key.name)
    renamed: dict[tuple[int, tuple[int, ...], str], str] = {}
    for ranks, by_rank in names.items():
        first = by_rank[min(by_rank)]
        for rank, own in by_rank.items():
            if set(own) != set(first) and len(own) == len(first):
                renamed.update({(rank, ranks, name): new for name, new in zip(own, first, strict=True)})
    return {
        rank: {
            _Key(renamed.get((rank, key.ranks, key.name), key.name), key.ranks, key.stream): events
            for key, events in keys.items()
        }
        for rank, keys in known.items()
    }


def _unify_streams(known: Mapping[int, dict[_Key, Ints]]) -> dict[int, dict[_Key, Ints]]:
    """Number the streams that stand for groups where ranks use different ones, if each uses as many."""
    streams = {
        rank: sorted({key.stream for key in keys if key.stream}, key=lambda stream: (len(stream), stream))
        for rank, keys in known.items()
    }
    used = [own for own in streams.values() if own]
    if len({tuple(own) for own in used}) <= 1 or len({len(own) for own in used}) > 1:
        return dict(known)
    return {
        rank: {
            _Key(key.name, key.ranks, str(streams[rank].index(key.stream)) if key.stream else ""): events
            for key, events in keys.items()
        }
        for rank, keys in known.items()
    }


def read_series(timelines: Sequence[RankTimeline], events: Sequence[Ints]) -> list[Series]:
    """Return some collectives of each rank as what ``align.py`` lines up."""
    tokens: dict[_Form, int] = {}
    found = []
    for timeline, own in zip(timelines, events, strict=True):
        collectives = [timeline.collectives[event] for event in own.tolist()]
        found.append(
            Series(
                token=np.array([tokens.setdefault(_describe(one), len(tokens)) for one in collectives], np.int64),
                start_ns=np.array([one.start_ns for one in collectives], dtype=np.int64),
                end_ns=np.array([one.end_ns for one in collectives], dtype=np.int64),
                waits_for_all=np.array([one.operation in WAIT_FOR_ALL for one in collectives], dtype=np.bool_),
            )
        )
    return found


def _describe(collective: Collective) -> _Form:
    """Return what is equal on all ranks."""
    return collective.operation, None if collective.operation in _UNEVEN else collective.size_bytes

"""Which collectives of several ranks lie on one process group.

torch names groups by counters, so the same name may mean another group on another rank, and the same group may have
another name: where the traces say the ranks of a group, these decide. Traces of 2023 say nothing; there the stream
stands for the group, and only ranks whose ends agree are taken together. Groups that were inferred from gloo's threads
are groups where ranks agree on them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT, WAIT_FOR_ALL, Operation
from dtbench.traces.ranks.align import Series
from dtbench.traces.skeleton import OPERATIONS, CollectiveColumns, SaidGroup, Skeleton, are_among
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.who.collectives import INFERRED_PREFIX

_UNEVEN: Final = (Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER)
"""Of which each rank may send another size, and a rank that has a part may not say of what."""


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


class _Key(NamedTuple):
    """One group as one rank knows it; its ranks by their place among all that are known, 0 where they are not said."""

    name: str
    roster: int
    stream: str


@dataclass
class _Rosters:
    """Ranks of groups, each set of them once: there may be thousands in each, on each of thousands of ranks.

    Attributes:
        ranks: rising; the first has none.
        members: the same as sets.
    """

    ranks: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    members: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])
    _places: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    _by_object: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)

    def place(self, ranks: tuple[int, ...]) -> int:
        """Return the place of some ranks, in whatever order."""
        if (known := self._by_object.get(id(ranks))) is not None:
            return known[1]
        rising = tuple(sorted(ranks))
        if (place := self._places.get(rising)) is None:
            place = self._places[rising] = len(self.ranks)
            self.ranks.append(rising)
            self.members.append(frozenset(rising))
        self._by_object[id(ranks)] = (ranks, place)  # which also keeps the object, and with it its id
        return place


def find_groups(timelines: Sequence[Skeleton], *, point_to_point: bool = False) -> list[GroupEvents]:
    """Collect the events of each group over ranks, either of the collectives or of the sends and receives.

    Collectives whose span was not found are left out: they have no times to compare. Not so sends and receives over
    gloo, which belong together by their order.
    """
    wanted = {one.rank: _find_wanted(one, point_to_point=point_to_point) for one in timelines}
    if not any(own.any() for own in wanted.values()):
        return []
    doubtful, rosters = _find_doubtful(timelines), _Rosters()
    known = {one.rank: _keys_of(one, wanted[one.rank], doubtful, rosters) for one in timelines}
    known = _complete_ranks(known, rosters)
    sizes = {one.rank: _sizes_of(one.columns) for one in timelines}
    shared: dict[_Key, dict[int, Ints]] = defaultdict(dict)
    for rank, keys in _unify_streams(_unify_names(known)).items():
        for key, events in keys.items():
            shared[key][rank] = events
    by_rank = {one.rank: one for one in timelines}
    return [
        GroupEvents(
            name=key.name,
            ranks=rosters.ranks[key.roster],
            size=len(rosters.ranks[key.roster])
            or max((sizes[rank].get(key.name, 0) for rank in members), default=0)
            or None,
            events={rank: events[rank] for rank in members},
            is_told=is_told,
        )
        for key, events in sorted(
            shared.items(), key=lambda item: (item[0].name, rosters.ranks[item[0].roster], item[0].stream)
        )
        for members, is_told in (
            [(list(events), False)] if point_to_point or key.roster else _tell_apart(events, by_rank)
        )
    ]


def _tell_apart(events: Mapping[int, Ints], by_rank: Mapping[int, Skeleton]) -> list[tuple[list[int], bool]]:
    """Divide the ranks that give one name to groups of which no trace says the ranks, and say whether ids did it.

    Those that have the id of a collective in common share a group; where a rank's trace has no ids, nothing is told.
    """
    ids = {rank: _ids_of(by_rank[rank].columns, own) for rank, own in events.items()}
    if not all(ids.values()):
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


def _ids_of(columns: CollectiveColumns, events: Ints) -> set[str]:
    return {one for code in set(columns.comms_id[events].tolist()) if (one := columns.comms_ids[code])}


def _find_doubtful(timelines: Sequence[Skeleton]) -> frozenset[str]:
    """Find the inferred groups of which ranks do not agree what ran on them: no evidence of what a group is.

    What only some ranks ran contradicts nobody.
    """
    groups_of: dict[int, set[frozenset[str]]] = defaultdict(set)
    for timeline in timelines:
        if timeline.is_device:
            continue
        columns = timeline.columns
        is_guess = columns.of_groups(not one.name or one.name.startswith(INFERRED_PREFIX) for one in columns.groups)
        rows = np.flatnonzero(is_guess & columns.is_seen)
        found: dict[int, set[str]] = defaultdict(set)
        for form, group in set(zip(_read_forms(columns)[rows].tolist(), columns.group[rows].tolist(), strict=True)):
            found[form].add(columns.groups[group].name)
        for form, groups in found.items():
            groups_of[form].add(frozenset(groups))
    return frozenset().union(*(groups for told in groups_of.values() if len(told) > 1 for groups in told))


def _find_wanted(timeline: Skeleton, *, point_to_point: bool) -> Bools:
    columns = timeline.columns
    is_of_kind = are_among(columns.operation, POINT_TO_POINT) == point_to_point
    is_there = is_of_kind if point_to_point and not timeline.is_device else columns.is_seen
    return np.asarray(is_of_kind & is_there, dtype=np.bool_)


def _keys_of(timeline: Skeleton, wanted: Bools, doubtful: frozenset[str], rosters: _Rosters) -> dict[_Key, Ints]:
    """Return the wanted events of each group, the groups in order of their first event."""
    columns = timeline.columns
    events = np.flatnonzero(wanted)
    ranks = {said.name: said.ranks for said in _by_last(columns) if said.ranks}
    names = ["" if said.name in doubtful else said.name for said in columns.groups]
    places = [rosters.place(ranks[name]) if name in ranks else 0 for name in names]
    uses_stream = timeline.is_device and not all(said.name for said in columns.groups)
    shown, number_of = columns.group[events].astype(np.int64), len(columns.streams)
    if uses_stream:
        is_unnamed = columns.of_groups(not said.name for said in columns.groups)[events]
        shown = shown * number_of + np.where(is_unnamed, columns.stream[events], 0)
    found: dict[_Key, list[Ints]] = defaultdict(list)
    for code in _distinct(shown):
        group = code // number_of if uses_stream else code
        is_by_stream = uses_stream and not columns.groups[group].name
        stream = columns.streams[code % number_of] if is_by_stream else ""
        found[_Key(names[group], places[group], stream)].append(events[shown == code])
    parts = {key: own[0] if len(own) == 1 else np.sort(np.concatenate(own)) for key, own in found.items()}
    return {key: _in_order(columns, own) for key, own in sorted(parts.items(), key=lambda item: int(item[1][0]))}


def _distinct(codes: Ints) -> list[int]:
    """Return the codes that are there; small ones, so that counting beats sorting."""
    return np.flatnonzero(np.bincount(codes)).tolist() if len(codes) else []


def _in_order(columns: CollectiveColumns, events: Ints) -> Ints:
    """Sort by issue: gloo's threads start what was issued first a moment after the next.

    What has no known issue comes where it started, before what was issued with all that started later.
    """
    is_told = columns.issue_ns.is_told[events]
    known = events[is_told]
    issue_ns = columns.issue_ns.values[known]
    if (issue_ns[1:] < issue_ns[:-1]).any():
        known = known[np.argsort(issue_ns, kind="stable")]
    if len(known) == len(events):
        return known
    others = events[~is_told]
    others = others[np.argsort(columns.start_ns[others], kind="stable")]
    begun_ns = np.maximum.accumulate(columns.start_ns[known])
    return np.insert(known, begun_ns.searchsorted(columns.start_ns[others]), others)


def _by_last(columns: CollectiveColumns) -> list[SaidGroup]:
    """Return the groups of a rank in order of their last collective: what it said last of a name counts."""
    if len({said.name for said in columns.groups}) == len(columns.groups):
        return list(columns.groups)
    last = np.zeros(len(columns.groups), dtype=np.int64)
    np.maximum.at(last, columns.group, np.arange(len(columns)))
    return [columns.groups[place] for place in np.argsort(last, kind="stable").tolist()]


def _sizes_of(columns: CollectiveColumns) -> dict[str, int]:
    return {said.name: said.size for said in _by_last(columns) if said.size and said.name}


def _complete_ranks(known: Mapping[int, dict[_Key, Ints]], rosters: _Rosters) -> dict[int, dict[_Key, Ints]]:
    """Fill a group that a rank names without its ranks with those that others say, if only one such group has it."""
    said: dict[str, set[int]] = defaultdict(set)
    for keys in known.values():
        for key in keys:
            if key.roster:
                said[key.name].add(key.roster)

    def complete(key: _Key, rank: int) -> _Key:
        if key.roster:
            return key
        fitting = [roster for roster in said[key.name] if rank in rosters.members[roster]]
        return key._replace(roster=fitting[0]) if len(fitting) == 1 else key

    return {rank: {complete(key, rank): events for key, events in keys.items()} for rank, keys in known.items()}


def _unify_names(known: Mapping[int, dict[_Key, Ints]]) -> dict[int, dict[_Key, Ints]]:
    """Return groups of the same ranks that ranks name differently the names of the first rank, in order of name."""
    names: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for rank, keys in known.items():
        for key in sorted(keys, key=lambda key: (len(key.name), key.name)):
            if key.roster:
                names[key.roster][rank].append(key.name)
    renamed: dict[tuple[int, int, str], str] = {}
    for roster, by_rank in names.items():
        first = by_rank[min(by_rank)]
        for rank, own in by_rank.items():
            if set(own) != set(first) and len(own) == len(first):
                renamed.update({(rank, roster, name): new for name, new in zip(own, first, strict=True)})
    return {
        rank: {
            key._replace(name=renamed.get((rank, key.roster, key.name), key.name)): events
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
            key._replace(stream=str(streams[rank].index(key.stream)) if key.stream else ""): events
            for key, events in keys.items()
        }
        for rank, keys in known.items()
    }


def read_series(timelines: Sequence[Skeleton], events: Sequence[Ints]) -> list[Series]:
    """Return some collectives of each rank as what ``align.py`` lines up."""
    return [_read_series(timeline.columns, own) for timeline, own in zip(timelines, events, strict=True)]


def _read_series(columns: CollectiveColumns, events: Ints) -> Series:
    return Series(
        token=_read_forms(columns)[events],
        start_ns=columns.start_ns[events],
        end_ns=columns.end_ns[events],
        waits_for_all=are_among(columns.operation[events], WAIT_FOR_ALL),
    )


def _read_forms(columns: CollectiveColumns) -> Ints:
    """Return what is equal on all ranks, operation and size, as one number; shape ``(n,)``."""
    is_sized = columns.size_bytes.is_told & ~are_among(columns.operation, _UNEVEN)
    sized = np.where(is_sized, columns.size_bytes.values + 1, 0)
    return np.asarray(sized * len(OPERATIONS) + columns.operation, dtype=np.int64)

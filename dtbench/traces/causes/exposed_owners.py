"""Whose communication is exposed, and why: the rows that a summary leads with."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dtbench.base.vocabulary import POINT_TO_POINT, Cause, MissingInput, Operation, Purpose
from dtbench.traces.causes.outsized import find_outsized
from dtbench.traces.causes.split import CausePart, CauseSplit, order_missing
from dtbench.traces.time.intervals import Intervals, clip, unite_all
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Carried:
    """What an owner's collectives of one purpose and operation carried and took, summed over ranks and steps.

    Of times a launch without a kernel leaves none where it may be one of theirs: it says its operation at most.

    Attributes:
        at_most_ns: per step (per trace where no rank has steps) when the rank that has most of it had any of them under
            way that is not known to have waited for the last rank to begin; of sends and receives the sum over ranks,
            for one hands on to the next. What no change of theirs can gain more than, as far as the same rank is the
            slowest throughout. None: one was not seen to run.
        waited_at_most_ns: per step what they waited for the last rank, each on the rank that waited longest for it: a
            step may wait for one rank first and then for another. None: not known of each.
        taken_at_most_ns: likewise what they took, waiting included; None: one was not seen to run.
        transfer_ns: what they took when not waiting so, summed over steps and ranks; None: not known of each.
        skew_wait_ns: what they waited for the last rank, likewise.
        size_bytes: of the largest; None: of one it is not told, which may be larger.
        outsized_bytes: the same where it is of another order than the others, and takes most of the time; else None.
        dtype: of that one; empty: not told.
        parameters: FQNs that that one carried.
        group: torch's name of its process group.
        is_async: whether the calls that issued them may return before they are done; None: not told, or some may.
    """

    at_most_ns: int | None = None
    waited_at_most_ns: int | None = None
    taken_at_most_ns: int | None = None
    transfer_ns: int | None = None
    skew_wait_ns: int | None = None
    size_bytes: int | None = None
    outsized_bytes: int | None = None
    dtype: str = ""
    parameters: tuple[str, ...] = ()
    group: str = ""
    is_async: bool | None = None


_NEARLY_ALL: Final = 0.9
"""Part of the waiting for other ranks from which it is called waiting for one of them."""


@dataclass(frozen=True)
class ExposedOwner:
    """Exposed time of one owner's collectives for one cause, summed over ranks and steps.

    Attributes:
        owner: None: unattributed, the trace does not say whose it is.
        exposed_ns: of this cause.
        owner_exposed_ns: of all causes of this owner, purpose and operation.
        count: collectives that have a part of it.
        behind: for ``queued``, the collective that most of it stood behind.
        waited_for: for ``skew``, the rank that nearly all of it waited for; None: several, or not told.
        missing: for ``unknown``, everything that any of them lacked; what most of it lacked first.
        carried: what the owner's collectives carried and took, exposed or not.
    """

    owner: str | None
    purpose: Purpose
    operation: Operation | None
    cause: Cause
    exposed_ns: int
    owner_exposed_ns: int
    count: int
    behind: Collective | None
    waited_for: int | None
    missing: tuple[MissingInput, ...]
    carried: Carried = Carried()


@dataclass(frozen=True)
class ExplainedRank:
    """One rank's timeline with the causes of its exposed time.

    Attributes:
        timeline: the rank.
        splits: for each collective.
        last_ranks: for each collective the rank that started last; empty: not told.
        skew_waits_ns: for each what it waited for that rank; None or empty: not told.
        transfers_ns: for each the rest of its span, where that is its transfer; None or empty: not told.
        is_whole_known: it is known how much of the whole trace is exposed communication, or that at least.
    """

    timeline: RankTimeline
    splits: Sequence[CauseSplit]
    last_ranks: Sequence[int | None] = ()
    skew_waits_ns: Sequence[int | None] = ()
    transfers_ns: Sequence[int | None] = ()
    is_whole_known: bool = True


_Key = tuple[str | None, Purpose, Operation | None]


@dataclass(frozen=True)
class _Piece:
    part: CausePart
    behind: Collective | None
    waited_for: int | None


def rank_exposed_owners(ranks: Sequence[ExplainedRank], *, any_steps: bool) -> tuple[ExposedOwner, ...]:
    """Rank owners by their exposed time, largest first, and the causes of each likewise.

    Where the time of any step is known, only exposed time inside those of which it is known counts, else that of whole
    traces of which it is, so that rows add up to these accounts; where a border of a step cuts a collective, its causes
    take in their order. What has no owner is a row of its own.
    """
    pieces: dict[_Key, dict[Cause, list[_Piece]]] = {}
    for rank in ranks:
        if not any_steps and not rank.is_whole_known:
            continue
        counted_ns = rank.timeline.stepped_exposed_ns if any_steps else rank.timeline.exposed_ns
        for index, collective in enumerate(rank.timeline.collectives):
            if not counted_ns[index]:
                continue
            causes = pieces.setdefault(_key(collective), {})
            for part in _cut(rank.splits[index].parts, counted_ns[index]):
                behind = None if part.behind is None else rank.timeline.collectives[part.behind]
                last_rank = rank.last_ranks[index] if rank.last_ranks else None
                causes.setdefault(part.cause, []).append(_Piece(part, behind, last_rank))
    carried = _sum_carried(ranks, any_steps=any_steps)
    rows = [row for key, causes in pieces.items() for row in _rows_of(key, causes, carried[key])]
    return tuple(sorted(rows, key=lambda row: (-row.owner_exposed_ns, row.owner or "", row.purpose, -row.exposed_ns)))


def _key(collective: Collective) -> _Key:
    return collective.owner or None, collective.purpose, collective.operation


def _sum_carried(ranks: Sequence[ExplainedRank], *, any_steps: bool) -> dict[_Key, Carried]:
    """Sum what the collectives of each owner took; where any rank has steps, of those that a known step issued."""
    found: dict[_Key, list[_Taken]] = {}
    for rank in ranks:
        untold = (None,) * len(rank.timeline.collectives)
        waits_ns, transfers_ns = rank.skew_waits_ns or untold, rank.transfers_ns or untold
        rows = zip(rank.timeline.collectives, waits_ns, transfers_ns, strict=True)
        met = Counter[tuple[_Key, int | None]]()
        for index, (collective, wait_ns, transfer_ns) in enumerate(rows):
            if not any_steps or rank.timeline.is_of_known_step(index) or rank.timeline.stepped_exposed_ns[index]:
                key, step = _key(collective), rank.timeline.step_of[index]
                number = None if step is None else rank.timeline.step_numbers[step]
                place = number, met[key, number]
                met[key, number] += 1
                found.setdefault(key, []).append(_Taken(rank.timeline.rank, place, collective, wait_ns, transfer_ns))
    lost = frozenset(launch.operation for rank in ranks for launch in rank.timeline.unseen)
    windows = {rank.timeline.rank: rank.timeline.count_known_steps() if any_steps else 1 for rank in ranks}
    carried = {key: _carry(members, windows) for key, members in found.items()}
    return {key: _leave_times(one) if _may_include(key[-1], lost) else one for key, one in carried.items()}


def _may_include(operation: Operation | None, lost: Set[Operation | None]) -> bool:
    """Tell whether one of some lost collectives may have this operation."""
    return bool(lost) and (operation is None or operation in lost or None in lost)


def _leave_times(one: Carried) -> Carried:
    """Return what an owner's collectives carried, where those that were not seen to run may have taken any time."""
    return replace(
        one, at_most_ns=None, waited_at_most_ns=None, taken_at_most_ns=None, transfer_ns=None, skew_wait_ns=None
    )


class _Taken(NamedTuple):
    """A rank's collective with what it waited for the last rank and the rest of its span; None: not told.

    Its place: the number of its step, and how many of its owner came before in it.
    """

    rank: int
    place: tuple[int | None, int]
    one: Collective
    wait_ns: int | None
    transfer_ns: int | None


def _carry(members: Sequence[_Taken], windows: Mapping[int, int]) -> Carried:
    """Say what an owner's collectives took and carried; ``windows``: steps of each rank."""
    collectives = [member.one for member in members]
    largest = max(collectives, key=lambda one: one.size_bytes or 0)
    spans_ns = [one.span.length_ns for one in collectives]
    calls = {one.is_async for one in collectives}
    is_seen = all(len(one.span.starts_ns) for one in collectives)
    waits_ns = [(member.place, member.wait_ns) for member in members if member.wait_ns is not None]
    taken_ns = [(member.place, member.one.end_ns - member.one.start_ns) for member in members]
    steps = max(1, *windows.values())
    return Carried(
        at_most_ns=find_most(_sum_under_way(members), windows, largest.operation) if is_seen else None,
        waited_at_most_ns=sum_longest(waits_ns, steps) if len(waits_ns) == len(members) else None,
        taken_at_most_ns=sum_longest(taken_ns, steps) if is_seen else None,
        transfer_ns=_sum_known([member.transfer_ns for member in members]),
        skew_wait_ns=_sum_known([member.wait_ns for member in members]),
        size_bytes=None if any(one.size_bytes is None for one in collectives) else largest.size_bytes,
        outsized_bytes=find_outsized([one.size_bytes for one in collectives], spans_ns),
        dtype=largest.dtype or "",
        parameters=largest.parameters,
        group=largest.group,
        is_async=calls.pop() if len(calls) == 1 else None,
    )


def find_most(times_ns: Mapping[int, int], windows: Mapping[int, int], operation: Operation | None) -> int:
    """Return per step what collectives can gain at most: the time of the rank that has most of it.

    Of sends and receives the sum over ranks: along a chain of ranks each one's comes after the one's before.

    Args:
        times_ns: by rank, of all its steps.
        windows: steps of each rank.
        operation: of these collectives.
    """
    per_step = [round(time_ns / max(windows[rank], 1)) for rank, time_ns in times_ns.items()]
    return sum(per_step) if operation in POINT_TO_POINT else max(per_step)


def sum_longest(times_ns: Iterable[tuple[Hashable, int]], steps: int) -> int:
    """Return per step what collectives took, each on the rank where that is longest.

    Args:
        times_ns: of each rank's part of each, with what tells one collective from another on all ranks.
        steps: number of steps.
    """
    longest: dict[Hashable, int] = {}
    for place, time_ns in times_ns:
        longest[place] = max(longest.get(place, 0), time_ns)
    return round(sum(longest.values()) / steps)


def _sum_under_way(members: Sequence[_Taken]) -> dict[int, int]:
    """Sum for each rank when one was under way and its last rank had begun, as far as that is known."""
    under_way: dict[int, list[Intervals]] = {}
    for rank, _, one, wait_ns, _ in members:
        under_way.setdefault(rank, []).append(clip(one.span, one.start_ns + (wait_ns or 0), one.end_ns))
    return {rank: unite_all(*spans).length_ns for rank, spans in under_way.items()}


def _sum_known(times_ns: Sequence[int | None]) -> int | None:
    """Return the sum; None where one is not known."""
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if len(known) == len(times_ns) else None


def _cut(parts: Sequence[CausePart], counted_ns: int) -> Iterator[CausePart]:
    """Yield the parts, in order, as long as there is counted time."""
    for part in parts:
        taken_ns = min(part.exposed_ns, counted_ns)
        counted_ns -= taken_ns
        if taken_ns:
            yield part if taken_ns == part.exposed_ns else replace(part, exposed_ns=taken_ns)


def _rows_of(key: _Key, causes: Mapping[Cause, Sequence[_Piece]], carried: Carried) -> list[ExposedOwner]:
    owner, purpose, operation = key
    total_ns = sum(piece.part.exposed_ns for pieces in causes.values() for piece in pieces)
    return [
        ExposedOwner(
            owner=owner,
            purpose=purpose,
            operation=operation,
            cause=cause,
            exposed_ns=sum(piece.part.exposed_ns for piece in pieces),
            owner_exposed_ns=total_ns,
            count=len(pieces),
            behind=_behind(pieces),
            waited_for=_waited_for(cause, pieces),
            missing=order_missing([piece.part for piece in pieces]),
            carried=carried,
        )
        for cause, pieces in causes.items()
    ]


def _behind(pieces: Sequence[_Piece]) -> Collective | None:
    """Return one of the collectives, of equal owner and operation, that most time stood behind."""
    time_ns: dict[tuple[str, Operation | None], int] = {}
    one_of: dict[tuple[str, Operation | None], Collective] = {}
    for piece in pieces:
        if piece.behind is not None:
            key = (piece.behind.owner, piece.behind.operation)
            time_ns[key] = time_ns.get(key, 0) + piece.part.exposed_ns
            one_of.setdefault(key, piece.behind)
    return one_of[max(time_ns, key=time_ns.__getitem__)] if time_ns else None


def _waited_for(cause: Cause, pieces: Sequence[_Piece]) -> int | None:
    if cause not in (Cause.SKEW, Cause.BUBBLE):
        return None
    times_ns: dict[int | None, int] = {}
    for piece in pieces:
        times_ns[piece.waited_for] = times_ns.get(piece.waited_for, 0) + piece.part.exposed_ns
    return find_awaited_rank(times_ns)


def find_awaited_rank(times_ns: Mapping[int | None, int]) -> int | None:
    """Return the rank for which nearly all of a time was waited; None: there is none, one of several is no culprit.

    Args:
        times_ns: by the rank waited for; None: not told.
    """
    rank = max(times_ns, key=times_ns.__getitem__, default=None)
    return rank if rank is not None and times_ns[rank] > _NEARLY_ALL * sum(times_ns.values()) else None

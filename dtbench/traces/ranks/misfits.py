"""Ranks that cannot be compared with the others, though their traces are there: copies, other runs, clocks far off.

What is said over ranks (who waited for whom, what is skew) rests on the traces being of one moment of one run. Where
something speaks against that, a note says what, and nothing over ranks is said of those ranks::

    rank 0   A A B        rank 0   A A B            rank 0   |A A B|
    rank 1   A A B        rank 1   A C B            rank 1                 |A A B|
    to the ns: a copy     number 2 is another one   its clock would be off by more than its trace lasts
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

import numpy as np

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.clocks import ClockFarOff, ClockUnsure, Copies, Misfit, OfAnotherProgram, OfAnotherRank
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.groups import GroupEvents, find_groups
from dtbench.traces.skeleton import OPERATIONS, CollectiveColumns, Skeleton, are_among, are_equal
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline

_OF_STEP: Final = 0.5  # of a step, the most by which an alignment may be unsure
_OF_NUMBERS: Final = 0.5  # of the numbers that a rank shares, the most that may stand for something else there
_NO_ACCIDENT: Final = 32  # events; no two ranks take so many at the same nanoseconds
_OF_EQUAL_SIZE: Final = (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
"""Whose size is the same on all ranks of a group."""

_Said = TypeVar("_Said", bound=Hashable)


@dataclass(frozen=True)
class Misfits:
    """What speaks against comparing some ranks.

    Attributes:
        ranks: of which nothing may be said over ranks.
        strangers: those of them that are not, or not surely, of the same run.
        notes: why.
    """

    ranks: frozenset[int] = frozenset()
    strangers: frozenset[int] = frozenset()
    notes: tuple[Misfit, ...] = ()


def find_mistaken(timelines: Sequence[RankTimeline], misnumbered: Collection[int]) -> Misfits:
    """Find the ranks whose trace is, or may be, another rank's.

    Args:
        timelines: distinct ranks, each of a file of its own.
        misnumbered: those whose traces say that they are another's.
    """
    copies = _find_copies([one for one in timelines if one.rank not in misnumbered])
    of_another = [OfAnotherRank(tuple(sorted(misnumbered)))] if misnumbered else []
    strangers = frozenset(misnumbered).union(*(one.ranks for one in copies))
    return Misfits(strangers, strangers, (*of_another, *copies))


def find_misfits(
    timelines: Sequence[Skeleton], groups: Sequence[GroupEvents], clocks: Clocks, mistaken: Misfits
) -> Misfits:
    """Find the ranks that cannot be compared with the others.

    Args:
        timelines: distinct ranks.
        groups: of all of them.
        clocks: of all of them, as the ends of their collectives say.
        mistaken: those that are known already.
    """
    strangers = set(mistaken.strangers)
    strangers |= _differing({one.rank: one.world_size for one in timelines if one.world_size is not None})
    left = [one for one in timelines if one.rank not in strangers]
    programs = _find_other_programs(left, find_groups(left) if strangers else groups)
    of_another = [OfAnotherProgram(tuple(sorted(programs)))] if programs else []
    compared = _compared([one for one in timelines if one.rank not in strangers | programs], clocks)
    far, far_notes = _find_far(compared, clocks)
    unsure, unsure_notes = _find_unsure(compared, clocks)
    strangers |= programs | far
    return Misfits(
        frozenset(strangers | unsure), frozenset(strangers), (*mistaken.notes, *of_another, *far_notes, *unsure_notes)
    )


def _find_copies(timelines: Sequence[RankTimeline]) -> list[Copies]:
    """Find ranks whose traces are the same to the nanosecond, wherever the zeros of their clocks lie.

    Of few events two ranks may have the same by chance, or by whoever drew them, unless neither says its rank and the
    times are the same without any shift.
    """
    found: dict[tuple[bytes, object], dict[int, int]] = defaultdict(dict)
    for timeline in timelines:
        events = sum(len(one.span.starts_ns) for one in timeline.collectives)
        if not events:
            continue
        begin_ns, digest = _digest(timeline)
        is_surely = events + len(timeline.compute_starts_ns) >= _NO_ACCIDENT
        unlike = None if is_surely else begin_ns if timeline.said_rank is None else f"rank {timeline.rank}"
        found[digest, unlike][timeline.rank] = begin_ns
    return [Copies((*begins,), len({*begins.values()}) > 1) for begins in found.values() if len(begins) > 1]


def _digest(timeline: RankTimeline) -> tuple[int, bytes]:
    """Return when a trace begins, and what is the same in its copies, whatever stands around the events.

    That has all times since the begin: a copy of which all are shifted alike is one all the same.
    """
    spans = [one.span for one in timeline.collectives]
    compute = [timeline.compute.starts_ns, timeline.compute.ends_ns, timeline.compute_starts_ns]
    times_ns = np.concatenate((*compute, *(side for span in spans for side in (span.starts_ns, span.ends_ns))))
    begin_ns = int(times_ns.min())
    said = [
        (one.operation, one.size_bytes, None if one.issue_ns is None else one.issue_ns - begin_ns)
        for one in timeline.collectives
    ]
    digest = blake2b(repr(said).encode(), digest_size=16)
    digest.update((times_ns - begin_ns).tobytes())
    return begin_ns, digest.digest()


def _differing(said: Mapping[int, _Said]) -> set[int]:
    """Return the ranks that say something else than most; all, where no answer has the most."""
    counts = Counter(said.values()).most_common(2)
    if len(counts) < 2:
        return set()
    is_tie = counts[0][1] == counts[1][1]
    return {rank for rank, one in said.items() if is_tie or one != counts[0][0]}


def _find_other_programs(timelines: Sequence[Skeleton], groups: Sequence[GroupEvents]) -> set[int]:
    """Find ranks whose numbered collectives are others than those that most ranks have under these numbers."""
    by_rank = {one.rank: one for one in timelines}
    shared: Counter[int] = Counter()
    other: Counter[int] = Counter()
    for group in groups:
        if group.ranks:  # else one name may stand for several groups
            calls = {rank: _Calls.of(by_rank[rank].columns, events) for rank, events in group.events.items()}
            if _are_all_alike(list(calls.values())):
                numbers = len(np.unique(next(iter(calls.values())).seq)) if len(calls) > 1 else 0
                shared.update(dict.fromkeys(calls, numbers))
                continue
            for of_ranks in _read_calls(calls):
                shared.update(of_ranks.keys())
                other.update(_differing(of_ranks))
    return {rank for rank, count in other.items() if count > _OF_NUMBERS * shared[rank]}


@dataclass(frozen=True)
class _Calls:
    """The numbered collectives of a rank on one group, in order of issue; all of shape ``(n,)``.

    Attributes:
        seq: their numbers.
        operation: places in ``OPERATIONS``.
        size_bytes: -1 where the size is not known, or need not be the same on all ranks.
    """

    seq: Ints
    operation: Ints
    size_bytes: Ints

    @classmethod
    def of(cls, columns: CollectiveColumns, events: Ints) -> "_Calls":
        """Read them from a rank's columns."""
        if not (is_told := columns.seq.is_told[events]).all():
            events = events[is_told]
        operation = columns.operation[events]
        is_sized = columns.size_bytes.is_told[events] & are_among(operation, _OF_EQUAL_SIZE)
        size_bytes = np.where(is_sized, columns.size_bytes.values[events], -1)
        return cls(columns.seq.values[events], operation.astype(np.int64), size_bytes)


def _are_all_alike(calls: Sequence[_Calls]) -> bool:
    first = calls[0]
    return all(
        are_equal(first.seq, own.seq)
        and are_equal(first.operation, own.operation)
        and are_equal(first.size_bytes, own.size_bytes)
        for own in calls
    )


def _read_calls(calls: Mapping[int, _Calls]) -> Iterator[dict[int, str]]:
    """Yield for each number that several ranks have what each of them did under it.

    A size that is not known of one is not another's.
    """
    called: dict[int, dict[int, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for rank, own in calls.items():
        columns = (own.seq.tolist(), own.operation.tolist(), own.size_bytes.tolist())
        for seq, operation, size_bytes in zip(*columns, strict=True):
            called[seq][rank].append((str(OPERATIONS[operation]), size_bytes))
    for of_ranks in called.values():
        if len(of_ranks) > 1:
            are_sized = not any(size_bytes < 0 for own in of_ranks.values() for _, size_bytes in own)
            yield {
                rank: ", ".join(sorted(f"{name} {size_bytes}" if are_sized else name for name, size_bytes in own))
                for rank, own in of_ranks.items()
            }


def _compared(timelines: Sequence[Skeleton], clocks: Clocks) -> list[Skeleton]:
    """Return the ranks whose clocks were compared; none where all are on one clock."""
    known = [
        one
        for one in timelines
        if clocks.by_rank[one.rank].uncertainty_ns is not None and one.rank not in clocks.out_of_step
    ]
    hosts = {one.host for one in known}
    are_equal = not any(clocks.by_rank[one.rank].offset_ns for one in known)
    is_one_clock = len(hosts) == 1 and None not in hosts and are_equal
    return [] if is_one_clock or len(known) < 2 else known


def _find_far(timelines: Sequence[Skeleton], clocks: Clocks) -> tuple[set[int], list[ClockFarOff]]:
    """Find the ranks whose clock would be off by more than their trace lasts."""
    bases = [one.base_ns for one in timelines]
    bases_ns = [0 if None in bases else base or 0 for base in bases]
    ahead_ns = [clocks.by_rank[one.rank].offset_ns + base for one, base in zip(timelines, bases_ns, strict=True)]
    middle_ns = sorted(ahead_ns)[(len(ahead_ns) - 1) // 2] if ahead_ns else 0
    far = {
        one.rank: abs(ahead - middle_ns)
        for one, ahead in zip(timelines, ahead_ns, strict=True)
        if abs(ahead - middle_ns) > _steps_extent_ns(one) and abs(ahead - middle_ns) > _extent_ns(one)
    }
    return set(far), [ClockFarOff(tuple(sorted(far)), max(far.values()))] if far else []


def _find_unsure(timelines: Sequence[Skeleton], clocks: Clocks) -> tuple[set[int], list[ClockUnsure]]:
    """Find the ranks of which it is known to half a step at best how far their clock is off."""
    unsure = {
        one.rank: doubt_ns
        for one in timelines
        if (doubt_ns := clocks.by_rank[one.rank].uncertainty_ns or 0) > _OF_STEP * _step_ns(one)
    }
    return set(unsure), [ClockUnsure(tuple(sorted(unsure)), max(unsure.values()))] if unsure else []


def _step_ns(timeline: Skeleton) -> float:
    """Return the median step; the whole trace where there is none."""
    lengths = sorted(step.length_ns for step in timeline.steps if step.length_ns)
    if not lengths:
        return float(_extent_ns(timeline))
    return (lengths[(len(lengths) - 1) // 2] + lengths[len(lengths) // 2]) / 2


def _extent_ns(timeline: Skeleton) -> int:
    """Return how long a trace lasts: its collectives, its steps or its compute, whichever is longest."""
    columns = timeline.columns
    starts_ns, ends_ns = columns.start_ns, columns.end_ns
    if not columns.is_seen.all():
        starts_ns, ends_ns = starts_ns[columns.is_seen], ends_ns[columns.is_seen]
    spans = [(int(starts_ns.min()), int(ends_ns.max()))] if len(starts_ns) else []
    compute = list(zip(timeline.compute.starts_ns[:1].tolist(), timeline.compute.ends_ns[-1:].tolist(), strict=True))
    return max(_length_ns(spans), _steps_extent_ns(timeline), _length_ns(compute))


def _steps_extent_ns(timeline: Skeleton) -> int:
    return _length_ns([(step.start_ns, step.end_ns) for step in timeline.steps])


def _length_ns(spans: Sequence[tuple[int, int]]) -> int:
    return max(end for _, end in spans) - min(start for start, _ in spans) if spans else 0

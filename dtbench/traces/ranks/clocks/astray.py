"""When a clock was not as the ends of all collectives together say: it was set, or a rank was seen to leave late.

::

    rank 0   ...|   ...|   ...|   ...|
    rank 1   ...|   ...|      ...|   ...|     that end is astray, and with it all between the ends beside it
                       [~~~~~~~~~~~~~]        of which it is not known on which clock it was

A rank that begins late makes all others end later, with it: where ends lie apart, begins cannot be compared. Where most
machines agree, it is the others that are astray; else it is not known which, and all are.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.notes.clocks import EndsAstray
from dtbench.traces.notes.note import join_ranks
from dtbench.traces.ranks.clocks.chain import find_reach_ns, find_scatter
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes, ends_together, take_rows
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite

_FEWEST: Final = 2  # ends that lie apart alike: no thread is woken late twice by as much
_MOST_SETTINGS: Final = 2  # of a clock in one trace, forth and back; where ends lie apart more often, it was none
_SURELY: Final = 4  # times the doubt about clocks: much more
_FIRST_NS: Final = -(1 << 61)
_LAST_NS: Final = 1 << 61


@dataclass(frozen=True)
class Astray:
    """When clocks were not as they are taken to be, on each rank's own clock.

    Attributes:
        times: by rank, on either clock where one was set; what was under way then is compared with nothing of another
            machine.
        apart: by rank, the same between ends alone, for what has an end that tells.
        set_in: by rank, between which ends its clock, or that of one it is compared with, was set: what was under way
            then took longer, or shorter, than its trace says.
        notes: whose ends lie apart, and how.
    """

    times: Mapping[int, Intervals] = field(default_factory=dict)
    apart: Mapping[int, Intervals] = field(default_factory=dict)
    set_in: Mapping[int, Intervals] = field(default_factory=dict)
    notes: tuple[EndsAstray, ...] = ()

    def has(self, rank: int, start_ns: int, end_ns: int | None = None) -> bool:
        """Tell whether a span of a rank, on its own clock, runs into such time; without end, whether a moment does."""
        times, end_ns = self.times.get(rank), start_ns + 1 if end_ns is None else end_ns
        return times is not None and bool(times.touches(np.array([start_ns]), np.array([end_ns]))[0])

    def covers(self, times: GroupTimes, machines: Sequence[Collection[int]]) -> Bools:
        """Tell which ranks' times, each on its own clock, cannot be compared with the others', shape ``(m, ranks)``.

        Those of one machine can: whatever its clock did, it did to all.
        """
        found = np.zeros_like(times.there)
        if self.times.keys().isdisjoint(times.ranks):
            return found
        has_end = ends_together(times)
        for column, rank in enumerate(times.ranks):
            if rank in self.times:
                span = (times.start_ns[:, column], times.end_ns[:, column])
                found[:, column] = np.where(has_end, self.apart[rank].touches(*span), self.times[rank].touches(*span))
        place = {rank: at for at, ranks in enumerate(machines) for rank in ranks}
        of = np.array([place[rank] for rank in times.ranks])
        is_one = np.where(times.there, of, len(place)).min(axis=1) == np.where(times.there, of, -1).max(axis=1)
        return np.asarray(found & times.there & ~is_one[:, None], dtype=np.bool_)


@dataclass(frozen=True)
class _Ends:
    """When a machine left collectives of several machines, in order of time; all of shape ``(n,)``.

    Attributes:
        end_ns: on its own clock, of the first of its ranks to leave: a thread may be woken late, none early.
        last_ns: of the last of them.
        late_ns: how much later than the middle machine's, on the common clock; of two machines, than the other's.
        reach_ns: how far ends of that group lie apart that belong together.
        is_off: it lies further off than that, or may.
        is_odd: it does, and most others do not.
    """

    end_ns: Ints
    last_ns: Ints
    late_ns: NDArray[np.float64]
    reach_ns: NDArray[np.float64]
    is_off: Bools
    is_odd: Bools


def find_astray(times: Sequence[GroupTimes], clocks: Mapping[int, Clock], machines: Sequence[Sequence[int]]) -> Astray:
    """Find when clocks were not as they are taken to be.

    Args:
        times: of the ranks, each on its own clock.
        clocks: as they are taken to be.
        machines: ranks that share one clock.
    """
    read: dict[tuple[int, ...], list[_Ends]] = defaultdict(list)
    machine_of = {rank: tuple(ranks) for ranks in machines for rank in ranks}
    for one in times:
        for ranks, ends in _read_ends(one, clocks, machine_of):
            read[ranks].append(ends)
    joined = {ranks: _join(parts) for ranks, parts in read.items()}
    off = {ranks: ends for ranks, ends in joined.items() if ends.is_off.any()}
    return Astray(
        times={rank: _find_times(ends, ends.late_ns) for ranks, ends in off.items() for rank in ranks},
        apart={rank: _find_times(ends, 0 * ends.late_ns) for ranks, ends in off.items() for rank in ranks},
        set_in={rank: _find_settings(ends) for ranks, ends in off.items() for rank in ranks},
        notes=join_ranks(_note(ranks, ends) for ranks, ends in off.items()),
    )


def join_astray(parts: Sequence[Astray]) -> Astray:
    """Put together what was found of ranks that have nothing to do with each other."""
    return Astray(
        times={rank: time for one in parts for rank, time in one.times.items()},
        apart={rank: time for one in parts for rank, time in one.apart.items()},
        set_in={rank: time for one in parts for rank, time in one.set_in.items()},
        notes=tuple(note for one in parts for note in one.notes),
    )


def _join(parts: Sequence[_Ends]) -> _Ends:
    columns = [np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(_Ends)]
    joined = _Ends(*columns)
    order = np.argsort(joined.end_ns - joined.late_ns, kind="stable")  # a clock that is set back tells a time twice
    return _Ends(*(column[order] for column in columns))


def _read_ends(
    times: GroupTimes, clocks: Mapping[int, Clock], machine_of: Mapping[int, tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], _Ends]]:
    """Yield the ends of each machine in the collectives of one group that all leave together."""
    of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for column, rank in enumerate(times.ranks):
        of[machine_of[rank]].append(column)
    if len(of) == 1:
        return
    there = np.stack([times.there[:, own].any(axis=1) for own in of.values()], axis=1)
    rows = ends_together(times) & (there.sum(axis=1) > 1)
    if not rows.any():
        return
    ends_ns, are_there, there = take_rows(times.end_ns, rows), take_rows(times.there, rows), take_rows(there, rows)
    columns = [(ends_ns[:, own], are_there[:, own]) for own in of.values()]
    end_ns = np.stack([np.where(is_in, ends, _LAST_NS).min(axis=1) for ends, is_in in columns], axis=1)
    last_ns = np.stack([np.where(is_in, ends, _FIRST_NS).max(axis=1) for ends, is_in in columns], axis=1)
    common_ns = np.stack([clocks[ranks[0]].to_common(own) for ranks, own in zip(of, end_ns.T, strict=True)], axis=1)
    after_ns = np.where(there, common_ns - np.where(there, common_ns, _LAST_NS).min(axis=1, keepdims=True), np.nan)
    middle_ns = (np.median if there.all() else np.nanmedian)(after_ns, axis=1, keepdims=True)
    late_ns = after_ns - middle_ns
    late_ns[there.sum(axis=1) == 2] *= 2
    doubt_ns = _SURELY * max(clocks[ranks[0]].uncertainty_ns or 0 for ranks in of)
    scatters_ns = [find_scatter(own[is_in])[1] for own, is_in in zip(late_ns.T, there.T, strict=True)]
    reaches_ns = np.array([max(find_reach_ns(scatter_ns), doubt_ns) for scatter_ns in scatters_ns])
    agrees, is_told = _find_agreeing(after_ns, reaches_ns)
    is_off, is_odd = ~(agrees & is_told[:, None]), ~agrees & is_told[:, None]
    tables = (end_ns, last_ns, late_ns, np.broadcast_to(reaches_ns, late_ns.shape), is_off, is_odd)
    for at, ranks in enumerate(of):
        yield ranks, _Ends(*(table[there[:, at], at] for table in tables))


def _find_agreeing(after_ns: NDArray[np.float64], reaches_ns: NDArray[np.float64]) -> tuple[Bools, Bools]:
    """Tell which ends lie near the middle one, shape ``(m, machines)``, and where these are most: ``(m,)``.

    Args:
        after_ns: how much later than the first machine each ended; NaN: it is not there.
        reaches_ns: of each machine, how far its ends lie from the others' that belong to them.
    """
    count = (~np.isnan(after_ns)).sum(axis=1)
    middle_ns = np.sort(after_ns, axis=1)[np.arange(len(count)), (count - 1) // 2]
    agrees = np.abs(after_ns - middle_ns[:, None]) <= reaches_ns
    return agrees, np.asarray(2 * agrees.sum(axis=1) > count, dtype=np.bool_)


def _find_times(ends: _Ends, set_ns: NDArray[np.float64]) -> Intervals:
    """Return the time between ends that agree in which others do not; of a thread that was woken late, only the moment.

    Args:
        ends: of a machine.
        set_ns: by how much its clock may have been set, at each of them.
    """
    before_ns, after_ns = np.append(_FIRST_NS, ends.last_ns), np.append(ends.end_ns, _LAST_NS)
    off_ns = ends.end_ns[ends.is_off]
    starts_ns, ends_ns = [off_ns - 1], [off_ns]
    for start, stop in _find_runs(ends, np.diff(ends.is_off)):
        starts_ns.append(before_ns[[start]] + min(int(set_ns[start:stop].min()), 0))
        ends_ns.append(after_ns[[stop]] + max(int(set_ns[start:stop].max()), 0))
    return unite(np.concatenate(starts_ns), np.concatenate(ends_ns))


def _find_settings(ends: _Ends) -> Intervals:
    """Return the time between ends in which a clock was set: on one side of it they lie apart from the others alike.

    Empty where that is so again and again, or explains few of them: as where processes take turns on a device.
    """
    is_other = np.diff(ends.is_off) | (ends.is_off[1:] & (np.abs(np.diff(ends.late_ns)) > ends.reach_ns[1:]))
    runs = _find_runs(ends, is_other)
    places = np.array(sorted({border for run in runs for border in run} - {0, len(ends.end_ns)}), dtype=np.int64)
    if len(places) > _MOST_SETTINGS or 2 * sum(stop - start for start, stop in runs) < ends.is_off.sum():
        places = places[:0]
    before_ns, after_ns = ends.last_ns[places - 1], ends.end_ns[places]
    return unite(np.minimum(before_ns, after_ns), np.maximum(before_ns, after_ns))


def _find_runs(ends: _Ends, is_other: Bools) -> list[tuple[int, int]]:
    """Return start and stop of the runs of ends that lie apart from the others: a single one only where it has no end.

    Args:
        ends: of a machine.
        is_other: shape ``(n - 1,)``, of what each end but the first begins another run.
    """
    borders = [0, *(np.flatnonzero(is_other) + 1).tolist(), len(ends.end_ns)]
    return [
        (start, stop)
        for start, stop in itertools.pairwise(borders)
        if ends.is_off[start] and (stop - start >= _FEWEST or start == 0 or stop == len(ends.end_ns))
    ]


def _note(ranks: Sequence[int], ends: _Ends) -> EndsAstray:
    """Return what is to be known of a machine whose ends lie apart: of those that are odd where any is."""
    is_odd = bool(ends.is_odd.any())
    which = ends.is_odd if is_odd else ends.is_off
    late_ns = ends.late_ns[which]
    apart_ns = np.abs(late_ns)
    is_most = bool(np.ptp(apart_ns) > ends.reach_ns.max())
    return EndsAstray(
        ranks=tuple(sorted(ranks)),
        numbers=tuple((np.flatnonzero(which) + 1).tolist()),
        compared=len(which),
        apart_ns=float(apart_ns.max() if is_most else np.median(apart_ns)),
        is_most=is_most,
        is_later=bool(np.median(late_ns) > 0) if is_odd else None,
        was_set=bool(len(_find_settings(ends).starts_ns)),
    )

"""Clocks of ranks, and starts and ends of the collectives of one group as matrices with one column per rank."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import END_TOGETHER, WAIT_FOR_ALL
from dtbench.traces.ranks.match import MatchedGroup, Matches
from dtbench.traces.skeleton import Codes, CollectiveColumns, Skeleton, are_among
from dtbench.traces.time.intervals import Bools, Ints

_Scalar = TypeVar("_Scalar", bound=np.generic)

RESOLUTION_NS: Final = 1_000
"""Traces before 2024 know whole microseconds."""


@dataclass(frozen=True)
class Clock:
    """One rank's clock against the common one: ``common = own - offset_ns - drift * (own - at_ns)``.

    Attributes:
        offset_ns: how far it is ahead, at ``at_ns`` of its own time; 0 where no correction is applied.
        drift: how much it gains, a fraction (1e-6 is one microsecond in a second).
        at_ns: see above.
        uncertainty_ns: half width of the 99 % confidence interval of the offset; None: nothing to compare it with.
    """

    offset_ns: int = 0
    drift: float = 0.0
    at_ns: int = 0
    uncertainty_ns: int | None = None

    def to_common(self, times_ns: Ints) -> Ints:
        """Return moments of this rank on the common clock."""
        if not self.drift:
            return np.asarray(times_ns - self.offset_ns, dtype=np.int64)
        gained = np.rint((times_ns - self.at_ns) * self.drift).astype(np.int64)
        return np.asarray(times_ns - self.offset_ns - gained, dtype=np.int64)


_RIGHT: Final = Clock()


@dataclass(frozen=True)
class GroupTimes:
    """When the collectives of one group ran; all arrays but the last have shape ``(m, len(ranks))``.

    A rank's column lies in one piece (they are Fortran-contiguous): so it is read, and so most questions are asked.

    Attributes:
        ranks: one per column.
        there: that rank has the event; times elsewhere mean nothing.
        start_ns: each rank's own clock, or the common one.
        end_ns: likewise.
        operation: shape ``(m,)``, places in ``OPERATIONS``.
    """

    ranks: tuple[int, ...]
    there: Bools
    start_ns: Ints
    end_ns: Ints
    operation: Codes

    @cached_property
    def is_everywhere(self) -> bool:
        """Whether every rank has every event."""
        return bool(self.there.all())

    @cached_property
    def are_several(self) -> Bools:
        """Which events at least two ranks have, shape ``(m,)``."""
        if self.is_everywhere:
            return np.full(len(self.there), len(self.ranks) > 1, dtype=np.bool_)
        return np.asarray(self.there.sum(axis=1) > 1, dtype=np.bool_)

    @cached_property
    def first_end_ns(self) -> Ints:
        """The earliest end of each, shape ``(m,)``."""
        return self.first(self.end_ns)

    @cached_property
    def last_end_ns(self) -> Ints:
        """The latest end of each, shape ``(m,)``."""
        return self.last(self.end_ns)

    @cached_property
    def last_start_ns(self) -> Ints:
        """The latest start of each, shape ``(m,)``."""
        return self.last(self.start_ns)

    @cached_property
    def _column_of(self) -> Mapping[int, int]:
        return {rank: column for column, rank in enumerate(self.ranks)}

    def first(self, times_ns: Ints) -> Ints:
        """Return the earliest over ranks, shape ``(m,)``."""
        if self.is_everywhere:
            return np.asarray(times_ns.min(axis=1), dtype=np.int64)
        return np.asarray(np.where(self.there, times_ns, np.iinfo(np.int64).max).min(axis=1), dtype=np.int64)

    def last(self, times_ns: Ints) -> Ints:
        """Return the latest over ranks, shape ``(m,)``."""
        if self.is_everywhere:
            return np.asarray(times_ns.max(axis=1), dtype=np.int64)
        return np.asarray(np.where(self.there, times_ns, np.iinfo(np.int64).min).max(axis=1), dtype=np.int64)

    def without(self, ranks: Collection[int]) -> "GroupTimes":
        """Return the same as if some ranks had none of the events."""
        if ranks_are_apart(ranks, self.ranks):
            return self
        return replace(self, there=self.there & ~np.isin(self.ranks, list(ranks)))

    def only(self, kept: Bools) -> "GroupTimes":
        """Return the same as if only some of the events were there, shape ``(m, len(ranks))``."""
        return self if kept.all() else replace(self, there=self.there & kept)

    def among(self, ranks: Collection[int]) -> "GroupTimes | None":
        """Return the same with columns of some ranks alone; None: fewer than two of them are in the group."""
        columns = sorted(self._column_of[rank] for rank in self._column_of.keys() & ranks)
        if len(columns) < 2:
            return None
        if len(columns) == len(self.ranks):
            return self
        are_side_by_side = columns[-1] - columns[0] == len(columns) - 1
        which = slice(columns[0], columns[-1] + 1) if are_side_by_side else columns
        return GroupTimes(
            ranks=tuple(self.ranks[column] for column in columns),
            there=self.there[:, which],
            start_ns=self.start_ns[:, which],
            end_ns=self.end_ns[:, which],
            operation=self.operation,
        )

    def on_common_clock(self, clocks: Mapping[int, Clock]) -> "GroupTimes":
        """Return the same with all times on the common clock; a rank without a clock is taken as it is."""
        return replace(
            self, start_ns=self._to_common(self.start_ns, clocks), end_ns=self._to_common(self.end_ns, clocks)
        )

    def with_common_ends(self, clocks: Mapping[int, Clock]) -> "GroupTimes":
        """Return the same with its ends, and these alone, on the common clock."""
        return replace(self, end_ns=self.common_end_ns(clocks))

    def common_end_ns(self, clocks: Mapping[int, Clock]) -> Ints:
        """Return the ends alone on the common clock, shape ``(m, len(ranks))``."""
        return self._to_common(self.end_ns, clocks)

    def _to_common(self, times_ns: Ints, clocks: Mapping[int, Clock]) -> Ints:
        own = [clocks.get(rank, _RIGHT) for rank in self.ranks]
        common_ns = times_ns - np.array([clock.offset_ns for clock in own], dtype=np.int64)
        for column in (column for column, clock in enumerate(own) if clock.drift):
            common_ns[:, column] = own[column].to_common(times_ns[:, column])
        return np.asarray(common_ns, dtype=np.int64)


def read_times(matches: Matches, timelines: Sequence[Skeleton]) -> list[GroupTimes]:
    """Read the times of every matched group."""
    by_rank = {one.rank: one.columns for one in timelines}
    found = []
    for group in matches.groups:
        own = [by_rank[rank] for rank in group.ranks]
        columns = list(zip(own, group.index.T, strict=True))
        found.append(
            GroupTimes(
                ranks=group.ranks,
                there=group.there,
                start_ns=np.stack([one.start_ns[index] for one, index in columns]).T,
                end_ns=np.stack([one.end_ns[index] for one, index in columns]).T,
                operation=_read_operations(group, own),
            )
        )
    return found


def _read_operations(group: MatchedGroup, columns: Sequence[CollectiveColumns]) -> Codes:
    """Return what each collective is to the first rank that has it, shape ``(m,)``."""
    first = np.zeros(len(group.index), dtype=np.int64) if group.is_everywhere else group.there.argmax(axis=1)
    operation = np.zeros(len(group.index), dtype=np.int32)
    for column in np.flatnonzero(np.bincount(first)).tolist():
        mine = first == column
        operation[mine] = columns[column].operation[group.index[mine, column]]
    return operation


def take_rows(table: NDArray[_Scalar], rows: Bools) -> NDArray[_Scalar]:
    """Return some rows of a table; itself where these are all."""
    return table if rows.all() else table[rows]


def ends_together(times: GroupTimes) -> Bools:
    """Tell for each collective whether all ranks leave it together, shape ``(m,)``."""
    return are_among(times.operation, END_TOGETHER)


def waits_for_all(times: GroupTimes) -> Bools:
    """Tell for each collective whether no rank leaves it before all have entered it, shape ``(m,)``."""
    return are_among(times.operation, WAIT_FOR_ALL)


def ends_about_median(common: Sequence[GroupTimes], *, least_ranks: int) -> dict[int, NDArray[np.float64]]:
    """Return, by rank, how much later than the median rank it ended, for collectives of enough ranks."""
    residuals: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    for one in common:
        if len(one.ranks) < least_ranks:
            continue
        rows = ends_together(one)
        if not one.is_everywhere:
            rows &= one.there.sum(axis=1) >= least_ranks
        if not rows.any():
            continue
        there, end_ns, first_ns = one.there, one.end_ns, one.first_end_ns
        if not rows.all():
            there, end_ns, first_ns = there[rows], end_ns[rows], first_ns[rows]
        if is_full := bool(there.all()):
            ends = (end_ns - first_ns[:, None]).astype(np.float64)
            ends -= _find_middles(ends)[:, None]
        else:
            ends = np.where(there, end_ns - first_ns[:, None], np.nan)
            ends -= np.nanmedian(ends, axis=1, keepdims=True)
        by_rank = np.ascontiguousarray(ends.T)
        for column, rank in enumerate(one.ranks):
            residuals[rank].append(by_rank[column] if is_full else by_rank[column][there[:, column]])
    together = {rank: parts[0] if len(parts) == 1 else np.concatenate(parts) for rank, parts in residuals.items()}
    return {rank: own for rank, own in together.items() if len(own)}


def _find_middles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each row."""
    low, high = (values.shape[1] - 1) // 2, values.shape[1] // 2
    parted = np.partition(values, (low, high), axis=1)
    return np.asarray((parted[:, low] + parted[:, high]) / 2, dtype=np.float64)


def ranks_are_apart(some: Collection[int], ranks: Sequence[int]) -> bool:
    """Tell whether none of some ranks is among others."""
    return not some or frozenset(some).isdisjoint(ranks)

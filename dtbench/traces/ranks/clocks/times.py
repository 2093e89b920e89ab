"""Clocks of ranks, and starts and ends of the collectives of one group as matrices with one column per rank."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import END_TOGETHER, WAIT_FOR_ALL
from dtbench.traces.ranks.match import Matches
from dtbench.traces.skeleton import Codes, Skeleton, are_among
from dtbench.traces.time.intervals import Bools, Ints

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
        return replace(self, there=self.there & kept)

    def among(self, ranks: Collection[int]) -> "GroupTimes | None":
        """Return the same with columns of some ranks alone; None: fewer than two of them are in the group."""
        columns = sorted(self._column_of[rank] for rank in self._column_of.keys() & ranks)
        if len(columns) < 2:
            return None
        if len(columns) == len(self.ranks):
            return self
        return GroupTimes(
            ranks=tuple(self.ranks[column] for column in columns),
            there=self.there[:, columns],
            start_ns=self.start_ns[:, columns],
            end_ns=self.end_ns[:, columns],
            operation=self.operation,
        )

    def on_common_clock(self, clocks: Mapping[int, Clock]) -> "GroupTimes":
        """Return the same with all times on the common clock; a rank without a clock is taken as it is."""
        return replace(
            self, start_ns=self._to_common(self.start_ns, clocks), end_ns=self._to_common(self.end_ns, clocks)
        )

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
        there, operation = group.there, np.zeros(len(group.index), dtype=np.int32)
        first = there.argmax(axis=1)
        for column in np.unique(first).tolist():
            mine = first == column
            operation[mine] = own[column].operation[group.index[mine, column]]
        columns = [(one, group.index[:, column]) for column, one in enumerate(own)]
        found.append(
            GroupTimes(
                ranks=group.ranks,
                there=there,
                start_ns=np.stack([one.start_ns[index] for one, index in columns], axis=1),
                end_ns=np.stack([one.end_ns[index] for one, index in columns], axis=1),
                operation=operation,
            )
        )
    return found


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
        rows = ends_together(one) & (one.there.sum(axis=1) >= least_ranks)
        if not rows.any():
            continue
        there, end_ns = one.there[rows], one.end_ns[rows]
        if is_full := bool(there.all()):
            ends = (end_ns - end_ns.min(axis=1, keepdims=True)).astype(np.float64)
            ends -= np.median(ends, axis=1, keepdims=True)
        else:
            ends = np.where(there, end_ns - one.first(one.end_ns)[rows][:, None], np.nan)
            ends -= np.nanmedian(ends, axis=1, keepdims=True)
        by_rank = np.ascontiguousarray(ends.T)
        for column, rank in enumerate(one.ranks):
            residuals[rank].append(by_rank[column] if is_full else by_rank[column][there[:, column]])
    together = {rank: parts[0] if len(parts) == 1 else np.concatenate(parts) for rank, parts in residuals.items()}
    return {rank: own for rank, own in together.items() if len(own)}


def ranks_are_apart(some: Collection[int], ranks: Sequence[int]) -> bool:
    """Tell whether none of some ranks is among others."""
    return not some or frozenset(some).isdisjoint(ranks)

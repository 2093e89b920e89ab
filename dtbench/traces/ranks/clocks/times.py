"""Clocks of ranks, and starts and ends of the collectives of one group as matrices with one column per rank."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import END_TOGETHER, WAIT_FOR_ALL
from dtbench.traces.ranks.match import Matches
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.timeline import RankTimeline

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


@dataclass(frozen=True)
class GroupTimes:
    """When the collectives of one group ran; all arrays but the last have shape ``(m, len(ranks))``.

    Attributes:
        ranks: one per column.
        there: that rank has the event; times elsewhere mean nothing.
        start_ns: each rank's own clock, or the common one.
        end_ns: likewise.
        operation: shape ``(m,)``, of ``Operation`` or None.
    """

    ranks: tuple[int, ...]
    there: Bools
    start_ns: Ints
    end_ns: Ints
    operation: NDArray[np.object_]

    def first(self, times_ns: Ints) -> Ints:
        """Return the earliest over ranks, shape ``(m,)``."""
        return np.asarray(np.where(self.there, times_ns, np.iinfo(np.int64).max).min(axis=1), dtype=np.int64)

    def last(self, times_ns: Ints) -> Ints:
        """Return the latest over ranks, shape ``(m,)``."""
        return np.asarray(np.where(self.there, times_ns, np.iinfo(np.int64).min).max(axis=1), dtype=np.int64)

    def without(self, ranks: Collection[int]) -> "GroupTimes":
        """Return the same as if some ranks had none of the events."""
        return replace(self, there=self.there & ~np.isin(self.ranks, list(ranks)))

    def only(self, kept: Bools) -> "GroupTimes":
        """Return the same as if only some of the events were there, shape ``(m, len(ranks))``."""
        return replace(self, there=self.there & kept)

    def among(self, ranks: Collection[int]) -> "GroupTimes | None":
        """Return the same with columns of some ranks alone; None: fewer than two of them are in the group."""
        columns = [column for column, rank in enumerate(self.ranks) if rank in ranks]
        if len(columns) < 2:
            return None
        return GroupTimes(
            ranks=tuple(self.ranks[column] for column in columns),
            there=self.there[:, columns],
            start_ns=self.start_ns[:, columns],
            end_ns=self.end_ns[:, columns],
            operation=self.operation,
        )

    def on_common_clock(self, clocks: Mapping[int, Clock]) -> "GroupTimes":
        """Return the same with all times on the common clock; a rank without a clock is taken as it is."""
        columns = [clocks.get(rank, Clock()) for rank in self.ranks]
        start = [clock.to_common(self.start_ns[:, column]) for column, clock in enumerate(columns)]
        end = [clock.to_common(self.end_ns[:, column]) for column, clock in enumerate(columns)]
        return replace(self, start_ns=np.stack(start, axis=1), end_ns=np.stack(end, axis=1))


def read_times(matches: Matches, timelines: Sequence[RankTimeline]) -> list[GroupTimes]:
    """Read the times of every matched group."""
    starts, ends, operations = {}, {}, {}
    for timeline in timelines:
        collectives = timeline.collectives
        starts[timeline.rank] = np.array([one.start_ns for one in collectives], dtype=np.int64)
        ends[timeline.rank] = np.array([one.end_ns for one in collectives], dtype=np.int64)
        operations[timeline.rank] = np.array([one.operation for one in collectives], dtype=object)
    found = []
    for group in matches.groups:
        first = group.there.argmax(axis=1)
        operation = np.empty(len(group.index), dtype=object)
        for column, rank in enumerate(group.ranks):
            mine = first == column
            operation[mine] = operations[rank][group.index[mine, column]]
        found.append(
            GroupTimes(
                ranks=group.ranks,
                there=group.there,
                start_ns=np.stack([starts[rank][group.index[:, at]] for at, rank in enumerate(group.ranks)], axis=1),
                end_ns=np.stack([ends[rank][group.index[:, at]] for at, rank in enumerate(group.ranks)], axis=1),
                operation=operation,
            )
        )
    return found


def ends_together(times: GroupTimes) -> Bools:
    """Tell for each collective whether all ranks leave it together, shape ``(m,)``."""
    return np.array([operation in END_TOGETHER for operation in times.operation], dtype=np.bool_)


def waits_for_all(times: GroupTimes) -> Bools:
    """Tell for each collective whether no rank leaves it before all have entered it, shape ``(m,)``."""
    return np.array([operation in WAIT_FOR_ALL for operation in times.operation], dtype=np.bool_)


def ends_about_median(common: Sequence[GroupTimes], *, least_ranks: int) -> dict[int, NDArray[np.float64]]:
    """Return, by rank, how much later than the median rank it ended, for collectives of enough ranks."""
    residuals: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    for one in common:
        rows = ends_together(one) & (one.there.sum(axis=1) >= least_ranks)
        first_ns = one.first(one.end_ns)
        ends = np.where(one.there, one.end_ns - first_ns[:, None], np.nan)[rows]
        if len(ends):
            ends -= np.nanmedian(ends, axis=1, keepdims=True)
            for column, rank in enumerate(one.ranks):
                residuals[rank].append(ends[one.there[rows, column], column])
    together = {rank: np.concatenate(parts) for rank, parts in residuals.items()}
    return {rank: own for rank, own in together.items() if len(own)}

"""One rank as it was read, with its moments, before only lengths and edges are left of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dtbench.replay.graph import NO_COLLECTIVE, Latencies
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Ints


@dataclass(frozen=True)
class Given:
    """What the host gave to lanes, in order of giving; arrays have shape ``(n,)``, moments are the rank's own.

    Attributes:
        lanes: names of lanes.
        given_ns: when the host launched or issued it; never falling.
        lane: index into ``lanes``.
        start_ns, end_ns: when it ran.
        alone_ns: how long with no communication beside it, as far as that is known; else as it was.
        collective: index into the rank's collectives; ``NO_COLLECTIVE``.
        name: index into ``names``; -1: a collective.
        names: of kernels and copies.
    """

    lanes: tuple[str, ...]
    given_ns: Ints
    lane: Ints
    start_ns: Ints
    end_ns: Ints
    alone_ns: Ints
    collective: Ints
    name: Ints
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Ints, lanes: Sequence[str], names: Sequence[str] = ()) -> "Given":
        """Sort rows of shape ``(n, 7)``: given, start, lane, end, alone, collective, name."""
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        given_ns, start_ns, lane, end_ns, alone_ns, collective, name = rows.T
        return cls(tuple(lanes), given_ns, lane, start_ns, end_ns, alone_ns, collective, name, tuple(names))

    def __len__(self) -> int:
        return len(self.given_ns)

    @property
    def is_collective(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Shape ``(n,)``."""
        return np.asarray(self.collective != NO_COLLECTIVE)

    def find_busy_until(self, before_ns: Mapping[str, int]) -> Ints:
        """Return until when each one's lane worked before it, shape ``(n,)``; the least int64 / 2 where it did not.

        Args:
            before_ns: by lane, until when it worked for what was given before all of these.
        """
        until_ns = np.full(len(self), np.iinfo(np.int64).min // 2, dtype=np.int64)
        for lane in np.unique(self.lane).tolist():
            mine = np.flatnonzero(self.lane == lane)
            until_ns[mine[1:]] = np.maximum.accumulate(self.end_ns[mine])[:-1]
            until_ns[mine[0]] = before_ns.get(self.lanes[lane], until_ns[mine[0]])
        return until_ns


@dataclass(frozen=True)
class Sitting:
    """A time in which the host stood still until some items had ended."""

    window: Window
    items: tuple[int, ...]


@dataclass(frozen=True)
class DraftStep:
    """A step with the window of its account, that of its host, and the item with which it begins; None: its host's."""

    number: int
    window: Window
    host: Window
    first: int | None = None


@dataclass(frozen=True)
class Draft:
    """One rank as it was read.

    Attributes:
        next_ns: shape ``(n,)``, see ``graph.Items``.
        after: by item, those of other lanes that end before it begins.
        busy_until_ns: by lane, until when it worked for what was given before.
    """

    analysis: TraceAnalysis
    steps: tuple[DraftStep, ...]
    given: Given
    sittings: tuple[Sitting, ...]
    latencies: Latencies
    next_ns: Ints
    after: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    busy_until_ns: Mapping[str, int] = field(default_factory=dict)


def mean_of(times_ns: Ints, bound_ns: int) -> int:
    """Return the mean of those below a bound, in ns; 0: there is none."""
    kept = times_ns[np.abs(times_ns) < bound_ns]
    return round(float(kept.mean())) if len(kept) else 0

"""One rank's trace as columns: what the reader gives and everything else asks.

Columns that nearly every event has are dense; what few events have (a launch's correlation id, an operator's sequence
number) is a ``Sparse`` column, so that a trace of millions of events stays small.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.time.intervals import Bools, Ints

_Value = TypeVar("_Value")
_FEW: Final = 8  # comparing a column with so many numbers is faster than looking all its values up


@dataclass(frozen=True)
class Sparse:
    """A column that few events have.

    Attributes:
        events: shape ``(m,)``, rising, the events that have a value.
        values: shape ``(m,)``, int64, their values.
    """

    events: Ints
    values: Ints

    def at(self, event: int) -> int | None:
        """Value of one event; None: it has none."""
        place = int(np.searchsorted(self.events, event))
        return int(self.values[place]) if place < len(self.events) and self.events[place] == event else None

    def values_at(self, events: Ints, missing: int) -> Ints:
        """Values of some events, shape as theirs; ``missing`` for those that have none."""
        if not len(self.events):
            return np.full(len(events), missing, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.events, events), len(self.events) - 1)
        return np.where(self.events[places] == events, self.values[places], missing)

    def select(self, kept: Bools, places: Ints) -> "Sparse":
        """Return the column of some events.

        Args:
            kept: shape ``(n,)``, those that stay.
            places: shape ``(n,)``, the new number of each that stays.
        """
        stays = kept[self.events]
        return Sparse(places[self.events[stays]], self.values[stays])

    def dense(self, length: int, missing: int) -> Ints:
        """Return the column in full, shape ``(length,)``, with ``missing`` where there is no value."""
        column = np.full(length, missing, dtype=np.int64)
        column[self.events] = self.values
        return column


def no_values() -> Sparse:
    """Return a column that no event has."""
    return Sparse(np.array([], dtype=np.int64), np.array([], dtype=np.int64))


@dataclass(frozen=True)
class Details:
    """What few events say about their communication; None where the trace does not say.

    ``shapes`` and ``dtypes`` are one per argument of the operator, as ``record_shapes`` writes them; a shape may be a
    list of shapes. ``ranks`` are global ranks of the group, ``()`` where the trace does not say or shortens the list.
    ``peer`` is the other end of a send or receive, ``root`` who gives or gets all of a broadcast, reduce, gather or
    scatter, each by its place among the ranks of the group.
    ``comms_id`` is of one collective on all its ranks, and of no other: torch's hash of group, its ranks and ``seq``.
    What is not finished was open when the profiler stopped: its end is the profiler's, not its own.
    """

    collective: str | None
    group: str | None
    group_description: str | None
    group_size: int | None
    dtype: str | None
    in_elements: int | None
    out_elements: int | None
    seq: int | None
    shapes: tuple[object, ...]
    dtypes: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    source_rank: int | None = None
    destination_rank: int | None = None
    is_async: bool | None = None
    is_finished: bool = True
    peer: int | None = None
    comms_id: str | None = None
    root: int | None = None


@dataclass(frozen=True)
class Unread:
    """What of a file is in no column.

    Attributes:
        events: number of events that could not be read, by reason, a few words each.
        is_truncated: the file ends before its JSON (or gzip stream) does; what came before was read.
    """

    events: Mapping[str, int] = field(default_factory=dict)
    is_truncated: bool = False

    @property
    def count(self) -> int:
        """Events lost, for whatever reason."""
        return sum(self.events.values())


@dataclass(frozen=True)
class Trace:
    """The complete events of one rank, in file order, as parallel columns.

    Attributes:
        path: for messages.
        rank: as the trace says; None where it does not.
        world_size: likewise.
        names: distinct names.
        categories: distinct categories, in today's spelling (``kernel``, ``cpu_op``, ``cuda_runtime``, ...).
        lanes: distinct (process, thread); for device events (device, stream).
        name: shape ``(n,)``, index into ``names``.
        category: shape ``(n,)``, index into ``categories``.
        lane: shape ``(n,)``, index into ``lanes``.
        start_ns: shape ``(n,)``, int64, the trace's own clock.
        end_ns: shape ``(n,)``, int64.
        correlation: ties a device event to the call that launched it; no value where it is 0 or missing.
        sequence: autograd's sequence number, which a backward node shares with its forward operator.
        forward_thread: for backward nodes, the profiler's number of the thread that ran the forward operator.
        grid: for kernels, index into ``grids``.
        grids: distinct launch shapes, as written: ``"[64,1,1] [128,1,1]"`` (grid, block).
        flows: shape ``(m, 2)``, int64 ns: where each ``fwdbwd`` arrow starts (forward) and ends (backward).
        details: by event, only for those that say something about communication.
        modules: module hierarchy by event, where the trace says one (``with_modules``).
        group_descriptions: description of each process group by name.
        group_ranks: global ranks of each process group by name.
        unread: what could not be read and is in no column.
        host: name of the machine, or of the container, that it ran on; None where the trace does not say.
        has_other_runtime: it holds calls that drive neither CUDA nor HIP, which ``categories`` spell as CUDA's.
        base_ns: Unix time of the zero of ``start_ns`` and ``end_ns``; None where the trace does not say.
        machine: what it tells of the software that drives devices, by name (``reader.header.Origin``).
        devices: names of the devices that the process saw, used or not, by id: the first part of their ``lanes``.
        has_named_steps: its steps are a person's own ranges, see ``host/named_steps.py``; each ends with its range.
    """

    path: str
    rank: int | None
    world_size: int | None
    names: tuple[str, ...]
    categories: tuple[str, ...]
    lanes: tuple[tuple[str, str], ...]
    name: NDArray[np.int32]
    category: NDArray[np.int16]
    lane: NDArray[np.int32]
    start_ns: Ints
    end_ns: Ints
    correlation: Sparse
    details: Mapping[int, Details]
    group_descriptions: Mapping[str, str]
    unread: Unread
    sequence: Sparse = field(default_factory=no_values)
    forward_thread: Sparse = field(default_factory=no_values)
    grid: Sparse = field(default_factory=no_values)
    grids: tuple[str, ...] = ()
    flows: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    modules: Mapping[int, str] = field(default_factory=dict)
    group_ranks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    host: str | None = None
    has_other_runtime: bool = False
    base_ns: int | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    has_named_steps: bool = False

    def __len__(self) -> int:
        """Number of events."""
        return len(self.start_ns)

    def name_of(self, event: int) -> str:
        """Name of one event."""
        return self.names[int(self.name[event])]

    def is_one_of(self, categories: Collection[str]) -> Bools:
        """Tell for each event, shape ``(n,)``, whether its category is one of these."""
        return _is_one_of(self.category, [code for code, one in enumerate(self.categories) if one in categories])

    def is_named(self, fits: Callable[[str], object]) -> Bools:
        """Tell for each event, shape ``(n,)``, whether its name fits; each name is asked once."""
        return _is_one_of(self.name, [code for code, name in enumerate(self.names) if fits(name)])

    def category_of(self, event: int) -> str:
        """Category of one event."""
        return self.categories[int(self.category[event])]

    def select(self, kept: Bools) -> "Trace":
        """Return the trace of some events, ``kept`` of shape ``(n,)``; what is not of an event stays as it is.

        Names, categories and lanes are those of the events that stay.
        """
        places = np.cumsum(kept) - 1
        names, name = _renumber(self.names, self.name[kept])
        categories, category = _renumber(self.categories, self.category[kept])
        lanes, lane = _renumber(self.lanes, self.lane[kept])
        return replace(
            self,
            names=names,
            categories=categories,
            lanes=lanes,
            name=name.astype(np.int32),
            category=category.astype(np.int16),
            lane=lane.astype(np.int32),
            start_ns=self.start_ns[kept],
            end_ns=self.end_ns[kept],
            correlation=self.correlation.select(kept, places),
            sequence=self.sequence.select(kept, places),
            forward_thread=self.forward_thread.select(kept, places),
            grid=self.grid.select(kept, places),
            details={int(places[event]): said for event, said in self.details.items() if kept[event]},
            modules={int(places[event]): said for event, said in self.modules.items() if kept[event]},
        )


def _renumber(values: tuple[_Value, ...], codes: NDArray[Any]) -> tuple[tuple[_Value, ...], NDArray[Any]]:
    """Return the values that some codes name, in their old order, and the codes of these."""
    used, renumbered = np.unique(codes, return_inverse=True)
    return tuple(values[code] for code in used.tolist()), renumbered


def _is_one_of(codes: NDArray[Any], chosen: Sequence[int]) -> Bools:
    """Tell for each code of a column whether it is one of these, all of which are codes."""
    if len(chosen) > _FEW:
        is_chosen = np.zeros(max(int(codes.max(initial=0)), *chosen) + 1, dtype=np.bool_)
        is_chosen[list(chosen)] = True
        return np.asarray(is_chosen[codes])
    found = np.zeros(len(codes), dtype=np.bool_)
    for code in chosen:
        found |= codes == code
    return found

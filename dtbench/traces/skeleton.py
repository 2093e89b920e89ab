"""What of one rank questions over ranks need: its collectives as columns, and what its trace says of the job.

An object per collective is what one rank's analysis wants; over thousands of ranks it is what takes the time and the
memory. Here a collective is a row of a few arrays, in the order of ``RankTimeline.collectives``.
"""

# ruff: noqa: D102  the fields of a Skeleton are those of RankTimeline

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dtbench.base.vocabulary import Operation
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Bools, Intervals, Ints
from dtbench.traces.who.collectives import Collective, Launch

Codes: TypeAlias = NDArray[np.int32]
"""Places in a table of distinct values."""

OPERATIONS: Final[tuple[Operation | None, ...]] = (*Operation, None)
"""By their codes in columns; the last one: the trace does not say."""
_CODE_OF: Final = {operation: code for code, operation in enumerate(OPERATIONS)}


def code_of(operation: Operation | None) -> int:
    """Return what stands for an operation in columns."""
    return _CODE_OF[operation]


def are_among(operation: Codes, operations: Container[Operation]) -> Bools:
    """Tell which of some operations, by their codes, are among others; the shape is that of the codes."""
    table = np.array([one is not None and one in operations for one in OPERATIONS], dtype=np.bool_)
    return np.asarray(table[operation], dtype=np.bool_)


def are_equal(first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> bool:
    """Tell whether two columns are alike, as ``np.array_equal`` does in twice the time."""
    return first.shape == second.shape and bool((first == second).all())


@dataclass(frozen=True)
class ToldInts:
    """Whole numbers that a trace need not tell.

    Attributes:
        values: shape ``(n,)``; means nothing where it is not told.
        is_told: shape ``(n,)``.
    """

    values: Ints
    is_told: Bools

    @classmethod
    def of(cls, numbers: Sequence[int | None]) -> "ToldInts":
        """Make a column of numbers or None."""
        values = np.array([0 if one is None else one for one in numbers], dtype=np.int64)
        return cls(values, np.array([one is not None for one in numbers], dtype=np.bool_))

    def at(self, index: int) -> int | None:
        """Return one of them; None: it is not told."""
        return int(self.values[index]) if self.is_told[index] else None


@dataclass(frozen=True)
class SaidGroup:
    """A process group as a collective says it: torch's name, global ranks, number of ranks; empty or None: not said."""

    name: str
    ranks: tuple[int, ...]
    size: int | None


@dataclass(frozen=True)
class CollectiveColumns:
    """The collectives of one rank; every array has shape ``(n,)`` and their order.

    Attributes:
        start_ns: first start of the span; where none was found, the issue, or 0.
        end_ns: last end, likewise.
        is_seen: it was seen to run.
        is_span_missing: it was issued and is not seen to run, or not told to be.
        issue_ns: when the CPU issued it.
        operation: places in ``OPERATIONS``.
        size_bytes: payload.
        seq: number on its group.
        root: who gives or gets all, by its place in the group.
        step: index into the steps of the rank; not told: issued outside all.
        on_link: it ran on an emulated link.
        group: places in ``groups``.
        groups: distinct.
        stream: places in ``streams``.
        streams: last parts of the lanes' names.
        comms_id: places in ``comms_ids``.
        comms_ids: which all ranks give one collective; empty: not told.
    """

    start_ns: Ints
    end_ns: Ints
    is_seen: Bools
    is_span_missing: Bools
    issue_ns: ToldInts
    operation: Codes
    size_bytes: ToldInts
    seq: ToldInts
    root: ToldInts
    step: ToldInts
    on_link: Bools
    group: Codes
    groups: tuple[SaidGroup, ...]
    stream: Codes
    streams: tuple[str, ...]
    comms_id: Codes
    comms_ids: tuple[str, ...]

    def __len__(self) -> int:
        """Number of collectives."""
        return len(self.start_ns)

    def of_groups(self, told: Iterable[bool]) -> Bools:
        """Return what is told of each of ``groups`` for each collective, shape ``(n,)``."""
        return np.asarray(np.array([*told], dtype=np.bool_)[self.group], dtype=np.bool_)


class Skeleton(Protocol):
    """One rank as questions over ranks see it; a ``RankTimeline`` is one, and says what the fields mean."""

    @property
    def rank(self) -> int: ...
    @property
    def is_device(self) -> bool: ...
    @property
    def columns(self) -> CollectiveColumns: ...
    @property
    def path(self) -> str: ...
    @property
    def world_size(self) -> int | None: ...
    @property
    def told_size(self) -> int | None: ...
    @property
    def said_rank(self) -> int | None: ...
    @property
    def host(self) -> str | None: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def base_ns(self) -> int | None: ...
    @property
    def step_numbers(self) -> tuple[int, ...]: ...
    @property
    def steps(self) -> tuple[Window, ...]: ...
    @property
    def compute(self) -> Intervals: ...
    @property
    def unseen(self) -> tuple[Launch, ...]: ...

    def read(self, index: int) -> Collective:
        """Return one collective; asked for sends and receives alone."""


def read_columns(collectives: Sequence[Collective], step_of: Sequence[int | None]) -> CollectiveColumns:
    """Return the columns of some collectives.

    Args:
        collectives: of one rank.
        step_of: index of the step of each of them; None: issued outside all.
    """
    group, groups = _number_groups(collectives)
    stream, streams = _number([one.lane.rpartition("/")[2] for one in collectives])
    comms_id, comms_ids = _number([one.comms_id or "" for one in collectives])
    return CollectiveColumns(
        start_ns=np.array([one.start_ns for one in collectives], dtype=np.int64),
        end_ns=np.array([one.end_ns for one in collectives], dtype=np.int64),
        is_seen=np.array([one.is_seen for one in collectives], dtype=np.bool_),
        is_span_missing=np.array([one.is_span_missing for one in collectives], dtype=np.bool_),
        issue_ns=ToldInts.of([one.issue_ns for one in collectives]),
        operation=np.array([_CODE_OF[one.operation] for one in collectives], dtype=np.int32),
        size_bytes=ToldInts.of([one.size_bytes for one in collectives]),
        seq=ToldInts.of([one.seq for one in collectives]),
        root=ToldInts.of([one.root for one in collectives]),
        step=ToldInts.of(step_of),
        on_link=np.array([one.on_link for one in collectives], dtype=np.bool_),
        group=group,
        groups=groups,
        stream=stream,
        streams=streams,
        comms_id=comms_id,
        comms_ids=comms_ids,
    )


def _number(texts: Sequence[str]) -> tuple[Codes, tuple[str, ...]]:
    table: dict[str, int] = {}
    codes = np.array([table.setdefault(one, len(table)) for one in texts], dtype=np.int32)
    return codes, tuple(table)


def _number_groups(collectives: Sequence[Collective]) -> tuple[Codes, tuple[SaidGroup, ...]]:
    """Number distinct groups; their ranks, of which there may be thousands, are compared once for each object."""
    table: dict[SaidGroup, int] = {}
    by_object: dict[tuple[str, int, int | None], int] = {}
    codes = np.zeros(len(collectives), dtype=np.int32)
    for index, one in enumerate(collectives):
        key = (one.group, id(one.group_ranks), one.group_size)
        if (code := by_object.get(key)) is None:
            said = SaidGroup(one.group, one.group_ranks, one.group_size)
            code = by_object[key] = table.setdefault(said, len(table))
        codes[index] = code
    return codes, tuple(table)

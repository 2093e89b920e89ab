"""How long the thread that trains stands still for collectives, one step at a time; counts what it cannot see.

::

    step      |------------------------------------------------------|
    thread     own time   |wait a|  own time  |wait b|  own time
    a               |============|                                     in flight: issued, not waited for to its end
    b                                   |============|
    c                                                     |==========  nobody waited for it: unseen, once a step is over

Own time is all time in which the thread does not wait: computing, issuing, running Python. Before each wait lies one
piece of it, so pieces and waits add up to the step. A wait inside another is part of it. Nothing here knows torch:
``dtbench.live.hooks`` tells what happens, and a test does so on a clock of its own.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dtbench.base.vocabulary import Operation, Purpose, Region

SLOTS: Final = 64
"""Waits of a step that are kept one by one; all others only in sums."""
_MOST_FLIGHTS: Final = 4096
"""Collectives that may be in flight at once; the oldest are counted as unseen."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a collective is.

    Attributes:
        operation: None: it was issued where no hook is, and only its group is known.
        region: of the step that issued it; None: outside of steps.
        owner: FQN of the FSDP unit that asked for it; empty: not known.
    """

    purpose: Purpose
    operation: Operation | None = None
    region: Region | None = None
    owner: str = ""

    def __str__(self) -> str:
        words = self.purpose.value if self.operation is None else f"{self.operation.value} ({self.purpose.value})"
        owned = f"{words} of {self.owner}" if self.owner else words
        return owned if self.region is None else f"{owned} in {self.region.value}"


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a step.

    Attributes:
        own_ns: of the thread, since the wait before or the step's begin.
        wait_ns: how long it stood still.
    """

    label: Label
    own_ns: int
    wait_ns: int


@dataclass(frozen=True)
class StepWaits:
    """How a step's thread stood still.

    Attributes:
        waits: the first ``SLOTS``, in their order.
        sums: by purpose and the region that waited, ns; of all.
        tail_ns: own time after the last of ``waits``.
        flight_ns: time in which a collective was in flight, of those that hooks saw.
        unseen: collectives of a step before this one that nobody was seen to wait for.
        untold: waits for collectives that no hook saw being issued: since when they were in flight is not known.
    """

    waits: tuple[Wait, ...]
    sums: dict[tuple[Purpose, Region | None], int]
    tail_ns: int
    flight_ns: int
    unseen: int
    untold: int

    @property
    def wait_ns(self) -> int:
        """How long the thread stood still in all."""
        return sum(self.sums.values())


@dataclass(slots=True)
class _Flight:
    label: Label
    step: int
    begun_ns: int
    is_async: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """A wait that has begun.

    Attributes:
        numbers: of the collectives that it waits for, as far as they were seen.
    """

    label: Label
    region: Region | None
    begun_ns: int
    numbers: tuple[int, ...]


@dataclass(slots=True)
class Waits:
    """What one thread waits for; told about collectives and waits as they come.

    Attributes:
        now_ns: its clock.
        is_open: a step runs; what happens between steps is in no step.
    """

    now_ns: Callable[[], int] = time.perf_counter_ns
    is_open: bool = False
    _step: int = 0
    _number: int = 0
    _is_standing: bool = False
    _flights: dict[int, _Flight] = field(default_factory=dict)
    _waits: list[Wait] = field(default_factory=list)
    _sums: Counter[tuple[Purpose, Region | None]] = field(default_factory=Counter)
    _own_since_ns: int = 0
    _own_ns: int = 0
    _flown_since_ns: int = 0
    _flight_ns: int = 0
    _unseen: int = 0
    _untold: int = 0

    def begin_step(self) -> int:
        """Begin a step; gives when, ns on the clock."""
        now_ns = self.now_ns()
        self.is_open, self._is_standing = True, False
        self._step += 1
        self._waits, self._sums = [], Counter()
        self._own_since_ns = self._flown_since_ns = now_ns
        self._own_ns = self._flight_ns = self._unseen = self._untold = 0
        return now_ns

    def end_step(self) -> tuple[StepWaits, int]:
        """End it; gives how its thread stood still, and when it ended, ns on the clock."""
        now_ns = self.now_ns()
        self.is_open = self._is_standing = False
        self._own_ns += now_ns - self._own_since_ns
        if self._flights:
            self._flight_ns += now_ns - self._flown_since_ns
        stale = [number for number, flight in self._flights.items() if flight.step < self._step]
        for number in stale:
            del self._flights[number]
        unseen = self._unseen + len(stale)
        told = StepWaits(tuple(self._waits), dict(self._sums), self._own_ns, self._flight_ns, unseen, self._untold)
        return told, now_ns

    def issue(self, label: Label, begun_ns: int, *, is_async: bool) -> int:
        """A collective is in flight since a time; gives its number."""
        if not self._flights:
            self._flown_since_ns = begun_ns
        elif len(self._flights) >= _MOST_FLIGHTS:
            del self._flights[next(iter(self._flights))]
            self._unseen += 1
        self._number += 1
        self._flights[self._number] = _Flight(label, self._step, begun_ns, is_async)
        return self._number

    def is_in_flight(self, number: int) -> bool:
        """Tell whether nobody has waited for a collective yet."""
        return number in self._flights

    def begin_wait(self, number: int, region: Region | None) -> Standing | None:
        """The thread begins to wait for a collective; where a call blocks, it began to with the call.

        None: it was waited for before, another wait is around this one, or no step runs.
        """
        flight = self._flights.get(number)
        if flight is None:
            return None
        if self._is_standing or not self.is_open:
            self.land(number)
            return None
        self._is_standing = True
        begun_ns = self.now_ns() if flight.is_async else flight.begun_ns
        return Standing(flight.label, region, max(begun_ns, self._own_since_ns), (number,))

    def begin_waits(self, label: Label, region: Region | None, numbers: tuple[int, ...]) -> Standing | None:
        """The thread begins to wait in C++ for several collectives, or some that no hook saw; None as ``begin_wait``.

        Args:
            label: what they are.
            region: that waits.
            numbers: of those that were seen being issued.
        """
        if self._is_standing or not self.is_open:
            for number in numbers:
                self.land(number)
            return None
        self._is_standing = True
        self._untold += not numbers
        return Standing(label, region, self.now_ns(), numbers)

    def end_wait(self, standing: Standing | None) -> None:
        """The thread goes on."""
        if standing is None or not self.is_open:
            return
        now_ns = self.now_ns()
        self._is_standing = False
        for number in standing.numbers:
            self.land(number, now_ns)
        own_ns = self._own_ns + standing.begun_ns - self._own_since_ns
        wait_ns = now_ns - standing.begun_ns
        self._sums[standing.label.purpose, standing.region] += wait_ns
        self._own_since_ns = now_ns
        if len(self._waits) < SLOTS:
            self._waits.append(Wait(standing.label, own_ns, wait_ns))
            own_ns = 0
        self._own_ns = own_ns

    def land(self, number: int, now_ns: int | None = None) -> None:
        """A collective is over; now, if nobody says when."""
        if self._flights.pop(number, None) is not None and not self._flights and self.is_open:
            self._flight_ns += (self.now_ns() if now_ns is None else now_ns) - self._flown_since_ns

    def issued_since(self, number: int) -> range:
        """Return the numbers of all that were issued after one."""
        return range(number + 1, self._number + 1)

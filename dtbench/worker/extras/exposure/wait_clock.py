"""How long the thread that runs the steps stands still for collectives, wherever it waits.

::

    issue a (blocking) ........ wait a    the whole call is its wait
    issue b    compute    |wait b|        only the wait is

Waits pass through here from Python (``Work.wait``: FSDP1, FSDP2, clipping), from functional collectives
(``wait_tensor``: DTensor) and from DDP's broadcast of buffers, which waits in C++. DDP's reducer, too, waits in C++:
``dtbench.worker.extras.exposure.backward_end`` says when. A wait inside another is part of it.
"""

import itertools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from dtbench.base.vocabulary import Purpose
from dtbench.worker.network.carrier import Issued
from dtbench.worker.recording.recorder import DELAYED


@dataclass(frozen=True, slots=True)
class _Flight:
    """A collective that nobody has waited for yet.

    Attributes:
        begun_ns: when a call that blocks began; None: the call came back at once.
        is_reducers: DDP's reducer will wait for it.
    """

    purpose: Purpose
    begun_ns: int | None
    is_reducers: bool


class WaitClock:
    """Sums waits by purpose, step by step; made on the thread whose waits count.

    Attributes:
        seen: collectives whose wait was seen, since this was made.
        unseen: collectives that were in flight still when their step ended: nobody waited where dtbench looks.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.unseen = 0
        self._thread = threading.get_ident()
        self._is_standing = False
        self._stood_ns: Counter[Purpose] = Counter()
        self._numbers = itertools.count()
        self._flights: dict[int, _Flight] = {}
        self._works: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._outputs: dict[int, int] = {}

    def begin_step(self) -> None:
        """Forget what was in flight before."""
        self._stood_ns = Counter()
        self._flights.clear()
        self._outputs.clear()

    def end_step(self) -> dict[Purpose, int]:
        """Return how long the step's waits took, ns."""
        self.unseen += len(self._flights)
        return dict(self._stood_ns)

    def note(self, issued: Issued, work: Any, begun_ns: int) -> None:
        """A collective was issued, see ``Carrier.tell``; alone in a group nobody waits."""
        if not issued.is_shared:
            return
        if work is None:
            self.seen += 1
            if self._counts():
                self._stood_ns[issued.purpose] += time.perf_counter_ns() - begun_ns
            return
        number = next(self._numbers)
        label = issued.label
        self._flights[number] = _Flight(
            issued.purpose, None if label.is_async else begun_ns, is_reducers=label.owner not in ("", DELAYED)
        )
        self._works[work] = number
        self._outputs.update({tensor.data_ptr(): number for tensor in issued.outputs})

    def stand_for_reducer(self) -> None:
        """DDP's reducer begins to wait; waits until ``reducer_done`` are part of it."""
        self._is_standing = True

    def reducer_done(self) -> None:
        """It has waited for all that it issued."""
        self._is_standing = False
        for number in [number for number, flight in self._flights.items() if flight.is_reducers]:
            self._land(number)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let waits pass through this clock for as long as the context lasts."""
        with (
            mock.patch.object(dist.Work, "wait", self._watch_work(dist.Work.wait)),
            mock.patch.object(dist, "_broadcast_coalesced", self._watch_blocking(dist._broadcast_coalesced)),
            mock.patch.object(functional, "wait_tensor", self._watch_tensor(functional.wait_tensor)),
        ):
            yield

    def _watch_work(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def timed(work: Any, *args: Any, **kwargs: Any) -> Any:
            flight = self._land(self._works.get(work))
            with self._standing(flight, None if flight is None else flight.begun_ns):
                return wait(work, *args, **kwargs)

        return timed

    def _watch_blocking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Watch a function that waits in C++ for all that it issues."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            before, begun_ns = set(self._flights), time.perf_counter_ns()
            result = function(*args, **kwargs)
            flights = [self._land(number) for number in set(self._flights) - before]
            if flights and flights[0] is not None and self._counts():
                self._stood_ns[flights[0].purpose] += time.perf_counter_ns() - begun_ns
            return result

        return timed

    def _watch_tensor(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def timed(tensor: torch.Tensor) -> torch.Tensor:
            with self._standing(self._land(self._outputs.get(tensor.data_ptr())), None):
                return wait(tensor)

        return timed

    def _land(self, number: int | None) -> _Flight | None:
        """Somebody waits for a collective; gives it, or None if its wait is over, or was never to be timed."""
        flight = None if number is None else self._flights.pop(number, None)
        self.seen += flight is not None
        return flight

    def _counts(self) -> bool:
        return not self._is_standing and threading.get_ident() == self._thread

    @contextmanager
    def _standing(self, flight: _Flight | None, begun_ns: int | None) -> Iterator[None]:
        if flight is None or not self._counts():
            yield
            return
        start_ns = time.perf_counter_ns() if begun_ns is None else begun_ns
        self._is_standing = True
        try:
            yield
        finally:
            self._is_standing = False
            self._stood_ns[flight.purpose] += time.perf_counter_ns() - start_ns

"""The link of known cost on a device: lanes are streams, and the service of a collective is a kernel that spins.

::

    host              issue a, issue b                     goes on at once
    issuing stream    ██inputs                ┆consumer    waits for a's end
    NCCL                      █a█b                         moves the data
    lane of link              ████████a████████b           spins: the trace shows these
                                      ┆ a done  ┆ b done

A collective is done at ``max(NCCL, max(issue, lane free) + service)`` on the device's own time line: its spin begins
when its inputs are there and the lane is free, runs beside NCCL, and the lane goes on when both have ended. The host
waits for nothing but barriers, as with NCCL alone. See ``dtbench.plan.traffic.link`` for the service.

What differs from the link on CPU: no rank knows when the last one issued. A rank that came early is served from its own
issue and then waits for NCCL, which waits for the last rank; a rank that comes late is served from its issue in full.

A spin is one thread of one block: of its multiprocessor it takes a share of the issue slots, of the others nothing. It
keeps a device that would stand still at its working clock; where load makes the clock fall, spins grow longer, and the
receipt says so. It begins when there is room for a block, ahead of other streams; where every multiprocessor is full,
that is when the next block ends.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import torch
from torch.profiler import record_function

from dtbench.base.errors import PlanError
from dtbench.base.ranges import CollectiveLabel, LinkLabel, link_range
from dtbench.base.units import NS_PER_MS, NS_PER_US
from dtbench.base.vocabulary import Operation
from dtbench.plan.rules.problems import QUEUES_VARIABLE
from dtbench.plan.traffic.link import service_ns
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.worker.network.finished import make_finished_work
from dtbench.worker.network.link import Tally, lane_of

LATE_NS: Final = 50 * NS_PER_US
"""A backend that ends so long after the link was slower than it; less is what events and waits between streams take."""
_IN_FLIGHT: Final = 256
"""Services whose events are kept before those that have ended are read."""


class Spinner(Protocol):
    """Takes time on the current stream."""

    def calibrate(self) -> None:
        """Tie what it spins to time."""

    def take(self, duration_ns: int) -> None:
        """Spin so long."""


@dataclass(frozen=True)
class _Service:
    """Marks on a lane: before and after a spin of ``service_ns``, and after the backend's end."""

    begun: Any
    spun: Any
    ended: Any
    service_ns: int


@dataclass
class CudaLink:
    """Carries the collectives of one rank on a device; does for ``Carrier`` what ``Link`` does on CPU.

    Attributes:
        network: what it costs.
        spinner: takes its time.
        cuda: ``torch.cuda``, or what stands in for it.
        finish: gives the ``Work`` for outputs that are there when the current stream has come here, and holds a second
            thing as long as the work lives.
        backend: what moves the data, in words.
    """

    network: EmulatedNetwork
    spinner: Spinner
    cuda: Any = torch.cuda  # what a link spins on
    finish: Callable[[Sequence[torch.Tensor], object], Any] = make_finished_work
    backend: str = "NCCL"
    _lanes: dict[str, Any] = field(default_factory=dict)
    _token: torch.Tensor | None = None
    _tally: Tally = field(default_factory=Tally)
    _services: deque[_Service] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, device: torch.device) -> None:
        """Calibrate the spin and take what collectives without outputs need; before anything else runs on the device.

        Args:
            device: that this rank computes on, with its index.
        """
        self.spinner.calibrate()
        self._token = torch.zeros(1, device=device)

    @property
    def carried(self) -> Tally:
        """What it did until now; waits for the device."""
        with self._lock:
            while self._services:
                self._read(self._services.popleft())
            return replace(self._tally)

    def carry(
        self,
        label: CollectiveLabel,
        ranks: Sequence[int],
        start: Callable[[], Any],
        outputs: list[torch.Tensor],
        *,
        is_named: bool,
    ) -> Any:
        """Start a collective and give a ``Work`` that is done, on the device, when backend and link are.

        Args:
            label: what it is.
            ranks: global ranks of its group.
            start: issues it to the backend and gives the backend's ``Work``; None: it goes on the current stream.
            outputs: what a future of it gives.
            is_named: the trace is to show which collective the spin belongs to.

        Raises:
            PlanError: a CUDA graph is being captured.
        """
        if len(ranks) < 2:
            return start()
        if self.cuda.is_current_stream_capturing():
            raise PlanError(
                "network.kind=emulated cannot be captured in a CUDA graph: a replay would issue nothing that the link "
                "could queue; leave the graph out, or use network.kind=real"
            )
        cost_ns = service_ns(self.network, label.operation, label.size_bytes, ranks, (label.group, label.seq))
        lane = self._lane(lane_of(self.network, label.group))
        issuing = self.cuda.current_stream()
        lane.wait_event(issuing.record_event())
        begun, spun = self._spin(lane, cost_ns, label if is_named else None)
        work = start()
        ended = self._await_backend(lane, issuing, work)
        self._note(_Service(begun, spun, ended, cost_ns))
        if label.operation is Operation.BARRIER:
            ended.synchronize()  # whoever passes a barrier expects the host to have waited
        return self._finish(lane, work, outputs, start)

    def _lane(self, name: str) -> Any:
        with self._lock:
            if name not in self._lanes:
                self._lanes[name] = self.cuda.Stream(priority=-1)
            return self._lanes[name]

    def _spin(self, lane: Any, cost_ns: int, label: CollectiveLabel | None) -> tuple[Any, Any]:
        """Enqueue a service on its lane and give the marks around it."""
        name = nullcontext()
        if label is not None:
            name = record_function(link_range(LinkLabel(group=label.group, seq=label.seq, begun_ns=0)))
        with self.cuda.stream(lane):
            begun = lane.record_event(self.cuda.Event(enable_timing=True))
            with name:
                self.spinner.take(cost_ns)
            return begun, lane.record_event(self.cuda.Event(enable_timing=True))

    def _await_backend(self, lane: Any, issuing: Any, work: Any) -> Any:
        """Let a lane wait for the backend, and the issuing stream for the lane where the backend works on that."""
        if work is None:
            lane.wait_event(issuing.record_event())
        else:
            with self.cuda.stream(lane):
                work.synchronize()  # not wait(): for a barrier that would hold the host
        ended = lane.record_event(self.cuda.Event(enable_timing=True))
        if work is None:
            issuing.wait_event(ended)
        return ended

    def _finish(self, lane: Any, work: Any, outputs: list[torch.Tensor], start: object) -> Any:
        """Return the ``Work``; never None: torch 2.13 dereferences what a group in Python gives to C++.

        When a lane has waited for NCCL's work, that lets go of its tensors. The stream that they belong to has not
        waited, so they are kept, with ``start``, until whoever waits drops this work.
        """
        value = outputs or ([] if self._token is None else [self._token])
        if work is None:
            return self.finish(value, None)
        with self.cuda.stream(lane):
            return self.finish(value, start)

    def _note(self, service: _Service) -> None:
        with self._lock:
            self._services.append(service)
            if len(self._services) > _IN_FLIGHT and self._services[0].ended.query():
                self._read(self._services.popleft())

    def _read(self, service: _Service) -> None:
        service.ended.synchronize()
        late_ns = round(service.spun.elapsed_time(service.ended) * NS_PER_MS)
        tally = self._tally
        tally.count += 1
        tally.late += late_ns > LATE_NS
        tally.latest_ns = max(tally.latest_ns, late_ns)
        tally.asked_ns += service.service_ns
        tally.took_ns += round(service.begun.elapsed_time(service.spun) * NS_PER_MS)


def ask_for_queues() -> None:
    """Ask for as many hardware queues as there may be, where nobody asked for a number; before CUDA begins.

    Streams that share a queue stand behind each other: a lane whose next spin has to wait would hold up compute.
    """
    os.environ.setdefault(QUEUES_VARIABLE, "32")

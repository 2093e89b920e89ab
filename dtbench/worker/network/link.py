"""The link of known cost: lanes that serve one collective after another, and the ``Work`` that ends with the link.

::

    issue           |a  |b
    gloo            |██a|██b                          moves the data
    lane of link     ████████a████████b               the trace shows these; a waits for nothing, b is queued behind a
                             |        |
                             a done   b done          what consumers wait for

A collective is done at ``max(backend, max(last issue, lane free) + service)``; see ``dtbench.traffic.link`` for the
service.

[Note: one schedule on all ranks] Every rank reckons for itself when the link serves what, and all come to the same,
since they reckon with the same: with when each rank was ready, which all can read, and with services, which follow from
size and number. When the backend was done is no such thing, one rank sees it later than another: it holds up the
collective on the rank that saw it, and nothing after it. Otherwise lanes drift apart, and a collective has ended on one
rank before it begins on another.

In the trace it lies on its lane from the moment at which this rank has issued it and the lane is free: what
comes before the last rank's issue is waiting for that rank, as in a kernel of NCCL. A lane is a thread: it sleeps until
then, so that it costs no core.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.profiler import record_function

from dtbench.ranges import CollectiveLabel, LinkLabel, link_range
from dtbench.scenario.network import EmulatedNetwork
from dtbench.traffic.link import service_ns
from dtbench.vocabulary import Operation
from dtbench.worker.network.issue_times import IssueTimes
from dtbench.worker.sleep import sleep_until

_SHARED: Final = ""
"""Name of the one lane that all groups share."""
_POINT_TO_POINT: Final = (Operation.SEND, Operation.RECV)
"""Their two ends count differently, so nobody knows when the other one issued."""
_MOST_OPEN: Final = 32
"""Collectives that a schedule keeps until it is known when all ranks were ready; of other machines' it never is."""


@dataclass
class _Place:
    """A collective in the schedule of a lane.

    Attributes:
        ready_ns: when this rank had issued it and, as far as was known then, had the lane free for it.
        service_ns: how long the link serves it.
        times: where the ranks of its group say when they were ready; None: they do not.
        number: of the collective there.
        begun_ns: when the link begins to serve it; None: that may still change.
    """

    ready_ns: int
    service_ns: int
    times: IssueTimes | None = None
    number: int = 0
    begun_ns: int | None = None

    @property
    def last_ready_ns(self) -> int:
        """When the last rank was ready, of those that have said so."""
        return self.ready_ns if self.times is None else max(self.ready_ns, self.times.last(self.number))

    @property
    def is_known(self) -> bool:
        """Whether all ranks have said when they were ready."""
        return self.times is None or self.times.is_complete(self.number)


@dataclass
class _Schedule:
    """When a lane serves what. See [Note: one schedule on all ranks].

    Attributes:
        free_ns: when it has served all that is settled.
        open: what is not settled, in order: what is not served yet, and before it what some rank had not issued when it
            was (the root of a broadcast is done before the others have begun).
    """

    free_ns: int = 0
    open: deque[_Place] = field(default_factory=deque)

    def reserve(self, issue_ns: int, cost_ns: int, times: IssueTimes | None, number: int) -> _Place:
        """Give what is issued now its place behind all others."""
        free_ns = self.free_ns
        for place in self.open:
            free_ns = max(place.ready_ns, free_ns) + place.service_ns
        self.open.append(_Place(max(issue_ns, free_ns), cost_ns, times, number))
        return self.open[-1]

    def find_begin(self, place: _Place) -> int:
        """Return when the link begins to serve a collective, with what is known by now, ns."""
        if place.begun_ns is not None:  # settled for one behind it, which was served first
            return place.begun_ns
        while self.open[0] is not place and (self.open[0].is_known or len(self.open) > _MOST_OPEN):
            first = self.open.popleft()
            first.begun_ns = max(first.last_ready_ns, self.free_ns)
            self.free_ns = first.begun_ns + first.service_ns
        free_ns = self.free_ns
        for before in takewhile(lambda one: one is not place, self.open):
            free_ns = max(before.last_ready_ns, free_ns) + before.service_ns
        return max(place.last_ready_ns, free_ns)


@dataclass(frozen=True)
class _Job:
    """One collective on its way over the link."""

    label: CollectiveLabel
    issue_ns: int
    place: _Place
    work: Any
    outputs: list[torch.Tensor]
    done: Any
    is_named: bool


@dataclass
class Tally:
    """What the link did since it was asked last: the proof that nothing went past it.

    Attributes:
        count: collectives that it delayed until their time.
        late: of these, the ones for which the backend took longer than the link.
        latest_ns: the most by which it did.
        asked_ns: what their services should have taken together; 0 where nobody measures what they took.
        took_ns: what these took.
    """

    count: int = 0
    late: int = 0
    latest_ns: int = 0
    asked_ns: int = 0
    took_ns: int = 0


@dataclass
class Link:
    """Carries the collectives of one rank.

    Attributes:
        network: what it costs.
        folder: where the ranks of this machine tell each other when they issued.
        carried: what it did.
        backend: what moves the data, in words.
    """

    network: EmulatedNetwork
    folder: Path
    carried: Tally = field(default_factory=Tally)
    backend: str = "gloo"
    _lanes: dict[str, "_Lane"] = field(default_factory=dict)
    _times: dict[str, IssueTimes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def carry(
        self,
        label: CollectiveLabel,
        ranks: Sequence[int],
        start: Callable[[], Any],
        outputs: list[torch.Tensor],
        *,
        is_named: bool,
    ) -> Any:
        """Start a collective and give a ``Work`` that is done when backend and link are.

        Args:
            label: what it is.
            ranks: global ranks of its group.
            start: issues it to the backend and gives the backend's ``Work``; None: the backend has done it already.
            outputs: what a future of it gives.
            is_named: the trace shows the link's part.
        """
        if len(ranks) < 2:
            return start()
        issue_ns = time.monotonic_ns()
        lane = self._lane(lane_of(self.network, label.group))
        cost_ns = service_ns(self.network, label.operation, label.size_bytes, ranks, (label.group, label.seq))
        place = lane.reserve(issue_ns, cost_ns, self._times_of(label, ranks), label.seq)
        work = start()
        done: Any = torch.futures.Future()
        lane.put(_Job(label, issue_ns, place, work, outputs, done, is_named=is_named))
        if work is None:  # a call that blocks
            done.wait()
            return None
        return torch._C._distributed_c10d._create_work_from_future(done)

    def _times_of(self, label: CollectiveLabel, ranks: Sequence[int]) -> IssueTimes | None:
        if label.operation in _POINT_TO_POINT:
            return None
        key = f"{label.group} {ranks}"
        if key not in self._times:
            self._times[key] = IssueTimes(self.folder, label.group, ranks, ranks.index(dist.get_rank()))
        return self._times[key]

    def _lane(self, name: str) -> "_Lane":
        with self._lock:
            if name not in self._lanes:
                self._lanes[name] = _Lane(name, self.carried, self._lock)
                self._lanes[name].begin()
            return self._lanes[name]


@dataclass
class _Lane:
    """Serves one job after another, on one thread at a time."""

    name: str
    carried: Tally
    lock: threading.Lock  # lanes count into one tally
    jobs: "queue.SimpleQueue[_Job]" = field(default_factory=queue.SimpleQueue)
    server: threading.Thread | None = None
    schedule: _Schedule = field(default_factory=_Schedule)  # a thread that wakes late delays nothing that is queued
    ended_ns: int = 0  # when the thread woke

    def begin(self) -> None:
        """Let a new thread serve."""
        self.server = threading.Thread(target=self.serve, name=f"dtbench link {self.name}", daemon=True)
        self.server.start()

    def reserve(self, issue_ns: int, cost_ns: int, times: IssueTimes | None, number: int) -> _Place:
        """Give a collective its place behind all others, and tell the ranks of its group when this one is ready."""
        with self.lock:
            place = self.schedule.reserve(issue_ns, cost_ns, times, number)
        if times is not None:
            times.put(number, place.ready_ns)
        return place

    def put(self, job: _Job) -> None:
        """Queue a job; from a callback on the serving thread, which may wait for it (PowerSGD), another one serves."""
        self.jobs.put(job)
        if self.server is threading.current_thread():
            self.begin()

    def serve(self) -> None:
        """Take jobs for as long as the process lives, or until another thread does."""
        while self.server is threading.current_thread():
            job = self.jobs.get()
            try:
                self._serve_one(job)
            except Exception as error:  # noqa: BLE001  whatever the backend raised is the waiter's
                job.done.set_exception(error)
            else:
                job.done.set_result(job.outputs)

    def _serve_one(self, job: _Job) -> None:
        if job.work is not None:
            job.work.wait()
        moved_ns = time.monotonic_ns()
        with self.lock:
            start_ns = self.schedule.find_begin(job.place)
        end_ns = start_ns + job.place.service_ns
        self._count(moved_ns - end_ns)
        shown_ns = min(max(job.issue_ns, self.ended_ns), end_ns)  # a thread may have woken later than other ranks ended
        with self._named(job, max(0, moved_ns - shown_ns)):
            sleep_until(end_ns)
        self.ended_ns = time.monotonic_ns()

    def _count(self, late_ns: int) -> None:
        with self.lock:
            self.carried.count += 1
            self.carried.late += late_ns > 0
            self.carried.latest_ns = max(self.carried.latest_ns, late_ns)

    def _named(self, job: _Job, begun_ns: int) -> AbstractContextManager[Any]:
        """Give the range of a collective on the link; it opens ``begun_ns`` after this rank took the lane."""
        if not job.is_named:
            return nullcontext()
        label = LinkLabel(group=job.label.group, seq=job.label.seq, begun_ns=begun_ns)
        return record_function(link_range(label))


def lane_of(network: EmulatedNetwork, group: str) -> str:
    """Name the lane that serves a process group: its own, or the one that all share."""
    return _SHARED if network.lanes == "shared" else group


def flatten_tensors(argument: Any) -> Iterator[torch.Tensor]:
    """Walk a tensor, a list of them, or a list of lists."""
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from flatten_tensors(item)

"""The link of known cost: lanes that serve one collective after another, and the ``Work`` that ends with the link.

::

    issue           |a  |b
    gloo            |██a|██b                          moves the data
    lane of link     ████████a████████b               the trace shows these; a waits for nothing, b is queued behind a
                             |        |
                             a done   b done          what consumers wait for

A collective is done at ``max(backend, max(last issue, lane free) + service)``; see ``dtbench.plan.traffic.link`` for
the service.

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
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.profiler import record_function

from dtbench.base.ranges import CollectiveLabel, LinkLabel, link_range
from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.plan.traffic.link import service_ns
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.worker.machine.sleep import sleep_until
from dtbench.worker.network.issue_times import IssueTimes
from dtbench.worker.network.promise import Promise

_SHARED: Final = ""
"""Name of the one lane that all groups share."""
_MOST_OPEN: Final = 32
"""Collectives that a schedule keeps until it is known when all ranks were ready; of other machines' it never is."""


class CollectiveError(RuntimeError):
    """A collective failed in the backend, as it does where a peer is gone."""


@dataclass(frozen=True)
class _Job:
    """One collective on its way over the link.

    Attributes:
        last_issue: when the last rank was ready for it, of those that have said so.
        is_known: whether all have said so.
    """

    label: CollectiveLabel
    issue_ns: int
    service_ns: int
    last_issue: Callable[[], int]
    work: Any
    outputs: list[torch.Tensor]
    promise: Promise
    is_named: bool
    is_known: Callable[[], bool] = lambda: True

    def end_after(self, free_ns: int) -> int:
        """Return when the link has served it, if its lane is free from a moment on."""
        return max(self.last_issue(), free_ns) + self.service_ns


@dataclass
class _Schedule:
    """When a lane serves what. See [Note: one schedule on all ranks].

    Attributes:
        free_ns: when the lane has served all that is settled.
        open: what came after that, in order, and was served before all ranks had issued it: the root of a broadcast is
            done before the others have begun.
    """

    free_ns: int = 0
    open: deque[_Job] = field(default_factory=deque)

    def serve(self, job: _Job) -> int:
        """Return when the link has served a collective, with what is known by now, ns."""
        while self.open and (self.open[0].is_known() or len(self.open) > _MOST_OPEN):
            self.free_ns = self.open.popleft().end_after(self.free_ns)
        free_ns = self.free_ns
        for before in self.open:
            free_ns = before.end_after(free_ns)
        self.open.append(job)
        return job.end_after(free_ns)


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
    _failures: list[Exception] = field(default_factory=list)

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

        Raises:
            CollectiveError: one before it failed.
        """
        if len(ranks) < 2:
            return start()
        self.check()
        issue_ns = time.monotonic_ns()
        lane = self._lane(lane_of(self.network, label.group))
        last_issue, is_known = self._announce(label, ranks, max(issue_ns, lane.foresee_free()))
        work = start()
        promise = Promise()
        job = _Job(
            label=label,
            issue_ns=issue_ns,
            service_ns=service_ns(self.network, label.operation, label.size_bytes, ranks, (label.group, label.seq)),
            last_issue=last_issue,
            work=work,
            outputs=outputs,
            promise=promise,
            is_named=is_named,
            is_known=is_known,
        )
        lane.put(job)
        if work is None:  # a call that blocks
            promise.future.wait()
            return None
        return torch._C._distributed_c10d._create_work_from_future(promise.future)

    def check(self) -> None:
        """Refuse to go on where a collective failed: not all who waited for it were told.

        Raises:
            CollectiveError: one did.
        """
        if self._failures:
            raise CollectiveError(f"a collective failed: {self._failures[0]}") from self._failures[0]

    def _announce(
        self, label: CollectiveLabel, ranks: Sequence[int], ready_ns: int
    ) -> tuple[Callable[[], int], Callable[[], bool]]:
        """Tell the other ranks when this one is ready; gives when the last is, and whether all have told."""
        # their two ends count differently, so it is not known when the other one issued
        if label.operation in POINT_TO_POINT:
            return lambda: ready_ns, lambda: True
        key = f"{label.group} {ranks}"
        if key not in self._times:
            self._times[key] = IssueTimes(self.folder, label.group, ranks, ranks.index(dist.get_rank()))
        times = self._times[key]
        times.put(label.seq, ready_ns)
        return lambda: max(ready_ns, times.last(label.seq)), lambda: times.is_complete(label.seq)

    def _lane(self, name: str) -> "_Lane":
        with self._lock:
            if name not in self._lanes:
                self._lanes[name] = _Lane(name, self.carried, self._lock, failures=self._failures)
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
    waiting: deque[_Job] = field(default_factory=deque)  # what was put and has no end yet
    foreseen_ns: int = 0  # the end of the last that has one
    ended_ns: int = 0  # when the thread woke
    failures: list[Exception] = field(default_factory=list)  # of all lanes, the first one first

    def begin(self) -> None:
        """Let a new thread serve."""
        self.server = threading.Thread(target=self.serve, name=f"dtbench link {self.name}", daemon=True)
        self.server.start()

    def foresee_free(self) -> int:
        """Return when the lane will have served all that was put, as far as this rank knows, ns."""
        with self.lock:
            free_ns = self.foreseen_ns
            for job in self.waiting:
                free_ns = max(job.issue_ns, free_ns) + job.service_ns
            return free_ns

    def put(self, job: _Job) -> None:
        """Queue a job; from a callback on the serving thread, which may wait for it (PowerSGD), another one serves."""
        with self.lock:
            self.waiting.append(job)
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
                self.failures.append(error)
                job.promise.break_with(error)
            else:
                job.promise.keep(job.outputs)

    def _serve_one(self, job: _Job) -> None:
        if job.work is not None:
            job.work.wait()
        moved_ns = time.monotonic_ns()
        with self.lock:
            self.foreseen_ns = end_ns = self.schedule.serve(job)
            while self.waiting and self.waiting.popleft() is not job:
                pass  # its backend failed
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
        """Return the range of a collective on the link; it opens ``begun_ns`` after this rank took the lane."""
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

"""The link of known cost: lanes that serve one collective after another, and the ``Work`` that ends with the link.

::

    issue           |a  |b
    gloo            |██a|██b                          moves the data
    lane of link     ████████a████████b               the trace shows these; a waits for nothing, b is queued behind a
                             |        |
                             a done   b done          what consumers wait for

A collective is done at ``max(backend, max(last issue, lane free) + service)``; see ``dtbench.traffic.link`` for the
service. In the trace it lies on its lane from the moment at which this rank has issued it and the lane is free: what
comes before the last rank's issue is waiting for that rank, as in a kernel of NCCL. A lane is a thread: it sleeps until
then, so that it costs no core.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _Job:
    """One collective on its way over the link."""

    label: CollectiveLabel
    issue_ns: int
    service_ns: int
    last_issue: Callable[[], int]
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
        issue_ns = time.monotonic_ns()
        last_issue = self._announce(label, ranks, issue_ns)
        work = start()
        if len(ranks) < 2:
            return work
        done: Any = torch.futures.Future()
        job = _Job(
            label=label,
            issue_ns=issue_ns,
            service_ns=service_ns(self.network, label.operation, label.size_bytes, ranks, (label.group, label.seq)),
            last_issue=last_issue,
            work=work,
            outputs=outputs,
            done=done,
            is_named=is_named,
        )
        self._lane(lane_of(self.network, label.group)).put(job)
        if work is None:  # a call that blocks
            done.wait()
            return None
        return torch._C._distributed_c10d._create_work_from_future(done)

    def _announce(self, label: CollectiveLabel, ranks: Sequence[int], issue_ns: int) -> Callable[[], int]:
        if label.operation in _POINT_TO_POINT or len(ranks) < 2:
            return lambda: issue_ns
        key = f"{label.group} {ranks}"
        if key not in self._times:
            self._times[key] = IssueTimes(self.folder, label.group, ranks, ranks.index(dist.get_rank()))
        times = self._times[key]
        times.put(label.seq, issue_ns)
        return lambda: max(issue_ns, times.last(label.seq))

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
    free_ns: int = 0  # by the link's own reckoning: a thread that wakes late delays nothing that is queued
    ended_ns: int = 0  # when the thread woke

    def begin(self) -> None:
        """Let a new thread serve."""
        self.server = threading.Thread(target=self.serve, name=f"dtbench link {self.name}", daemon=True)
        self.server.start()

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
        start_ns = max(job.last_issue(), self.free_ns)
        end_ns = start_ns + job.service_ns
        self.free_ns = max(end_ns, moved_ns)
        self._count(moved_ns - end_ns)
        with self._named(job, max(0, moved_ns - max(job.issue_ns, self.ended_ns))):
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

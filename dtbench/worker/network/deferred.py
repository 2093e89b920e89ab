"""Collectives that keep their results to themselves until somebody waits: what is read too early is poison.

::

    issue              wait
    |xxxxxxxxxxxxxxxxxx|result       who waits sees the result, however late; who does not sees poison
     backend and link fill a copy

The slowest network that a correct program cannot tell from any other. Backend and link carry copies, at their own pace,
so that no rank holds back another; what is deferred is the last step, into the consumer's tensors.

Waits pass through ``Work.wait``, also those of C++ (functional collectives and compiled graphs, DDP's buffers and its
map of unused parameters). Who takes a future instead waits where nobody sees it: DDP's reducer, and its hooks. Such
results arrive a given time after their issue, and those of a group one after another in order of issue, so that
callbacks, which may issue further collectives, run in the same order on all ranks.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.worker.machine.sleep import sleep_until
from dtbench.worker.network.carrier import Issued, Send, Start
from dtbench.worker.network.link import flatten_tensors
from dtbench.worker.network.promise import Promise


class Poison(Enum):
    """What outputs hold until they are delivered; integers hold their largest number in both."""

    NAN = auto()
    LARGE = auto()


@dataclass(frozen=True, slots=True)
class CollectiveKey:
    """A collective of a step, told in words that mean the same in every such step and on every rank.

    Attributes:
        owner: bucket or FSDP unit; empty: unknown.
        place: among those of a step that are otherwise equal, from 0.
    """

    purpose: Purpose
    operation: Operation
    region: Region | None
    owner: str
    place: int


def _defer_all(_key: CollectiveKey) -> bool:
    return True


def _know_no_unit() -> str | None:
    return None


@dataclass
class DeferredResults:
    """Defers the results of one step's collectives; its ``carry`` is a ``Carrier.poison``.

    Attributes:
        delay_ns: after its issue, until the result of a collective arrives whose future was taken.
        is_deferred: which ones to defer; the others are carried as ever.
        find_unit: FQN of the FSDP unit that asks for what is issued now; None: nobody knows.
        seen: what was deferred, in order of issue.
    """

    poison: Poison
    delay_ns: int
    is_deferred: Callable[[CollectiveKey], bool] = _defer_all
    find_unit: Callable[[], str | None] = _know_no_unit
    seen: list[CollectiveKey] = field(default_factory=list)
    _places: Counter[tuple[Purpose, Operation, Region | None, str]] = field(default_factory=Counter)
    _closed: dict[int, "_Pending"] = field(default_factory=dict)
    _works: list[Any] = field(default_factory=list)
    _deliverers: dict[str, "_Deliverer"] = field(default_factory=dict)

    def carry(self, issued: Issued, start: Start, send: Send) -> Any:
        """Send a collective with copies in place of what it fills, and give a ``Work`` that fills them when waited for.

        Args:
            issued: the collective.
            start: issues it to the backend with other arguments, positional ones as torch passed them.
            send: carries it when ``start`` is called without any.
        """
        if not (issued.is_shared and is_filled(issued)):
            return send(issued, start)
        key = self._name(issued)
        if not self.is_deferred(key):
            return send(issued, start)
        self.seen.append(key)
        with _quietly():
            sent, outputs, aliases = set_aside(issued.args)
            for copy in outputs:
                fill(copy.real, self.poison)
            if issued.label.operation is Operation.ALL_GATHER:  # a rank's own shard may lie in the output already
                for copy in aliases:
                    copy.deliver()
        pending = _Pending(key, outputs, time.monotonic_ns() + self.delay_ns)
        self._closed[id(pending)] = pending
        pending.inner = send(issued, partial(start, *sent))
        work = _wrap(_Late(pending, issued.outputs, self._open, partial(self._post, issued.label.group)))
        self._works.append(work)  # C++ may keep its half only (DDP under join), which without ours waits for ever
        if pending.inner is None:  # a call that blocks
            work.wait()
            return None
        return work

    def finish(self) -> tuple[CollectiveKey, ...]:
        """Let every result arrive; gives those that nobody had asked for by now.

        Raises:
            RuntimeError: a collective failed.
        """
        for deliverer in self._deliverers.values():
            deliverer.finish()
        forgotten = tuple(pending.key for pending in self._closed.values())
        for pending in tuple(self._closed.values()):
            self._open(pending)
        self._works.clear()
        return forgotten

    def _name(self, issued: Issued) -> CollectiveKey:
        key = (issued.purpose, issued.label.operation, issued.region, issued.label.owner or self.find_unit() or "")
        self._places[key] += 1
        return CollectiveKey(*key, place=self._places[key] - 1)

    def _open(self, pending: "_Pending") -> None:
        pending.open()
        self._closed.pop(id(pending), None)

    def _post(self, group: str, late: "_Late") -> None:
        """Let the result arrive by itself when it is due, after those that were posted before."""
        if group not in self._deliverers:
            self._deliverers[group] = _Deliverer()
        self._deliverers[group].take(late)


def is_filled(issued: Issued) -> bool:
    """Whether dense tensors of this rank get new values: a sender's do not, nor those of a broadcast's root."""
    root = getattr(issued.args[-1], "rootRank", None) if issued.args else None
    match issued.label.operation:
        case Operation.SEND | Operation.BARRIER:
            return False
        case Operation.BROADCAST if root == issued.group.rank():
            return False
        case Operation.REDUCE if root != issued.group.rank():
            return False
        case _:
            outputs = issued.outputs
            return bool(outputs) and all(output.layout is torch.strided for output in outputs)


@dataclass(frozen=True)
class _Copy:
    """A tensor and what takes its place while the backend is at work."""

    real: Tensor
    aside: Tensor
    storage_bytes: int

    def deliver(self) -> None:
        """Fill the real one, unless its memory was given away meanwhile."""
        if self.real.untyped_storage().nbytes() >= self.storage_bytes:
            self.real.data.copy_(self.aside)  # .data: no new autograd version, as when a backend writes


def set_aside(args: Sequence[Any]) -> tuple[tuple[Any, ...], list[_Copy], list[_Copy]]:
    """Return a backend method's arguments with copies of its outputs, and of inputs that lie in an output's memory.

    Returns:
        the arguments; the copies of outputs, the first argument's tensors; those of such inputs.
    """
    outputs = list(flatten_tensors(args[0]))
    memories = frozenset(output.untyped_storage().data_ptr() for output in outputs)
    copies: list[_Copy] = []
    sent = tuple(_replace(argument, memories, copies) for argument in args)
    return sent, copies[: len(outputs)], copies[len(outputs) :]


def _replace(argument: Any, memories: frozenset[int], copies: list[_Copy]) -> Any:
    """Put a copy in place of every tensor in one of these memories, and note it."""
    if isinstance(argument, (list, tuple)):
        return [_replace(item, memories, copies) for item in argument]
    if not isinstance(argument, Tensor) or argument.layout is not torch.strided:
        return argument
    storage = argument.untyped_storage()
    if storage.data_ptr() not in memories:
        return argument
    copies.append(_Copy(argument, argument.data.clone(), storage.nbytes()))
    return copies[-1].aside


def fill(tensor: Tensor, poison: Poison) -> None:
    """Fill a tensor with what no step computes with unnoticed."""
    dtype = tensor.dtype
    if dtype is torch.bool:
        tensor.data.logical_not_()
    elif not (dtype.is_floating_point or dtype.is_complex):
        tensor.data.fill_(torch.iinfo(dtype).max)
    else:
        tensor.data.fill_(float("nan") if poison is Poison.NAN else torch.finfo(dtype).max / 2)


@contextmanager
def _quietly() -> Iterator[None]:
    """Work on tensors as a backend does: unseen by autograd and by who counts operators."""
    with torch.no_grad(), _disable_current_modes():
        yield


class _Pending:
    """A result that is ready, or will be, and is not where it belongs yet.

    Attributes:
        inner: the ``Work`` of whoever carries the copies.
        due_ns: when it arrives by itself, on the monotonic clock, if somebody took its future.
    """

    def __init__(self, key: CollectiveKey, copies: Sequence[_Copy], due_ns: int) -> None:
        self.key, self.due_ns = key, due_ns
        self.inner: Any = None
        self._copies = copies
        self._lock = threading.Lock()

    def open(self) -> None:
        """Wait for the carrier and put the result where it belongs, once."""
        if self.inner is not None:
            self.inner.wait()
        with self._lock, _quietly():
            for copy in self._copies:
                copy.deliver()
            self._copies = ()


class _Late:
    """What a ``Work`` does, for a pending result: waiting opens it."""

    def __init__(
        self,
        pending: _Pending,
        outputs: list[Tensor],
        open_pending: Callable[[_Pending], None],
        post: Callable[["_Late"], None],
    ) -> None:
        self.pending = pending
        self._outputs, self._open, self._post = outputs, open_pending, post
        self._promise: Promise | None = None
        self._has_waited = False

    def wait(self, _timeout: Any = None) -> bool:
        """Come back when the outputs hold the result."""
        self._open(self.pending)
        self._has_waited = True
        return True

    def get_future(self) -> Any:
        """Return a future of the outputs; it is set when the result is due, or by now for who has waited before."""
        if self._promise is None:
            self._promise = Promise()
            if self._has_waited:
                self._promise.keep(self._outputs)
            else:
                self._post(self)
        return self._promise.future

    def is_completed(self) -> bool:
        """Tell whether the outputs hold the result; who asks again and again will see it when it is due."""
        return bool(self.get_future().done())

    def arrive(self) -> None:
        """Be done, or fail as the collective did; somebody has taken the future."""
        assert self._promise is not None
        sleep_until(self.pending.due_ns)
        try:
            self._open(self.pending)
        except Exception as error:  # noqa: BLE001  whatever the backend raised is the waiter's
            self._promise.break_with(error)
        else:
            self._promise.keep(self._outputs)


class _LateWork(dist.Work):
    """The ``Work`` of a late result, for Python and, through torch's trampolines, for C++."""

    def __init__(self, late: _Late) -> None:
        super().__init__()
        self._late = late

    def wait(self, timeout: Any = None) -> bool:
        return self._late.wait(timeout)

    def get_future(self) -> Any:
        return self._late.get_future()

    def is_completed(self) -> bool:
        return self._late.is_completed()


def _wrap(late: _Late) -> Any:
    """Return a ``Work`` for a ``Work``; who carries collectives with something else is taken at its word.

    FSDP2, for one, never waits for what is none (``dtbench.worker.network.carrier``).
    """
    inner = late.pending.inner
    return _LateWork(late) if inner is None or isinstance(inner, dist.Work) else late


class _Deliverer:
    """Lets results of one process group arrive, one after another, on one thread at a time."""

    def __init__(self) -> None:
        self._posted: deque[_Late] = deque()
        self._lock = threading.Lock()
        self._server: threading.Thread | None = None
        self._threads: list[threading.Thread] = []

    def take(self, late: _Late) -> None:
        """See to it that a result arrives; from a callback, which may wait for it (PowerSGD), on another thread."""
        with self._lock:
            self._posted.append(late)
            if self._server is None or self._server is threading.current_thread():
                self._server = threading.Thread(target=self._serve, name="dtbench deliverer", daemon=True)
                self._threads.append(self._server)
                self._server.start()

    def finish(self) -> None:
        """Come back when all has arrived, also what callbacks of it posted meanwhile."""
        while self._threads:
            self._threads.pop().join()

    def _serve(self) -> None:
        while (late := self._next()) is not None:
            late.arrive()

    def _next(self) -> _Late | None:
        """Return what to let arrive next; None: nothing is left, or another thread serves."""
        with self._lock:
            if self._server is not threading.current_thread():
                return None
            if not self._posted:
                self._server = None
                return None
            return self._posted.popleft()

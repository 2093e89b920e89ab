"""What becomes of a collective: carried by the backend, over the link where there is one, or treated as an arm says.

Arms (``dtbench.base.vocabulary.Arm``) are for the steps after PROFILED that estimate exposed communication, and
``poison`` is for those that look for missing waits; in all others both are None and a collective costs two
comparisons more.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, assert_never
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from dtbench.base.ranges import CollectiveLabel
from dtbench.base.vocabulary import POINT_TO_POINT, Arm, Purpose, Region, purpose_of
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.finished import make_finished_work
from dtbench.worker.network.link import Link, flatten_tensors
from dtbench.worker.network.local_fill import Seat, fill_outputs

_GIVES_NO_WORK: Final = "monitored_barrier"


@dataclass(frozen=True, slots=True)
class Issued:
    """A collective as it reached its process group.

    Attributes:
        region: of the step that issued it.
        method: of the backend, with ``args`` as torch passed them: outputs first.
        is_named: the trace shows the link's part.
    """

    label: CollectiveLabel
    region: Region | None
    group: Any
    method: str
    args: tuple[Any, ...]
    is_named: bool

    @property
    def purpose(self) -> Purpose:
        """Why it was issued."""
        return purpose_of(self.label.axis, self.label.operation, self.region)

    @property
    def is_shared(self) -> bool:
        """Whether there is another rank in its group."""
        return len(self.group.ranks()) > 1

    @property
    def outputs(self) -> list[torch.Tensor]:
        """The tensors that it fills."""
        return list(flatten_tensors(self.args[0])) if self.args else []


def _settle_nothing() -> None:
    pass


Start = Callable[..., Any]
"""Issues a collective to the backend and gives the backend's ``Work``; given arguments, with these for torch's own."""
Send = Callable[[Issued, Start], Any]


def _tell_nobody(_issued: Issued, _work: Any, _begun_ns: int) -> None:
    pass


@dataclass(slots=True)
class Carrier:
    """Carries the collectives of one rank.

    Attributes:
        link: None: the backend alone.
        arm: what is done to them; None: nothing.
        poison: told to carry each in its own way, given what it is, what starts it and what would have carried it.
        removed: collectives of several ranks that arm ``removed`` left out: the link has not seen them.
        objects: calls that exchange Python objects, which arm ``removed`` carries all the same (``carry_objects``).
        settle: waits for all that the device was given, so that what comes next runs alone; the host has done what it
            was given.
        is_abandoned: ranks may be at different places: no collective of all of them is to come any more.
        tell: told about each collective of arm ``full``: what it is, its ``Work`` (None: the call has waited), and when
            the call began, ns on the clock of ``time.perf_counter``.
    """

    link: Link | CudaLink | None = None
    arm: Arm | None = None
    poison: Callable[[Issued, Start, Send], Any] | None = None
    removed: int = 0
    objects: int = 0
    is_abandoned: bool = False
    settle: Callable[[], None] = _settle_nothing
    tell: Callable[[Issued, Any, int], None] = _tell_nobody

    def carry(self, issued: Issued, start: Start) -> Any:
        """Do what poison or arm say and give a ``Work``."""
        if self.poison is not None:
            return self.poison(issued, start, self._send)
        match self.arm:
            case None:
                return self._send(issued, start)
            case Arm.FULL:
                begun_ns = time.perf_counter_ns()
                work = self._send(issued, start)
                self.tell(issued, work, begun_ns)
                return work
            case Arm.REMOVED:
                return self._remove(issued)
            case Arm.SERIAL:
                return self._send_alone(issued, start)
            case _:
                assert_never(self.arm)

    def check(self) -> None:
        """Refuse to go on where a collective failed.

        Raises:
            CollectiveError: one did.
        """
        if isinstance(self.link, Link):  # NCCL's own watchdog ends a rank
            self.link.check()

    @contextmanager
    def blaming_failures(self) -> Iterator[None]:
        """Put a collective's failure in the place of whatever followed from it, from outputs that nobody filled.

        Raises:
            CollectiveError: something was raised within, and a collective had failed.
        """
        try:
            yield
        except Exception:
            self.check()
            raise

    def _send(self, issued: Issued, start: Start) -> Any:
        if self.link is None:
            return start()
        return self.link.carry(issued.label, issued.group.ranks(), start, issued.outputs, is_named=issued.is_named)

    def _send_alone(self, issued: Issued, start: Callable[[], Any]) -> Any:
        # never waited for at once: two ranks that both send first would wait for ever
        if issued.label.operation in POINT_TO_POINT:
            return self._send(issued, start)
        self.settle()
        work = self._send(issued, start)
        if work is not None:
            work.wait()
        self.settle()
        return work

    def _remove(self, issued: Issued) -> Any:
        """Fill the outputs here; a real ``Work``, since FSDP2 waits for nothing else."""
        self.removed += issued.is_shared
        with _disable_current_modes():  # who counts operators counts those of the step
            fill_outputs(issued.method, issued.args, Seat(issued.group.rank(), issued.group.size()))
        if issued.method == _GIVES_NO_WORK:
            return None
        return make_finished_work(issued.outputs)


OBJECT_CALLS: Final = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
"""Functions of ``torch.distributed`` that exchange Python objects."""


@contextmanager
def carry_objects(carrier: Carrier) -> Iterator[None]:
    """Let calls that exchange Python objects pass poison and arm ``removed``: who unpickles needs the real bytes."""
    with ExitStack() as patches:
        for home in (dist, dist.distributed_c10d):
            for name in OBJECT_CALLS:
                patches.enter_context(mock.patch.object(home, name, _carried(carrier, getattr(home, name))))
        yield


def _carried(carrier: Carrier, original: Callable[..., Any]) -> Callable[..., Any]:
    def exchange(*args: Any, **kwargs: Any) -> Any:
        arm, poison = carrier.arm, carrier.poison
        if arm is not Arm.REMOVED and poison is None:
            return original(*args, **kwargs)
        carrier.objects += arm is Arm.REMOVED
        carrier.arm = carrier.poison = None
        try:
            return original(*args, **kwargs)
        finally:
            carrier.arm, carrier.poison = arm, poison

    return exchange

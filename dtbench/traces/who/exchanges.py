"""Whether sends and receives of no known axis are a pipeline's: what shows stages, and no other traffic.

::

    stage 0   fwd send ...... recv bwd           out goes what forward made, in comes what backward begins with
    stage 1       recv fwd bwd send              in comes what forward begins with, out goes what backward made
    ring      fwd send recv fwd bwd              each rank sends and receives at once, and goes on: ring attention
    loss      fwd bwd optimizer send             one way alone

An activation and its gradient go opposite ways between the same two ranks, and are of one size.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.stage_ranges import STAGE_PREFIX, parse_stage_range
from dtbench.base.vocabulary import POINT_TO_POINT, Operation
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.payload import tensor_elements

_OPERATOR: Final = "cpu_op"
_SCHEDULES: Final = re.compile(
    r"PP:|.*(?:distributed/pipelining/|pipeline_?parallel|pipelin\w*/schedules?)", re.I | re.S
)
"""Ranges and frames of who runs stages: torch's ``pipelining``, Megatron-LM's and DeepSpeed's schedules."""
_COMPUTES: Final = re.compile(
    rf"{ENGINE}|aten::(?!empty|detach|view|as_strided|alias|slice|select|narrow|reshape|contiguous|resolve_|zeros|new_)"
)
UPDATES: Final = "Optimizer.step"
"""What the name of the range of an optimizer's step begins with."""
_OPEN: Final = 256
"""Sends and receives after one among which the one is looked for that it is answered by."""


def shows_stages(trace: Trace, issues: Iterable[tuple[int, Operation | None, Sequence[str]]]) -> bool:
    """Tell whether some sends and receives are surely a stage's.

    That is where a schedule's range or frame lies around one, or its ranges are anywhere; where what forward sent comes
    back, as large, right before backward begins; or where what came in right before forward went on goes back, as
    large, when backward is done.

    Args:
        trace: of the issues.
        issues: event, operation and names around each, innermost first.
    """
    sent = [one for one in issues if one[1] in POINT_TO_POINT]
    if any(_SCHEDULES.match(name) for _, _, above in sent for name in above):
        return True
    if sent and any(name.startswith(STAGE_PREFIX) and parse_stage_range(name) for name in trace.names):
        return True
    outside = [(event, operation) for event, operation, above in sent if not _is_in_backward(above)]
    lanes = {int(trace.lane[event]) for event, _ in outside}
    threads = {lane: _Thread.of(trace, lane) for lane in lanes}
    ends = [_read_end(trace, threads[int(trace.lane[event])], event, operation) for event, operation in outside]
    ends.sort(key=lambda one: one.issued_ns)
    return any(
        one.is_send is not other.is_send
        and one.is_of_forward
        and other.is_of_backward
        and one.may_be_answered_by(other)
        for place, one in enumerate(ends)
        for other in ends[place + 1 : place + 1 + _OPEN]
    )


def _is_in_backward(above: Sequence[str]) -> bool:
    return any(name.startswith(ENGINE) for name in above)


@dataclass(frozen=True)
class _Thread:
    """When a thread computed, as far as that tells forward from backward.

    Attributes:
        starts_ns: shape ``(n,)``, rising, of operators that compute, of nodes of the engine and of optimizers.
        is_node: shape ``(n,)``; what a node computes counts as one.
        is_update: shape ``(n,)``, likewise.
    """

    starts_ns: Ints
    is_node: Bools
    is_update: Bools

    @classmethod
    def of(cls, trace: Trace, lane: int) -> "_Thread":
        """Collect what one thread computed."""
        mine = trace.lane == lane
        is_computing = trace.is_named(lambda name: bool(_COMPUTES.match(name))) & trace.is_one_of((_OPERATOR,))
        is_update = trace.is_named(lambda name: name.startswith(UPDATES))
        events = np.flatnonzero(mine & (is_computing | is_update))
        events = events[np.argsort(trace.start_ns[events], kind="stable")]
        is_node = trace.is_named(lambda name: name.startswith(ENGINE))[events]
        starts_ns, ends_ns = trace.start_ns[events], trace.end_ns[events]

        def lies_inside(is_outer: Bools) -> Bools:
            lowest = np.iinfo(np.int64).min
            return np.asarray(np.maximum.accumulate(np.where(is_outer, ends_ns, lowest)) > starts_ns, dtype=np.bool_)

        return cls(starts_ns, lies_inside(is_node), lies_inside(is_update[events]))

    def is_backward_next(self, time_ns: int) -> bool | None:
        """Tell whether the next that it computes is of backward; None: it computes nothing more."""
        place = int(self.starts_ns.searchsorted(time_ns, side="right"))
        return bool(self.is_node[place]) if place < len(self.starts_ns) else None

    def has_turned_back(self, time_ns: int) -> bool:
        """Tell whether it has computed in backward, and no optimizer has stepped since."""
        before = int(self.starts_ns.searchsorted(time_ns))
        nodes, updates = np.flatnonzero(self.is_node[:before]), np.flatnonzero(self.is_update[:before])
        return len(nodes) > 0 and (not len(updates) or int(nodes[-1]) > int(updates[-1]))

    def was_forward(self, time_ns: int) -> bool:
        """Tell whether the last that it computed is of forward."""
        before = int(self.starts_ns.searchsorted(time_ns))
        return before > 0 and not self.is_node[before - 1] and not self.is_update[before - 1]


@dataclass(frozen=True)
class _End:
    """A send or receive as its thread issued it.

    Attributes:
        peer: as the call says it; None: it does not.
        elements: of what it moves; empty: not said.
        is_of_forward: forward made what it sends, or goes on with what it receives.
        is_of_backward: the same of backward.
    """

    issued_ns: int
    is_send: bool
    peer: int | None
    elements: tuple[int, ...]
    is_of_forward: bool
    is_of_backward: bool

    def may_be_answered_by(self, other: "_End") -> bool:
        """Tell whether another goes the other way between the same two and is as large, as far as is said."""
        are_peers = None in (self.peer, other.peer) or self.peer == other.peer
        is_back = self.is_send is not other.is_send
        return is_back and are_peers and (not self.elements or not other.elements or self.elements == other.elements)


def _read_end(trace: Trace, thread: _Thread, event: int, operation: Operation | None) -> _End:
    details = trace.details.get(event)
    issued_ns = int(trace.start_ns[event])
    is_next = thread.is_backward_next(issued_ns)
    is_send = operation is Operation.SEND
    return _End(
        issued_ns=issued_ns,
        is_send=is_send,
        peer=details.peer if details else None,
        elements=tensor_elements(details) if details else (),
        is_of_forward=thread.was_forward(issued_ns) if is_send else is_next is False,
        is_of_backward=thread.has_turned_back(issued_ns) if is_send else is_next is True,
    )

"""Where autograd's engine ran each backward on the host, and what lies between two of them."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import Region
from dtbench.traces.host.forwards import find_forwards, is_engine_node
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, unite
from dtbench.traces.trace import Trace

_HAND_OVER: Final = re.compile(r"AccumulateGrad|(To|From)TorchTensor")
ENDS_OF_BACKWARD: Final = (
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "FSDP::root_post_backward_callback",
    "FSDP::finalize_backward",
)
"""What DDP and FSDP2 do when the engine has run all nodes of a backward."""
OPTIMIZER: Final = "Optimizer."
"""What the names of torch's ranges around an optimizer's step begin with."""
_RESOLUTION_NS: Final = 1_000
"""By which a node may end before its last operator starts, in traces that know whole microseconds."""
Part = tuple[Region, int, int]
"""A region with its start and end, ns."""


def is_on_device(trace: Trace) -> Bools:
    """Tell for each event whether it lies on a device, and so, perhaps, in a step before."""
    return trace.is_one_of((*DEVICE_CATEGORIES, DEVICE_RANGE))


def sort_starts(trace: Trace, events: Bools) -> Ints:
    """Return the starts of some events, rising."""
    return np.sort(trace.start_ns[events])


def has_any(starts_ns: Ints, window: Window) -> bool:
    """Tell whether any of some starts, rising, lies inside a window."""
    first, last = np.searchsorted(starts_ns, (window.start_ns, window.end_ns)).tolist()
    return bool(first < last)


def first_from(starts_ns: Ints, window: Window) -> int:
    """Return the first start inside a window; its end where there is none."""
    place = int(np.searchsorted(starts_ns, window.start_ns))
    return min(int(starts_ns[place]), window.end_ns) if place < len(starts_ns) else window.end_ns


def engine_nodes(trace: Trace, *, handing_over: bool) -> Intervals:
    """Return the time in which autograd's engine evaluates a node on the host.

    Args:
        trace: the events.
        handing_over: count also the nodes that only hand a finished gradient over.
    """
    events = np.flatnonzero(
        trace.is_named(lambda name: name.startswith(ENGINE) and (handing_over or _HAND_OVER.search(name) is None))
    )
    return unite(trace.start_ns[events], trace.end_ns[events])


def find_further_backwards(trace: Trace, nesting: Nesting, nodes: Intervals) -> Ints:
    """Return the places of those of the engine's nodes that begin another backward than the node before.

    That is one between which and the node before an operator ran that made a later node (the forward of a further
    micro-batch or model), an optimizer stepped, or DDP or FSDP2 ended a backward. Where nothing says which operators
    made nodes, it is one before which any operator ran outside the nodes, on a thread that steps or runs the engine:
    that thread stands still, or evaluates nodes, until a backward is over, and ``loss.backward()`` itself begins with
    ``aten::ones_like``. Of two backwards with nothing between them the second begins where autograd's numbers rise: of
    the nodes that are ready the engine runs the one that was made last, and what a node makes ready was made before it.
    Where they go on falling, because the second's forward came first, both look like one.

    Args:
        trace: the events.
        nesting: its nesting.
        nodes: when the engine evaluated a node on the host.
    """
    return Turns(trace, nesting, nodes).places


def _find_rises(trace: Trace, nesting: Nesting, events: Ints, makers: Ints) -> Ints:
    """Return the starts, rising, of nodes that were made no earlier than the one that the engine ran before.

    None where several threads run nodes: one may make ready what waits on another. Nodes inside others are of a
    backward that one of these asked for (checkpointing), and one that was made meanwhile may be what another needs.

    Args:
        trace: the events.
        nesting: its nesting.
        events: shape ``(k,)``, all nodes.
        makers: shape ``(k,)``, the forward operator of each.
    """
    if len(np.unique(trace.lane[events])) != 1:
        return np.array([], dtype=np.int64)
    numbers = trace.sequence.values_at(events, -1)
    is_node = is_engine_node(trace)
    is_inner = nesting.innermost(events, is_node) != NOTHING
    kept = (numbers >= 0) & ~is_inner & ~trace.is_named(_HAND_OVER.search)[events]
    events, numbers, makers = events[kept], numbers[kept], makers[kept]
    threads = trace.forward_thread.values_at(events, 0)
    order = np.lexsort((trace.start_ns[events], threads))
    events, numbers, makers, threads = events[order], numbers[order], makers[order], threads[order]
    was_made = (makers == NOTHING) | (trace.start_ns[makers] < np.roll(trace.start_ns[events], 1))
    rises = (threads[1:] == threads[:-1]) & (numbers[1:] >= numbers[:-1]) & was_made[1:]
    return np.sort(trace.start_ns[events[1:][rises]])


def _find_loops_operators(trace: Trace, nodes: Intervals) -> Ints:
    """Return the starts, rising, of operators in no node on threads that step or run the engine."""
    is_node = is_engine_node(trace)
    is_step = trace.is_named(lambda name: name.startswith(STEP_PREFIX)) & ~is_on_device(trace)
    is_loops = np.isin(trace.lane, np.unique(trace.lane[is_node | is_step]))
    starts_ns = sort_starts(trace, trace.is_one_of(("cpu_op",)) & is_loops & ~is_node)
    return starts_ns[~unite(nodes.starts_ns, nodes.ends_ns + _RESOLUTION_NS).covers(starts_ns)]


class Turns:
    """Where one backward ends and another begins, and what lies between."""

    def __init__(self, trace: Trace, nesting: Nesting, nodes: Intervals) -> None:
        self._nodes = nodes
        is_optimizer = trace.is_named(lambda name: name.startswith(OPTIMIZER))
        self.optimizers_ns = sort_starts(trace, is_optimizer & ~is_on_device(trace))
        events = np.flatnonzero(is_engine_node(trace))
        makers = find_forwards(trace, nesting, events)
        made_ns = np.sort(trace.start_ns[makers[makers != NOTHING]])
        self._forwards_ns = self._keep_between(made_ns if len(made_ns) else _find_loops_operators(trace, nodes))
        is_end = trace.is_named(lambda name: name.split(" (")[0] in ENDS_OF_BACKWARD) & ~is_on_device(trace)
        marks_ns = np.concatenate((self._forwards_ns, self.optimizers_ns, sort_starts(trace, is_end)))
        rises_ns = np.intersect1d(
            _find_rises(trace, nesting, events, makers), nodes.starts_ns
        )  # others touch the node before
        between_ns = np.concatenate((self._keep_between(marks_ns), rises_ns))
        places = np.unique(nodes.starts_ns.searchsorted(between_ns))
        self.places = places[(places > 0) & (places < len(nodes.starts_ns))]

    def _keep_between(self, moments_ns: Ints) -> Ints:
        """Keep what lies inside no node: what is recomputed there makes no other backward, nor do its hooks."""
        return moments_ns[~self._nodes.covers(moments_ns)]

    def divide(self, host: Window, first: int, beyond: int) -> Iterator[Part]:
        """Divide a step at its forwards, backwards and optimizers; its nodes are ``[first, beyond)``, one at least."""
        starts_ns, ends_ns = self._nodes.starts_ns.tolist(), self._nodes.ends_ns.tolist()
        yield Region.FORWARD, host.start_ns, starts_ns[first]
        for place in self.places[(self.places > first) & (self.places < beyond)].tolist():
            between = Window(ends_ns[place - 1], starts_ns[place])
            yield Region.BACKWARD, starts_ns[first], between.start_ns
            yield from self._divide_between(between)
            first = place
        end_ns = min(ends_ns[beyond - 1], host.end_ns)
        yield Region.BACKWARD, starts_ns[first], end_ns
        yield Region.OPTIMIZER, end_ns, host.end_ns

    def _divide_between(self, between: Window) -> Iterator[Part]:
        forward_ns = first_from(self._forwards_ns, between)
        if has_any(self.optimizers_ns, Window(between.start_ns, forward_ns)):
            yield Region.OPTIMIZER, between.start_ns, forward_ns
        else:
            forward_ns = between.start_ns if forward_ns < between.end_ns else between.end_ns
        if forward_ns < between.end_ns:
            yield Region.FORWARD, forward_ns, between.end_ns

"""Regions of traces whose training loop has no ranges of ours, from autograd's engine, or from there being none."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dtbench.analyze.causes.ready import engine_nodes
from dtbench.analyze.collectives import Regions, find_regions
from dtbench.analyze.coverage import Window
from dtbench.analyze.enclosures import NOTHING
from dtbench.analyze.forwards import find_forwards, is_engine_node
from dtbench.analyze.intervals import Bools, Intervals, Ints
from dtbench.analyze.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Region

_BACKWARD: Final = re.compile("backward", re.IGNORECASE)
_Part = tuple[Region, int, int]


def find_or_infer_regions(trace: Trace, nesting: Nesting, hosts: Sequence[Window]) -> Regions:
    """Give the regions that the trace has ranges of; for one that has none, those that autograd's engine shows."""
    regions = find_regions(trace)
    return regions if regions.regions else infer_regions(trace, nesting, hosts)


def infer_regions(trace: Trace, nesting: Nesting, hosts: Sequence[Window]) -> Regions:
    """Give the regions that autograd's engine shows in each step; none for a trace without steps.

    ::

        step       ├─────────────────────────────────────────────────────┤
        engine                  ├──┤├──┤          ├──────┤ ├───┤
        regions    forward.....|backward|forward.|backward.....|optimizer.

    Forward is what comes before the engine's first node, optimizer what comes after its last one, so that DDP's copies
    out of its buckets are no part of backward. Another forward, of a further micro-batch or model, lies where between
    two nodes an operator ran that made a later one; what comes before it is an optimizer's where one steps there. In a
    trace that does not say who made a node, it lies inside backward. A step with operators and nothing that speaks of
    backward (evaluation, inference) is forward up to an optimizer.

    Args:
        trace: the events.
        nesting: its nesting.
        hosts: host range of every step, disjoint, in order of time.
    """
    nodes = engine_nodes(trace, handing_over=True)
    forwards_ns = _find_forwards_between(trace, nesting, nodes)
    operators_ns = _starts(trace, trace.is_one_of(("cpu_op",)))
    on_device = trace.is_one_of((*DEVICE_CATEGORIES, DEVICE_RANGE))  # of a step before, perhaps
    backwards_ns = _starts(trace, trace.is_named(_BACKWARD.search) & ~on_device)
    optimizers_ns = _starts(trace, trace.is_named(lambda name: name.startswith("Optimizer.")))
    parts: list[_Part] = []
    for host in hosts:
        first, beyond = np.searchsorted(nodes.starts_ns, (host.start_ns, host.end_ns), side="left").tolist()
        if first < beyond:
            own = Intervals(nodes.starts_ns[first:beyond], nodes.ends_ns[first:beyond])
            parts += _divide(host, own, forwards_ns, optimizers_ns)
        elif _has_any(operators_ns, host) and not _has_any(backwards_ns, host):
            start_ns = _first_from(optimizers_ns, host)
            parts += [(Region.FORWARD, host.start_ns, start_ns), (Region.OPTIMIZER, start_ns, host.end_ns)]
    columns = np.array([part[1:] for part in parts], dtype=np.int64).reshape(-1, 2)
    return Regions(tuple(part[0] for part in parts), columns[:, 0], columns[:, 1])


def _find_forwards_between(trace: Trace, nesting: Nesting, nodes: Intervals) -> Ints:
    """Give when the operators began that made nodes and ran inside none, rising; recomputed ones run inside."""
    makers = find_forwards(trace, nesting, np.flatnonzero(is_engine_node(trace)))
    starts_ns = np.sort(trace.start_ns[makers[makers != NOTHING]])
    return starts_ns[~nodes.covers(starts_ns)]


def _divide(
    host: Window, nodes: Intervals, forwards_ns: Ints, optimizers_ns: Ints
) -> Iterator[tuple[Region, int, int]]:
    """Divide a step at its forwards and backwards; ``nodes``: of this step, one at least."""
    start_ns, first = host.start_ns, 0
    places = nodes.starts_ns.searchsorted(forwards_ns)
    inner = (places > 0) & (places < len(nodes.starts_ns))
    for place, at in zip(*np.unique(places[inner], return_index=True), strict=True):
        forward_ns, end_ns = int(forwards_ns[inner][at]), int(nodes.ends_ns[place - 1])
        yield Region.FORWARD, start_ns, int(nodes.starts_ns[first])
        yield Region.BACKWARD, int(nodes.starts_ns[first]), end_ns
        start_ns, first = end_ns, int(place)
        if _has_any(optimizers_ns, Window(end_ns, forward_ns)):
            yield Region.OPTIMIZER, end_ns, forward_ns
            start_ns = forward_ns
    backward_ns, end_ns = int(nodes.starts_ns[first]), min(int(nodes.ends_ns[-1]), host.end_ns)
    yield Region.FORWARD, start_ns, backward_ns
    yield Region.BACKWARD, backward_ns, end_ns
    yield Region.OPTIMIZER, end_ns, host.end_ns


def _starts(trace: Trace, events: Bools) -> Ints:
    """Give the starts of some events, rising."""
    return np.sort(trace.start_ns[events])


def _has_any(starts_ns: Ints, window: Window) -> bool:
    first, last = np.searchsorted(starts_ns, (window.start_ns, window.end_ns)).tolist()
    return bool(first < last)


def _first_from(starts_ns: Ints, window: Window) -> int:
    """Give the first start inside a window; its end where there is none."""
    place = int(np.searchsorted(starts_ns, window.start_ns))
    return min(int(starts_ns[place]), window.end_ns) if place < len(starts_ns) else window.end_ns

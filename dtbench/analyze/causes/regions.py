"""Regions of traces whose training loop has no ranges of ours, from autograd's engine, or from there being none."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from dtbench.analyze.causes.ready import engine_nodes
from dtbench.analyze.collectives import Regions, find_regions
from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Bools, Ints
from dtbench.analyze.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Region

_BACKWARD: Final = re.compile("backward", re.IGNORECASE)


def find_or_infer_regions(trace: Trace, hosts: Sequence[Window]) -> Regions:
    """Give the regions that the trace has ranges of; for one that has none, those that autograd's engine shows."""
    regions = find_regions(trace)
    return regions if regions.regions else infer_regions(trace, hosts)


def infer_regions(trace: Trace, hosts: Sequence[Window]) -> Regions:
    """Give the regions that autograd's engine shows in each step; none for a trace without steps.

    ::

        step       ├──────────────────────────────────────────────┤
        engine                  ├──┤├──────┤ ├───┤
        regions    forward.....|backward..........|optimizer........

    Forward is what comes before the engine's first node, optimizer what comes after its last one, so that DDP's copies
    out of its buckets are no part of backward. Where gradients are accumulated, later forwards lie inside backward.
    A step with operators and nothing that speaks of backward (evaluation, inference) is forward up to an optimizer.

    Args:
        trace: the events.
        hosts: host range of every step, disjoint, in order of time.
    """
    nodes = engine_nodes(trace, handing_over=True)
    operators_ns = _starts(trace, trace.is_one_of(("cpu_op",)))
    on_device = trace.is_one_of((*DEVICE_CATEGORIES, DEVICE_RANGE))  # of a step before, perhaps
    backwards_ns = _starts(trace, trace.is_named(_BACKWARD.search) & ~on_device)
    optimizers_ns = _starts(trace, trace.is_named(lambda name: name.startswith("Optimizer.")))
    regions: list[Region] = []
    borders: list[tuple[int, int]] = []
    for host in hosts:
        first = int(np.searchsorted(nodes.starts_ns, host.start_ns, side="left"))
        last = int(np.searchsorted(nodes.starts_ns, host.end_ns, side="left")) - 1
        if first > last:
            if _has_any(operators_ns, host) and not _has_any(backwards_ns, host):
                start_ns = _first_from(optimizers_ns, host)
                regions += [Region.FORWARD, Region.OPTIMIZER]
                borders += [(host.start_ns, start_ns), (start_ns, host.end_ns)]
            continue
        start_ns, end_ns = int(nodes.starts_ns[first]), min(int(nodes.ends_ns[last]), host.end_ns)
        regions += [Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER]
        borders += [(host.start_ns, start_ns), (start_ns, end_ns), (end_ns, host.end_ns)]
    columns = np.array(borders, dtype=np.int64).reshape(-1, 2)
    return Regions(tuple(regions), columns[:, 0], columns[:, 1])


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

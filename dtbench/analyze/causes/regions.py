"""Regions of traces whose training loop has no ranges of ours, from autograd's engine."""

from collections.abc import Sequence

import numpy as np

from dtbench.analyze.causes.ready import engine_nodes
from dtbench.analyze.collectives import Regions, find_regions
from dtbench.analyze.coverage import Window
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Region


def find_or_infer_regions(trace: Trace, hosts: Sequence[Window]) -> Regions:
    """Give the regions that the trace has ranges of; for one that has none, those that autograd's engine shows."""
    regions = find_regions(trace)
    return regions if regions.regions else infer_regions(trace, hosts)


def infer_regions(trace: Trace, hosts: Sequence[Window]) -> Regions:
    """Give the regions that autograd's engine shows in each step; none for a trace without steps or engine.

    ::

        step       ├──────────────────────────────────────────────┤
        engine                  ├──┤├──────┤ ├───┤
        regions    forward.....|backward..........|optimizer........

    Forward is what comes before the engine's first node, optimizer what comes after its last one, so that DDP's copies
    out of its buckets are no part of backward. Where gradients are accumulated, later forwards lie inside backward.

    Args:
        trace: the events.
        hosts: host range of every step, disjoint, in order of time.
    """
    nodes = engine_nodes(trace, handing_over=True)
    regions: list[Region] = []
    borders: list[tuple[int, int]] = []
    for host in hosts:
        first = int(np.searchsorted(nodes.starts_ns, host.start_ns, side="left"))
        last = int(np.searchsorted(nodes.starts_ns, host.end_ns, side="left")) - 1
        if first > last:
            continue
        start_ns, end_ns = int(nodes.starts_ns[first]), min(int(nodes.ends_ns[last]), host.end_ns)
        regions += [Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER]
        borders += [(host.start_ns, start_ns), (start_ns, end_ns), (end_ns, host.end_ns)]
    columns = np.array(borders, dtype=np.int64).reshape(-1, 2)
    return Regions(tuple(regions), columns[:, 0], columns[:, 1])

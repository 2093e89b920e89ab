"""Regions of traces whose training loop has no ranges of ours, from autograd's engine, or from there being none."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from dtbench.base.vocabulary import Region
from dtbench.traces.host.backwards import Part, Turns, engine_nodes, first_from, has_any, is_on_device, sort_starts
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.time.coverage import Window
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Regions, find_regions

_BACKWARD: Final = re.compile("backward", re.IGNORECASE)


def find_or_infer_regions(trace: Trace, nesting: Nesting, hosts: Sequence[Window]) -> Regions:
    """Return the regions that the trace has ranges of; for one that has none, those that autograd's engine shows."""
    regions = find_regions(trace)
    return regions if regions.regions else infer_regions(trace, nesting, hosts)


def infer_regions(trace: Trace, nesting: Nesting, hosts: Sequence[Window]) -> Regions:
    """Return the regions that autograd's engine shows in each step; none for a trace without steps.

    ::

        step       ├─────────────────────────────────────────────────────┤
        engine                  ├──┤├──┤          ├──────┤ ├───┤
        regions    forward.....|backward|forward.|backward.....|optimizer.

    Forward is what comes before the engine's first node, optimizer what comes after its last one, so that DDP's copies
    out of its buckets are no part of backward. Between two backwards (``find_further_backwards``) lies a forward where
    an operator ran there that made a later node, and an optimizer where one steps there. A step with operators and
    nothing that speaks of backward (evaluation, inference) is forward up to an optimizer.

    Args:
        trace: the events.
        nesting: its nesting.
        hosts: host range of every step, disjoint, in order of time.
    """
    nodes = engine_nodes(trace, handing_over=True)
    turns = Turns(trace, nesting, nodes)
    operators_ns = sort_starts(trace, trace.is_one_of(("cpu_op",)))
    backwards_ns = sort_starts(trace, trace.is_named(_BACKWARD.search) & ~is_on_device(trace))
    parts: list[Part] = []
    for host in hosts:
        first, beyond = np.searchsorted(nodes.starts_ns, (host.start_ns, host.end_ns), side="left").tolist()
        if first < beyond:
            parts += turns.divide(host, first, beyond)
        elif has_any(operators_ns, host) and not has_any(backwards_ns, host):
            start_ns = first_from(turns.optimizers_ns, host)
            parts += [(Region.FORWARD, host.start_ns, start_ns), (Region.OPTIMIZER, start_ns, host.end_ns)]
    columns = np.array([part[1:] for part in parts], dtype=np.int64).reshape(-1, 2)
    return Regions(tuple(part[0] for part in parts), columns[:, 0], columns[:, 1])

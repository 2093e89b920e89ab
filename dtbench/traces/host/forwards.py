"""The forward operator that made each node of the autograd engine.

An operator and its node share autograd's sequence number, which every thread counts for itself. All operators that
start before the next node is made carry the same number; the last of them to start before the node ran made it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints, unite
from dtbench.traces.trace import Trace

_NO_NUMBER: Final = -1  # torch writes -1 itself where an operator has none


def is_engine_node(trace: Trace) -> Bools:
    """Tell for each event, shape ``(n,)``, whether it is a node that the autograd engine runs."""
    return trace.is_named(lambda name: name.startswith(ENGINE))


def find_forwards(trace: Trace, nesting: Nesting, nodes: Ints) -> Ints:
    """Return the forward operator of each node: by sequence number, else by the arrow that ends in it.

    Args:
        trace: the events.
        nesting: its nesting.
        nodes: shape ``(k,)``, events of the autograd engine; ``NOTHING`` stays.

    Returns:
        Shape ``(k,)``, events; ``NOTHING``: the forward ran before the trace, or nothing ties it to the node.
    """
    found = _by_sequence(trace, nodes)
    missing = np.flatnonzero((found == NOTHING) & (nodes != NOTHING))
    if len(missing) and len(trace.flows):
        found[missing] = _by_arrow(trace, nesting, nodes[missing])
    return found


def _by_sequence(trace: Trace, nodes: Ints) -> Ints:
    found = np.full(len(nodes), NOTHING, dtype=np.int64)
    wanted = trace.sequence.values_at(nodes, _NO_NUMBER)
    asked = np.flatnonzero((wanted != _NO_NUMBER) & (nodes != NOTHING))
    if not len(asked):
        return found
    events, numbers = trace.sequence.events, trace.sequence.values
    threads = trace.forward_thread.values_at(events, 0)
    lane_of = _learn_lanes(trace.lane[events], numbers, threads)
    wanted = wanted[asked]
    kept = (threads == 0) & np.isin(numbers, wanted)
    events, numbers = events[kept], numbers[kept]
    order = np.argsort(trace.start_ns[events], kind="stable")
    makers: dict[tuple[int, int], list[int]] = defaultdict(list)  # in order of time
    columns = (column[order].tolist() for column in (events, trace.lane[events], numbers))
    for event, lane, number in zip(*columns, strict=True):
        makers[lane, number].append(event)
    threads = trace.forward_thread.values_at(nodes[asked], 0)
    for place, thread, number in zip(asked.tolist(), threads.tolist(), wanted.tolist(), strict=True):
        candidates = makers.get((lane_of.get(thread, NOTHING), number), [])
        started = bisect_right(candidates, trace.start_ns[nodes[place]], key=trace.start_ns.__getitem__)
        found[place] = candidates[started - 1] if started else NOTHING
    return found


def _learn_lanes(lanes: NDArray[np.int32], numbers: Ints, threads: Ints) -> dict[int, int]:
    """Return the lane of each thread number of the profiler: the one whose operators share most of its nodes' numbers.

    A number that two lanes fit equally well is left out.
    """
    is_forward = threads == 0
    found = {}
    for thread in sorted(set(threads[~is_forward].tolist())):
        shares = is_forward & np.isin(numbers, numbers[threads == thread])
        rows = lanes[shares].astype(np.int64), numbers[shares]
        order = np.lexsort(rows)
        lane, number = (column[order] for column in rows)
        is_new = np.append(True, (lane[1:] != lane[:-1]) | (number[1:] != number[:-1]))[: len(lane)]
        counts = Counter(lane[is_new].tolist()).most_common(2)
        if len(counts) == 1 or (counts and counts[0][1] > counts[1][1]):
            found[thread] = counts[0][0]
    return found


def _by_arrow(trace: Trace, nesting: Nesting, nodes: Ints) -> Ints:
    """Follow the arrows of the trace; each begins and ends with an operator that starts at the same nanosecond."""
    arrows = trace.flows[unite(trace.start_ns[nodes], trace.end_ns[nodes]).covers(trace.flows[:, 1])]
    if not len(arrows):
        return np.full(len(nodes), NOTHING, dtype=np.int64)
    is_node = is_engine_node(trace)
    operators = np.flatnonzero(trace.is_one_of(("cpu_op",)))
    arrived = operators[np.isin(trace.start_ns[operators], arrows[:, 1])]
    around = np.where(is_node[arrived], arrived, nesting.innermost(arrived, is_node))
    departed = operators[np.isin(trace.start_ns[operators], arrows[:, 0])]
    order = np.lexsort((-trace.end_ns[departed], trace.start_ns[departed]))
    # Of operators that start together the innermost, which comes last, made the node.
    makers = dict(zip(trace.start_ns[departed[order]].tolist(), departed[order].tolist(), strict=True))
    began = {end_ns: start_ns for start_ns, end_ns in arrows.tolist()}
    forward_of: dict[int, int] = {}
    for node, start_ns in zip(around.tolist(), trace.start_ns[arrived].tolist(), strict=True):
        forward_of.setdefault(node, makers.get(began[start_ns], NOTHING))
    return np.array([forward_of.get(node, NOTHING) for node in nodes.tolist()], dtype=np.int64)

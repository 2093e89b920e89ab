"""What functional collectives carry on a group that no axis names: parameters, products of a tensor axis, or unknown.

::

    parameters   forward   gather │ mm        backward   mm │ [RedistributeBackward: reduce-scatter] [AccumulateGrad]
    products     forward   mm │ all-reduce, or reduce-scatter, of what sharded products leave partial
    not known    forward   gather │ mm        backward   mm │ [RedistributeBackward: reduce-scatter] [MulBackward0]

Counts alone do not tell a gather of parameters (SimpleFSDP) from one of activations (a column-wise layer over the
sequence, keys and values of context parallelism): in both backward answers each gather with a reduce-scatter. What is
reduced of a parameter, though, is handed over at once: the engine runs nodes that accumulate gradients before all
others, so that as many follow the node as it reduced. A compiled backward that also has gradients of its own to hand
over, or reduces several at once, shows that of none. Among ranks over which DDP or FSDP communicate nothing is a
product's part.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import REDUCTIONS, Operation
from dtbench.traces.host.forwards import is_engine_node
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.purposes import ACCUMULATES, Functional

_NUMBERS_BYTES: Final = 64
"""What is no larger is a few numbers: a loss, a count of tokens, a norm."""


@dataclass(frozen=True)
class FunctionalIssue:
    """One functional collective.

    Attributes:
        event: that issued it.
        operation: None: not known.
        group: torch's name of its process group; empty: not known.
        size_bytes: None: not known.
    """

    event: int
    operation: Operation | None
    group: str
    size_bytes: int | None


def find_functional(
    trace: Trace, nesting: Nesting, issues: Iterable[FunctionalIssue], data_groups: Collection[str] = ()
) -> dict[str, Functional]:
    """Tell what functional collectives carry, by group.

    Args:
        trace: the events.
        nesting: its nesting.
        issues: all functional ones, but those for clipping, optimizer or state dict.
        data_groups: over which DDP or FSDP reduce and gather: nothing is left partial among these ranks, whatever a
            forward sums over them.
    """
    by_group: dict[str, list[FunctionalIssue]] = {}
    for issue in issues:
        by_group.setdefault(issue.group, []).append(issue)
    if not by_group:
        return {}
    engine = _Engine(trace, nesting)
    of_data = {trace.group_ranks.get(group, group) for group in data_groups if group}
    return {
        group: Functional.UNKNOWN if trace.group_ranks.get(group, group) in of_data else _tell(engine, members)
        for group, members in by_group.items()
    }


def _tell(engine: "_Engine", issues: Sequence[FunctionalIssue]) -> Functional:
    nodes = engine.nodes_around([issue.event for issue in issues])
    in_forward = engine.are_of_forward([issue.event for issue in issues])
    forward: Counter[Operation | None] = Counter()
    backward: Counter[Operation | None] = Counter()
    reduced_by: dict[int, Counter[Operation | None]] = {}
    for issue, node, is_forward in zip(issues, nodes, in_forward, strict=True):
        if node != NOTHING:
            backward[issue.operation] += 1
            reduced_by.setdefault(node, Counter())[issue.operation] += issue.operation in REDUCTIONS
        elif is_forward:
            is_sum = issue.operation in REDUCTIONS
            if is_sum and (issue.size_bytes or 0) > _NUMBERS_BYTES:
                return Functional.PRODUCTS
            forward[issue.operation] += not is_sum
    if _are_answered(forward, backward) and all(
        engine.hands_over(node, reduced) for node, reduced in reduced_by.items() if reduced.total()
    ):
        return Functional.PARAMETERS
    return Functional.UNKNOWN


def _are_answered(forward: Counter[Operation | None], backward: Counter[Operation | None]) -> bool:
    """Tell whether gathers are all that forward issues, each has its reduce-scatter, and none or all are gathered anew.

    Of parameters of which every rank has all, nothing is gathered and gradients are summed.
    """
    gathered = forward[Operation.ALL_GATHER]
    reduced = backward[Operation.REDUCE_SCATTER] or (0 if gathered else backward[Operation.ALL_REDUCE])
    is_all = forward.total() == gathered and not backward.keys() - {Operation.ALL_GATHER, *REDUCTIONS}
    is_answered = backward[Operation.REDUCE_SCATTER] == gathered
    return is_all and is_answered and reduced > 0 and backward[Operation.ALL_GATHER] in (0, gathered)


class _Engine:
    """Nodes of autograd's engine in the order in which each thread ran them."""

    def __init__(self, trace: Trace, nesting: Nesting) -> None:
        self._trace, self._nesting = trace, nesting
        self._is_node = is_engine_node(trace)
        events = np.flatnonzero(self._is_node)
        events = events[np.lexsort((trace.start_ns[events], trace.lane[events]))]
        accumulates = trace.is_named(ACCUMULATES.match)
        self._place = {event: place for place, event in enumerate(events.tolist())}
        self._lanes = trace.lane[events].tolist()
        self._hands_over = accumulates[events].tolist()
        self._starts_ns = np.sort(trace.start_ns[events])
        self._steps_ns = np.sort(trace.start_ns[trace.is_named(lambda name: name.startswith(STEP_PREFIX))])

    def nodes_around(self, events: Sequence[int]) -> list[int]:
        """Return the innermost node around each event; ``NOTHING``: it is not of backward."""
        found: list[int] = self._nesting.innermost(np.array(events, dtype=np.int64), self._is_node).tolist()
        return found

    def are_of_forward(self, events: Sequence[int]) -> list[bool]:
        """Tell of each event outside the engine whether backward follows in its step, or the step has none."""
        times_ns: Ints = self._trace.start_ns[np.array(events, dtype=np.int64)]
        steps = self._steps_ns.searchsorted(times_ns, side="right")
        borders = np.concatenate(([np.iinfo(np.int64).min], self._steps_ns, [np.iinfo(np.int64).max]))
        first, here, beyond = (
            self._starts_ns.searchsorted(moments) for moments in (borders[steps], times_ns, borders[steps + 1])
        )
        found: list[bool] = ((beyond > here) | (beyond == first)).tolist()
        return found

    def hands_over(self, node: int, reduced: Counter[Operation | None]) -> bool:
        """Tell whether right after a node as many gradients are accumulated as it reduced.

        Over replicas of shards each is summed once more, after it was scattered.
        """
        place = first = self._place[node] + 1
        while place < len(self._lanes) and self._hands_over[place] and self._lanes[place] == self._lanes[first - 1]:
            place += 1
        count = reduced[Operation.REDUCE_SCATTER] or reduced[Operation.ALL_REDUCE]
        return place - first == count

"""In whose call work was issued: the module's own range, or, in backward, that of the operator whose gradient it is."""

from dataclasses import dataclass

import numpy as np

from dtbench.analyze.intervals import Ints
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.ranges import MODULE_PREFIX


@dataclass(frozen=True)
class ModuleCalls:
    """The ranges ``dtbench::module`` of a trace, and which forward operator made which node of autograd.

    Attributes:
        ranges: numbers in ``trace.names`` of the ranges.
        operators: shape ``(m,)``, operators with a sequence number that are no backward nodes, by (sequence, start).
        sequences: shape ``(m,)``, rising, their sequence numbers.
    """

    trace: Trace
    nesting: Nesting
    ranges: frozenset[int]
    operators: Ints
    sequences: Ints

    def find(self, event: int) -> str:
        """Name the module in whose call an event lies most closely, or whose backward it is; empty: none is known.

        ::

            forward    ├ dtbench::module a ─ type_as 7 ─┤├ dtbench::module b ─ Redistribute 7 ─┤
            backward   ├ evaluate_function: RedistributeBackward 7 ─ all_reduce ─┤               b's

        A backward node carries the sequence number of the operator that made it. An operator that makes none carries
        the number of the next that does, so that the last of equal ones counts.
        """
        for above in (event, *self.nesting.enclosing(event)) if self.ranges else ():
            if int(self.trace.name[above]) in self.ranges:
                return self.trace.name_of(above).removeprefix(MODULE_PREFIX)
            if (operator := self._forward_of(above)) is not None:
                return self._name_range_around(operator)
        return ""

    def _forward_of(self, node: int) -> int | None:
        """Give the operator that made a backward node; None: this is no such node, or it was made before the trace."""
        sequence = self.trace.sequence.at(node)
        if sequence is None or self.trace.forward_thread.at(node) is None:
            return None
        first, last = np.searchsorted(self.sequences, [sequence, sequence + 1])
        equal = self.operators[first:last]
        earlier = equal[self.trace.start_ns[equal] < self.trace.start_ns[node]]
        return int(earlier[-1]) if len(earlier) else None

    def _name_range_around(self, event: int) -> str:
        numbers = (int(self.trace.name[above]) for above in self.nesting.enclosing(event))
        found = next((number for number in numbers if number in self.ranges), None)
        return "" if found is None else self.trace.names[found].removeprefix(MODULE_PREFIX)


def find_module_calls(trace: Trace, nesting: Nesting) -> ModuleCalls:
    """Collect what names the module of an event."""
    events, sequences = trace.sequence.events, trace.sequence.values
    is_forward = ~np.isin(events, trace.forward_thread.events)
    events, sequences = events[is_forward], sequences[is_forward]
    order = np.lexsort((trace.start_ns[events], sequences))
    return ModuleCalls(
        trace=trace,
        nesting=nesting,
        ranges=frozenset(number for number, name in enumerate(trace.names) if name.startswith(MODULE_PREFIX)),
        operators=events[order],
        sequences=sequences[order],
    )

"""Compute and copies of one trace, span by span: the spans whose union the account counts.

Communication is not here: a collective's span is in its analysis, with everything else that is known about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.cpu.gloo import model_lanes
from dtbench.traces.device.kinds import device_kinds
from dtbench.traces.host.nesting import Nesting, innermost_spans
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES
from dtbench.traces.kinds.kernels import make_table
from dtbench.traces.kinds.patterns import KernelPattern
from dtbench.traces.rank.cpu_contents import computing_names
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

KINDS = tuple(Kind)


@dataclass(frozen=True)
class Work:
    """Compute and copies as parallel columns, by lane and start.

    Attributes:
        lanes: distinct lanes, ``"<process>/<stream or thread>"``.
        names: distinct names.
        lane: shape ``(n,)``, index into ``lanes``.
        name: shape ``(n,)``, index into ``names``.
        kind: shape ``(n,)``, index into ``KINDS``.
        start_ns: shape ``(n,)``, the trace's own clock.
        end_ns: shape ``(n,)``, all after their start.
        call: shape ``(n,)``, event of the call that launched it; ``NOTHING``: on CPU, or not in the trace.
    """

    lanes: tuple[str, ...]
    names: tuple[str, ...]
    lane: Ints
    name: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    call: Ints

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.start_ns)

    def keep(self, chosen: Bools) -> "Work":
        """Return some of the spans; ``chosen`` has shape ``(n,)``."""
        return replace(
            self,
            lane=self.lane[chosen],
            name=self.name[chosen],
            kind=self.kind[chosen],
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
            call=self.call[chosen],
        )


def find_work(trace: Trace, nesting: Nesting, patterns: Sequence[KernelPattern] = ()) -> Work:
    """Find compute and copies of a trace.

    On a device every kernel and copy is one span. On CPU the innermost open operator of a thread that runs the model
    counts, so that an operator which calls others comes once for each part that is its own.

    Args:
        trace: as read.
        nesting: of it.
        patterns: a user's own kernels, asked before the table of kernels.
    """
    if any(category in DEVICE_CATEGORIES for category in trace.categories):
        return _find_device_work(trace, nesting, patterns)
    return _find_thread_work(trace, nesting)


def _find_device_work(trace: Trace, nesting: Nesting, patterns: Sequence[KernelPattern]) -> Work:
    masks = device_kinds(trace, nesting, make_table(patterns))
    events = np.flatnonzero(masks[Kind.COMPUTE] | masks[Kind.COPY])
    kind = np.where(masks[Kind.COMPUTE][events], KINDS.index(Kind.COMPUTE), KINDS.index(Kind.COPY))
    return _sort(trace, (trace.start_ns[events], trace.end_ns[events], events), kind, nesting.calls(events))


def _find_thread_work(trace: Trace, nesting: Nesting) -> Work:
    computing = computing_names(trace)
    found = [innermost_spans(trace, nesting, lane, computing) for lane in sorted(model_lanes(trace))]
    nothing = np.array([], dtype=np.int64)
    starts, ends, events = (np.concatenate([nothing, *column]) for column in zip(*found, strict=True))
    kind, call = (np.full(len(events), value, dtype=np.int64) for value in (KINDS.index(Kind.COMPUTE), NOTHING))
    return _sort(trace, (starts, ends, events), kind, call)


def _sort(trace: Trace, spans: tuple[Ints, Ints, Ints], kind: Ints, call: Ints) -> Work:
    """Put spans (start, end, event) in order of lane and start, without empty ones."""
    starts_ns, ends_ns, events = spans
    order = np.lexsort((starts_ns, trace.lane[events]))
    order = order[ends_ns[order] > starts_ns[order]]
    events = events[order]
    lanes, lane = np.unique(trace.lane[events], return_inverse=True)
    names, name = np.unique(trace.name[events], return_inverse=True)
    return Work(
        lanes=tuple("/".join(trace.lanes[index]) for index in lanes.tolist()),
        names=tuple(trace.names[index] for index in names.tolist()),
        lane=lane.astype(np.int64),
        name=name.astype(np.int64),
        kind=kind[order].astype(np.int64),
        start_ns=starts_ns[order],
        end_ns=ends_ns[order],
        call=call[order],
    )

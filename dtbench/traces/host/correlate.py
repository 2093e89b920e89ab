"""Who asked for a device event: call, operator, annotation, autograd node, its forward operator, module.

::

    autograd node            ├──────────────────────────┤     "evaluate_function: MmBackward0", sequence number 7
      operator                 ├────────────────────┤         aten::mm, on the way out past plumbing
        c10d::allreduce_          ├──────────────┤            plumbing: every collective has it, it asks for nothing
          call                       ├──┤                     cudaLaunchKernel, correlation id 12
    kernel                                  ├────────┤        correlation id 12
    forward, on its thread:  aten::mm with sequence number 7, inside nn.Module: Linear_3
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.host.forwards import find_forwards, is_engine_node
from dtbench.traces.host.modules import find_modules, name_modules
from dtbench.traces.host.nesting import STARTS_WORK, Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

# What lies between whoever asks for a collective and the call: dispatch and communication's own operators.
_PLUMBING: Final = re.compile(
    r"record_param_comms|[a-z]{0,5}ccl:(?!:)|gloo:|ucc:|mpi:|c10d::|_?c10d_functional(_autograd)?::|"
    r"dtbench::collective |GeneratedBackwardFor_+c10d_functional_|"
    r"Python(Subclass|DispatchMode)\b"
)
_NO_ANNOTATION: Final = re.compile(r"ProfilerStep#|dtbench::")
_GRAPH_LAUNCH: Final = "GraphLaunch"
_KINDS_LOST: Final = 3
"""Operators of so many names that lack a launch show that launches are lost."""
_OFTEN: Final = 0.1
"""Part of what bears one name, or of all: where so much lacks its call, and not one or two alone, a first may, too."""
_FEWEST_LOST: Final = 3


class Link(IntEnum):
    """How a device event is tied to what asked for it: the first that holds."""

    BEFORE_WINDOW = 0
    NO_ID = 1
    MISSING = 2
    GRAPH = 3
    AMBIGUOUS = 4
    NO_OPERATOR = 5
    FOUND = 6


@dataclass(frozen=True)
class Uncorrelated:
    """Device events that are not tied to one operator, each counted once, by the first reason that holds.

    All of them stay in every account of time.

    Attributes:
        launched_before: no call; its id is smaller than that of every call, no operator before it lacks a call, and its
            likes have theirs, so it was launched before the trace began.
        without_id: they carry no id, so that any call may have launched them.
        launch_missing: no call carries their id.
        graph_launched: one of the kernels of a captured graph: the call is there, their operators ran at capture.
        ambiguous: several calls carry its id, the last one before it was taken.
        without_operator: launched where no operator is open: by a library, or a kernel called from Python.
    """

    launched_before: int = 0
    without_id: int = 0
    launch_missing: int = 0
    graph_launched: int = 0
    ambiguous: int = 0
    without_operator: int = 0

    @property
    def untied(self) -> int:
        """Count those of which it is not known when, if ever in the trace, they were launched."""
        return self.without_id + self.launch_missing


def find_links(trace: Trace, nesting: Nesting) -> tuple[Ints, NDArray[np.int8]]:
    """Return all device events, and the ``Link`` of each."""
    events = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    calls = nesting.calls(events)
    ids = trace.correlation.values_at(events, 0)
    called_ids = trace.correlation.values[trace.is_one_of(CALLS)[trace.correlation.events]]
    first_id = int(called_ids.min()) if len(called_ids) else 0
    is_graph = np.array([_GRAPH_LAUNCH in name for name in trace.names], dtype=np.bool_)
    links = np.full(len(events), Link.FOUND, dtype=np.int8)
    # Weakest reason first, so that the strongest stays.
    links[nesting.innermost(calls, trace.is_one_of(("cpu_op",))) == NOTHING] = Link.NO_OPERATOR
    links[np.isin(events, nesting.reused)] = Link.AMBIGUOUS
    links[is_graph[trace.name[calls]]] = Link.GRAPH
    links[calls == NOTHING] = Link.MISSING
    links[ids == 0] = Link.NO_ID
    is_before = (calls == NOTHING) & (ids > 0) & (ids < first_id)
    if is_before.any():
        is_before &= trace.start_ns[events] < _find_first_loss(trace)
        is_before &= ~_are_often_lost(trace, events, links == Link.MISSING, is_before)
    links[is_before] = Link.BEFORE_WINDOW
    return events, links


def _are_often_lost(trace: Trace, events: Ints, is_missing: Bools, is_before: Bools) -> Bools:
    """Tell of which events, shape ``(n,)``, the call may be lost, as those of their likes, or of all, often are.

    Not of what began before all operators: that was launched before the trace, whatever is lost of it.
    """
    names, each = np.unique(trace.name[events], return_inverse=True)
    lost, others = (np.bincount(each[of], minlength=len(names)) for of in (is_missing & ~is_before, ~is_before))
    began_ns = trace.start_ns[trace.is_one_of(("cpu_op",))].min(initial=np.iinfo(np.int64).max)
    is_often = _are_often(lost, others)[each] | _are_often(lost.sum(keepdims=True), others.sum(keepdims=True))
    return np.asarray(is_often & (trace.start_ns[events] > began_ns), dtype=np.bool_)


def _are_often(lost: Ints, others: Ints) -> Bools:
    return np.asarray((lost >= _FEWEST_LOST) & (lost >= _OFTEN * others), dtype=np.bool_)


def _find_first_loss(trace: Trace) -> int:
    """Return from when on launches may be lost though no call stands before them; the largest int64: they are not.

    An operator, or a range, that ends before the first call launched nothing that is in the trace. Where all later ones
    of its name launched something, so did it, and its calls are lost; so may those of all others before the first be.
    One name is no evidence: its tensors may be the host's, as those of a batch that is put together.
    """
    calls = np.flatnonzero(trace.is_one_of(CALLS) & trace.is_named(STARTS_WORK.search))
    if not len(calls):
        return int(np.iinfo(np.int64).min)
    operators = np.flatnonzero(trace.is_one_of(("cpu_op", "user_annotation")))
    first_ns = int(trace.start_ns[calls].min())
    is_early = trace.end_ns[operators] <= first_ns
    early, later = operators[is_early], operators[~is_early & (trace.start_ns[operators] >= first_ns)]
    later = later[np.isin(trace.name[later], trace.name[early])]
    has_call = np.zeros(len(later), dtype=np.bool_)
    for lane in np.unique(trace.lane[later]).tolist():
        mine = np.flatnonzero(trace.lane[later] == lane)
        made_ns = np.sort(trace.start_ns[calls[trace.lane[calls] == lane]])
        first, beyond = (made_ns.searchsorted(at[later[mine]]) for at in (trace.start_ns, trace.end_ns))
        has_call[mine] = beyond > first
    launching = np.setdiff1d(trace.name[later[has_call]], trace.name[later[~has_call]])
    lossy = early[np.isin(trace.name[early], launching)]
    is_shown = len(np.unique(trace.name[lossy])) >= _KINDS_LOST
    return int(trace.start_ns[early].min()) + 1 if is_shown else int(np.iinfo(np.int64).max)


def count_uncorrelated(links: NDArray[np.int8]) -> Uncorrelated:
    """Count links that are not ``FOUND``."""
    counts = np.bincount(links, minlength=len(Link)).tolist()
    return Uncorrelated(
        launched_before=counts[Link.BEFORE_WINDOW],
        without_id=counts[Link.NO_ID],
        launch_missing=counts[Link.MISSING],
        graph_launched=counts[Link.GRAPH],
        ambiguous=counts[Link.AMBIGUOUS],
        without_operator=counts[Link.NO_OPERATOR],
    )


@dataclass(frozen=True)
class Attribution:
    """Who asked for some events, as parallel columns of shape ``(k,)``; events, or ``NOTHING``.

    Attributes:
        calls: the event of a thread that was looked from.
        operators: innermost operator around the call that is no plumbing.
        annotations: innermost annotation; neither a step nor one of dtbench's own.
        nodes: innermost node of the autograd engine: the call is backward work.
        forwards: the forward operator of that node.
        modules: module around the call, else around the forward operator; empty text: not known.
    """

    calls: Ints
    operators: Ints
    annotations: Ints
    nodes: Ints
    forwards: Ints
    modules: tuple[str, ...]


def attribute(trace: Trace, nesting: Nesting, calls: Ints) -> Attribution:
    """Look outwards from some events of threads: calls, or operators.

    Args:
        trace: the events.
        nesting: its nesting.
        calls: shape ``(k,)``; for device events ``nesting.calls(events)``; ``NOTHING`` stays.
    """
    plumbing = _named(trace, _PLUMBING)
    engine = is_engine_node(trace)
    is_annotation = trace.is_one_of(("user_annotation",)) & ~plumbing & ~_named(trace, _NO_ANNOTATION)
    nodes = nesting.innermost(calls, engine)
    forwards = find_forwards(trace, nesting, nodes)
    modules = find_modules(trace)
    around_call = name_modules(trace, nesting, modules, calls)
    around_forward = name_modules(trace, nesting, modules, forwards)
    return Attribution(
        calls=calls,
        operators=nesting.innermost(calls, trace.is_one_of(("cpu_op",)) & ~plumbing & ~engine),
        annotations=nesting.innermost(calls, is_annotation),
        nodes=nodes,
        forwards=forwards,
        modules=tuple(here or there for here, there in zip(around_call, around_forward, strict=True)),
    )


def _named(trace: Trace, pattern: re.Pattern[str]) -> Bools:
    """Tell for each event, shape ``(n,)``, whether its name begins so."""
    return trace.is_named(pattern.match)

"""Operators that launch work on a device in other steps, and in some launch none: the rows of calls are lost, too.

::

    step            2              3              4
    aten::mm     ├ launch ┤     ├        ┤     ├ launch ┤      mm launches wherever it runs, but in step 3: its call is
    device          ██                            ██           lost there, and the kernel with it

What else may be the reason decides nothing: an operator may work on the host in one place and on the device in another
(``aten::add_``), or find nothing to do. So those alone count of a name, and a name around it, that launched each time
in some step, no more of them than in that step, and only where they are more of a step than a few exceptions.

Where no step launched any kernel, nothing tells which operators would have. Products of matrices and libraries' own
operators compute on the device, if anything of a trace of a device does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.device.captures import find_captures
from dtbench.traces.device.unseen_launches import keep_unbegun
from dtbench.traces.host.nesting import STARTS_WORK, Nesting
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import CALLS, COPIES, DEVICE_CATEGORIES, KERNEL
from dtbench.traces.kinds.operators import is_issue
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_COPIES: Final = re.compile(r"Mem(?:cpy|set)", re.IGNORECASE)
_COMPUTES: Final = re.compile(
    r"^aten::(?:mm|bmm|addmm|baddbmm|_scaled_mm|_grouped_mm|(?:cudnn|miopen)_\w+|_(?:flash|efficient|cudnn)_attention_\w+)$"
)
_LEAST_SHARE: Final = 0.1
"""Of the operators of a step that launch elsewhere: as many without a launch are no exceptions."""


@dataclass(frozen=True)
class Unlaunched:
    """When operators began that were to launch work and launched none, each shape ``(k,)``, rising.

    Attributes:
        kernels_ns: kernels, or graphs.
        copies_ns: copies and fills alone.
    """

    kernels_ns: Ints
    copies_ns: Ints


def find_unlaunched(trace: Trace, nesting: Nesting, steps: Sequence[Step]) -> Unlaunched:
    """Find the operators of steps that were to launch work, and of which the trace has neither calls nor work.

    Work whose call is not in the trace may be that of any operator before it.

    Args:
        trace: of a device.
        nesting: its nesting.
        steps: of the trace.
    """
    operators = np.flatnonzero(trace.is_one_of(("cpu_op",)))
    operators = operators[~_issues(trace)[trace.name[operators]]]
    operators = operators[~find_captures(trace).covers(trace.start_ns[operators])]
    step_of = _place(trace.start_ns[operators], steps)
    operators, step_of = operators[step_of != NOTHING], step_of[step_of != NOTHING]
    calls = _find_calls(trace, nesting)
    is_copy = _are_named(trace, calls, _COPIES)
    starters, kernel_starters = nesting.parent[calls], nesting.parent[calls[~is_copy]]
    launches, launches_kernel = np.isin(operators, starters), np.isin(operators, kernel_starters)
    if not np.any(_place(trace.start_ns[calls[~is_copy]], steps) != NOTHING):
        computes = _are_named(trace, operators, _COMPUTES)
        return Unlaunched(_keep_unbegun(trace, nesting, operators[computes], (KERNEL,)), operators[:0])
    names, above = trace.name.astype(np.int64), nesting.parent[operators]
    above = np.where(trace.is_one_of(("cpu_op",))[above], above, operators)
    pairs = names[operators] * len(trace.names) + names[above]
    kind = np.unique(pairs, return_inverse=True)[1]
    of_kernels = (np.bincount(kind[launches_kernel], minlength=len(pairs)) > 0)[kind]
    lacks = [
        chosen[_find_lacking(kind[chosen], step_of[chosen], launches[chosen])]
        for chosen in (np.flatnonzero(of_kernels), np.flatnonzero(~of_kernels))
    ]
    return Unlaunched(
        _keep_unbegun(trace, nesting, operators[lacks[0]], (KERNEL,)),
        _keep_unbegun(trace, nesting, operators[lacks[1]], COPIES),
    )


def _keep_unbegun(trace: Trace, nesting: Nesting, operators: Ints, categories: tuple[str, ...]) -> Ints:
    """Return when operators began, rising, without one for each work whose call is not there; see ``keep_unbegun``."""
    begun_ns = np.sort(trace.start_ns[operators])
    work = np.flatnonzero(trace.is_one_of(categories))
    return begun_ns[keep_unbegun(begun_ns, np.sort(trace.start_ns[work[nesting.calls(work) == NOTHING]]))]


def _find_lacking(kind: Ints, step_of: Ints, launches: Bools) -> Bools:
    """Tell which operators lack a launch, shape ``(n,)``.

    Args:
        kind: shape ``(n,)``, number of what the operators are.
        step_of: shape ``(n,)``, place of the step of each.
        launches: shape ``(n,)``, whether each launched work.
    """
    if not len(kind):
        return launches
    shape = (int(kind.max()) + 1, int(step_of.max()) + 1)
    ran, launched = (_count(kind[of], step_of[of], shape) for of in (launches | True, launches))
    is_whole = (ran > 0) & (launched == ran)
    often = np.where(is_whole, ran, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    due = np.where(is_whole.any(axis=1, keepdims=True), np.minimum(ran, often), 0)
    lacks = np.maximum(0, due - launched)
    is_lossy = (lacks > 0) & (lacks.sum(axis=0) >= _LEAST_SHARE * due.sum(axis=0))
    return np.asarray(~launches & is_lossy[kind, step_of], dtype=np.bool_)


def _count(kind: Ints, step_of: Ints, shape: tuple[int, int]) -> NDArray[np.int64]:
    return np.bincount(kind * shape[1] + step_of, minlength=shape[0] * shape[1]).reshape(shape)


def _find_calls(trace: Trace, nesting: Nesting) -> Ints:
    """Return the calls that start work and are not of a collective."""
    every = np.flatnonzero(trace.is_one_of(CALLS))
    ran = nesting.calls(np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES)))
    calls = np.union1d(every[_are_named(trace, every, STARTS_WORK)], ran[ran != NOTHING])
    return np.asarray(calls[nesting.innermost(calls, _issues(trace)[trace.name]) == NOTHING], dtype=np.int64)


def _are_named(trace: Trace, events: Ints, pattern: re.Pattern[str]) -> Bools:
    """Tell which of some events have a name in which a pattern is found, shape ``(k,)``; others' names are long."""
    names = np.unique(trace.name[events]).tolist()
    return np.isin(trace.name[events], [name for name in names if pattern.search(trace.names[name])])


def _issues(trace: Trace) -> Bools:
    """Tell which names are of what issues a collective."""
    return np.array([is_issue(name) for name in trace.names], dtype=np.bool_)


def _place(times_ns: Ints, steps: Sequence[Step]) -> Ints:
    """Return the place of the step whose host range each moment is in; ``NOTHING``: none."""
    starts_ns = np.array([step.host.start_ns for step in steps], dtype=np.int64)
    ends_ns = np.array([step.host.end_ns for step in steps], dtype=np.int64)
    place = starts_ns.searchsorted(times_ns, side="right") - 1
    is_in = (place >= 0) & (times_ns < np.append(ends_ns, 0)[place])
    return np.where(is_in, place, NOTHING).astype(np.int64)

"""Collectives that a device trace shows launched and not run: their kernels are not among its events.

A file that was cut, events that could not be read, or a profiler that stopped before the device had caught up leave
such. Nothing is accounted for them; that a rank launched one says when it was ready for it at the earliest.
"""

import re
from typing import Final

import numpy as np

from dtbench.analyze.captures import find_captures
from dtbench.analyze.collectives import Launch
from dtbench.analyze.enclosures import NOTHING
from dtbench.analyze.intervals import Bools, Ints
from dtbench.analyze.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.analyze.kinds.operators import find_operation, is_issue
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.ranges import COLLECTIVE_PREFIX, parse_collective_range

LAUNCHES_KERNEL: Final = re.compile(r"Launch(?:Cooperative)?Kernel|(?<!Append)KernelLaunch", re.IGNORECASE)
"""Calls that start one kernel; what is appended to a command buffer (Unified Runtime's graph) runs when that does."""


def find_unseen_launches(trace: Trace, nesting: Nesting) -> tuple[Launch, ...]:
    """Find the operators of collectives that launched kernels of which the trace has none, in order of time."""
    calls = find_kernel_launches(trace)
    is_seen = np.isin(calls, nesting.calls(np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))))
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)[trace.name]
    unseen, seen = calls[~is_seen], calls[is_seen]
    unseen = unseen[nesting.innermost(unseen, issues) != NOTHING]
    last_call = {_find_outermost(nesting, call, issues): call for call in unseen.tolist()}
    return tuple(
        _describe(trace, nesting, call) for issue, call in last_call.items() if not _has_any(trace, issue, seen)
    )


def find_kernel_launches(trace: Trace) -> Ints:
    """Return the calls that launch a kernel of their own and carry an id, in order of start."""
    launches = trace.is_named(LAUNCHES_KERNEL.search) & trace.is_one_of(CALLS)
    tied = trace.correlation.events
    calls = tied[launches[tied]]
    calls = calls[~find_captures(trace).covers(trace.start_ns[calls])]
    return np.asarray(calls[np.argsort(trace.start_ns[calls], kind="stable")], dtype=np.int64)


def _find_outermost(nesting: Nesting, call: int, issues: Bools) -> int:
    """Give the outermost operator of the collective around a call that is inside one."""
    return next(event for event in reversed([*nesting.enclosing(call)]) if issues[event])


def _has_any(trace: Trace, operator: int, calls: Ints) -> bool:
    """Tell whether an operator made any of some calls, which are in order of start."""
    borders = [trace.start_ns[operator], trace.end_ns[operator]]
    first, beyond = np.searchsorted(trace.start_ns[calls], borders).tolist()
    return bool(np.any(trace.lane[calls[first:beyond]] == trace.lane[operator]))


def _describe(trace: Trace, nesting: Nesting, call: int) -> Launch:
    around = list(nesting.enclosing(call))
    issues = [trace.name_of(event) for event in around if is_issue(trace.name_of(event))]
    label = next((parsed for name in issues if (parsed := parse_collective_range(name)) is not None), None)
    details = [trace.details[event] for event in around if event in trace.details]
    group = next((said.group for said in details if said.group is not None), "")
    seq = next((said.seq for said in details if said.seq is not None), None)
    operations = (find_operation(name) for name in issues if not name.startswith(COLLECTIVE_PREFIX))
    by_name = next((operation for operation in operations if operation is not None), None)
    return Launch(
        operation=label.operation or by_name if label else by_name,
        group=label.group if label else group,
        seq=label.seq if label else seq,
        start_ns=int(trace.start_ns[call]),
        end_ns=int(trace.end_ns[call]),
    )

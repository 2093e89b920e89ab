"""Collectives that a device trace shows launched and not run: their kernels are not among its events.

A file that was cut, events that could not be read, or a profiler that stopped before the device had caught up leave
such. Nothing is accounted for them; that a rank launched one says when it was ready for it at the earliest.

The rows of launches may be lost with the kernels. That a record of a collective (``record_param_comms``) launched none
is no evidence alone: in a group of one rank, on another backend, or where several are coalesced, which launch together
at the end, none is to come. It is where every kernel of communication was launched inside such records, and others of
the same operation and group did launch one.
"""

import re
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.analyze.captures import find_captures
from dtbench.analyze.collectives import Launch
from dtbench.analyze.enclosures import NOTHING
from dtbench.analyze.intervals import Bools, Ints
from dtbench.analyze.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.analyze.kinds.operators import RECORD, find_operation, is_issue
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.trace import Trace
from dtbench.ranges import COLLECTIVE_PREFIX, parse_collective_range

LAUNCHES_KERNEL: Final = re.compile(r"Launch(?:Cooperative)?Kernel|(?<!Append)KernelLaunch", re.IGNORECASE)
"""Calls that start one kernel; what is appended to a command buffer (Unified Runtime's graph) runs when that does."""


def find_unseen_launches(trace: Trace, nesting: Nesting, comm: Bools) -> tuple[Launch, ...]:
    """Find the operators of collectives that launched kernels of which the trace has none, in order of time.

    Args:
        trace: of a device.
        nesting: its nesting.
        comm: shape ``(n,)``, the device events that communicate.
    """
    launched = [_describe(trace, nesting, call) for call in _find_calls(trace, nesting)]
    unlaunched = [_describe(trace, nesting, record) for record in _find_unlaunched(trace, nesting, comm)]
    unlaunched = [replace(one, end_ns=one.start_ns) for one in unlaunched]
    return tuple(sorted((*launched, *unlaunched), key=lambda one: one.start_ns))


def _find_calls(trace: Trace, nesting: Nesting) -> list[int]:
    """Return the last call of each operator of a collective that launched kernels of which the trace has none."""
    calls = find_kernel_launches(trace)
    is_seen = np.isin(calls, nesting.calls(np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))))
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)[trace.name]
    unseen, seen = calls[~is_seen], calls[is_seen]
    unseen = unseen[nesting.innermost(unseen, issues) != NOTHING]
    last_call = {_find_outermost(nesting, call, issues): call for call in unseen.tolist()}
    return [call for issue, call in last_call.items() if not _has_any(trace, issue, seen)]


def _find_unlaunched(trace: Trace, nesting: Nesting, comm: Bools) -> list[int]:
    """Return the records of collectives of which the trace has neither launch nor kernel, in order of time.

    A kernel whose launch is not in the trace may be that of any record before it.
    """
    records = _find_records(trace)
    is_record = np.zeros(len(trace), dtype=np.bool_)
    is_record[records] = True
    kernels = np.flatnonzero(comm)
    calls = nesting.calls(kernels)
    if np.any(nesting.innermost(calls[calls != NOTHING], is_record) == NOTHING):
        return []
    launches = find_kernel_launches(trace)
    has_launch = {record: _has_any(trace, record, launches) for record in records}
    kinds = {_kind_of(trace, record) for record, has_one in has_launch.items() if has_one}
    found = [record for record, has_one in has_launch.items() if not has_one and _kind_of(trace, record) in kinds]
    return _leave_out_begun(trace, found, np.sort(trace.start_ns[kernels[calls == NOTHING]]))


def _leave_out_begun(trace: Trace, records: list[int], starts_ns: Ints) -> list[int]:
    """Leave out, for each start of a kernel, the last record before it that is left; both are in order of time."""
    left: list[int] = []
    coming = iter(records)
    record = next(coming, None)
    for start_ns in starts_ns.tolist():
        while record is not None and trace.start_ns[record] < start_ns:
            left.append(record)
            record = next(coming, None)
        del left[-1:]
    return left if record is None else [*left, record, *coming]


def _find_records(trace: Trace) -> list[int]:
    """Return the records of collectives that move bytes between ranks, in order of time, without what was captured."""
    records = [
        event
        for event, said in trace.details.items()
        if trace.name_of(event) == RECORD
        and (said.group_size or 0) > 1
        and 0 not in (said.in_elements, said.out_elements)
    ]
    is_captured = find_captures(trace).covers(trace.start_ns[records])
    kept = [record for record, is_in in zip(records, is_captured.tolist(), strict=True) if not is_in]
    return sorted(kept, key=lambda event: int(trace.start_ns[event]))


def _kind_of(trace: Trace, record: int) -> tuple[str | None, str | None]:
    """Return group and operation that a record tells."""
    said = trace.details[record]
    return said.group, said.collective


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
    around = [call, *nesting.enclosing(call)]
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

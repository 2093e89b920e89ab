"""Collectives that a device trace shows launched and not run: their kernels are not among its events.

A file that was cut, events that could not be read, or a profiler that stopped before the device had caught up leave
such. Nothing is accounted for them; that a rank launched one says when it was ready for it at the earliest.
A kernel that carries no id of its call may be that of any call before it: it is there, and only the id is missing.

The rows of launches may be lost with the kernels. That a record of a collective (``record_param_comms``) launched none
is no evidence alone: in a group of one rank, on another backend, or where several are coalesced, which launch together
at the end, none is to come. It is where every kernel of communication was launched inside such records, or at such an
end, and

* others of the same operation and group did launch one, or
* the device's library began it (``nccl:all_reduce``), its group has several ranks, and it is not coalesced::

    record_param_comms    ├─ all-reduce ─┤    ├ send ┤ ├ recv ┤
    range                    ├ nccl:all_reduce ┤                ├ nccl:coalesced ┤     launches for both before it

Records of before 2024 do not tell how many ranks a group has. Where no communication at all was seen of a rank of
several, those that the library began were not seen, too.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.ranges import COLLECTIVE_PREFIX, parse_collective_range
from dtbench.traces.device.captures import find_captures
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES, DEVICE_RANGE, KERNEL
from dtbench.traces.kinds.operators import RECORD, find_operation, is_issue
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Launch

LAUNCHES_KERNEL: Final = re.compile(r"Launch(?:Cooperative)?Kernel|(?<!Append)KernelLaunch", re.IGNORECASE)
"""Calls that start one kernel; what is appended to a command buffer (Unified Runtime's graph) runs when that does."""
_LIBRARY: Final = re.compile(r"[a-z]{0,5}ccl:(?!:)")
_COALESCED: Final = re.compile(r"[a-z]{0,5}ccl:coalesced$")
_WAIT: Final = "wait"


def find_unseen_launches(trace: Trace, nesting: Nesting, comm: Bools) -> tuple[Launch, ...]:
    """Find the operators of collectives that launched kernels of which the trace has none, in order of time.

    Args:
        trace: of a device.
        nesting: its nesting.
        comm: shape ``(n,)``, the device events that communicate.
    """
    begun_ns = find_nameless_starts(trace, comm)
    calls = _leave_out_begun(trace, _find_calls(trace, nesting), begun_ns)
    launched = [_describe(trace, nesting, call) for call in calls]
    unlaunched = [_describe(trace, nesting, record) for record in _find_unlaunched(trace, nesting, comm)]
    unlaunched = [replace(one, end_ns=one.start_ns) for one in unlaunched]
    return tuple(sorted((*launched, *unlaunched), key=lambda one: one.start_ns))


def _find_calls(trace: Trace, nesting: Nesting) -> list[int]:
    """Return, by time, the last call of each operator of a collective that launched kernels the trace has none of."""
    calls = find_kernel_launches(trace)
    is_seen = np.isin(calls, nesting.calls(np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))))
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)[trace.name]
    unseen, seen = calls[~is_seen], calls[is_seen]
    unseen = unseen[nesting.innermost(unseen, issues) != NOTHING]
    last_call = {_find_outermost(nesting, call, issues): call for call in unseen.tolist()}
    found = [call for issue, call in last_call.items() if not _has_any(trace, issue, seen)]
    return sorted(found, key=lambda call: int(trace.start_ns[call]))


def _find_unlaunched(trace: Trace, nesting: Nesting, comm: Bools) -> list[int]:
    """Return the records of collectives of which the trace has neither launch nor kernel, in order of time.

    A kernel whose launch is not in the trace may be that of any record before it.
    """
    records = _Records(trace)
    is_record = np.zeros(len(trace), dtype=np.bool_)
    is_record[records.events] = True
    kernels = np.flatnonzero(comm)
    calls = nesting.calls(kernels)
    if np.any(nesting.innermost(calls[calls != NOTHING], is_record) == NOTHING):
        return []
    launches = find_kernel_launches(trace)
    is_one_of_several = not len(kernels) and (trace.world_size or 0) > 1
    told = [event for event in records.events if is_one_of_several or records.kind_of(event) is not None]
    has_launch = {record: _has_any(trace, record, launches) for record in told}
    kinds = {records.kind_of(record) for record, has_one in has_launch.items() if has_one} - {None}
    ran = _sort_by_start(trace, np.unique(calls[calls != NOTHING]))
    found = [
        record
        for record, has_one in has_launch.items()
        if not has_one
        and (
            records.kind_of(record) in kinds
            or (records.is_due(record, is_one_of_several=is_one_of_several) and not _has_any(trace, record, ran))
        )
    ]
    return _leave_out_begun(trace, found, np.sort(trace.start_ns[kernels[calls == NOTHING]]))


def _leave_out_begun(trace: Trace, issued: Sequence[int], begun_ns: Ints) -> list[int]:
    """Leave out, of events in order of time, those that may have issued what began then; see ``keep_unbegun``."""
    kept = keep_unbegun(trace.start_ns[np.array(issued, dtype=np.int64)], begun_ns)
    return [issued[place] for place in kept.tolist()]


def keep_unbegun(issued_ns: Ints, begun_ns: Ints) -> Ints:
    """Leave out, for each start of a kernel, the last moment of issue before it that is left.

    Args:
        issued_ns: shape ``(m,)``, rising.
        begun_ns: shape ``(k,)``, rising.

    Returns:
        Places among ``issued_ns``, rising.
    """
    left: list[int] = []
    come = 0
    for beyond in issued_ns.searchsorted(begun_ns, side="left").tolist():
        left.extend(range(come, beyond))
        come = beyond
        del left[-1:]
    return np.array([*left, *range(come, len(issued_ns))], dtype=np.int64)


def find_nameless_starts(trace: Trace, chosen: Bools) -> Ints:
    """Return when those of some kernels began, rising, that carry no id: any call may have launched each.

    Args:
        trace: of a device.
        chosen: shape ``(n,)``.
    """
    kernels = np.flatnonzero(chosen & trace.is_one_of((KERNEL,)))
    return np.sort(trace.start_ns[kernels[trace.correlation.values_at(kernels, 0) == 0]])


class _Records:
    """Records of collectives that may move bytes between ranks, and the ends of what was coalesced.

    Attributes:
        events: in order of time, without what was captured.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        is_on_host = ~trace.is_one_of((DEVICE_RANGE,))
        self._begun = _sort_by_start(trace, np.flatnonzero(trace.is_named(_LIBRARY.match) & is_on_host))
        all_records = [event for event in trace.details if trace.name_of(event) == RECORD]
        waits = [event for event in all_records if trace.details[event].collective == _WAIT]
        self._waits = _sort_by_start(trace, np.array(waits, dtype=np.int64))
        is_end = np.array([_COALESCED.match(trace.name_of(event)) is not None for event in self._begun.tolist()])
        self._ends = self._begun[is_end.astype(np.bool_)]
        moving = [event for event in all_records if self._may_move(event)]
        found = _sort_by_start(trace, np.array([*moving, *self._ends.tolist()], dtype=np.int64))
        self.events = found[~find_captures(trace).covers(trace.start_ns[found])].tolist()

    def _may_move(self, event: int) -> bool:
        said = self._trace.details[event]
        has_several = said.group_size is None or said.group_size > 1
        return has_several and said.collective != _WAIT and 0 not in (said.in_elements, said.out_elements)

    def kind_of(self, event: int) -> tuple[str | None, str | None] | None:
        """Return group and operation that a record tells, of ends that they are some; None: it tells nothing."""
        if event in self._ends:
            return None, self._trace.name_of(event)
        said = self._trace.details[event]
        return (said.group, said.collective) if said.group_size is not None else None

    def is_due(self, event: int, *, is_one_of_several: bool) -> bool:
        """Tell whether a record, or an end, was to launch a kernel of its own.

        Args:
            event: one of ``events``.
            is_one_of_several: where it does not tell how many ranks its group has, these are several.
        """
        if event in self._ends:
            return is_one_of_several
        has_several = is_one_of_several or self._trace.details[event].group_size is not None
        return has_several and _has_any(self._trace, event, self._begun) and not self._is_coalesced(event)

    def _is_coalesced(self, event: int) -> bool:
        """Tell whether the launch of a record may have come with the next end of its thread: nothing waited between."""
        after = self._after(event, self._ends)
        waited = self._after(event, self._waits)
        return after is not None and (waited is None or self._trace.start_ns[after] < self._trace.start_ns[waited])

    def _after(self, event: int, among: Ints) -> int | None:
        """Return the first of some events, in order of start, on the thread of one after it has ended."""
        trace = self._trace
        behind = among[np.searchsorted(trace.start_ns[among], trace.end_ns[event]) :]
        mine = behind[trace.lane[behind] == trace.lane[event]]
        return int(mine[0]) if len(mine) else None


def _sort_by_start(trace: Trace, events: Ints) -> Ints:
    return np.asarray(events[np.argsort(trace.start_ns[events], kind="stable")], dtype=np.int64)


def find_kernel_launches(trace: Trace) -> Ints:
    """Return the calls that launch a kernel of their own and carry an id, in order of start."""
    launches = trace.is_named(LAUNCHES_KERNEL.search) & trace.is_one_of(CALLS)
    tied = trace.correlation.events
    calls = tied[launches[tied]]
    calls = calls[~find_captures(trace).covers(trace.start_ns[calls])]
    return np.asarray(calls[np.argsort(trace.start_ns[calls], kind="stable")], dtype=np.int64)


def _find_outermost(nesting: Nesting, call: int, issues: Bools) -> int:
    """Return the outermost operator of the collective around a call that is inside one."""
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

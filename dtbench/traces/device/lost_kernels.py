"""Kernels that a device trace shows launched and not run: how long their step took and what they hid is not known.

::

    launches    a  b c     d  e  f        c and all behind it are not among the events: the file was cut, or the
    device       ██a███  ██b██            profiler lost them; the step that launched them has no account
    lost                      ░░░░░░░

Those of collectives are ``unseen_launches.py``'s, which keeps what was seen of a step. A file that was cut may lack
anything, also of threads of the host. Where calls are lost with what they launched, operators show it:
``unlaunched.py``; where these are lost, too, other steps do: ``absent.py``.
Kernels that carry no id of their call are there: as many launches are not lost.

Where the ranges of steps in the middle are missing, the step before them has no end: its window runs to the next range.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from dtbench.traces.device.captures import find_captures
from dtbench.traces.device.lost_replays import find_short_replays
from dtbench.traces.device.main_lane import MainLane
from dtbench.traces.device.unseen_launches import find_kernel_launches, find_nameless_starts, keep_unbegun
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.traces.kinds.operators import is_issue
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools, Intervals, Ints, subtract, unite
from dtbench.traces.trace import Trace

_LAUNCHES_GRAPH: Final = re.compile(r"GraphLaunch")
_COPIES: Final = re.compile(r"^(?:cu|hip)\w*?Mem(?:cpy|set)")
_LATE: Final = 2
"""Times as late as in any other step: what a step that is not all recorded launched first is lost."""


@dataclass(frozen=True)
class Lost:
    """What a trace lacks of the work that it shows launched.

    Attributes:
        kernels: how many, counting once a graph, and an operator without its calls, of whose kernels nothing is there.
        operators: of these, how many are such operators.
        steps: numbers of the steps that launched them, or end where they begin, or in which the file was cut.
        recorded: when all that computed is in the trace; None: always.
        is_cut: the file was cut.
        skipped: first and last number of each run of steps of which no range is there, between two that are.
        copies: how many copies and fills were launched that are not there; no step is left out for them.
        copy_steps: numbers of the steps that launched them, or end where these begin: what they copied is not known.
        absent: numbers of the steps that were not all recorded, with how many operators each lacks.
    """

    kernels: int = 0
    operators: int = 0
    steps: tuple[int, ...] = ()
    recorded: Intervals | None = None
    is_cut: bool = False
    skipped: tuple[tuple[int, int], ...] = ()
    copies: int = 0
    copy_steps: tuple[int, ...] = ()
    absent: tuple[tuple[int, int], ...] = ()


def find_lost(
    trace: Trace, nesting: Nesting, comm: Bools, *, unlaunched_ns: Ints, steps: Sequence[Step], whole: Window
) -> Lost:
    """Find what a device trace lacks: kernels that were launched, and all that ``find_cut`` finds.

    Args:
        trace: the events.
        nesting: its nesting, for launches.
        comm: shape ``(n,)``, the device events that communicate.
        unlaunched_ns: when operators began of whose launches of kernels the trace has none, rising.
        steps: of the trace.
        whole: first start to last end of what has a kind.
    """
    short_ns = find_short_replays(trace, _find_graph_launches(trace), steps)
    lost_ns = np.sort(np.concatenate((_find_lost_launches(trace, nesting), short_ns)))
    lost_ns = lost_ns[keep_unbegun(lost_ns, find_nameless_starts(trace, ~comm))]
    lost_ns = np.sort(np.concatenate((lost_ns, unlaunched_ns)))
    cut = find_cut(trace, steps, whole)
    if not len(lost_ns):
        return cut
    places = _find_lossy(lost_ns, find_seen_launches(trace, nesting), steps)
    if not steps:
        unknown = [whole]
    elif np.any(lost_ns < steps[0].host.start_ns):
        unknown = [Window(whole.start_ns, steps[0].window.start_ns)]
    else:
        unknown = []
    if not places and not unknown:
        return cut
    unknown += [steps[place].window for place in places]
    numbers = {steps[place].number for place in places} | set(cut.steps)
    return Lost(
        kernels=len(lost_ns),
        operators=len(unlaunched_ns),
        steps=tuple(step.number for step in steps if step.number in numbers),
        recorded=_leave_out(unknown, _unite_all(steps, whole) if cut.recorded is None else cut.recorded),
        is_cut=cut.is_cut,
        skipped=cut.skipped,
    )


def find_lost_copies(trace: Trace) -> Ints:
    """Return when calls of CUDA and HIP copied or filled memory of which the trace has no event, rising.

    Calls that carry no id, or whose work is captured into a graph, tell nothing; nor do those of a trace in which no
    device event is tied to any call. In eight recorded traces each of 1,700 such calls has its event.
    """
    tied, ids = trace.correlation.events, trace.correlation.values
    is_call = trace.is_one_of(CALLS)[tied]
    calls, there = tied[is_call], ids[~is_call]
    if not np.isin(ids[is_call], there).any():
        return calls[:0]
    copies = calls[trace.is_named(_COPIES.search)[calls] & ~np.isin(ids[is_call], there)]
    copies_ns = trace.start_ns[copies]
    return np.sort(copies_ns[~find_captures(trace).covers(copies_ns)])


def add_lost_copies(
    lost: Lost, copies_ns: Ints, steps: Sequence[Step], main: MainLane
) -> tuple[Lost, tuple[Step, ...]]:
    """Add copies and fills that are not there to what a trace lacks; a step may begin with one of its own.

    That is no earlier than its call, nor before the main lane had done what was launched for the steps before; see
    ``steps.device_steps``.

    Args:
        lost: what it lacks else.
        copies_ns: as from ``find_lost_copies``.
        steps: of the trace.
        main: its main lane.

    Returns:
        What it lacks, and the steps.
    """
    places: set[int] = set()
    doubted = [*steps]
    done_ns = np.append(main.busy_until_ns[1:], main.worked_until_ns)
    for place, step in enumerate(steps):
        first, beyond = np.searchsorted(copies_ns, (step.host.start_ns, step.host.end_ns)).tolist()
        if beyond == first:
            continue
        places.add(place)
        before_ns = done_ns[: len(main.events)][main.launches_ns < step.host.start_ns]
        unsure_ns = step.window.start_ns - int(before_ns.max(initial=copies_ns[first]))
        if unsure_ns > 0:
            doubted[place] = replace(doubted[place], unsure_ns=max(step.unsure_ns, unsure_ns))
            if place:
                places.add(place - 1)
                before = doubted[place - 1]
                doubted[place - 1] = replace(before, unsure_end_ns=max(before.unsure_end_ns, unsure_ns))
    numbers = tuple(steps[place].number for place in sorted(places))
    return replace(lost, copies=len(copies_ns), copy_steps=numbers), tuple(doubted)


def add_absent(
    lost: Lost, absent: Mapping[int, int], *, launches_ns: Ints, steps: Sequence[Step], whole: Window
) -> Lost:
    """Add steps that are not all recorded; what one begins with, and so the end of the one before, may be lost, too.

    Args:
        lost: what a trace lacks else.
        absent: how many operators steps lack, by place of the step.
        launches_ns: when what ran on the device was launched.
        steps: of the trace.
        whole: first start to last end of what has a kind.
    """
    if not absent:
        return lost
    first_ns = [_find_first(launches_ns, step.host) for step in steps]
    latest_ns = max(first for place, first in enumerate(first_ns) if place not in absent)
    endless = {place - 1 for place in absent if place and first_ns[place] > _LATE * latest_ns}
    places = sorted({*absent, *endless})
    numbers = {*lost.steps, *(steps[place].number for place in places)}
    known = _unite_all(steps, whole) if lost.recorded is None else lost.recorded
    return replace(
        lost,
        steps=tuple(step.number for step in steps if step.number in numbers),
        recorded=_leave_out([steps[place].window for place in places], known),
        absent=tuple((steps[place].number, count) for place, count in absent.items()),
    )


def _find_first(launches_ns: Ints, host: Window) -> int:
    """Return how long after a step's begin its first launch came; its length: none did."""
    is_its = (launches_ns >= host.start_ns) & (launches_ns < host.end_ns)
    return int(launches_ns[is_its].min(initial=host.end_ns)) - host.start_ns


def find_cut(trace: Trace, steps: Sequence[Step], whole: Window) -> Lost:
    """Find what a trace lacks of which the file was cut or steps are missing, arguments as for ``find_lost``.

    Of a file that was cut, where its events come in order of time, all from the last one on. Else anything: profilers
    write thread by thread and buffer by buffer, so that what comes last in a file is of any time.
    """
    if not trace.unread.is_truncated:
        return _find_skipped(steps, whole)
    is_in_order = bool(np.all(np.diff(trace.start_ns) >= 0))
    from_ns = int(trace.start_ns[-1]) if is_in_order and steps else whole.start_ns
    lossy = [step for step in steps if max(step.window.end_ns, step.host.end_ns) > from_ns] or list(steps[-1:])
    from_ns = min([from_ns, *(step.window.start_ns for step in lossy)])
    everything = _unite_all(steps, whole)
    unknown = [Window(from_ns, max(from_ns, int(everything.ends_ns[-1])))]
    skipped = _find_skipped(steps, whole)
    numbers = {step.number for step in lossy} | set(skipped.steps)
    return Lost(
        steps=tuple(step.number for step in steps if step.number in numbers),
        recorded=_leave_out(unknown, everything if skipped.recorded is None else skipped.recorded),
        is_cut=True,
        skipped=skipped.skipped,
    )


def _find_skipped(steps: Sequence[Step], whole: Window) -> Lost:
    """Find runs of steps of which no range is there, and which steps before them run to the range behind."""
    pairs = [(one, after) for one, after in pairwise(steps) if after.number > one.number + 1]
    endless = [one for one, after in pairs if one.window.end_ns >= after.window.start_ns]
    return Lost(
        steps=tuple(step.number for step in endless),
        recorded=_leave_out([step.window for step in endless], _unite_all(steps, whole)) if endless else None,
        skipped=tuple((one.number + 1, after.number - 1) for one, after in pairs),
    )


def _unite_all(steps: Sequence[Step], whole: Window) -> Intervals:
    """Return the time of what has a kind and of all steps, which begin before their first operator and end after it."""
    windows = [whole, *(step.window for step in steps)]
    return unite([min(one.start_ns for one in windows)], [max(one.end_ns for one in windows)])


def _leave_out(unknown: Sequence[Window], known: Intervals) -> Intervals:
    return subtract(known, unite([window.start_ns for window in unknown], [window.end_ns for window in unknown]))


def _find_lossy(lost_ns: Ints, seen_ns: Ints, steps: Sequence[Step]) -> set[int]:
    """Find the places of steps that launched what is lost, and of those whose end is the start of what is lost."""
    places: set[int] = set()
    for place, step in enumerate(steps):
        first, beyond = np.searchsorted(lost_ns, (step.host.start_ns, step.host.end_ns)).tolist()
        if beyond > first:
            begins_lost = not np.any((seen_ns >= step.host.start_ns) & (seen_ns < lost_ns[first]))
            places |= {place, place - 1} if begins_lost and place else {place}
    return places


def find_seen_launches(trace: Trace, nesting: Nesting) -> Ints:
    """Return when what ran on the device was launched."""
    ran = np.flatnonzero(trace.is_one_of(DEVICE_CATEGORIES))
    return nesting.launch_ns(ran[nesting.launch[ran] != ran])


def _find_lost_launches(trace: Trace, nesting: Nesting) -> Ints:
    """Return when kernels were launched that are not there, rising; not those of collectives.

    Calls of a kind that no device event is tied to, neither kernels' nor graphs', tell nothing.
    """
    lost = [_keep_lost(trace, calls) for calls in (find_kernel_launches(trace), _find_graph_launches(trace))]
    calls = np.concatenate(lost)
    if not len(calls):
        return calls
    issues = np.array([is_issue(name) for name in trace.names], dtype=np.bool_)[trace.name]
    return np.sort(trace.start_ns[calls[nesting.innermost(calls, issues) == NOTHING]])


def _find_graph_launches(trace: Trace) -> Ints:
    """Return the calls that launch a graph and carry an id; not those that are captured into another."""
    tied = trace.correlation.events
    launches = trace.is_named(_LAUNCHES_GRAPH.search) & trace.is_one_of(CALLS)
    calls = tied[launches[tied]]
    return np.asarray(calls[~find_captures(trace).covers(trace.start_ns[calls])], dtype=np.int64)


def _keep_lost(trace: Trace, calls: Ints) -> Ints:
    """Return those calls of whose work nothing is there: the outermost where one launch is made by another."""
    tied, ids = trace.correlation.events, trace.correlation.values
    there = ids[~trace.is_one_of(CALLS)[tied]]
    has_work = np.isin(trace.correlation.values_at(calls, 0), there)
    if not has_work.any():
        return calls[:0]
    calls, has_work, outermost = _nest(trace, calls, has_work)
    return calls[outermost[~np.maximum.reduceat(has_work, outermost)]]


def _nest(trace: Trace, calls: Ints, has_work: Bools) -> tuple[Ints, Bools, Ints]:
    """Sort calls by thread and time; return them, what they have, and the places of those inside no other."""
    order = np.lexsort((-trace.end_ns[calls], trace.start_ns[calls], trace.lane[calls]))
    calls = calls[order]
    is_inside = np.zeros(len(calls), dtype=np.bool_)
    for thread in np.unique(trace.lane[calls]).tolist():
        mine = np.flatnonzero(trace.lane[calls] == thread)
        ends_ns = np.maximum.accumulate(trace.end_ns[calls[mine]])
        is_inside[mine[1:]] = trace.start_ns[calls[mine[1:]]] < ends_ns[:-1]
    return calls, has_work[order], np.flatnonzero(~is_inside)

"""What a rank's host did in each step, in few spans: enough to say what it did while other ranks waited for it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.base.ranges import REGION_PREFIX, STEP_PREFIX, WAIT_PREFIX
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import CALLS, DEVICE_RANGE, OPERATOR
from dtbench.traces.kinds.operators import is_issue, is_wait_tensor
from dtbench.traces.reader.header import PROFILERS
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

MOST_SPANS: Final = 24
"""Of a step, the longest: what is shorter made no rank late."""

_LEAST: Final = 100  # part of a step, 1 over this, that is worth keeping
_ANY_HASH: Final = re.compile(r"\b(?=\w*\d)(?=\w*[a-z])\w{16,}\b")
_ON_THREADS: Final = (OPERATOR, "user_annotation")
_OVERHEAD: Final = "overhead"
_OF_PROFILER: Final = re.compile("Buffer Flush|Instrumentation|Resource|Activity Buffer Request|UVM Activity Init")
"""Kineto's names of CUPTI's overhead (``CUpti_ActivityOverheadKind``); the others load and compile kernels."""

_SAYS_NOTHING: Final = (STEP_PREFIX, REGION_PREFIX, WAIT_PREFIX)


@dataclass(frozen=True)
class HostSpan:
    """An operator or range of the thread that runs the steps."""

    name: str
    start_ns: int
    end_ns: int
    is_operator: bool = False


@dataclass(frozen=True)
class HostStep:
    """One step on the host.

    Attributes:
        start_ns: the rank's own clock.
        spans: all that bear the name of one of the longest of any step, in order of start; one may enclose another.
        total_ns: by name, all time in it, of nested ones of a name the outer. Empty: the host was not recorded.
        has_operators: some operator of that thread was recorded; False: of none is it known that it took no time.
    """

    number: int
    start_ns: int
    spans: tuple[HostSpan, ...]
    total_ns: Mapping[str, int]
    has_operators: bool = True


def find_host_work(trace: Trace, steps: Sequence[Step]) -> tuple[HostStep, ...]:
    """Find the longest operators and ranges of each step, on the thread of its own range.

    Not those that say nothing (steps, regions, waits), nor what issues collectives or lies around that: over gloo, time
    in it may be waiting. Names of compiled code have no hash: it is another on each rank. What Kineto calls overhead is
    theirs too while no thread shows anything; the profiler's bears ``PROFILERS`` before its name.
    """
    if not steps:
        return ()
    says = trace.is_named(
        lambda name: not name.startswith(_SAYS_NOTHING) and not is_issue(name) and not is_wait_tensor(name)
    )
    events = np.concatenate((np.flatnonzero(says & trace.is_one_of(_ON_THREADS)), _find_overhead(trace)))
    is_step = trace.is_named(lambda name: name.startswith(STEP_PREFIX)) & ~trace.is_one_of((DEVICE_RANGE,))
    threads = {int(trace.start_ns[event]): int(trace.lane[event]) for event in np.flatnonzero(is_step).tolist()}
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    issues = np.flatnonzero(trace.is_named(_stands_still) & trace.is_one_of(_ON_THREADS))
    issues = issues[np.argsort(trace.start_ns[issues], kind="stable")]
    spell = _spell_names(trace)
    operators = np.flatnonzero(trace.is_one_of((OPERATOR,)))
    operators = operators[np.argsort(trace.start_ns[operators], kind="stable")]
    read = [_read_step(trace, spell, (events, issues), step, threads.get(step.host.start_ns)) for step in steps]
    told = {name for _, longest in read for name in longest}
    return tuple(
        HostStep(
            step.number,
            step.host.start_ns,
            tuple(span for span in spans if span.name in told),
            sum_names(spans),
            len(_keep_of(trace, operators, step.host, threads.get(step.host.start_ns))) > 0,
        )
        for step, (spans, _) in zip(steps, read, strict=True)
    )


def _find_overhead(trace: Trace) -> Ints:
    """Return what Kineto calls overhead and no thread did anything beside: it does not say which thread that held."""
    shown = trace.is_one_of((OPERATOR, *CALLS))
    moments_ns = np.sort(np.concatenate((trace.start_ns[shown], trace.end_ns[shown])))
    events = np.flatnonzero(trace.is_one_of((_OVERHEAD,)))
    until = np.searchsorted(moments_ns, trace.end_ns[events], side="left")
    return events[until <= np.searchsorted(moments_ns, trace.start_ns[events], side="right")]


def _spell_names(trace: Trace) -> Callable[[Ints], list[str]]:
    """Return what gives names to some events by what they are about."""
    names = [_ANY_HASH.sub("...", name) for name in trace.names]
    is_profilers = trace.is_one_of((_OVERHEAD,)) & trace.is_named(_OF_PROFILER.fullmatch)

    def spell(events: Ints) -> list[str]:
        rows = zip(trace.name[events].tolist(), is_profilers[events].tolist(), strict=True)
        return [f"{PROFILERS}{names[name]}" if is_own else names[name] for name, is_own in rows]

    return spell


def _stands_still(name: str) -> bool:
    return is_issue(name) or name.startswith(WAIT_PREFIX) or is_wait_tensor(name)


def _read_step(
    trace: Trace, spell: Callable[[Ints], list[str]], events: tuple[Ints, Ints], step: Step, lane: int | None
) -> tuple[list[HostSpan], set[str]]:
    """Return what ran in a step, in order of start, and the names of the longest of it."""
    mine, issues = (_keep_of(trace, some, step.host, lane) for some in events)
    starts_ns, ends_ns = trace.start_ns[mine], trace.end_ns[mine]
    at_ns = trace.start_ns[issues]
    encloses = np.searchsorted(at_ns, ends_ns, side="left") > np.searchsorted(at_ns, starts_ns, side="left")
    mine, starts_ns, ends_ns = mine[~encloses], starts_ns[~encloses], ends_ns[~encloses]
    lengths = ends_ns - starts_ns
    step_ns = step.host.end_ns - step.host.start_ns
    longest = np.argsort(-lengths, kind="stable")[:MOST_SPANS]
    told = {*spell(mine[longest[lengths[longest] * _LEAST >= step_ns]])}
    columns = (starts_ns, ends_ns, trace.is_one_of((OPERATOR,))[mine])
    spans = [
        HostSpan(name, start_ns, end_ns, is_operator)
        for name, start_ns, end_ns, is_operator in zip(spell(mine), *(one.tolist() for one in columns), strict=True)
    ]
    return spans, told


def _keep_of(trace: Trace, events: Ints, host: Window, lane: int | None) -> Ints:
    """Return those of some events, in order of start, that begin in a step on a thread; None: which is not known.

    Overhead has no thread, and is any's.
    """
    first, last = trace.start_ns[events].searchsorted((host.start_ns, host.end_ns), side="left").tolist()
    mine = events[first:last]
    overhead = [code for code, one in enumerate(trace.categories) if one == _OVERHEAD]
    is_here = (trace.lane[mine] == lane) | np.isin(trace.category[mine], overhead)
    return mine[is_here] if lane is not None else mine[:0]


def sum_names(spans: Sequence[HostSpan], until_ns: int | None = None) -> dict[str, int]:
    """Sum the time of each name, of what had ended by a moment; of nested ones of a name the outer.

    Args:
        spans: in order of start.
        until_ns: None: of all.
    """
    found: dict[str, int] = {}
    ends: dict[str, int] = {}
    for span in spans:
        start_ns = max(span.start_ns, ends.get(span.name, span.start_ns))
        if span.end_ns > start_ns and (until_ns is None or span.end_ns <= until_ns):
            found[span.name] = found.get(span.name, 0) + span.end_ns - start_ns
            ends[span.name] = span.end_ns
    return found

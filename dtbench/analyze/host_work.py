"""What a rank's host did in each step, in few spans: enough to say what it did while other ranks waited for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Ints
from dtbench.analyze.kinds.categories import DEVICE_RANGE
from dtbench.analyze.kinds.operators import is_issue
from dtbench.analyze.steps import Step
from dtbench.analyze.trace import Trace
from dtbench.ranges import REGION_PREFIX, STEP_PREFIX, WAIT_PREFIX

MOST_SPANS: Final = 24
"""Of a step, the longest: what is shorter made no rank late."""

_LEAST: Final = 100  # part of a step, 1 over this, that is worth keeping
_ON_THREADS: Final = ("cpu_op", "user_annotation")
_SAYS_NOTHING: Final = (STEP_PREFIX, REGION_PREFIX, WAIT_PREFIX)


@dataclass(frozen=True)
class HostSpan:
    """An operator or range of the thread that runs the steps."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class HostStep:
    """One step on the host; spans in order of start, one may enclose another."""

    number: int
    start_ns: int
    spans: tuple[HostSpan, ...]


def find_host_work(trace: Trace, steps: Sequence[Step]) -> tuple[HostStep, ...]:
    """Find the longest operators and ranges of each step, on the thread of its own range.

    Not those that say nothing: steps, regions, waits, and what issues collectives.
    """
    if not steps:
        return ()
    says = trace.is_named(
        lambda name: not name.startswith(_SAYS_NOTHING) and not is_issue(name) and "wait_tensor" not in name
    )
    events = np.flatnonzero(says & trace.is_one_of(_ON_THREADS))
    is_step = trace.is_named(lambda name: name.startswith(STEP_PREFIX)) & ~trace.is_one_of((DEVICE_RANGE,))
    threads = {int(trace.start_ns[event]): int(trace.lane[event]) for event in np.flatnonzero(is_step).tolist()}
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    return tuple(
        HostStep(
            step.number, step.host.start_ns, _find_spans(trace, events, step.host, threads.get(step.host.start_ns))
        )
        for step in steps
    )


def _find_spans(trace: Trace, events: Ints, host: Window, lane: int | None) -> tuple[HostSpan, ...]:
    first, last = trace.start_ns[events].searchsorted((host.start_ns, host.end_ns), side="left").tolist()
    mine = events[first:last]
    mine = mine[trace.lane[mine] == lane] if lane is not None else mine[:0]
    lengths = trace.end_ns[mine] - trace.start_ns[mine]
    longest = np.argsort(-lengths, kind="stable")[:MOST_SPANS]
    kept = np.sort(longest[lengths[longest] * _LEAST >= host.end_ns - host.start_ns])
    return tuple(
        HostSpan(trace.name_of(event), int(trace.start_ns[event]), int(trace.end_ns[event]))
        for event in mine[kept].tolist()
    )

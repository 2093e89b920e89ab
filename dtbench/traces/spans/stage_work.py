"""When each stage of a pipeline computed each micro-batch: from its first compute to its last, without what it awaits.

::

    PP:1B0 (host)   ├──────────────────────┤            from the ranges of ``stage_ranges``
    launches          ·  ·   ·
    compute              ███ ███   ████
    stage 1, B0          ├───────────┤                  a range of the host awaits its data first
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dtbench.base.stage_ranges import COMPUTING, StageAction, parse_stage_range
from dtbench.base.vocabulary import Kind, Purpose
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, DEVICE_RANGE
from dtbench.traces.spans.work import KINDS, Work
from dtbench.traces.time.intervals import clip
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.trace import Trace


@dataclass(frozen=True)
class StageWork:
    """A stage computes for one micro-batch; the rank's own clock."""

    action: StageAction
    start_ns: int
    end_ns: int


def find_stage_work(trace: Trace, timeline: RankTimeline, work: Work) -> tuple[StageWork, ...]:
    """Find what each stage computed and when, in order of start; nothing where no pipeline sends or nobody names it.

    Args:
        trace: as read.
        timeline: of its rank.
        work: of the trace.
    """
    if not any(one.purpose is Purpose.PIPELINE for one in timeline.collectives):
        return ()
    is_device = any(category in DEVICE_CATEGORIES for category in trace.categories)
    extent = _OnDevice(timeline, work) if is_device else _OnHost(timeline)
    found = []
    for action, start_ns, end_ns in _find_ranges(trace):
        borders = extent.between(start_ns, end_ns)
        if borders is not None:
            found.append(StageWork(action, *borders))
    return tuple(sorted(found, key=lambda one: one.start_ns))


def _find_ranges(trace: Trace) -> Iterator[tuple[StageAction, int, int]]:
    """Return the ranges of what computes: of one action inside itself the outer one, but one that names its stage."""
    found: dict[tuple[str, int | None], list[tuple[StageAction, int, int]]] = {}
    named = np.flatnonzero(trace.is_named(parse_stage_range))
    for event in named[np.lexsort((-trace.end_ns[named], trace.start_ns[named]))].tolist():
        if trace.category_of(event) == DEVICE_RANGE:
            continue
        start_ns, end_ns = int(trace.start_ns[event]), int(trace.end_ns[event])
        for action in parse_stage_range(trace.name_of(event)):
            same = found.setdefault((action.action, action.batch), [])
            while same and same[-1][0].stage is None and start_ns < same[-1][2]:
                same.pop()
            if action.action in COMPUTING and not (same and same[-1][0] == action and start_ns < same[-1][2]):
                same.append((action, start_ns, end_ns))
    return (one for same in found.values() for one in same)


class _OnHost:
    """What ran on the thread inside a range."""

    def __init__(self, timeline: RankTimeline) -> None:
        self._compute = timeline.compute

    def between(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        inside = clip(self._compute, start_ns, end_ns)
        return (int(inside.starts_ns[0]), int(inside.ends_ns[-1])) if len(inside.starts_ns) else None


class _OnDevice:
    """What ran on the device of what was launched inside a range."""

    def __init__(self, timeline: RankTimeline, work: Work) -> None:
        self._starts_ns, self._launches_ns = timeline.compute_starts_ns, timeline.compute_launches_ns[0]
        kernels = work.kind == KINDS.index(Kind.COMPUTE)
        order = np.argsort(work.start_ns[kernels], kind="stable")
        self._kernels_ns = work.start_ns[kernels][order], work.end_ns[kernels][order]

    def between(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        mine = self._starts_ns[(self._launches_ns >= start_ns) & (self._launches_ns < end_ns)]
        if not len(mine):
            return None
        starts_ns, ends_ns = self._kernels_ns
        last = int(np.searchsorted(starts_ns, mine[-1], side="right")) - 1
        return int(mine[0]), max(int(ends_ns[last]), int(mine[-1]))

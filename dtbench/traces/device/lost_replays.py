"""Kernels that a replay of a captured graph lacks: other replays of the same graph show how many it has.

::

    GraphLaunch   |      |      |           all kernels of a replay carry the id of its launch
    device        ███    ███    █ █         the third lacks one

No event says which graph a launch replays. Steps of a training launch the same graphs in the same order: what is at
the same place in steps of as many launches is the same graph. Where there are no such steps, a replay unlike all others
lacks something if several others, which are alike, have all of its kernels and at most as many again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import KERNEL
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

_ALIKE: Final = 2  # replays without a place in steps show with so many others what they have
_AS_MANY_AGAIN: Final = 2


@dataclass(frozen=True)
class _Replay:
    """One replay of which anything ran: when it was launched, its first kernel's name, and how many of each name."""

    launch_ns: int
    first: int
    kernels: Counter[int]

    def lacks(self, other: "_Replay") -> int:
        """Count the kernels of another that this one lacks; 0 also where this one has others."""
        return (other.kernels - self.kernels).total() if self.kernels < other.kernels else 0


def find_short_replays(trace: Trace, launches: Ints, steps: Sequence[Step]) -> Ints:
    """Return when graphs were replayed of whose kernels some are not there, once for each of these, rising.

    Where the first kernel of a replay is there, it is told as launched a nanosecond after the launch: what is lost is
    not what the replay began with.

    Args:
        trace: of a device.
        launches: calls that launch a graph and carry an id.
        steps: of the trace.
    """
    replays = _find_replays(trace, launches)
    short_ns: list[int] = []
    for one, whole in _find_short(replays, steps):
        short_ns += [one.launch_ns + (one.first == whole.first)] * one.lacks(whole)
    return np.array(sorted(short_ns), dtype=np.int64)


def _find_replays(trace: Trace, launches: Ints) -> list[_Replay]:
    """Find the replays in order of their launch; of several calls with one id, which make each other, the first."""
    launches = launches[np.argsort(trace.start_ns[launches], kind="stable")]
    ids, first = np.unique(trace.correlation.values_at(launches, 0), return_index=True)
    tied, values = trace.correlation.events, trace.correlation.values
    is_mine = trace.is_one_of((KERNEL,))[tied] & np.isin(values, ids)
    kernels, of = tied[is_mine], values[is_mine]
    order = np.lexsort((trace.start_ns[kernels], of))
    names, of = trace.name[kernels[order]], of[order]
    borders = np.searchsorted(of, np.append(ids, np.iinfo(np.int64).max)).tolist()
    found = [
        _Replay(launch_ns, int(names[begin]), Counter(names[begin:end].tolist()))
        for launch_ns, begin, end in zip(trace.start_ns[launches[first]].tolist(), borders, borders[1:], strict=False)
        if end > begin
    ]
    return sorted(found, key=lambda one: one.launch_ns)


def _find_short(replays: Sequence[_Replay], steps: Sequence[Step]) -> Iterator[tuple[_Replay, _Replay]]:
    """Yield the replays that lack something, and one of the same graph that has it: of several the one nearest."""
    launches_ns = [one.launch_ns for one in replays]
    by_length = defaultdict[int, list[Sequence[_Replay]]](list)
    placed: set[int] = set()
    for step in steps:
        first, beyond = np.searchsorted(launches_ns, (step.host.start_ns, step.host.end_ns)).tolist()
        by_length[beyond - first].append(replays[first:beyond])
    for alike in by_length.values():
        for same in zip(*alike, strict=True) if len(alike) > 1 else ():
            placed |= {one.launch_ns for one in same}
            yield from _pair(same, same)
    kinds = Counter(frozenset(one.kernels.items()) for one in replays)
    unlike = [one for one in replays if kinds[frozenset(one.kernels.items())] == 1 and one.launch_ns not in placed]
    several = [one for one in replays if kinds[frozenset(one.kernels.items())] >= _ALIKE]
    for one, whole in _pair(unlike, several):
        if whole.kernels.total() <= _AS_MANY_AGAIN * one.kernels.total():
            yield one, whole


def _pair(replays: Iterable[_Replay], others: Sequence[_Replay]) -> Iterator[tuple[_Replay, _Replay]]:
    """Yield each replay that lacks kernels of one of others, and that of which it lacks fewest."""
    kinds = {frozenset(other.kernels.items()): other for other in others}
    for one in replays:
        larger = [(one.lacks(other), other) for other in kinds.values() if one.lacks(other)]
        if larger:
            yield one, min(larger, key=lambda pair: pair[0])[1]

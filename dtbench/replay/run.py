"""Runs a graph: how long each of its steps takes, and when the job is done with each."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from dtbench.base.errors import PredictionError
from dtbench.prediction.simulate import Execution, simulate
from dtbench.replay.compose import Composed, begin_mark, compose, end_mark
from dtbench.replay.graph import ALL_EDGES, Edge, JobGraph, Point, RankGraph


@dataclass(frozen=True)
class Replayed:
    """What a replay says; times in ns from when the first rank begins.

    Attributes:
        windows_ns: by rank, when each of its steps begins and ends, as its account has it.
        composed: by rank, the program that ran.
        executions: by rank, what happened.
    """

    windows_ns: Mapping[int, tuple[tuple[int, int], ...]]
    composed: Mapping[int, Composed]
    executions: Mapping[int, Execution]

    @property
    def rank_steps_ns(self) -> dict[int, tuple[int, ...]]:
        """By rank, how long each of its steps takes."""
        return {rank: tuple(end - begin for begin, end in steps) for rank, steps in self.windows_ns.items()}

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """How long each step of the job takes: the slowest rank's."""
        return tuple(max(of_step) for of_step in zip(*self.rank_steps_ns.values(), strict=True))

    @property
    def rounds_ns(self) -> tuple[int, ...]:
        """How long after the step before the last rank has ended each step; the first: after the first host begins.

        They add up to when the last rank has ended the last, from a moment that no change moves. That never grows where
        something takes less time, while a single rank's step may: it then waits longer for another.
        """
        ends_ns = [max(end for _, end in of_step) for of_step in zip(*self.windows_ns.values(), strict=True)]
        return tuple(end - before for before, end in pairwise((0, *ends_ns)))


def replay(graph: JobGraph, edges: frozenset[Edge] = ALL_EDGES) -> Replayed:
    """Run a job's graph.

    Args:
        graph: of the job; all ranks with the same steps.
        edges: the classes of edges that hold.

    Raises:
        PredictionError: ranks wait for each other in a circle.
    """
    return run_composed(graph, {rank: compose(one, edges) for rank, one in graph.items()})


def run_composed(graph: JobGraph, composed: Mapping[int, Composed]) -> Replayed:
    """Run a job's programs; raises as ``replay``.

    Args:
        graph: of the job.
        composed: by rank, what was made of it.
    """
    try:
        executions = simulate({rank: one.program for rank, one in composed.items()})
    except AssertionError as error:
        raise PredictionError(
            "what these traces show cannot have happened in that order: ranks wait for each other in a circle"
        ) from error
    windows = {
        rank: (_find_device_steps if one.is_device else _find_host_steps)(one, composed[rank], executions[rank])
        for rank, one in graph.items()
    }
    return Replayed(windows, composed, executions)


def _find_device_steps(graph: RankGraph, composed: Composed, execution: Execution) -> tuple[tuple[int, int], ...]:
    """Return the steps of a device: each begins with its first work, and ends where the next begins."""
    ends_ns = execution.ends_ns
    served_ns = {one.collective.group: one.begin_ns for one in execution.served}
    firsts = [step.first for step in graph.steps if step.first is not None]
    begins_ns = [
        served_ns[graph.services[first].key]
        if first in graph.services
        else ends_ns[composed.numbers[first]] - int(graph.items.busy_ns[first])
        for first in firsts
    ]
    return tuple(pairwise((*begins_ns, max(ends_ns))))


def _find_host_steps(graph: RankGraph, composed: Composed, execution: Execution) -> tuple[tuple[int, int], ...]:
    """Return the steps of a host: each ends with it, or with what it issued, but where the next one begins."""
    marks_ns, last_ends_ns = execution.marks_ns, _find_last_ends(graph, composed, execution)
    begins_ns = [marks_ns[begin_mark(place)] for place in range(len(graph.steps))]
    ends_ns = [max(marks_ns[end_mark(place)], last_ends_ns.get(place, 0)) for place in range(len(graph.steps))]
    following_ns = [*begins_ns[1:], max(ends_ns)]
    return tuple(zip(begins_ns, map(min, ends_ns, following_ns), strict=True))


def _find_last_ends(graph: RankGraph, composed: Composed, execution: Execution) -> dict[int, int]:
    """Return by step when the last of what its host issued ended."""
    found: dict[int, int] = {}
    step = -1
    for point, which in zip(graph.host.point.tolist(), graph.host.which.tolist(), strict=True):
        if point == Point.BEGIN:
            step = which
        elif point == Point.GIVE:
            found[step] = max(found.get(step, 0), execution.ends_ns[composed.numbers[which]])
    return found

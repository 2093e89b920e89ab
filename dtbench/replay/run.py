"""Runs a graph: how long each of its steps takes."""

from collections.abc import Mapping
from dataclasses import dataclass

from dtbench.prediction.simulate import Execution, simulate
from dtbench.replay.compose import Composed, begin_mark, compose, end_mark
from dtbench.replay.graph import ALL_EDGES, Edge, JobGraph, Point, RankGraph


@dataclass(frozen=True)
class Replayed:
    """What a replay says.

    Attributes:
        rank_steps_ns: by rank, how long each of its steps takes; as the account has it, see ``MEASUREMENT``.
        executions: by rank, what happened.
    """

    rank_steps_ns: Mapping[int, tuple[int, ...]]
    executions: Mapping[int, Execution]

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """How long each step of the job takes: the slowest rank's."""
        return tuple(max(of_step) for of_step in zip(*self.rank_steps_ns.values(), strict=True))


def replay(graph: JobGraph, edges: frozenset[Edge] = ALL_EDGES) -> Replayed:
    """Run a job's graph.

    Args:
        graph: of the job; all ranks with the same steps.
        edges: the classes of edges that hold.
    """
    composed = {rank: compose(one, edges) for rank, one in graph.items()}
    executions = simulate({rank: one.program for rank, one in composed.items()})
    lengths = {rank: _measure_steps(one, composed[rank], executions[rank]) for rank, one in graph.items()}
    return Replayed(lengths, executions)


def _measure_steps(graph: RankGraph, composed: Composed, execution: Execution) -> tuple[int, ...]:
    ends_ns, numbers = execution.ends_ns, composed.numbers
    if graph.is_device:
        firsts = [step.first for step in graph.steps if step.first is not None]
        begins_ns = [ends_ns[numbers[first]] - int(graph.items.busy_ns[first]) for first in firsts]
        last_ns = max(ends_ns)
        return tuple(end - begin for begin, end in zip(begins_ns, [*begins_ns[1:], last_ns], strict=True))
    marks_ns, last_ends_ns = execution.marks_ns, _find_last_ends(graph, composed, execution)
    found = []
    for place in range(len(graph.steps)):
        end_ns = max(marks_ns[end_mark(place)], last_ends_ns.get(place, 0))
        if place + 1 < len(graph.steps):
            end_ns = min(end_ns, marks_ns[begin_mark(place + 1)])
        found.append(end_ns - marks_ns[begin_mark(place)])
    return tuple(found)


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

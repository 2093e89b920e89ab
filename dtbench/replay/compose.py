"""From a graph to programs that the simulator runs.

A row of work on one lane that nothing reaches into becomes one ``Work``, exactly: it ends with the longest way through
it, and both ends of every way are lengths (``prediction/program.py``). So a step of thousands of kernels is a program
of some dozens of instructions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Axis, Operation
from dtbench.prediction import program as to
from dtbench.replay.graph import ALL_EDGES, NO_COLLECTIVE, Edge, Point, RankGraph
from dtbench.traces.time.intervals import Ints


@dataclass(frozen=True)
class Composed:
    """One rank's program.

    Attributes:
        numbers: by item, under which number its row was given to a lane.
        launch_bound_ns: by number of a row and length of the way from its launch, how much of that is the host's.
    """

    program: to.Program
    numbers: Mapping[int, int]
    launch_bound_ns: Mapping[tuple[int, int], int]


def serve(composed: Composed, graph: RankGraph) -> Composed:
    """Return a rank's program with collectives served as another graph has it, which differs in nothing else.

    That is a small part of the work of composing it anew.
    """
    services = {service.key: service for service in graph.services.values()}

    def change(one: to.Instruction) -> to.Instruction:
        if not isinstance(one, to.Issue):
            return one
        service = services[one.collective.group]
        served = replace(one.collective, service_ns=service.service_ns, held_ns=service.held_ns)
        return replace(one, collective=served)

    return replace(composed, program=tuple(map(change, composed.program)))


def begin_mark(step: int) -> str:
    """Name the moment at which a rank's host begins a step; ``step`` is its place."""
    return f"begin {step}"


def end_mark(step: int) -> str:
    """Name the moment at which it has done with it."""
    return f"end {step}"


def compose(graph: RankGraph, edges: frozenset[Edge] = ALL_EDGES) -> Composed:
    """Write one rank's program.

    Args:
        graph: of the rank.
        edges: the classes of edges that hold.
    """
    return _Composer(graph, edges).compose()


class _Composer:
    def __init__(self, graph: RankGraph, edges: frozenset[Edge]) -> None:
        self._graph, self._edges = graph, edges
        self._given_ns, sections = _place_items(graph)
        self._rows = _find_rows(graph, sections)
        self._program: list[to.Instruction] = []
        self._numbers: dict[int, int] = {}
        self._launch_bound_ns: dict[tuple[int, int], int] = {}
        self._count = 0

    def compose(self) -> Composed:
        graph = self._graph
        self._spend(graph.begins_ns)
        for lane, until_ns in graph.busy_until_ns.items():
            self._program.append(to.Launch(to.Work(lane, 0, max(0, until_ns - graph.begins_ns))))
            self._count += 1
        host = graph.host
        for point, which, before_ns in zip(
            host.point.tolist(), host.which.tolist(), host.before_ns.tolist(), strict=True
        ):
            self._spend(before_ns)
            match point:
                case Point.GIVE:
                    self._give(which)
                case Point.SIT:
                    self._sit(host.sat_for[which])
                case Point.BEGIN:
                    self._program.append(to.Mark(begin_mark(which)))
                case Point.END:
                    self._program.append(to.Mark(end_mark(which)))
        return Composed(tuple(self._program), self._numbers, self._launch_bound_ns)

    def _spend(self, time_ns: int) -> None:
        if time_ns <= 0:
            return
        last = self._program[-1] if self._program else None
        if isinstance(last, to.Host):
            self._program[-1] = to.Host(last.duration_ns + time_ns)
        else:
            self._program.append(to.Host(time_ns))

    def _sit(self, items: tuple[int, ...]) -> None:
        if Edge.WAIT in self._edges:
            return_ns = self._graph.latencies.return_ns
            self._program += [to.Wait(self._numbers[item], return_ns) for item in items]

    def _give(self, item: int) -> None:
        row = self._rows.get(item)
        if row is None:  # it is in the row of one before
            return
        items = self._graph.items
        holds = Edge.WAIT in self._edges
        after = tuple(self._numbers[other] for other in items.after.get(item, ()) if holds)
        is_collective = item in self._graph.services
        lane = items.lanes[int(items.lane[item])]
        if (Edge.QUEUE if is_collective else Edge.STREAM) not in self._edges:
            lane = f"{lane} {item}"
        self._program.append(self._issue(item, lane, after) if is_collective else self._launch(row, lane, after))
        self._numbers.update(dict.fromkeys(row.tolist(), self._count))
        self._count += 1

    def _issue(self, item: int, lane: str, after: tuple[int, ...]) -> to.Issue:
        graph = self._graph
        one = graph.collectives[int(graph.items.collective[item])]
        service = graph.services[item]
        begins_late = Edge.LAUNCH in self._edges
        collective = to.Collective(
            request=to.Request(
                one.axis or Axis.DATA,
                one.operation or Operation.ALL_REDUCE,
                one.purpose,
                one.size_bytes or 0,
                one.owner,
            ),
            group=service.key,
            ranks=service.ranks,
            lane=lane,
            service_ns=service.service_ns,
            meeting=to.Meeting.AT_ISSUE if service.on_link else to.Meeting.AT_START,
            launch_ns=graph.latencies.launch_ns if begins_late else 0,
            after=after,
            held_ns=service.held_ns,
            waits=service.waits,
        )
        return to.Issue(collective, is_blocking=False)

    def _launch(self, row: Ints, lane: str, after: tuple[int, ...]) -> to.Launch:
        items = self._graph.items
        busy_ns, next_ns = items.busy_ns[row], items.next_ns[row]
        lengths_ns = busy_ns + next_ns
        to_end_ns = np.cumsum(lengths_ns[::-1])[::-1] - next_ns
        launched_ns = self._given_ns[row] - self._given_ns[row[0]] + self._graph.latencies.launch_ns
        last = int(np.argmax(launched_ns + to_end_ns))  # from whose launch on nothing waits for the host
        reach_ns = int(launched_ns[last] + to_end_ns[last]) if Edge.LAUNCH in self._edges else 0
        self._launch_bound_ns[self._count, reach_ns] = int(launched_ns[last])
        work = to.Work(lane, int(lengths_ns.sum()), reach_ns, after)
        return to.Launch(work)


def _place_items(graph: RankGraph) -> tuple[Ints, Ints]:
    """Return when the host gives each item, and in which section, both of shape ``(n,)``.

    A section is what the host does between two times that it stands still: within one, moments are known beforehand.
    """
    host = graph.host
    now_ns, sections = np.cumsum(host.before_ns), np.cumsum(host.point == Point.SIT)
    gives = host.point == Point.GIVE
    order = np.argsort(host.which[gives], kind="stable")
    return now_ns[gives][order], sections[gives][order]


def _find_rows(graph: RankGraph, sections: Ints) -> dict[int, Ints]:
    """Return rows of items by their first: work of one lane and one section that nothing reaches into."""
    items = graph.items
    begins = np.zeros(len(items), dtype=np.bool_)
    ends = np.zeros(len(items), dtype=np.bool_)
    begins[list(items.after)] = True
    ends[[other for others in items.after.values() for other in others]] = True
    ends[[item for sat in graph.host.sat_for for item in sat]] = True
    firsts = [step.first for step in graph.steps if step.first is not None]
    alone = items.collective != NO_COLLECTIVE
    alone[firsts] = True
    rows: dict[int, Ints] = {}
    for lane in range(len(items.lanes)):
        mine = np.flatnonzero(items.lane == lane)
        if not len(mine):
            continue
        cuts = begins[mine] | alone[mine]
        cuts[1:] |= (ends | alone)[mine[:-1]] | (np.diff(sections[mine]) != 0)
        rows.update((int(row[0]), row) for row in np.split(mine, np.flatnonzero(cuts[1:]) + 1))
    return rows

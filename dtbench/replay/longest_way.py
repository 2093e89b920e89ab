"""The longest way through the steps, over all ranks: what would have to be shorter for the steps to be."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dtbench.prediction.simulate import Execution, Way
from dtbench.replay.changes.change import Owner
from dtbench.replay.compose import Composed
from dtbench.replay.graph import JobGraph, RankGraph
from dtbench.replay.run import Replayed


@dataclass(frozen=True)
class LongestWay:
    """What the longest way consists of, summed over steps and launches; the parts add up to all of it.

    Attributes:
        host_ns: hosts between launches, issues and waits; on CPUs they compute meanwhile.
        work_ns: kernels and copies.
        owners_ns: collectives, by whose they are, largest first.
        ranks_ns: how much of the way lies on each rank.
    """

    host_ns: int
    work_ns: int
    owners_ns: Mapping[Owner, int]
    ranks_ns: Mapping[int, int]

    @property
    def whole_ns(self) -> int:
        """All of it."""
        return self.host_ns + self.work_ns + sum(self.owners_ns.values())


def find_longest_way(launches: Iterable[tuple[JobGraph, Replayed]]) -> LongestWay:
    """Walk the longest way of each launch back, from its last end to the first beginning of a step."""
    host_ns, work_ns = 0, 0
    owners, ranks = Counter[Owner](), Counter[int]()
    for graph, replayed in launches:
        composed = replayed.composed
        items = {rank: _find_items(one) for rank, one in composed.items()}
        begins_ns = min(steps[0][0] for steps in replayed.windows_ns.values())
        for stretch in _walk(replayed.executions):
            length_ns, rank = stretch.end_ns - max(stretch.start_ns, begins_ns), stretch.rank
            if length_ns <= 0:  # what leads to the first step
                break
            ranks[rank] += length_ns
            item = None if stretch.number is None else items[rank].get(stretch.number)
            if stretch.number is None:
                host_ns += length_ns
            elif item is None:  # given before the first step
                work_ns += length_ns
            elif item in graph[rank].services:
                owners[_owner_of(graph[rank], item)] += length_ns
            else:
                whole_ns = stretch.end_ns - stretch.start_ns
                waited_ns = min(length_ns, composed[rank].launch_bound_ns.get((stretch.number or 0, whole_ns), 0))
                host_ns += waited_ns
                work_ns += length_ns - waited_ns
    return LongestWay(host_ns, work_ns, dict(owners.most_common()), dict(sorted(ranks.items())))


def _walk(executions: Mapping[int, Execution]) -> Iterable[Way]:
    ends = [
        (end_ns, way)
        for one in executions.values()
        for end_ns, way in ((one.step_ns, one.way), *zip(one.ends_ns, one.ways, strict=True))
    ]
    _, last = max(ends, key=lambda end: end[0], default=(0, None))
    return last.walk_back() if last is not None else ()


def _find_items(composed: Composed) -> dict[int, int]:
    """Return by number the first item that was given under it."""
    return {number: item for item, number in reversed([*composed.numbers.items()])}


def _owner_of(graph: RankGraph, item: int) -> Owner:
    return Owner.of(graph.collectives[int(graph.items.collective[item])])

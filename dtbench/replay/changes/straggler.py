"""No rank is behind the others: each does between two collectives what the rank in the middle does there.

::

    rank 0   ██████ c ████████ c            what lies between two collectives that all ranks have is a stretch; in each
    rank 1   ██████████ c ████ c            the host's time and the lanes' are scaled to the median over ranks

Of an even number of ranks the faster of both in the middle counts. Hosts begin together, when the first of them does;
lanes that still work for what was given before do so until those of the rank in the middle have done. Collectives take
what they took.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import NO_COLLECTIVE, JobGraph, Point, RankGraph
from dtbench.traces.time.intervals import Ints


@dataclass(frozen=True)
class NoStraggler(Change):
    """All ranks take the median's time between the collectives that all have."""

    kind = ChangeKind.STRAGGLER

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return str(ChangeKind.STRAGGLER)

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: there is one rank, or no collective that all have.
        """
        if len(graph) == 1:
            raise PredictionError("there is one rank alone: whether another is behind is not known")
        keys = _find_common_keys(graph)
        if not keys:
            raise PredictionError("no collective is there on all ranks: which of them is behind is not known")
        stretches = {rank: _Stretches.of(one, keys) for rank, one in graph.items()}
        host_ns = _take_middle([one.host_ns for one in stretches.values()])
        busy_ns = _take_middle([one.busy_ns for one in stretches.values()])
        begins_ns = min(one.begins_ns for one in graph.values())
        free_ns = int(_take_middle([_find_free(one, begins_ns) for one in graph.values()]))
        return {
            rank: _begin_at(stretches[rank].scale(one, host_ns, busy_ns), begins_ns, free_ns)
            for rank, one in graph.items()
        }


def _take_middle(of_ranks: Sequence[Ints] | Sequence[int]) -> Ints:
    """Return the median over ranks; of an even number the lower of both in the middle: that of two is not behind."""
    return np.asarray(np.quantile(of_ranks, 0.5, axis=0, method="lower"), dtype=np.int64)


def _find_common_keys(graph: JobGraph) -> list[str]:
    """Return the collectives that all ranks have, in the order of the first rank."""
    common = set.intersection(*({service.key for service in one.services.values()} for one in graph.values()))
    first = next(iter(graph.values()))
    return [first.services[item].key for item in sorted(first.services) if first.services[item].key in common]


@dataclass(frozen=True)
class _Stretches:
    """What one rank does in each stretch, shape ``(stretches,)``; and of what is in which."""

    of_point: Ints
    of_item: Ints
    host_ns: Ints
    busy_ns: Ints

    @classmethod
    def of(cls, graph: RankGraph, keys: Sequence[str]) -> "_Stretches":
        """Cut a rank's host at the collectives of some keys."""
        number = {key: place for place, key in enumerate(keys)}
        borders = {item for item, service in graph.services.items() if service.key in number}
        gives = graph.host.point == Point.GIVE
        is_border = gives & np.isin(graph.host.which, sorted(borders))
        of_point = np.cumsum(is_border) - is_border  # what leads to a collective is before it
        of_item = np.zeros(len(graph.items), dtype=np.int64)
        of_item[graph.host.which[gives]] = of_point[gives]
        busy_ns = np.where(graph.items.collective == NO_COLLECTIVE, graph.items.busy_ns, 0)
        count = len(keys) + 1
        return cls(
            of_point,
            of_item,
            np.bincount(of_point, weights=graph.host.before_ns, minlength=count).astype(np.int64),
            np.bincount(of_item, weights=busy_ns, minlength=count).astype(np.int64),
        )

    def scale(self, graph: RankGraph, host_ns: Ints, busy_ns: Ints) -> RankGraph:
        """Let each stretch take another time in all."""
        host, items = graph.host, graph.items
        before_ns = _scale(host.before_ns, self.of_point, self.host_ns, host_ns)
        lengths_ns = _scale(items.busy_ns, self.of_item, self.busy_ns, busy_ns)
        return replace(graph, host=replace(host, before_ns=before_ns), items=replace(items, busy_ns=lengths_ns))


def _scale(lengths_ns: Ints, stretch: Ints, own_ns: Ints, wanted_ns: Ints) -> Ints:
    factors = np.divide(wanted_ns, own_ns, out=np.ones(len(own_ns)), where=own_ns > 0)
    return np.rint(lengths_ns * factors[stretch]).astype(np.int64)


def _find_free(graph: RankGraph, first_ns: int) -> int:
    """Return when the last lane has done what was given before; where all have when the host begins, the first moment.

    Args:
        graph: of the rank.
        first_ns: when the first host begins.
    """
    until_ns = max(graph.busy_until_ns.values(), default=first_ns)
    return until_ns if until_ns > graph.begins_ns else first_ns


def _begin_at(graph: RankGraph, begins_ns: int, free_ns: int) -> RankGraph:
    shift_ns = free_ns - max(graph.busy_until_ns.values(), default=free_ns)
    busy_until_ns: Mapping[str, int] = {lane: until + shift_ns for lane, until in graph.busy_until_ns.items()}
    return replace(graph, begins_ns=begins_ns, busy_until_ns=busy_until_ns)

"""What links cost, from the collectives at hand: a latency, and a time for each byte.

    service = latency + size / bandwidth

the alpha-beta model (Hockney, Parallel Computing 20, 1994), of each operation among the same ranks: the algorithm's
messages and shares are in both constants. It is fitted to the median service of each size so that relative errors are
least, neither constant below nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from dtbench.base.vocabulary import Operation
from dtbench.replay.changes.change import list_collectives
from dtbench.replay.graph import JobGraph
from dtbench.traces.who.collectives import Collective

LEAST_SIZES: Final = 3
"""Through two, any two constants go exactly."""
LEAST_APART: Final = 4.0
"""The largest size over the smallest: closer together they tell neither constant."""
MOST_OFF: Final = 0.2
"""By which part of itself half of the services may be off; and how much of any service may be latency with one size
left out, and bandwidth without."""


@dataclass(frozen=True)
class LinkKey:
    """Whose services are alike: one operation among as many ranks of one group."""

    operation: Operation | None
    group: str
    size: int


@dataclass(frozen=True)
class LinkFit:
    """What one kind of collective costs.

    Attributes:
        latency_ns: whatever its size.
        ns_per_byte: for each byte.
        off: by which part of itself half of the services are off, at least.
        sizes: how many different there are.
        service_ns: all of them, over ranks and steps.
    """

    latency_ns: float
    ns_per_byte: float
    off: float
    sizes: int
    service_ns: int

    @property
    def holds(self) -> bool:
        """Whether anything may be said with it."""
        return self.off <= MOST_OFF


@dataclass(frozen=True)
class _Served:
    size_bytes: int
    service_ns: int


def find_key(one: Collective) -> LinkKey:
    """Return whose services a collective's is like."""
    return LinkKey(one.operation, one.group, one.group_size or len(one.group_ranks))


def fit_links(graph: JobGraph) -> dict[LinkKey, LinkFit | None]:
    """Fit every kind of collective of a job; None: its sizes are not known, or tell too little.

    Those that no other rank is known to have share in are not told: what they waited is in what they took.

    Args:
        graph: of the job.
    """
    served: dict[LinkKey, list[_Served]] = defaultdict(list)
    unknown = set[LinkKey]()
    for key, one in _list_served(graph):
        if one is None:
            unknown.add(key)
        else:
            served[key].append(one)
    return {key: None if key in unknown else _fit(served[key]) for key in (*served, *unknown)}


def _list_served(graph: JobGraph) -> Iterator[tuple[LinkKey, _Served | None]]:
    for rank in graph.values():
        for item, one in list_collectives(rank):
            service, size = rank.services[item], find_key(one).size
            is_told = one.size_bytes is not None and one.operation is not None and (len(service.ranks) > 1 or size == 1)
            yield find_key(one), _Served(one.size_bytes or 0, service.service_ns) if is_told else None


def _fit(served: Sequence[_Served]) -> LinkFit | None:
    by_size: dict[int, list[int]] = defaultdict(list)
    for one in served:
        by_size[one.size_bytes].append(one.service_ns)
    medians = {size: median(times_ns) for size, times_ns in by_size.items() if median(times_ns) > 0}
    if len(medians) < LEAST_SIZES or max(medians) < LEAST_APART * max(1, min(medians)):
        return None
    sizes, times_ns = np.array([*medians], dtype=np.float64), np.array([*medians.values()], dtype=np.float64)
    latency_ns, ns_per_byte = _solve(sizes, times_ns)
    for left_out in range(len(sizes)):
        without_ns, _ = _solve(np.delete(sizes, left_out), np.delete(times_ns, left_out))
        if abs(without_ns - latency_ns) > MOST_OFF * times_ns.min():
            return None
    fitted = ((latency_ns + ns_per_byte * one.size_bytes, one.service_ns) for one in served if one.service_ns)
    off = median(abs(as_fitted / as_was - 1) for as_fitted, as_was in fitted)
    whole_ns = sum(one.service_ns for one in served)
    return LinkFit(latency_ns, ns_per_byte, off, len(medians), whole_ns)


def _solve(sizes: NDArray[np.float64], times_ns: NDArray[np.float64]) -> tuple[float, float]:
    """Return latency and time for each byte with which relative errors are least."""
    (latency_ns, ns_per_byte), _ = nnls(np.stack((1 / times_ns, sizes / times_ns), axis=1), np.ones(len(sizes)))
    return float(latency_ns), float(ns_per_byte)


def measure_share(graph: JobGraph, fits: Mapping[LinkKey, LinkFit | None]) -> float:
    """Return of which part of what collectives take the fits may be gone by."""
    whole_ns = sum(service.service_ns for rank in graph.values() for service in rank.services.values())
    held_ns = sum(fit.service_ns for fit in fits.values() if fit is not None and fit.holds)
    return held_ns / whole_ns if whole_ns else 0.0

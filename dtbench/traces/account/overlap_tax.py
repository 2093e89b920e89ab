"""The overlap tax: how much slower kernels run while communication runs beside them.

::

    collective        ├─────────────────────┤
    gemm        ████    ███████  ███████  ███████   ████
                alone    under    under   neither   alone

Compared are only kernels of one name, one launch shape (grid and block) and one region of the step that were seen both
ways: communication lies beside backward, where a product of the same shape multiplies other matrices than in forward.
Where no region is known, what ran alone may be forward's and what ran under communication backward's.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dtbench.base.units import NS_PER_US
from dtbench.traces.time.intervals import Bools, Floats, Intervals, Ints
from dtbench.traces.trace import Trace

UNDER_FRACTION: Final = 0.9
"""Part of its length that a kernel must share with communication to count as under it; alone shares nothing.

What lies between is left out and counted: most of it starts or ends with the collective, and its length decides how
much of it is covered.
"""

LEAST_SEEN: Final = 3
"""How often a kernel must have been seen each way: a median of fewer is one outlier."""

MOST_SPREAD: Final = 1.5
"""Between the tenth and the ninetieth percentile of its runs alone; kernels that differ by more have unlike inputs."""

_JITTER_NS: Final = 2 * NS_PER_US
"""By which runs of a kernel that takes microseconds differ whatever its inputs are."""

CAVEAT: Final = (
    "A comparison, not an experiment: kernels of one name, launch shape and region of the step may have had other "
    "inputs, and clocks and caches differ from moment to moment; a ratio below one, or a low share of slower runs, "
    "says that they did. What the tax costs a step is not what removing the communication would gain."
)

NO_REGION: Final = 0
"""The number of the region of what was launched in none that is known."""

_NO_GRID: Final = -1


@dataclass(frozen=True)
class KernelTax:
    """One kernel seen both ways in a region, or in several: then lengths are means over its runs under communication.

    Attributes:
        name: as in the trace.
        grid: its launch shape, as ``Trace.grids`` writes it.
        alone_count: how often no communication ran beside it.
        under_count: how often it ran under communication.
        alone_ns: median length alone.
        under_ns: median length under communication.
    """

    name: str
    grid: str
    alone_count: int
    under_count: int
    alone_ns: float
    under_ns: float

    @property
    def ratio(self) -> float:
        """How many times longer it takes under communication."""
        return self.under_ns / self.alone_ns

    @property
    def tax_ns(self) -> float:
        """Time that its runs under communication took beyond as many alone; negative where they were faster."""
        return self.under_count * (self.under_ns - self.alone_ns)


@dataclass(frozen=True)
class SlowedRuns:
    """Runs under communication of kernels that are compared; arrays have shape ``(k,)``.

    Attributes:
        lane: index into ``Trace.lanes``.
        start_ns: when each began.
        ratio: how many times longer its kernel takes under communication, in its region.
    """

    lane: Ints
    start_ns: Ints
    ratio: Floats

    def find_ratios(self, lane: Ints, start_ns: Ints) -> Floats:
        """Return by how many times each of some runs, in any order, is longer than it were alone; 1: not known."""
        ratios = dict(zip(zip(self.lane.tolist(), self.start_ns.tolist(), strict=True), self.ratio, strict=True))
        return np.array([ratios.get(one, 1.0) for one in zip(lane.tolist(), start_ns.tolist(), strict=True)])


_NO_RUNS: Final = SlowedRuns(*(np.empty(0, dtype=np.int64),) * 2, np.empty(0))


@dataclass(frozen=True)
class OverlapTax:
    """What kernels of a trace paid for overlap.

    Attributes:
        kernels: those seen at least ``LEAST_SEEN`` times both ways, dearest first.
        alone_count: compute kernels with no communication beside them.
        under_count: those under communication.
        partial_count: those in between; left out.
        shapeless_count: those whose launch shape the trace does not say; left out, and in none of the others.
        regionless_count: those under communication of which it is not known in which region of the step they ran; no
            kernel of no known region is compared or in any other count.
        unlike_count: those under communication, of kernels whose runs alone are unlike each other; not compared.
        runs: those under communication that are compared.
    """

    kernels: tuple[KernelTax, ...]
    alone_count: int
    under_count: int
    partial_count: int
    shapeless_count: int
    regionless_count: int = 0
    unlike_count: int = 0
    runs: SlowedRuns = field(default=_NO_RUNS, repr=False, compare=False)

    @property
    def ratio(self) -> float:
        """How many times longer the compared kernels took under communication, weighted by how often they ran there.

        NaN when no kernel was seen both ways.
        """
        alone_ns = sum(kernel.under_count * kernel.alone_ns for kernel in self.kernels)
        under_ns = sum(kernel.under_count * kernel.under_ns for kernel in self.kernels)
        return under_ns / alone_ns if self.kernels else math.nan

    @property
    def tax_ns(self) -> float:
        """Time that they took beyond as many alone; NaN when no kernel was seen both ways."""
        return sum(kernel.tax_ns for kernel in self.kernels) if self.kernels else math.nan

    @property
    def slower_fraction(self) -> float:
        """Part of the compared runs whose kernel is slower under communication; NaN when there are none."""
        slower = sum(kernel.under_count for kernel in self.kernels if kernel.ratio > 1)
        return slower / self.compared_count if self.kernels else math.nan

    @property
    def compared_count(self) -> int:
        """Runs under communication that ``ratio`` speaks of."""
        return sum(kernel.under_count for kernel in self.kernels)


def measure_overlap_tax(trace: Trace, compute: Bools, comm: Intervals, region: Ints) -> OverlapTax:
    """Compare kernels under communication with themselves alone; kernels of no length are left out.

    Args:
        trace: the events.
        compute: shape ``(n,)``, the device events that are compute.
        comm: time in which communication runs.
        region: shape ``(n,)``, a number for the region of the step that launched each; ``NO_REGION``: none is known.
    """
    events = np.flatnonzero(compute & (trace.end_ns > trace.start_ns))
    grid = trace.grid.dense(len(trace), _NO_GRID)[events]
    shapeless = int((grid == _NO_GRID).sum())
    events, grid = events[grid != _NO_GRID], grid[grid != _NO_GRID]
    in_region = region[events] != NO_REGION
    regionless = int(_find_under(trace, events[~in_region], comm)[1].sum())
    events, grid = events[in_region], grid[in_region]
    lengths = trace.end_ns[events] - trace.start_ns[events]
    alone, under = _find_under(trace, events, comm)
    columns = (trace.name[events].astype(np.int64), grid, region[events])
    bounds = len(trace.names), len(trace.grids), 1 + int(region.max(initial=0))
    kinds, kind = np.unique(np.ravel_multi_index(columns, bounds), return_inverse=True)
    alone_lengths, under_lengths = (_group(lengths[mask], kind[mask], len(kinds)) for mask in (alone, under))
    names, shapes, _ = np.unravel_index(kinds, bounds)
    seen, unlike, ratios = dict[tuple[int, int], list[KernelTax]](), 0, np.full(len(kinds), np.nan)
    each = zip(names.tolist(), shapes.tolist(), alone_lengths, under_lengths, strict=True)
    for place, (name, shape, bare, beside) in enumerate(each):
        if min(len(bare), len(beside)) < LEAST_SEEN:
            continue
        if not _are_alike(bare):
            unlike += len(beside)
            continue
        medians = float(np.median(bare)), float(np.median(beside))
        one = KernelTax(trace.names[name], trace.grids[shape], len(bare), len(beside), *medians)
        seen.setdefault((name, shape), []).append(one)
        ratios[place] = one.ratio
    kernels = map(_sum_regions, seen.values())
    return OverlapTax(
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.tax_ns, kernel.name, kernel.grid))),
        alone_count=int(alone.sum()),
        under_count=int(under.sum()),
        partial_count=int((~alone & ~under).sum()),
        shapeless_count=shapeless,
        regionless_count=regionless,
        unlike_count=unlike,
        runs=_list_runs(trace, events[under], ratios[kind[under]]),
    )


def _list_runs(trace: Trace, events: Ints, ratio: Floats) -> SlowedRuns:
    """Return those of some runs whose ratio is known."""
    events, ratio = events[~np.isnan(ratio)], ratio[~np.isnan(ratio)]
    return SlowedRuns(trace.lane[events].astype(np.int64), trace.start_ns[events], ratio)


def _find_under(trace: Trace, events: Ints, comm: Intervals) -> tuple[Bools, Bools]:
    """Tell of each of some events whether it ran alone, and whether under communication."""
    starts_ns, ends_ns = trace.start_ns[events], trace.end_ns[events]
    shared = comm.covered_before(ends_ns) - comm.covered_before(starts_ns)
    return shared == 0, shared >= UNDER_FRACTION * (ends_ns - starts_ns)


def _group(values: Ints, group: Ints, num_groups: int) -> list[Ints]:
    """Return each group's values, ascending."""
    order = np.lexsort((values, group))
    return np.split(values[order], np.cumsum(np.bincount(group, minlength=num_groups))[:-1]) if num_groups else []


def _are_alike(lengths: Ints) -> bool:
    """Tell whether runs, ascending, may have had the same inputs."""
    outer = (len(lengths) - 1) // 10
    low, high = int(lengths[outer]), int(lengths[len(lengths) - 1 - outer])
    return high <= max(MOST_SPREAD * low, low + _JITTER_NS)


def _sum_regions(kernels: list[KernelTax]) -> KernelTax:
    """Put a kernel's regions together so that its tax is the sum of theirs."""
    first, *others = kernels
    if not others:
        return first
    count = sum(one.under_count for one in kernels)
    return KernelTax(
        first.name,
        first.grid,
        sum(one.alone_count for one in kernels),
        count,
        sum(one.under_count * one.alone_ns for one in kernels) / count,
        sum(one.under_count * one.under_ns for one in kernels) / count,
    )

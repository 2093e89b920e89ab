"""The overlap tax: how much slower kernels run while communication runs beside them.

::

    collective        ├─────────────────────┤
    gemm        ████    ███████  ███████  ███████   ████
                alone    under    under   neither   alone

Compared are only kernels of one name and one launch shape (grid and block) that were seen both ways.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.analyze.intervals import Bools, Intervals, Ints
from dtbench.analyze.trace import Trace

UNDER_FRACTION: Final = 0.9
"""Part of its length that a kernel must share with communication to count as under it; alone shares nothing.

What lies between is left out and counted: most of it starts or ends with the collective, and its length decides how
much of it is covered.
"""

LEAST_SEEN: Final = 3
"""How often a kernel must have been seen each way: a median of fewer is one outlier."""

CAVEAT: Final = (
    "A comparison, not an experiment: kernels of one name and launch shape may have had other inputs, and clocks and "
    "caches differ from moment to moment; a ratio below one, or a low share of slower runs, says that they did. What "
    "the tax costs a step is not what removing the communication would gain."
)

_NO_GRID: Final = -1


@dataclass(frozen=True)
class KernelTax:
    """One kernel seen both ways.

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
class OverlapTax:
    """What kernels of a trace paid for overlap.

    Attributes:
        kernels: those seen at least ``LEAST_SEEN`` times both ways, dearest first.
        alone_count: compute kernels with no communication beside them.
        under_count: those under communication.
        partial_count: those in between; left out.
        shapeless_count: those whose launch shape the trace does not say; left out, and in none of the others.
    """

    kernels: tuple[KernelTax, ...]
    alone_count: int
    under_count: int
    partial_count: int
    shapeless_count: int

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


def measure_overlap_tax(trace: Trace, compute: Bools, comm: Intervals) -> OverlapTax:
    """Compare kernels under communication with themselves alone; kernels of no length are left out.

    Args:
        trace: the events.
        compute: shape ``(n,)``, the device events that are compute.
        comm: time in which communication runs.
    """
    events = np.flatnonzero(compute & (trace.end_ns > trace.start_ns))
    grid = trace.grid.dense(len(trace), _NO_GRID)[events]
    shapeless = int((grid == _NO_GRID).sum())
    events, grid = events[grid != _NO_GRID], grid[grid != _NO_GRID]
    lengths = trace.end_ns[events] - trace.start_ns[events]
    shared = comm.covered_before(trace.end_ns[events]) - comm.covered_before(trace.start_ns[events])
    alone, under = shared == 0, shared >= UNDER_FRACTION * lengths
    shapes, shape = np.unique(trace.name[events] * np.int64(len(trace.grids) + 1) + grid, return_inverse=True)
    count = len(shapes)
    medians = [_medians(lengths[mask], shape[mask], count) for mask in (alone, under)]
    counts = [np.bincount(shape[mask], minlength=count) for mask in (alone, under)]
    both = np.flatnonzero(np.minimum(*counts) >= LEAST_SEEN)
    kernels = [
        KernelTax(
            name=trace.names[int(shapes[row]) // (len(trace.grids) + 1)],
            grid=trace.grids[int(shapes[row]) % (len(trace.grids) + 1)],
            alone_count=int(counts[0][row]),
            under_count=int(counts[1][row]),
            alone_ns=float(medians[0][row]),
            under_ns=float(medians[1][row]),
        )
        for row in both.tolist()
    ]
    return OverlapTax(
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.tax_ns, kernel.name, kernel.grid))),
        alone_count=int(alone.sum()),
        under_count=int(under.sum()),
        partial_count=int((~alone & ~under).sum()),
        shapeless_count=shapeless,
    )


def _medians(values: Ints, group: Ints, num_groups: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Give the median of each group's values, shape ``(num_groups,)``; NaN for a group without."""
    values = values[np.lexsort((values, group))]
    counts = np.bincount(group, minlength=num_groups)
    first = np.cumsum(counts) - counts
    medians = np.full(num_groups, np.nan)
    full = counts > 0
    low, high = (first + (counts - 1) // 2)[full], (first + counts // 2)[full]
    medians[full] = (values[low] + values[high]) / 2
    return medians

"""What compute kernels took in each step: one row per name and launch shape, as runs and their median.

A kernel is of the window in which it begins. Kernels of one name and another launch shape (grid and block) do other
work, so they are another row.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_NO_SHAPE: Final = -1


@dataclass(frozen=True)
class KernelTime:
    """One compute kernel in one window.

    Attributes:
        name: as in the trace.
        shape: its launch shape, as ``Trace.grids`` writes it; empty: the trace does not say.
        count: how often it ran.
        median_ns: of its runs.
    """

    name: str
    shape: str
    count: int
    median_ns: float


@dataclass(frozen=True)
class KernelSpans:
    """The compute kernels of a trace in order of their starts.

    Attributes:
        starts_ns: shape ``(m,)``, rising.
        lengths_ns: shape ``(m,)``.
        kind: shape ``(m,)``, place in ``kinds``.
        kinds: distinct (name, launch shape).
    """

    starts_ns: Ints
    lengths_ns: Ints
    kind: Ints
    kinds: tuple[tuple[str, str], ...]


def find_kernel_spans(trace: Trace, compute: Bools) -> KernelSpans:
    """Collect compute kernels.

    Args:
        trace: the events.
        compute: shape ``(n,)``, the device events that are compute.
    """
    events = np.flatnonzero(compute & (trace.end_ns > trace.start_ns))
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    shapes = trace.grid.dense(len(trace), _NO_SHAPE)[events] + 1
    codes, kind = np.unique(trace.name[events] * np.int64(len(trace.grids) + 1) + shapes, return_inverse=True)
    names, grids = np.divmod(codes, len(trace.grids) + 1)
    return KernelSpans(
        starts_ns=trace.start_ns[events],
        lengths_ns=(trace.end_ns - trace.start_ns)[events],
        kind=kind.astype(np.int64),
        kinds=tuple(
            (trace.names[name], trace.grids[grid - 1] if grid else "")
            for name, grid in zip(names.tolist(), grids.tolist(), strict=True)
        ),
    )


def account_kernels(spans: KernelSpans, window: Window) -> tuple[KernelTime, ...]:
    """Return what kernels took that begin in a window, by name and launch shape."""
    first, beyond = spans.starts_ns.searchsorted([window.start_ns, window.end_ns]).tolist()
    kind, lengths_ns = spans.kind[first:beyond], spans.lengths_ns[first:beyond]
    order = np.lexsort((lengths_ns, kind))
    found, begins, counts = np.unique(kind[order], return_index=True, return_counts=True)
    ordered_ns = lengths_ns[order]
    low, high = ordered_ns[begins + (counts - 1) // 2], ordered_ns[begins + counts // 2]
    rows = zip(found.tolist(), counts.tolist(), ((low + high) / 2).tolist(), strict=True)
    return tuple(
        KernelTime(spans.kinds[one][0], spans.kinds[one][1], count, median_ns) for one, count, median_ns in rows
    )

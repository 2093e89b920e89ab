"""A window cut into pieces inside which the set of running kinds is constant: the one place where time is measured.

::

    compute   ████░░░░████
    comm      ░░██████░░░░
    pieces    |1|2|3 |4  |      a question is a mask over the pieces; the parts add up by construction
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.time.intervals import Bools, Intervals, Ints, clip, find_cuts


@dataclass(frozen=True)
class Coverage:
    """A window cut into pieces inside which the set of running kinds is constant.

    Attributes:
        length_ns: shape ``(num_pieces,)``, int64, all > 0; sums to the window.
        running: for each kind, shape ``(num_pieces,)``, bool.
    """

    length_ns: Ints
    running: Mapping[Kind, Bools]


@dataclass(frozen=True)
class Window:
    """Half-open ``[start, end)``."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Its length; never negative."""
        return self.end_ns - self.start_ns


def window_borders(windows: Sequence[Window]) -> Ints:
    """Return start and end of each window, shape ``(w, 2)``."""
    return np.array([(window.start_ns, window.end_ns) for window in windows], dtype=np.int64).reshape(-1, 2)


def cover(window: Window, kinds: Mapping[Kind, Intervals], cuts_ns: Ints | None = None) -> Coverage:
    """Cut a window wherever any kind starts or ends, and at some moments; what crosses its borders is clipped."""
    inside = {kind: clip(intervals, window.start_ns, window.end_ns) for kind, intervals in kinds.items()}
    edges = [np.asarray([window.start_ns, window.end_ns], dtype=np.int64)]
    if cuts_ns is not None:
        edges.append(cuts_ns)
    for intervals in inside.values():
        edges += [intervals.starts_ns, intervals.ends_ns]
    cuts = find_cuts(*edges)
    return Coverage(
        length_ns=np.diff(cuts),
        running={kind: intervals.covers(cuts[:-1]) for kind, intervals in inside.items()},
    )

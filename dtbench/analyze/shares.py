"""Sharing time among collectives that run at once, so that the parts add up to the whole in integers.

::

    A         ├────────┤                 compute  ░░░░
    B              ├────────┤
    exposed      AAABBB                  where k collectives run at once each gets 1/k; what does not divide goes to
              |    |   |    |            the first of them, nanosecond by nanosecond
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Intervals, Ints


@dataclass(frozen=True)
class Shares:
    """Each collective's share of exposed and hidden time in each window.

    Attributes:
        exposed_ns: shape ``(num_collectives, num_windows + 1)``, int64; the last column lies outside all windows.
        hidden_ns: the same for time beside compute.
    """

    exposed_ns: Ints
    hidden_ns: Ints


def share_time(spans: Sequence[Intervals], compute: Intervals, windows: Sequence[Window]) -> Shares:
    """Share the time of the spans' union among those that run.

    Args:
        spans: time of each collective; the order decides who gets the odd nanoseconds.
        compute: time that hides them.
        windows: disjoint, in rising order.
    """
    owner = np.repeat(np.arange(len(spans)), [len(span.starts_ns) for span in spans])
    starts = np.concatenate([span.starts_ns for span in spans]) if spans else np.array([], dtype=np.int64)
    ends = np.concatenate([span.ends_ns for span in spans]) if spans else np.array([], dtype=np.int64)
    borders = np.array([(window.start_ns, window.end_ns) for window in windows], dtype=np.int64).reshape(-1, 2)
    cuts = np.unique(np.concatenate((starts, ends, borders.ravel())))
    first, last = np.searchsorted(cuts, starts), np.searchsorted(cuts, ends)
    lengths = last - first
    piece = np.repeat(first, lengths) + _count_up(lengths)
    owner = np.repeat(owner, lengths)
    order = np.lexsort((owner, piece))
    piece, owner = piece[order], owner[order]
    running = np.bincount(piece, minlength=max(len(cuts) - 1, 0))
    place = _count_up(running)
    hidden = np.diff(compute.covered_before(cuts))
    exposed = np.diff(cuts) - hidden
    column = _window_of(cuts[:-1], borders)[piece]
    shape = (len(spans), len(windows) + 1)
    shares = []
    for time_ns in (exposed, hidden):
        share = time_ns[piece] // running[piece] + (place < time_ns[piece] % running[piece])
        table = np.zeros(shape, dtype=np.int64)
        np.add.at(table, (owner, column), share)
        shares.append(table)
    return Shares(exposed_ns=shares[0], hidden_ns=shares[1])


def _count_up(lengths: Ints) -> Ints:
    """Count 0, 1, ... anew for each length: ``[2, 3] -> [0, 1, 0, 1, 2]``."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(int(lengths.sum())) - np.repeat(before, lengths), dtype=np.int64)


def _window_of(points_ns: Ints, borders: Ints) -> Ints:
    """Give the window that holds each point; ``len(borders)``: none."""
    if not len(borders):
        return np.zeros(len(points_ns), dtype=np.int64)
    window = np.searchsorted(borders[:, 0], points_ns, side="right") - 1
    inside = (window >= 0) & (points_ns < borders[window, 1])
    return np.where(inside, window, len(borders))

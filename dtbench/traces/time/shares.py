"""Sharing time among collectives that run at once, so that the parts add up to the whole in integers.

::

    A         ├────────┤                 compute  ░░░░
    B              ├────────┤
    exposed      AAABBB                  where k collectives run at once each gets 1/k; what does not divide goes to
              |    |   |    |            the first of them, nanosecond by nanosecond

Where the threads that would compute were not recorded, time is neither exposed nor hidden but undecided.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.intervals import Intervals, Ints, find_cuts


@dataclass(frozen=True)
class Shares:
    """Each collective's share of exposed, hidden and undecided time in each window in which it ran.

    Few collectives run in more than one window, so that the shares are kept as entries; a table of collectives and
    windows grows with the square of a trace.

    Attributes:
        num_collectives: how many there are.
        num_windows: how many there are; window ``num_windows`` stands for time outside all.
        collective: shape ``(m,)``, rising.
        window: shape ``(m,)``, rising for each collective.
        entry_exposed_ns: shape ``(m,)``, int64.
        entry_hidden_ns: shape ``(m,)``, int64.
        entry_undecided_ns: shape ``(m,)``, int64; 0 wherever what computes was recorded.
    """

    num_collectives: int
    num_windows: int
    collective: Ints
    window: Ints
    entry_exposed_ns: Ints
    entry_hidden_ns: Ints
    entry_undecided_ns: Ints

    @property
    def exposed_ns(self) -> Ints:
        """Table, shape ``(num_collectives, num_windows + 1)``; the last column lies outside all windows."""
        return self._sum_by(np.arange(self.num_collectives), self.num_collectives, self.entry_exposed_ns)

    @property
    def hidden_ns(self) -> Ints:
        """The same for time overlapped with compute."""
        return self._sum_by(np.arange(self.num_collectives), self.num_collectives, self.entry_hidden_ns)

    def sum_by(self, group_of: Ints, num_groups: int) -> tuple[Ints, Ints, Ints]:
        """Sum over collectives: exposed, hidden, undecided time, each of shape ``(num_groups, num_windows + 1)``.

        Args:
            group_of: shape ``(num_collectives,)``, the group of each collective.
            num_groups: how many groups there are.
        """
        return (
            self._sum_by(group_of, num_groups, self.entry_exposed_ns),
            self._sum_by(group_of, num_groups, self.entry_hidden_ns),
            self._sum_by(group_of, num_groups, self.entry_undecided_ns),
        )

    def totals(self) -> tuple[Ints, Ints, Ints]:
        """Exposed, hidden and undecided time of each over the whole trace, each of shape ``(num_collectives,)``."""
        exposed_ns, hidden_ns, undecided_ns = self.entry_exposed_ns, self.entry_hidden_ns, self.entry_undecided_ns
        return self._total(exposed_ns), self._total(hidden_ns), self._total(undecided_ns)

    def _total(self, time_ns: Ints) -> Ints:
        total = np.zeros(self.num_collectives, dtype=np.int64)
        np.add.at(total, self.collective, time_ns)
        return total

    def stepped_exposed_ns(self, is_counted: Sequence[bool]) -> Ints:
        """Exposed time of each collective inside those windows that count, shape ``(num_collectives,)``."""
        total = np.zeros(self.num_collectives, dtype=np.int64)
        inside = np.array([*is_counted, False], dtype=np.bool_)[self.window]
        np.add.at(total, self.collective[inside], self.entry_exposed_ns[inside])
        return total

    def _sum_by(self, group_of: Ints, num_groups: int, time_ns: Ints) -> Ints:
        table = np.zeros((num_groups, self.num_windows + 1), dtype=np.int64)
        np.add.at(table, (group_of[self.collective], self.window), time_ns)
        return table


def share_time(
    spans: Sequence[Intervals], compute: Intervals, windows: Sequence[Window], recorded: Intervals | None = None
) -> Shares:
    """Share the time of the spans' union among those that run.

    Args:
        spans: time of each collective; the order decides who gets the odd nanoseconds.
        compute: time that hides them.
        windows: disjoint, in rising order.
        recorded: when what computes was recorded; None: always.
    """
    owner = np.repeat(np.arange(len(spans)), [len(span.starts_ns) for span in spans])
    starts = np.concatenate([span.starts_ns for span in spans]) if spans else np.array([], dtype=np.int64)
    ends = np.concatenate([span.ends_ns for span in spans]) if spans else np.array([], dtype=np.int64)
    borders = window_borders(windows)
    more = () if recorded is None else (recorded.starts_ns, recorded.ends_ns)
    cuts = find_cuts(starts, ends, borders.ravel(), *more)
    first, last = np.searchsorted(cuts, starts), np.searchsorted(cuts, ends)
    lengths = last - first
    piece = np.repeat(first, lengths) + _count_up(lengths)
    owner = np.repeat(owner, lengths)
    order = np.lexsort((owner, piece))
    piece, owner = piece[order], owner[order]
    running = np.bincount(piece, minlength=max(len(cuts) - 1, 0))
    place = _count_up(running)
    known = np.diff(cuts if recorded is None else recorded.covered_before(cuts))
    hidden = np.where(known > 0, np.diff(compute.covered_before(cuts)), 0)
    undecided = np.diff(cuts) - known
    column = _window_of(cuts[:-1], borders)[piece]
    entries, entry = np.unique(owner * (len(windows) + 1) + column, return_inverse=True)
    shares = []
    for time_ns in (known - hidden, hidden, undecided):
        share = time_ns[piece] // running[piece] + (place < time_ns[piece] % running[piece])
        total = np.zeros(len(entries), dtype=np.int64)
        np.add.at(total, entry, share)
        shares.append(total)
    collective, window = np.divmod(entries, len(windows) + 1)
    return Shares(len(spans), len(windows), collective, window, *shares)


def _count_up(lengths: Ints) -> Ints:
    """Count 0, 1, ... anew for each length: ``[2, 3] -> [0, 1, 0, 1, 2]``."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(int(lengths.sum())) - np.repeat(before, lengths), dtype=np.int64)


def _window_of(points_ns: Ints, borders: Ints) -> Ints:
    """Return the window that holds each point; ``len(borders)``: none."""
    if not len(borders):
        return np.zeros(len(points_ns), dtype=np.int64)
    window = np.searchsorted(borders[:, 0], points_ns, side="right") - 1
    inside = (window >= 0) & (points_ns < borders[window, 1])
    return np.where(inside, window, len(borders))

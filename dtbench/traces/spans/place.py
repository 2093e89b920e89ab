"""Where the ranks of a picture stand: on the common clock where it holds, each at its own start where it does not."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dtbench.traces.notes.note import join_ranks
from dtbench.traces.notes.spans import OwnStart
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Ints


@dataclass(frozen=True)
class Place:
    """How one rank's times become times of the picture.

    Attributes:
        clock: from the rank's own clock to the picture's.
        is_aligned: it is the clock that the ranks have in common; False: the rank is drawn from its own start, and
            nothing may be read from where it lies beside the others.
    """

    clock: Clock
    is_aligned: bool

    def to_picture(self, times_ns: Ints, origin_ns: int) -> Ints:
        """Return moments of this rank in ns from the origin."""
        return np.asarray(self.clock.to_common(times_ns) - origin_ns, dtype=np.int64)


def place_ranks(
    windows: Mapping[int, Window], over_ranks: OverRanks
) -> tuple[dict[int, Place], int, tuple[OwnStart, ...]]:
    """Place ranks beside each other.

    A rank is on the common clock if it is known how far its own is from those of most others, its collectives are in
    step with theirs, and its window overlaps that of the rank in the middle.

    Args:
        windows: what is drawn of each rank, on its own clock.
        over_ranks: what the ranks say together.

    Returns:
        Each rank's place; the origin, which is the earliest start on the picture's clock; which ranks are drawn
        from their own start.
    """
    clocks = {rank: over_ranks.clocks.by_rank.get(rank, Clock()) for rank in windows}
    common = {rank: _on_common(window, clocks[rank]) for rank, window in windows.items()}
    in_step = {
        rank: window
        for rank, window in common.items()
        if over_ranks.is_one_job and rank not in over_ranks.clocks.out_of_step
    }
    islands = [[rank for rank in in_step if rank in island] for island in over_ranks.clocks.islands]
    island = max(islands, key=len, default=[])
    compared = {rank: in_step[rank] for rank in island} or dict(list(common.items())[:1])
    middle = sorted(compared.values(), key=lambda window: window.start_ns)[len(compared) // 2]
    aligned = {
        rank: window
        for rank, window in compared.items()
        if window.start_ns < middle.end_ns and middle.start_ns < window.end_ns
    } or {rank: window for rank, window in compared.items() if window == middle}
    origin_ns = min(window.start_ns for window in aligned.values())
    places = {
        rank: Place(clocks[rank], is_aligned=True)
        if rank in aligned
        else Place(Clock(offset_ns=window.start_ns - origin_ns), is_aligned=False)
        for rank, window in windows.items()
    }
    uncompared = in_step.keys() - compared.keys()
    own_starts = join_ranks(OwnStart((rank,), rank in uncompared) for rank in windows if rank not in aligned)
    return places, origin_ns, own_starts


def _on_common(window: Window, clock: Clock) -> Window:
    start_ns, end_ns = clock.to_common(np.array([window.start_ns, window.end_ns], dtype=np.int64)).tolist()
    return Window(start_ns, end_ns)

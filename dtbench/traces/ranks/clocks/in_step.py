"""Ranks whose collectives are impossible on the clocks that were found: one leaves before another has entered."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dtbench.traces.ranks.align import ENDS_APART_NS
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes, ends_about_median, ends_together
from dtbench.traces.time.intervals import Bools, Ints

_IN_STEP: Final = 0.9  # part of the collectives that no rank may leave before the last has entered
_ENOUGH_OF_GROUP: Final = 4  # collectives of one group that are judged by themselves
_AS_FAR: Final = 0.99  # two ranks alone are off their median by the same: it is not known which is wrong


def find_out_of_step(times: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> set[int]:
    """Find the ranks without which the times of the others are possible, those whose ends are furthest off first."""
    common = [one.on_common_clock(clocks) for one in times]
    stray: set[int] = set()
    while True:
        left = [one.without(stray) for one in common]
        suspects = find_suspects(left, clocks)
        if not suspects:
            return stray
        off_ns = _off_the_median(left, suspects)
        stray |= {rank for rank, off in off_ns.items() if off >= _AS_FAR * max(off_ns.values())}


def find_suspects(common: Sequence[GroupTimes], clocks: Mapping[int, Clock]) -> set[int]:
    """Find the ranks of which more than a tenth of the collectives, of all or of one group, are impossible."""
    impossible = [find_impossible(one, clocks) for one in common]
    if not any(one.any() for one in impossible):
        return set()
    total: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    suspects: set[int] = set()
    for one, is_impossible in zip(common, impossible, strict=True):
        rows = ends_together(one) & one.are_several
        there = rows[:, None] & one.there
        counts = zip(there.sum(axis=0).tolist(), (is_impossible[:, None] & there).sum(axis=0).tolist(), strict=True)
        for rank, (seen, wrong) in zip(one.ranks, counts, strict=True):
            total[rank] = (total[rank][0] + seen, total[rank][1] + wrong)
            if seen >= _ENOUGH_OF_GROUP and wrong > (1 - _IN_STEP) * seen:
                suspects.add(rank)
    return suspects | {rank for rank, (seen, wrong) in total.items() if wrong > (1 - _IN_STEP) * seen}


def _off_the_median(common: Sequence[GroupTimes], ranks: set[int]) -> dict[int, float]:
    """Return how far the ends of some ranks are off their median ones, in the worst of a rank's groups."""
    off_ns = dict.fromkeys(ranks, 0.0)
    for one in common:
        for rank, residual in ends_about_median([one], least_ranks=2).items():
            if rank in ranks:
                off_ns[rank] = max(off_ns[rank], float(np.median(np.abs(residual))))
    return off_ns


def find_impossible(common: GroupTimes, clocks: Mapping[int, Clock], last_ns: Ints | None = None) -> Bools:
    """Tell for each collective whether a rank ends, beyond all doubt, before the last has begun.

    There is doubt about the clocks, and about how far apart ranks are seen to leave one collective: a clock is the
    median of many ends, and says nothing of that.

    Args:
        common: of the ranks that none may leave before; the others as if they were not there.
        clocks: of all.
        last_ns: shape ``(m,)``, when the last began, whether it is there or not; None: the last that is.

    Returns:
        Shape ``(m,)``.
    """
    is_there = common.are_several if last_ns is None else common.there.any(axis=1)
    last_ns = common.last_start_ns if last_ns is None else last_ns
    is_before = is_there & (common.first_end_ns < last_ns - ENDS_APART_NS)
    if not is_before.any():
        return is_before
    present = [common.ranks[column] for column in np.flatnonzero(common.there.any(axis=0)).tolist()]
    doubt_ns = max((clocks[rank].uncertainty_ns or 0 for rank in present), default=0) + ENDS_APART_NS
    return np.asarray(is_there & (common.first_end_ns < last_ns - doubt_ns), dtype=np.bool_)

"""Whether what ranks have in common explains how they differ, and which of them stand out.

::

    rank            0   1   2   3   4   5   6   7
    computes, ms   40  41  52  53  40  40  52  52     pipeline stage 1 (ranks 2, 3, 6, 7): yes
                   40  41  40  77  40  41  40  40     rank 3 alone: no stage explains that

Said only where a test of just that claim holds: most of the variance lies between groups (omega squared, Hays 1963,
which does not grow with the number of groups as a plain ratio does), by the F test of one-way analysis of variance
hardly by chance, and nearly every rank of the group that stands out lies beyond the middle of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dtbench.traces.ranks.by_group.groupings import Grouping
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import SCATTER_NS

_LEAST_SHARE: Final = 0.5
"""Of the variance, from which a grouping explains it."""
_MOST_CHANCE: Final = 1e-4
"""By which it may be an accident: several groupings are asked of several times."""
_LEAST_APART: Final = 0.05
"""Part of the others' median from which a group stands out: less is not worth a sentence."""
_FEW: Final = 0.05
"""Of a group's ranks, that may take no longer than the middle of the others."""
_MUCH_MORE: Final = 0.1
"""Of the variance, that a finer grouping explains beyond a coarser one to be named in its place."""


@dataclass(frozen=True)
class SlowGroup:
    """Ranks of a group that stand out by what they have in common.

    Attributes:
        grouping: what ranks were divided by.
        label: which group.
        ranks: of it, of which the time is known.
        groups: how many groups there are.
        median_ns: of its ranks.
        others_ns: median of all others.
        share: of the variance, between groups.
    """

    grouping: str
    label: str
    ranks: tuple[int, ...]
    groups: int
    median_ns: float
    others_ns: float
    share: float


class _Divided(NamedTuple):
    """Times, shape ``(n,)``, and the number of each one's group, from 0 on."""

    times_ns: np.ndarray
    places: Ints
    groups: int


def find_slow_group(times_ns: Mapping[int, float], groupings: Sequence[Grouping]) -> SlowGroup | None:
    """Return the group whose ranks take longer, where being of it explains that; None: no grouping does.

    Of groupings that do, the one with fewest groups: ranks of a stage are those of some hosts, too.

    Args:
        times_ns: by rank, where it is known.
        groupings: what ranks may be divided by.
    """
    found: SlowGroup | None = None
    for grouping in sorted(groupings, key=lambda one: len(set(one.label_of.values()))):
        one = _explain(times_ns, grouping)
        if one is not None and (found is None or one.share > found.share + _MUCH_MORE):
            found = one
    return found


def _explain(times_ns: Mapping[int, float], grouping: Grouping) -> SlowGroup | None:
    members = {
        label: known
        for label, ranks in grouping.members().items()
        if len(known := [rank for rank in ranks if rank in times_ns]) > 1
    }
    ranks = [rank for known in members.values() for rank in known]
    if len(members) < 2 or len(ranks) - len(members) < 2:
        return None
    place_of = {rank: place for place, known in enumerate(members.values()) for rank in known}
    divided = _Divided(
        np.array([times_ns[rank] for rank in ranks], dtype=np.float64),
        np.array([place_of[rank] for rank in ranks], dtype=np.int64),
        len(members),
    )
    share = _measure_share(divided)
    place = int(_means(divided).argmax())
    own, others = divided.times_ns[divided.places == place], divided.times_ns[divided.places != place]
    median_ns, others_ns = float(np.median(own)), float(np.median(others))
    apart_ns = max(_LEAST_APART * others_ns, SCATTER_NS)
    least_ns = float(np.quantile(own, _FEW, method="lower"))
    if share is None or median_ns - others_ns < apart_ns or least_ns <= others_ns:
        return None
    label = list(members)[place]
    return SlowGroup(grouping.name, label, tuple(members[label]), len(members), median_ns, others_ns, share)


def _means(divided: _Divided) -> np.ndarray:
    counts = np.bincount(divided.places, minlength=divided.groups)
    return np.asarray(np.bincount(divided.places, weights=divided.times_ns, minlength=divided.groups) / counts)


def _measure_share(divided: _Divided) -> float | None:
    """Return what part of the variance lies between groups; None: less than most of it, or perhaps by chance."""
    times_ns, means = divided.times_ns, _means(divided)
    between_freedom, within_freedom = divided.groups - 1, len(times_ns) - divided.groups
    within = float(((times_ns - means[divided.places]) ** 2).sum())
    whole = float(((times_ns - times_ns.mean()) ** 2).sum())
    if not whole:
        return None
    mean_within = within / within_freedom
    between = whole - within
    share = (between - between_freedom * mean_within) / (whole + mean_within)
    ratio = between / between_freedom / mean_within if mean_within else np.inf
    if share < _LEAST_SHARE:
        return None
    from scipy import special  # heavy, and most traces have no such groups

    chance = 0.0 if np.isinf(ratio) else float(special.fdtrc(between_freedom, within_freedom, ratio))
    return share if chance <= _MOST_CHANCE else None

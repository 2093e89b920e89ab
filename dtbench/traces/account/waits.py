"""Time a consumer stood still for a collective, by purpose; on a device, time that the main lane waited.

What a CPU trace says of waiting is found in ``cpu_waits.py``.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.time.intervals import Intervals, clip, intersect, unite
from dtbench.traces.who.collectives import Collective

Waits = Mapping[Purpose, Intervals]


def unite_by_purpose(spans: Sequence[tuple[Purpose, int, int]]) -> Waits:
    """Unite purpose, start and end of single waits."""
    by_purpose: dict[Purpose, list[tuple[int, int]]] = {}
    for purpose, start_ns, end_ns in spans:
        by_purpose.setdefault(purpose, []).append((start_ns, end_ns))
    columns = {purpose: np.array(mine, dtype=np.int64) for purpose, mine in by_purpose.items()}
    return {purpose: unite(mine[:, 0], mine[:, 1]) for purpose, mine in columns.items()}


def find_device_waits(collectives: Sequence[Collective]) -> Waits:
    """Find the gaps of the main lane that the end of a collective closes, and the collectives that run on it.

    Of several ends the last names the purpose; see ``main_lane.py`` for the rule.
    """
    return unite_by_purpose(
        [
            (collective.purpose, collective.first_wait_ns, collective.first_wait_end_ns)
            for collective in collectives
            if collective.first_wait_ns is not None and collective.first_wait_end_ns is not None
        ]
    )


def wait_time_ns(waits: Waits, purpose: Purpose, start_ns: int, end_ns: int) -> int:
    """Give the time a consumer waited for a purpose inside a window."""
    return clip(waits[purpose], start_ns, end_ns).length_ns if purpose in waits else 0


def measure_beside(waits: Waits, purpose: Purpose, compute: Intervals) -> tuple[int, int]:
    """Return the time a consumer waited for a purpose, and the part of it in which others computed.

    Args:
        waits: of one rank.
        purpose: of the collectives waited for.
        compute: time in which compute ran, on any lane.
    """
    mine = waits.get(purpose)
    return (0, 0) if mine is None else (mine.length_ns, intersect(mine, compute).length_ns)

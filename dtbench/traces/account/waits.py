"""Time a consumer stood still for a collective, by purpose; on a device, time that the main lane waited.

What a CPU trace says of waiting is found in ``cpu/waits.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.time.intervals import Intervals, clip, intersect, subtract, unite
from dtbench.traces.who.collectives import Collective

Waits = Mapping[Purpose, Intervals]


@dataclass(frozen=True)
class Wait:
    """A consumer stands still, unless it computes meanwhile; half-open.

    Attributes:
        purpose: of what it waits for, where that is no collective of the trace.
        collective: what it waits for, an index; None: it was issued before the trace.
    """

    purpose: Purpose
    start_ns: int
    end_ns: int
    collective: int | None


def find_device_waits(collectives: Sequence[Collective]) -> Waits:
    """Find the gaps of the main lane that the end of a collective closes, and the collectives that run on it.

    Of several ends the last names the purpose; see ``main_lane.py`` for the rule.
    """
    return _unite_by_purpose(
        (collective.purpose, collective.first_wait_ns, collective.first_wait_end_ns)
        for collective in collectives
        if collective.first_wait_ns is not None and collective.first_wait_end_ns is not None
    )


def sum_waits(waits: Iterable[Wait], collectives: Sequence[Collective], compute: Intervals) -> Waits:
    """Unite waits by purpose; time in which a thread of the model computes is no wait."""
    united = _unite_by_purpose(
        (
            wait.purpose if wait.collective is None else collectives[wait.collective].purpose,
            wait.start_ns,
            wait.end_ns,
        )
        for wait in waits
    )
    return {purpose: subtract(spans, compute) for purpose, spans in united.items()}


def _unite_by_purpose(spans: Iterable[tuple[Purpose, int, int]]) -> Waits:
    """Unite purpose, start and end of single waits."""
    by_purpose: dict[Purpose, list[tuple[int, int]]] = {}
    for purpose, start_ns, end_ns in spans:
        by_purpose.setdefault(purpose, []).append((start_ns, end_ns))
    columns = {purpose: np.array(mine, dtype=np.int64) for purpose, mine in by_purpose.items()}
    return {purpose: unite(mine[:, 0], mine[:, 1]) for purpose, mine in columns.items()}


def wait_time_ns(waits: Waits, purpose: Purpose, start_ns: int, end_ns: int) -> int:
    """Return the time a consumer waited for a purpose inside a window."""
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

"""From the rows of all ranks to what is reported: means, and which rank the others wait for, and where it is late.

[Note: late without clocks] A rank's period (a step and what lies before it) is its own time and its waits. Ranks that
wait for each other have equal periods, so the one with the most own time is the one that the others wait for: it
stands still least. Both are lengths on each rank's own clock. It is named only where both agree: its own time is longer
than the median of the others' by ``LATE_FRACTION`` of a period or more, and they stood still at least half of that
longer than it did. What it was late at is the piece of own time that exceeds the median of the others' most: before
which wait, where all ranks waited for the same in the same order; else in which region.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from dtbench.base.units import NS_PER_MS, NS_PER_US
from dtbench.base.vocabulary import Purpose
from dtbench.live.account import PURPOSES, REGIONS, Place
from dtbench.live.waits import Label

LATE_FRACTION: Final = 0.02
"""Of a period; a rank that is late by less is not told from chance."""
NAMES: Final = {
    Purpose.GRAD_REDUCE: "gradient_wait_ms",
    Purpose.UNSHARD: "unshard_wait_ms",
    Purpose.TENSOR: "tensor_wait_ms",
    Purpose.CONTEXT: "context_wait_ms",
    Purpose.EXPERT: "expert_wait_ms",
    Purpose.PIPELINE: "pipeline_wait_ms",
    Purpose.STATE: "state_wait_ms",
    Purpose.OTHER: "other_wait_ms",
}

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Late:
    """The rank that the others wait for.

    Attributes:
        late_ns: how much longer its own time is than the median of the others', each period.
        where: what it was late at: before which wait, in which region, or between steps.
        where_ns: how much of it there.
    """

    rank: int
    late_ns: float
    where: str
    where_ns: float

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is late by {self.late_ns / NS_PER_MS:.3g} ms a step, "
            f"{self.where_ns / NS_PER_MS:.3g} ms of it {self.where}"
        )


def summarize(rows: Rows) -> dict[str, float]:
    """Return what is reported of a window: means over ranks and steps, but where a name says otherwise.

    Args:
        rows: shape ``(ranks, Place.LENGTH)``, each with a step at least.

    Returns:
        ``step_ms``, ``between_ms``, ``exposed_ms`` (the thread stood still), one for each purpose in ``NAMES``,
        ``hidden_fraction`` (at most that much of the time with collectives in flight; NaN where their begin was not
        seen, or there were none), ``unseen`` (collectives a step that nobody was seen to wait for: where it is not 0,
        ``exposed_ms`` is at least so much; the monitor makes it NaN where a group does not count), ``monitor_us``,
        ``steps`` (of the window) and ``ranks``.
    """
    steps = rows[:, Place.STEPS]
    means = (rows / steps[:, None]).mean(axis=0).tolist()  # over ranks, of a step's
    numbers = {
        "steps": float(steps.max()),
        "ranks": float(len(rows)),
        "step_ms": means[Place.STEP] / NS_PER_MS,
        "between_ms": means[Place.BETWEEN] / NS_PER_MS,
        "exposed_ms": sum(means[Place.WAITS]) / NS_PER_MS,
        "hidden_fraction": _find_hidden(rows),
        "unseen": means[Place.UNSEEN],
        "monitor_us": means[Place.COST] / NS_PER_US,
    }
    for purpose, wait_ns in zip(PURPOSES, means[Place.WAITS], strict=True):
        numbers[NAMES[purpose]] = wait_ns / NS_PER_MS
    return numbers


def find_late(rows: Rows, labels: tuple[Label, ...]) -> Late | None:
    """Return the rank that the others wait for; None: none is; see [Note: late without clocks].

    Args:
        rows: as those of ``summarize``.
        labels: what this rank's slots are.
    """
    if len(rows) < 2:
        return None
    steps = rows[:, Place.STEPS]
    stood_ns = rows[:, Place.WAITS].sum(axis=1) / steps
    period_ns = (rows[:, Place.STEP] + rows[:, Place.BETWEEN]) / steps
    own_ns = period_ns - stood_ns
    rank = int(own_ns.argmax())
    late_ns = own_ns[rank] - _others(own_ns, rank)
    waited_ns = _others(stood_ns, rank) - stood_ns[rank]
    if late_ns < LATE_FRACTION * np.median(period_ns) or waited_ns < late_ns / 2:
        return None
    where, where_ns = _find_where(rows, rank, labels)
    return Late(rank, float(late_ns), where, where_ns)


def _find_where(rows: Rows, rank: int, labels: tuple[Label, ...]) -> tuple[str, float]:
    steps = rows[:, Place.STEPS]
    places = ["between steps"]
    own = [rows[:, [Place.BETWEEN]]]
    if len(set(rows[:, Place.SIGNATURE])) == 1 and (rows[:, Place.ALIKE] == steps).all():
        places += [f"before wait {number} of a step, {label}" for number, label in enumerate(labels, 1)]
        places.append("after the last wait of a step")
        own += [rows[:, Place.SLOT_OWN][:, : len(labels)], rows[:, [Place.TAIL]]]
    else:
        places += [f"in {region.value}" for region in REGIONS]
        own.append(rows[:, Place.OWN])
    each_ns = np.concatenate(own, axis=1) / steps[:, None]  # ranks, places
    excess_ns = each_ns[rank] - np.median(np.delete(each_ns, rank, axis=0), axis=0)
    most = int(excess_ns.argmax())
    return places[most], float(excess_ns[most])


def _find_hidden(rows: Rows) -> float:
    flight_ns = rows[:, Place.FLIGHT].sum()
    if rows[:, (Place.UNSEEN, Place.UNTOLD)].any() or not flight_ns:
        return math.nan
    return float(1 - rows[:, Place.WAITS].sum() / flight_ns)


def _others(values: npt.NDArray[np.float64], rank: int) -> float:
    return float(np.median(np.delete(values, rank)))

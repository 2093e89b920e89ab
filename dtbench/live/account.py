"""What a rank says of its last steps: one row of numbers, which the ranks exchange.

Sums over the steps of a window, in ns, and counts; ``Place`` says where in a row each stands. All times are lengths on
a rank's own clock: clocks of ranks are never compared.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Purpose, Region
from dtbench.live.waits import SLOTS, Label, StepWaits

Row = list[float]

REGIONS: Final = (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER)
PURPOSES: Final = tuple(Purpose)


class Place:
    """Where in a row what stands.

    Attributes:
        STEPS: of the window.
        STEP: from begin to end; BETWEEN: from an end to the next begin; COST: what the monitor took of them itself.
        FLIGHT: time with a collective in flight; UNSEEN, UNTOLD: see ``StepWaits``.
        SIGNATURE: tells kinds of steps apart by their waits, below 2^32; ALIKE: steps of the kind of the first.
        WAITS: by ``PURPOSES``. OWN: own time by ``REGIONS``.
        SLOT_WAITS, SLOT_OWN: of each wait of steps that are alike, and the own time before it; TAIL: after the last.
    """

    STEPS, STEP, BETWEEN, COST, FLIGHT, UNSEEN, UNTOLD, SIGNATURE, ALIKE, TAIL = range(10)
    WAITS: Final = slice(10, 10 + len(PURPOSES))
    OWN: Final = slice(WAITS.stop, WAITS.stop + len(REGIONS))
    SLOT_WAITS: Final = slice(OWN.stop, OWN.stop + SLOTS)
    SLOT_OWN: Final = slice(SLOT_WAITS.stop, SLOT_WAITS.stop + SLOTS)
    LENGTH: Final = SLOT_OWN.stop


@dataclass(frozen=True)
class LiveStep:
    """One step of this rank.

    Attributes:
        number: from 0, of all steps that the monitor saw.
        step_ns: from its begin to its end.
        between_ns: from the end of the step before to its begin, fetching a batch; 0 where steps follow each other.
        cost_ns: what the monitor took where steps begin and end; its hooks cost more.
        regions: how long each was, ns, with the waits in it.
        unseen: collectives that nobody was seen to wait for.
    """

    number: int
    step_ns: int
    between_ns: int
    cost_ns: int
    waits: StepWaits
    regions: dict[Region, int]
    unseen: int

    def wait_ns(self, purpose: Purpose | None = None) -> int:
        """Return how long the thread stood still for a purpose; for all, if none is named."""
        return sum(ns for (of, _), ns in self.waits.sums.items() if purpose is None or of is purpose)

    def own_ns(self, region: Region) -> int:
        """Return how long the thread was in a region without standing still."""
        stood_ns = sum(ns for (_, where), ns in self.waits.sums.items() if where is region)
        return self.regions.get(region, 0) - stood_ns

    @property
    def labels(self) -> tuple[Label, ...]:
        """What was waited for, in order."""
        return tuple(wait.label for wait in self.waits.waits)


class Window:
    """The steps since the last report, as sums."""

    def __init__(self) -> None:
        self._row: Row = [0.0] * Place.LENGTH
        self._labels: tuple[Label, ...] | None = None

    def add(self, step: LiveStep) -> None:
        """Add a step."""
        row, labels = self._row, step.labels
        row[Place.STEPS] += 1
        row[Place.STEP] += step.step_ns
        row[Place.BETWEEN] += step.between_ns
        row[Place.COST] += step.cost_ns
        row[Place.FLIGHT] += step.waits.flight_ns
        row[Place.UNSEEN] += step.unseen
        row[Place.UNTOLD] += step.waits.untold
        for (purpose, _), wait_ns in step.waits.sums.items():
            row[Place.WAITS.start + PURPOSES.index(purpose)] += wait_ns
        _add(row, Place.OWN, (step.own_ns(region) for region in REGIONS))
        if self._labels is None:
            self._labels = labels
            row[Place.SIGNATURE] = sign(labels)
        if labels == self._labels:
            row[Place.ALIKE] += 1
            row[Place.TAIL] += step.waits.tail_ns
            _add(row, Place.SLOT_WAITS, (wait.wait_ns for wait in step.waits.waits))
            _add(row, Place.SLOT_OWN, (wait.own_ns for wait in step.waits.waits))

    def close(self) -> tuple[Row, tuple[Label, ...]]:
        """Return the row, and what its slots are; the next step begins another window."""
        row, labels = self._row, self._labels or ()
        self._row, self._labels = [0.0] * Place.LENGTH, None
        return row, labels


def sign(labels: tuple[Label, ...]) -> int:
    """Return what ranks that wait alike have in common, whatever their processes are: below 2^32."""
    return zlib.crc32("\n".join(map(str, labels)).encode())


def _add(row: Row, part: slice, values: Iterable[float]) -> None:
    for place, value in enumerate(values, part.start):
        row[place] += value

"""Whether the graph as it was gives the steps that it was read from; without that nothing is said of any other."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.replay.graph import ALL_EDGES, Edge
from dtbench.replay.read import Recorded
from dtbench.replay.run import Replayed, replay

WORST: Final = 0.03
"""By which share of a recorded step its replay may be off."""


@dataclass(frozen=True)
class Fit:
    """A replay of the unchanged graph beside what was recorded; shape of both ``(steps,)``.

    Attributes:
        numbers: of the steps.
        recorded_ns: the job's steps as they were: the slowest rank's.
        replayed_ns: as the replay has them.
    """

    numbers: tuple[int, ...]
    recorded_ns: tuple[int, ...]
    replayed_ns: tuple[int, ...]

    @property
    def misfits(self) -> tuple[float, ...]:
        """By which share of itself each step is off."""
        return tuple(
            replayed / recorded - 1.0 for recorded, replayed in zip(self.recorded_ns, self.replayed_ns, strict=True)
        )

    @property
    def median(self) -> float:
        """Of what the steps are off, without sign."""
        return median(map(abs, self.misfits))

    @property
    def worst(self) -> float:
        """The largest of these."""
        return max(map(abs, self.misfits))

    @property
    def holds(self) -> bool:
        """Whether anything may be said of a changed step."""
        return self.worst <= WORST

    @classmethod
    def of(cls, recorded: Recorded, replayed: Replayed) -> "Fit":
        """Hold a replay against what it was read from."""
        return cls(recorded.numbers, recorded.steps_ns, replayed.steps_ns)


def measure_fit(recorded: Recorded, edges: frozenset[Edge] = ALL_EDGES) -> Fit:
    """Replay the graph as it was.

    Args:
        recorded: graph and steps.
        edges: the classes of edges that hold.
    """
    return Fit.of(recorded, replay(recorded.graph, edges))


def refuse_misfits(fits: Sequence[Fit]) -> None:
    """Refuse to say what a change does to steps that the replay does not give.

    Raises:
        PredictionError: one is off by more than ``WORST``.
    """
    off = [
        (abs(misfit), number, misfit)
        for fit in fits
        for number, misfit in zip(fit.numbers, fit.misfits, strict=True)
        if abs(misfit) > WORST
    ]
    if off:
        _, number, misfit = max(off)
        raise PredictionError(
            f"the replay of the unchanged steps does not fit: step {number} comes out {abs(misfit):.1%} "
            f"{'longer' if misfit > 0 else 'shorter'} than it was recorded, where {WORST:.0%} are allowed; so nothing "
            "is said of what would change it"
        )

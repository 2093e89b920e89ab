"""Of what a mean is, where it is not known of all of it: which ranks, launches and steps have part in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dtbench.base.units import name_ranges, name_ranks


@dataclass(frozen=True)
class KnownPart:
    """The part of a cell's PROFILED (of a step time: MEASURED) steps of which a number is known: some, not all.

    Attributes:
        ranks: that have part, where some of the ``of_ranks`` have none in any launch; empty: all have.
        of_ranks: ranks that the cell has.
        launches: likewise of ``of_launches``.
        of_launches: launches that the cell has.
        steps: that have part, each rank's and launch's counted, of ``of_steps`` of those ranks and launches.
        of_steps: steps that those ranks and launches have.
        counted: what ``steps`` are called; a record that a rank wrote counts as one, of a step time a job's step.
        has_every_rank: every rank has part in every launch; else nothing is judged by the number.
    """

    ranks: tuple[int, ...] = ()
    of_ranks: int = 1
    launches: tuple[int, ...] = ()
    of_launches: int = 1
    steps: int = 0
    of_steps: int = 0
    counted: Literal["rank steps", "rank records", "MEASURED steps"] = "rank steps"
    has_every_rank: bool = True

    def __str__(self) -> str:
        """Say of what the number is.

        >>> str(KnownPart(ranks=(0,), of_ranks=2, steps=3, of_steps=4))
        'rank 0 alone, of 2, in 3 of 4 rank steps'
        >>> str(KnownPart(launches=(1, 2), of_launches=4, steps=6, of_steps=6))
        'launches 1-2 alone, of 4'
        """
        of = [
            *([f"{name_ranks(self.ranks)} alone, of {self.of_ranks}"] if self.ranks else []),
            *([f"{name_launches(self.launches)} alone, of {self.of_launches}"] if self.launches else []),
        ]
        steps = [f"{self.steps} of {self.of_steps} {self.counted}"] if self.steps < self.of_steps else []
        return ", in ".join([", ".join(of), *steps] if of else steps)


def name_launches(launches: Sequence[int]) -> str:
    """Name launches of a cell.

    >>> name_launches([0]), name_launches([1, 2])
    ('launch0', 'launches 1-2')
    """
    return f"launch{'es ' if len(launches) > 1 else ''}{name_ranges(launches)}"


def name_part(part: KnownPart | None) -> str:
    """Return what stands before a number in a sentence; empty: it is known of all.

    >>> name_part(KnownPart(steps=5, of_steps=8))
    'of 5 of 8 rank steps: '
    """
    return "" if part is None else f"of {part}: "

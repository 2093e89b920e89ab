"""The numbers of a row, drawn from a seed: the same for a row and a seed, whatever other rows are run."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Draw:
    """Draws for one row, one after another.

    Everything comes from ``random()``, the one method that Python promises to leave as it is in every version.
    """

    _source: random.Random

    @classmethod
    def of(cls, seed: int, row: str) -> "Draw":
        """Return the draws of a row."""
        return cls(random.Random(f"dtbench selftest {seed} {row}"))

    def whole(self, least: int, most: int) -> int:
        """Return a whole number, both ends included."""
        return least + int(self._source.random() * (most - least + 1))

    def tenths(self, least: float, most: float) -> float:
        """Return a multiple of a tenth, both ends included."""
        return self.whole(round(least * 10), round(most * 10)) / 10

    def one_of(self, choices: Sequence[_T]) -> _T:
        """Return one of several."""
        return choices[self.whole(0, len(choices) - 1)]

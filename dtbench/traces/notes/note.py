"""Notes as values: the class of a note is its kind, its fields are whom it is about and the counts and times.

::

    analysis     LostKernels(ranks=(0,), kernels=3)   LostKernels(ranks=(1,), kernels=3)
    join_ranks   LostKernels(ranks=(0, 1), kernels=3)
    str          "ranks 0-1: 3 kernels that were launched are not in the trace, so ..."

Whoever shows notes, or writes them, takes their sentences; who asks whether something is doubted takes their kind. The
words are here, below all that makes notes, and not in ``report``: tables on disk hold them, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from dtbench.base.units import name_ranks

_Kind = TypeVar("_Kind", bound="Note")


@dataclass(frozen=True)
class Note(ABC):
    """One thing that a reader of the numbers must know; ``str`` is its sentence."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class OfRanks(Note):
    """A note that holds of each of some ranks alike, so that those of several ranks are one sentence.

    Attributes:
        ranks: of the job, rising; empty as long as a trace has no rank yet.
    """

    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{name_ranks(self.ranks)}: {self._words()}"

    def _words(self) -> str:
        """Return what is said of the ranks; a kind whose sentence begins otherwise has a ``__str__`` of its own."""
        raise NotImplementedError

    def of(self, rank: int) -> Self:
        """Return what it says, of a rank."""
        return replace(self, ranks=(rank,))

    @property
    def _is_one(self) -> bool:
        return len(self.ranks) == 1


def join_ranks(notes: Iterable[_Kind]) -> tuple[_Kind, ...]:
    """Return the notes, those that say the same of several ranks as one, and each once, where the first of them was.

    Numbers are the same that read the same: times to three digits.
    """
    alike: dict[tuple[type[Note], str], list[_Kind]] = {}
    for note in notes:
        said = str(replace(note, ranks=()) if isinstance(note, OfRanks) else note)
        alike.setdefault((type(note), said), []).append(note)
    return tuple(map(_join, alike.values()))


def _join(alike: Sequence[_Kind]) -> _Kind:
    first = alike[0]
    if not isinstance(first, OfRanks):
        return first
    ranks = {rank for note in alike if isinstance(note, OfRanks) for rank in note.ranks}
    return replace(first, ranks=tuple(sorted(ranks)))


def pick_notes(notes: Iterable[Note], kind: type[_Kind]) -> list[_Kind]:
    """Return the notes of a kind."""
    return [note for note in notes if isinstance(note, kind)]


def say_notes(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return the sentences of notes."""
    return tuple(map(str, notes))

"""The marks of numbers that are known in part, in tables of runs and of traces.

A number that is a mean over some ranks, launches or steps has a mark behind it, and a line below the table says which;
one that is a bound says so itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from dtbench.base.units import format_ns
from dtbench.traces.known_part import KnownPart


def format_least(time_ns: float, unknown_ns: float) -> str:
    """Return a time, as a bound where what is not known, and may belong to it too, would change how it reads.

    >>> format_least(2_910_000, 1_340_000)
    'at least 2.91 ms'
    >>> format_least(2_910_000, 40)
    '2.91 ms'
    """
    said = format_ns(time_ns)
    return said if said == format_ns(time_ns + unknown_ns) else f"at least {said}"


@dataclass(frozen=True)
class Marks:
    """The marks of one table: ``*``, ``**`` and so on by what a number is known of, or by the words for that."""

    by_words: Mapping[str, str]

    @classmethod
    def of(cls, parts: Iterable[KnownPart | str | None]) -> Self:
        """Assign each of these parts a mark, in their order."""
        known = dict.fromkeys(str(part) for part in parts if part is not None)
        return cls({words: "*" * (place + 1) for place, words in enumerate(known)})

    def mark(self, words: str, part: KnownPart | str | None) -> str:
        """Return a number with its mark; as it is where it is known of all, or of nothing."""
        is_marked = part is not None and words != "none" and not words.startswith("n/a")
        return f"{words}{self.by_words[str(part)]}" if is_marked else words

    @property
    def lines(self) -> tuple[str, ...]:
        """What each mark says."""
        return tuple(f"{mark} of {words}: not known of the others" for words, mark in self.by_words.items())

"""Which ranks' clocks are corrected or cannot be compared, and which traces do not fit the others in what they say."""

from dataclasses import dataclass
from typing import Final

from dtbench.base.units import NS_PER_S, count_things, format_ns, name_ranges, name_ranks
from dtbench.traces.notes.note import Note, OfRanks

NOT_COMPARED: Final = (
    "they are not of one machine, as far as their traces say, and have no collective in common that all leave together"
)


@dataclass(frozen=True)
class ClockCorrected(Note):
    """Ranks of one clock that is off, and corrected.

    Attributes:
        ranks: that share it.
        offset_ns: by how much it is ahead of the others'.
        uncertainty_ns: of that.
        drift: what it gains on the others', a fraction.
    """

    ranks: tuple[int, ...]
    offset_ns: int
    uncertainty_ns: float
    drift: float

    def __str__(self) -> str:
        whose = "its clock" if len(self.ranks) == 1 else "their clock"
        side = "ahead of" if self.offset_ns > 0 else "behind"
        rate = "gains" if self.drift > 0 else "loses"
        drift = f" and {rate} {format_ns(abs(self.drift) * NS_PER_S)} a second" if self.drift else ""
        doubt = f"within {format_ns(self.uncertainty_ns)}, from the ends of collectives"
        off = f"{format_ns(abs(self.offset_ns))} {side} the others' ({doubt}){drift}"
        return f"{name_ranks(self.ranks)}: {whose} is {off}; corrected"


@dataclass(frozen=True)
class ManyClocksCorrected(Note):
    """Ranks of clocks that are off: too many for a sentence each.

    Attributes:
        ranks: of all these clocks.
        clocks: how many they are.
        most_ns: by how much one is off at most.
        uncertainty_ns: of that, at most.
    """

    ranks: tuple[int, ...]
    clocks: int
    most_ns: int
    uncertainty_ns: float

    def __str__(self) -> str:
        which = f"the {self.clocks} clocks of {name_ranks(self.ranks)}"
        doubt = f"each known within {format_ns(self.uncertainty_ns)}, from the ends of collectives"
        return f"{which} are up to {format_ns(self.most_ns)} off ({doubt}); corrected"


@dataclass(frozen=True)
class OutOfStep(OfRanks):
    """Ranks whose collectives' ends no clock explains."""

    def _words(self) -> str:
        return (
            "not in step with the others, collectives end on one rank before they begin on another; are the traces of"
            " one moment of one job? Nothing is said about skew there"
        )


@dataclass(frozen=True)
class TornHost(Note):
    """Ranks that say they are of one host, and are not of one clock."""

    ranks: tuple[int, ...]
    host: str

    def __str__(self) -> str:
        return (
            f"{name_ranks(self.ranks)}: all of host {self.host}, as their traces say, but their collectives do"
            " not end together on one clock; each is taken to have its own (do containers on several machines bear one"
            " name?)"
        )


@dataclass(frozen=True)
class ClocksApart(Note):
    """Ranks of which nothing tells how far their clocks are apart, and in how many collectives that matters."""

    ranks: tuple[int, ...]
    collectives: int

    def __str__(self) -> str:
        what = f"who was last in {count_things(self.collectives, 'collective')}, and who waited, is not known"
        why = f"{NOT_COMPARED}; an all-to-all is none"
        return f"{name_ranks(self.ranks)}: nothing tells how far their clocks are apart ({why}), so {what}"


@dataclass(frozen=True)
class EndsAstray(OfRanks):
    """Ranks some of whose collectives ended apart from the others'.

    Attributes:
        numbers: which of the collectives that were compared, from 1 on.
        compared: how many these are.
        apart_ns: by how much.
        is_most: one did by so much, and others by less; False: all did.
        is_later: they ended later than elsewhere; False: earlier; None: it is not known which end is right.
        was_set: they did as if a clock had been set.
    """

    numbers: tuple[int, ...]
    compared: int
    apart_ns: float
    is_most: bool
    is_later: bool | None
    was_set: bool

    def _words(self) -> str:
        which = f"{len(self.numbers)} of {count_things(self.compared, 'common collective')}"
        ended = (
            f"{which} (numbers {name_ranges(self.numbers)}) ended {'up to ' * self.is_most}{format_ns(self.apart_ns)}"
        )
        why = "was a thread woken late, or do processes take turns on a device?"
        if self.was_set:
            why = f"was {'one' if self.is_later is None else 'the'} clock set?"
        if self.is_later is None:
            return f"{ended} apart, and it is not known which end is right ({why}). Nothing is said about skew there"
        side = "later" if self.is_later else "earlier"
        return f"{ended} {side} there than elsewhere ({why}). Nothing is said about skew there"


class Misfit(Note):
    """A note on ranks of which nothing is said over ranks: why nothing may be judged by these traces."""


@dataclass(frozen=True)
class OfAnotherRank(OfRanks, Misfit):
    """Ranks whose traces say that they are another's."""

    def _words(self) -> str:
        return "by what the trace itself says it is another rank's; nothing over ranks is said there"


@dataclass(frozen=True)
class Copies(Misfit):
    """Ranks that have one and the same trace; ``are_shifted``: all times of some are later by so much."""

    ranks: tuple[int, ...]
    are_shifted: bool = False

    def __str__(self) -> str:
        shifted = " but for where their clocks begin" if self.are_shifted else ""
        return (
            f"{name_ranks(self.ranks)}: one and the same trace, to the nanosecond{shifted}; whose it is cannot be told,"
            " so nothing over ranks is said of these; give each rank's own"
        )


@dataclass(frozen=True)
class OfAnotherSize(OfRanks, Misfit):
    """Ranks that say another size of the job than most do."""

    def _words(self) -> str:
        return "of a job of another size"


@dataclass(frozen=True)
class OfAnotherProgram(OfRanks, Misfit):
    """Ranks with other collectives under the numbers that they share with the others."""

    def _words(self) -> str:
        return (
            "under the same numbers of the same process groups, collectives of another operation or size than the"
            " others' are found; are these traces of another run? Nothing over ranks is said there"
        )


@dataclass(frozen=True)
class ClockFarOff(OfRanks, Misfit):
    """Ranks whose clock would be off by more than their trace lasts, by ``most_ns`` at most."""

    most_ns: int

    def _words(self) -> str:
        clock = "its clock" if self._is_one else "their clocks"
        off = f"{clock} would be up to {format_ns(self.most_ns)} off, longer than the trace"
        return f"{off}, and these may be traces of another run as well; nothing over ranks is said there"


@dataclass(frozen=True)
class ClockUnsure(OfRanks, Misfit):
    """Ranks of which it is known within ``within_ns`` only, more than half a step, how far their clock is off."""

    within_ns: float

    def _words(self) -> str:
        clock = "its clock is" if self._is_one else "their clocks are"
        known = f"how far {clock} off is known within {format_ns(self.within_ns)} only, more than half a step"
        return f"{known}; who waited for whom cannot be told, and nothing over ranks is said there"

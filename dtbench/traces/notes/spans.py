"""What a picture of traces does not show, or not where it was."""

from dataclasses import dataclass

from dtbench.base.units import count_things, format_ns, is_or_are, name_ranges, name_ranks
from dtbench.traces.notes.note import Note, OfRanks


@dataclass(frozen=True)
class SomeStepsDrawn(Note):
    """Steps that are drawn where all are too many."""

    drawn: tuple[int, ...]
    every: tuple[int, ...]

    def __str__(self) -> str:
        return f"steps {name_ranges(self.drawn)} of {name_ranges(self.every)} are drawn: all are too many"


@dataclass(frozen=True)
class SomeRanksDrawn(Note):
    """Ranks that are drawn as they were asked for, of so many whose traces are there."""

    drawn: tuple[int, ...]
    of_ranks: int

    def __str__(self) -> str:
        return f"{name_ranks(self.drawn)} alone {is_or_are(len(self.drawn))} drawn, of {self.of_ranks} with traces"


@dataclass(frozen=True)
class NotDrawn(OfRanks):
    """Ranks without the steps that are drawn."""

    steps: tuple[int, ...]

    def __str__(self) -> str:
        are, have = ("is", "its trace has") if self._is_one else ("are", "their traces have")
        return f"{name_ranks(self.ranks)} {are} not drawn: {have} no step {name_ranges(self.steps)}"


@dataclass(frozen=True)
class NoTraceDrawn(OfRanks):
    """Ranks of a job of ``of_ranks`` of which no trace is there."""

    of_ranks: int

    def __str__(self) -> str:
        are = "is" if self._is_one else "are"
        return f"{name_ranks(self.ranks)} of {self.of_ranks} {are} not drawn: no trace of {self._them} is there"

    @property
    def _them(self) -> str:
        return "it" if self._is_one else "them"


@dataclass(frozen=True)
class ShortestNotDrawn(Note):
    """Spans of compute and copies, of ``spans``, that are left out as they are the shortest."""

    left_out: int
    spans: int
    longest_ns: int

    def __str__(self) -> str:
        which = f"those of {format_ns(self.longest_ns)} and shorter"
        what = f"{self.left_out} of {self.spans} spans of compute and copies"
        return f"{what}, {which}, are not drawn; they are in every number"


@dataclass(frozen=True)
class HostNotRecorded(OfRanks):
    """Ranks of a device of whose hosts something is not in the trace."""

    what: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.what)} of the host of {name_ranks(self.ranks)} were not recorded: none are drawn"


@dataclass(frozen=True)
class HostShortestNotDrawn(Note):
    """Operators, ranges and calls of hosts, of ``spans``, that are left out as they are the shortest."""

    left_out: int
    spans: int
    longest_ns: int

    def __str__(self) -> str:
        which = f"those of {format_ns(self.longest_ns)} and shorter"
        return f"{self.left_out} of {self.spans} ranges, operators and calls of hosts, {which}, are not drawn"


@dataclass(frozen=True)
class LaunchesNotDrawn(Note):
    """Launches, of ``launches``, that are left out as what they launched is the shortest."""

    left_out: int
    launches: int
    longest_ns: int

    def __str__(self) -> str:
        which = f"those of work of {format_ns(self.longest_ns)} and shorter"
        return f"{self.left_out} of {self.launches} launches, {which}, are not drawn"


@dataclass(frozen=True)
class LaunchesNotLinked(OfRanks):
    """Ranks whose devices' times do not fit their hosts'."""

    def __str__(self) -> str:
        whose = (
            "its device's times do not fit its host's"
            if self._is_one
            else "their devices' times do not fit their hosts'"
        )
        return f"launches of {name_ranks(self.ranks)} are not tied to what they launched: {whose}"


@dataclass(frozen=True)
class UnseenNotDrawn(OfRanks):
    """Collectives that were launched and not seen to run, so that nothing of them can be drawn."""

    collectives: int

    def _words(self) -> str:
        were, they_are = ("was", "it is") if self.collectives == 1 else ("were", "they are")
        what = f"{count_things(self.collectives, 'collective')} {were} launched and not seen to run"
        return f"{what}; {they_are} not drawn, and what is drawn as communication and as exposed is so much at least"


@dataclass(frozen=True)
class OwnStart(OfRanks):
    """Ranks that are drawn each from its own start.

    Attributes:
        is_uncompared: nothing tells how far their clocks are from the others'; False: they are not in step.
    """

    is_uncompared: bool

    def __str__(self) -> str:
        are, starts = ("is", "its own start") if self._is_one else ("are", "their own starts")
        return f"{name_ranks(self.ranks)} {are} drawn from {starts}: {self._why}"

    @property
    def _why(self) -> str:
        if self.is_uncompared:
            return f"nothing tells how far {'its clock is' if self._is_one else 'their clocks are'} from the others'"
        return f"{'its trace is' if self._is_one else 'their traces are'} not in step with the others"

"""Which files of those that were given are read, which rank each is taken for, and what of a file is in no number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.units import count_things, format_ns, is_or_are
from dtbench.traces.notes.note import Note, OfRanks

_MOST_NAMES: Final = 5


@dataclass(frozen=True)
class NotTraces(Note):
    """Files below ``path`` that are no traces: place and, where it is known, what each is."""

    path: str
    files: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        names = [f"{place} ({what})" if what else place for place, what in self.files]
        return f"{self.path}: not traces and left out: {_name_first(names)}"


@dataclass(frozen=True)
class FoldersBelow(Note):
    """Folders below the one that is read, which hold traces too."""

    path: str
    folders: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: traces in folders below are left out: {_name_first(self.folders)}"


@dataclass(frozen=True)
class LatestFolder(Note):
    """The latest of several folders with traces, which alone is read."""

    path: str
    folder: str
    folders: int

    def __str__(self) -> str:
        return f"{self.path}: of {self.folders} folders with traces the latest is read, {self.folder}"


@dataclass(frozen=True)
class OlderTraces(Note):
    """Older traces, or copies, of ranks of which a newer one is read."""

    path: str
    traces: int

    def __str__(self) -> str:
        what = "an older trace or copy" if self.traces == 1 else f"{self.traces} older traces or copies"
        return f"{self.path}: {what} of the same rank {is_or_are(self.traces)} left out"


@dataclass(frozen=True)
class DamagedArchive(Note):
    """An archive of which only the beginning can be read; ``error``: what reading it raised."""

    path: str
    error: str

    def __str__(self) -> str:
        return f"{self.path}: the archive is damaged ({self.error}); what came before was found"


@dataclass(frozen=True)
class LeftOut(Note):
    """A trace that no number can come from.

    Attributes:
        rank: as somebody told; None: nobody did.
        reason: why, a sentence that names the file.
    """

    rank: int | None
    reason: str

    def __str__(self) -> str:
        return f"left out: {self.reason}" if self.rank is None else f"rank {self.rank} is left out: {self.reason}"


@dataclass(frozen=True)
class CutShort(Note):
    """A file that ends before its time."""

    file: str

    def __str__(self) -> str:
        return f"{self.file}: cut short; what came before the cut is used"


@dataclass(frozen=True)
class NumberedByName(OfRanks):
    """Ranks that only the names of their files say."""

    def _words(self) -> str:
        return "numbered by file name, the traces do not say their rank"


@dataclass(frozen=True)
class NumberedByPlace(OfRanks):
    """Ranks that nothing says."""

    def _words(self) -> str:
        return "numbered by place, neither trace nor file name says a rank"


@dataclass(frozen=True)
class ComesTwice(Note):
    """A rank with two traces: files that are left out and used."""

    rank: int
    left_out: str
    used: str

    def __str__(self) -> str:
        return (
            f"rank {self.rank} comes twice: {self.left_out} is left out, {self.used} is used; "
            "give one trace per rank, of one job"
        )


@dataclass(frozen=True)
class SeveralParts(Note):
    """A file of several processes or devices: the rank that each part is taken for, and what it is."""

    file: str
    parts: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        parts = "; ".join(f"rank {rank} is {part}" for rank, part in self.parts)
        return f"{self.file} holds several processes or devices, each accounted for itself: {parts}"


@dataclass(frozen=True)
class StrayWork(OfRanks):
    """What a process did on a device that is not the one it is accounted for by.

    Attributes:
        device: where it ran.
        events: how many.
        time_ns: their sum.
        counted_device: by which the process is accounted for.
        said_rank: the rank that the file says its process is, where that computes on several devices; None: else.
    """

    device: str
    events: int
    time_ns: int
    counted_device: str
    said_rank: int | None

    def _words(self) -> str:
        what = f"{count_things(self.events, 'event')} on device {self.device} ({format_ns(self.time_ns)})"
        why = f"the process computes on device {self.counted_device}"
        if self.said_rank is not None:
            by = f"by device {self.counted_device}, on which its process computes most"
            why = f"rank {self.said_rank} is accounted for {by}"
        return f"{what} {is_or_are(self.events)} in no number: {why}"


@dataclass(frozen=True)
class OfNoProcess(OfRanks):
    """Events of a file that belong to none of its processes."""

    file: str
    events: int

    def _words(self) -> str:
        belong = "belongs" if self.events == 1 else "belong"
        what = f"{count_things(self.events, 'event')} of {self.file} {belong}"
        return f"{what} to no process that ran anything, and {is_or_are(self.events)} in no number"


@dataclass(frozen=True)
class OtherParts(OfRanks):
    """Parts of a file that are in no number, as somebody told which one rank it is."""

    file: str
    parts: tuple[str, ...]
    told_rank: int

    def _words(self) -> str:
        return f"{', '.join(self.parts)} of {self.file} in no number: rank {self.told_rank} is one device"


@dataclass(frozen=True)
class NotUnderstood(OfRanks):
    """Events of a category that nobody told dtbench."""

    category: str
    events: int

    def _words(self) -> str:
        what = f"{count_things(self.events, 'event')} of category {self.category or '(none)'}"
        return f"{what} {is_or_are(self.events)} not understood, and in no number"


@dataclass(frozen=True)
class HostCollectives(OfRanks):
    """Collectives of libraries of the host in a trace whose account is the device's; ``time_ns``: when any ran."""

    libraries: tuple[str, ...]
    collectives: int
    time_ns: int

    def _words(self) -> str:
        what = f"{count_things(self.collectives, 'collective')} of {' and '.join(self.libraries)}"
        verb = is_or_are(self.collectives)
        return f"{what}, {format_ns(self.time_ns)} on the host beside the device, {verb} in no number"


def _name_first(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True)
class CopiedRows(OfRanks):
    """Collectives that are there more than once, as no thread can have run them, and other rows with them."""

    collectives: int
    others: int

    def _words(self) -> str:
        count = self.collectives
        are = "is a copy of another" if count == 1 else "are copies of others"
        other = f", and so {is_or_are(self.others)} {count_things(self.others, 'other row')}" if self.others else ""
        return f"{count_things(count, 'collective')} {are}, of the same thread, begin and end{other}: they are left out"


@dataclass(frozen=True)
class NamedSteps(OfRanks):
    """Steps are the ranges of a name that a person gave.

    Attributes:
        name: theirs, without a number.
        ranges: how many are steps.
        is_numbered: each has its number in its name; else they are numbered in their order.
        inside: ranges of the name that lie inside another one, which are no steps.
        overlapping: those that begin in a step and end after it, which are none either.
        repeated: those whose number a step before them has, likewise.
        marks: of the profiler's, which are no steps therefore.
    """

    name: str
    ranges: int
    is_numbered: bool
    inside: int = 0
    overlapping: int = 0
    repeated: int = 0
    marks: int = 0

    def _words(self) -> str:
        numbered = "as they are" if self.is_numbered else "from 0 on, in their order"
        said = f"steps are the {count_things(self.ranges, 'range')} named `{self.name}`, numbered {numbered}"
        none = [
            f"; {count_things(count, what)}{why} {is_or_are(count)} none"
            for count, what, why in (
                (self.inside, "range", " inside others"),
                (self.overlapping, "range", self._overlap),
                (self.repeated, "range", " with the number of a step before"),
                (self.marks, "ProfilerStep range", ""),
            )
            if count
        ]
        return f"{said}{''.join(none)}"

    @property
    def counted(self) -> int:
        """How many ranges were numbered in their order: those that overlap a step, too."""
        return self.ranges + self.overlapping

    @property
    def _overlap(self) -> str:
        begin, end = ("begins", "ends") if self.overlapping == 1 else ("begin", "end")
        return f" that {begin} in a step and {end} after it"

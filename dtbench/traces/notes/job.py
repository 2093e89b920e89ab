"""Whether traces are the ranks of one job, which are missing, and what only several of them together show."""

from dataclasses import dataclass
from typing import Final

from dtbench.base.units import (
    count_things,
    format_ns,
    is_or_are,
    list_numbers,
    list_runs,
    name_ranks,
    name_steps,
)
from dtbench.base.vocabulary import Purpose
from dtbench.scenario.mistakes import join_words
from dtbench.traces.notes.clocks import NOT_COMPARED
from dtbench.traces.notes.note import Note, OfRanks

_MOST_GROUPS: Final = 8
_MOST_WORDS: Final = 5
_LONGEST: Final = 60


@dataclass(frozen=True)
class StepsChosen(OfRanks):
    """A window leaves steps out of all numbers of steps.

    Attributes:
        steps: rising, numbers of those that are counted.
        of_steps: how many steps there are.
        absent: first and last number of each run of steps of the window that lie before the first step that is there,
            or beyond the last.
    """

    steps: tuple[int, ...]
    of_steps: int
    absent: tuple[tuple[int, int], ...] = ()

    def _words(self) -> str:
        kept = f"{name_steps(self.steps)} alone {is_or_are(len(self.steps))}" if self.steps else "no step is"
        counted = f"{len(self.steps)} of {count_things(self.of_steps, 'step')}"
        runs = [str(first) if first == last else f"{first}-{last}" for first, last in self.absent]
        count = sum(last - first + 1 for first, last in self.absent)
        steps = f"step{'s' if count > 1 else ''} {join_words(runs, last='and')} {is_or_are(count)}"
        absent = f" ({steps} not there)" if runs else ""
        return f"{kept} counted, {counted}{absent}; whole traces are of all of them"


@dataclass(frozen=True)
class _OfFiles(OfRanks):
    """A note of ranks that names the file where it is of one.

    Attributes:
        path: of the only rank; means nothing of several.
    """

    path: str

    @property
    def _who(self) -> str:
        return _name(self.path, self.ranks[0]) if self._is_one else name_ranks(self.ranks)


def _name(path: str, rank: int) -> str:
    return path or f"rank {rank}"


@dataclass(frozen=True)
class ThereAlready(Note):
    """A trace of a rank that another trace is of; files are named by their paths, which may be empty."""

    rank: int
    left_out: str
    used: str

    def __str__(self) -> str:
        left_out, used = _name(self.left_out, self.rank), _name(self.used, self.rank)
        return f"{left_out} is left out: rank {self.rank} is there already, from {used}"


@dataclass(frozen=True)
class OtherJobSize(_OfFiles):
    """Ranks of a job of ``size`` ranks, where most others are of one of ``usual``."""

    size: int
    usual: int

    def __str__(self) -> str:
        return (
            f"{self._who} {is_or_are(len(self.ranks))} of a job of {self.size} ranks, most others of one of"
            f" {self.usual}: not one job; each rank's own figures stand, nothing over ranks does"
        )


@dataclass(frozen=True)
class SizeNotTold(Note):
    """A job of which nothing says how many ranks it has."""

    def __str__(self) -> str:
        return "no trace says how many ranks the job has: some may be missing, for whom all may have waited"


@dataclass(frozen=True)
class BeyondSize(Note):
    """A rank that a job of ``size`` has not; ``is_said``: the trace itself says it, else it is taken for it."""

    rank: int
    path: str
    size: int
    is_said: bool

    def __str__(self) -> str:
        verb = "says" if self.is_said else "is taken for"
        who = _name(self.path, self.rank)
        return f"{who} {verb} rank {self.rank} in a job of {self.size}; are they numbered rightly?"


@dataclass(frozen=True)
class RanksAbsent(Note):
    """Ranks of a job of ``size`` that have no trace, as runs of their numbers; ``there``: how many have one."""

    absent: tuple[range, ...]
    there: int
    size: int

    def __str__(self) -> str:
        have = f"{self.there} of {self.size} ranks have a trace (not {list_runs(self.absent)})"
        return f"{have}: waits for the last rank are at least what is shown"


@dataclass(frozen=True)
class ForeignGroups(Note):
    """Process groups in which a rank communicates without being in them."""

    rank: int
    path: str
    groups: tuple[str, ...]

    def __str__(self) -> str:
        rest = len(self.groups) - _MOST_GROUPS
        groups = ", ".join(self.groups[:_MOST_GROUPS]) + (f" and {rest} more" if rest > 0 else "")
        return (
            f"{_name(self.path, self.rank)} is taken for rank {self.rank}, but communicates in process group {groups},"
            " which has no such rank; its collectives there match no other rank's rightly"
        )


@dataclass(frozen=True)
class SharesNothing(_OfFiles):
    """Ranks that have no collective in common with any other.

    Attributes:
        apart_ns: from their traces to the nearest other; None: they overlap with one, or nothing is known.
    """

    apart_ns: int | None

    def __str__(self) -> str:
        lies, its, it = ("lies", "its", "it") if self._is_one else ("lie", "their", "them")
        apart = "" if self.apart_ns is None else f" and {lies} {format_ns(self.apart_ns)} from theirs"
        shares = "is not known to share" if self._is_one else "are not known to share"
        return (
            f"{self._who} {shares} a collective with any other rank{apart}; {its} own figures stand, nothing over"
            f" ranks is said of {it}"
        )


@dataclass(frozen=True)
class NotElsewhere(_OfFiles):
    """Ranks of whose collectives, ``collectives`` of each, ``count`` are in no other trace."""

    count: int
    collectives: int

    def __str__(self) -> str:
        whose = f"rank {self.ranks[0]}" if self._is_one else "each"
        return (
            f"{self._who}: {self.count} of {count_things(self.collectives, 'collective')} of {whose} could not be found"
            " in any other trace; the others are matched"
        )


@dataclass(frozen=True)
class LacksSteps(_OfFiles):
    """Ranks without steps that others have."""

    steps: tuple[int, ...]

    def __str__(self) -> str:
        no = f"no step{'s' if len(self.steps) > 1 else ''} {list_numbers(self.steps)}"
        return f"{_have(self)} {no}; figures per step are over the ranks that have it"


@dataclass(frozen=True)
class HasNoSteps(_OfFiles):
    """Ranks without any step, where others have some."""

    def __str__(self) -> str:
        used = "its whole trace is used" if self._is_one else "their whole traces are used"
        return f"{_have(self)} no steps, others do; {used}"


def _have(note: _OfFiles) -> str:
    """Return ranks and what they do with what follows, of a single one its file, too."""
    if len(note.ranks) == 1:
        return f"{_name(note.path, note.ranks[0])}: rank {note.ranks[0]} has"
    return f"{name_ranks(note.ranks)} have"


@dataclass(frozen=True)
class NoOtherEnd(OfRanks):
    """Ranks of whose sends and receives, ``transfers`` of each, ``count`` have no other end in any trace."""

    count: int
    transfers: int

    def __str__(self) -> str:
        have, they = ("has", "it") if self.count == 1 else ("have", "they")
        whose = name_ranks(self.ranks) if self._is_one else f"each of {name_ranks(self.ranks)}"
        return (
            f"{self.count} of {self.transfers} sends and receives of {whose} {have} no other end in any trace: how long"
            f" {they} waited for that is not known"
        )


@dataclass(frozen=True)
class OtherEndUntold(OfRanks):
    """Ranks of ``count`` of whose sends and receives the other end may be one of several, or is not said."""

    count: int
    transfers: int

    def __str__(self) -> str:
        their, they = ("its", "it") if self.count == 1 else ("their", "they")
        whose = name_ranks(self.ranks) if self._is_one else f"each of {name_ranks(self.ranks)}"
        return (
            f"of {self.count} of {self.transfers} sends and receives of {whose} the traces do not tell which is {their}"
            f" other end: how long {they} waited for that is not known"
        )


@dataclass(frozen=True)
class SendsApart(Note):
    """Ranks that send to each other and whose clocks nothing compares."""

    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{name_ranks(self.ranks)}: nothing tells how far their clocks are apart ({NOT_COMPARED}), so how long they"
            " waited for each other's sends, a pipeline's bubble, is not known"
        )


@dataclass(frozen=True)
class GroupUndecided(Note):
    """Collectives, so many over these ranks, of which the traces do not tell which ranks share their process group.

    ``group``: its name, empty where none is.
    """

    ranks: tuple[int, ...]
    group: str
    collectives: int

    def __str__(self) -> str:
        counted = count_things(self.collectives, "collective")
        name, end, them = (
            ("names", "its end does", "it") if self.collectives == 1 else ("name", "their ends do", "them")
        )
        why = (
            f"process group {self.group} of {counted} may be several"
            if self.group
            else f"{counted} {name} no process group"
        )
        untold = f"{end} not tell which ranks share one; nothing over ranks is said of {them}"
        return f"{name_ranks(self.ranks)}: {why}, and {untold}"


@dataclass(frozen=True)
class StepsRenumbered(OfRanks):
    """Ranks whose steps bear the others' numbers, as they were numbered higher by ``by``."""

    by: int

    def _words(self) -> str:
        return (
            f"steps are numbered {abs(self.by)} {'higher' if self.by > 0 else 'lower'} than the others' that"
            " have the same collectives; they are given the others' numbers"
        )


@dataclass(frozen=True)
class PurposesFollowed(OfRanks):
    """Ranks with collectives, so many of each, of which only other ranks' traces tell what they are for."""

    collectives: int

    def _words(self) -> str:
        return f"{_do_not_tell(self)}; the other ranks' traces do, and are followed"


@dataclass(frozen=True)
class PurposesDisputed(OfRanks):
    """Ranks with collectives, so many of each, of which other ranks' traces tell different purposes."""

    collectives: int
    may_be: frozenset[Purpose]

    def _words(self) -> str:
        may_be = ", ".join(sorted(self.may_be))
        return f"{_do_not_tell(self)}, and the other ranks disagree ({may_be}): of these there may be more than is said"


@dataclass(frozen=True)
class OwnersFollowed(OfRanks):
    """Ranks with collectives that others that issued them, too, call otherwise, and that have the others' owner.

    Attributes:
        names: what a rank calls the owner, empty: it knows none; what others do; of how many collectives of each rank.
    """

    names: tuple[tuple[str, str, int], ...]

    def _words(self) -> str:
        own, owner, count = self.names[0]
        each = "" if self._is_one else " of each"
        whose = f"of `{own}`" if own else "without an owner"
        counts, them = ("counts", "it") if count == 1 else ("count", "them")
        more = f"; so for {count_things(len(self.names) - 1, 'more name')}" if len(self.names) > 1 else ""
        return (
            f"{count_things(count, 'collective')}{each} {whose} there {counts} as `{owner}`'s, as on other ranks that "
            f"issued {them}{more}"
        )


def _do_not_tell(note: PurposesFollowed | PurposesDisputed) -> str:
    is_one = len(note.ranks) == 1
    who, each = ("its trace does not tell", "") if is_one else ("their traces do not tell", " of each")
    return f"{who} what {count_things(note.collectives, 'collective')}{each} {is_or_are(note.collectives)} for"


@dataclass(frozen=True)
class LoneRank(Note):
    """One rank of several, which does not tell waiting for the others apart.

    Attributes:
        rank: the only one that is there.
        size: of its job; None: no trace says.
        is_least: of the job there are at least so many.
    """

    rank: int
    size: int | None
    is_least: bool

    def __str__(self) -> str:
        if self.size is None:
            who, others = "alone, and no trace says of how many", "others"
        elif self.is_least:
            who, others = f"alone of at least {self.size}", "the others"
        else:
            who, others = f"alone of {self.size}", "the other" if self.size == 2 else f"the other {self.size - 1}"
        what = f"whatever its cause, any of it may be waiting for {others}"
        return f"rank {self.rank} {who}: {what}; only all ranks' traces tell"


@dataclass(frozen=True)
class UnlikeProfilers(Note):
    """Options of the profiler that some ranks had on and others off."""

    on: tuple[int, ...]
    off: tuple[int, ...]
    options: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{name_ranks(self.on)} recorded {join_words(self.options, 'and')}, and {name_ranks(self.off)} did not:"
            " that takes time of the host, and makes a rank late"
        )


@dataclass(frozen=True)
class PatternUnused(Note):
    """A pattern of the user's that decided nothing: it may be misspelt, or another before it fits the same."""

    pattern: str

    def __str__(self) -> str:
        return f"pattern `{self.pattern}` decides of no kernel of these traces, and changes nothing"


@dataclass(frozen=True)
class UnknownWords(Note):
    """What dtbench's ranges say in words of another version, and how often."""

    words: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        count = sum(count for _, count in self.words)
        first = (word for word, _ in self.words[:_MOST_WORDS])
        named = ", ".join(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word in first)
        more = f" and {len(self.words) - _MOST_WORDS} more" if len(self.words) > _MOST_WORDS else ""
        what = f"{count_things(count, 'word')} in dtbench's own ranges {is_or_are(count)}"
        rest = "what they say is unknown, all else is used; read the trace with the version that wrote it"
        return f"{what} not known to this version ({named}{more}): {rest}"

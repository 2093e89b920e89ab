"""Of several ranks that ended, which one the others followed: by who left first, and by what each end can follow from.

============  =====================================================  ==========================================
end           what it is                                             can follow from another rank's end
============  =====================================================  ==========================================
held up       killed by the launcher: it hung                        no, unless another had raised before
stopped       stalled, by a signal or a debugger, when the           no; since when is not known, so whoever
              first ended or when the launcher stopped waiting       made a mistake meanwhile is named with it
from outside  a signal that no mistake of its own sends, an exit     no
              without an error or with a code of its own
mistake       an exception, a crash                                  yes: torch and gloo fall over lost peers
peer lost     an exception that says the other end was gone          it does
told          the launcher ended it after another had failed         it does
============  =====================================================  ==========================================

A rank's end begins when it says that it raised, else when its process was seen to end. The culprit is the first of what
need not follow from another's end; a crash that comes after an end from outside follows from it. Ends within
``RESOLUTION_NS`` have no order otherwise: all of them are named.
"""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dtbench.base.record import Record
from dtbench.base.units import format_ns, name_ranks
from dtbench.launch.killed import OWN_MISTAKES, RAISED, STOPPED, describe_signal
from dtbench.launch.last_words import find_failure, has_lost_peer, has_traceback, read_last_lines
from dtbench.launch.rank_processes import RESOLUTION_NS, Ended
from dtbench.store.journal import JournalView, RankState, name_unphased, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.run import LOG_FOLLOWS, EventLine, RankFailure
from dtbench.store.write import find_no_room

_LEFT: Final = "left without an error before its work was done"
_LEFT_WITH: Final = "left with exit code {}"
_PEER_LOST: Final = "raised because a peer was gone"
_TOLD: Final = "ended because another rank failed"
_FROM_OUTSIDE: Final = "ended by {} from outside"
_KILLED: Final = describe_signal(signal.SIGKILL)
_OUT_OF_MEMORY: Final = " (the kernel ended a process for lack of memory meanwhile)"


class EndKind(IntEnum):
    """What an end can follow from, in order of blame."""

    HELD_UP = 0
    FROM_OUTSIDE = 1
    MISTAKE = 2
    PEER_LOST = 3
    TOLD = 4


class RankEnd(Record):
    """One rank's end.

    Attributes:
        failure: what is told of it.
        kind: what it can follow from.
        began_ns: on the monotonic clock of whoever asks who was first.
    """

    failure: RankFailure
    kind: EndKind
    began_ns: int

    @property
    def is_stopped(self) -> bool:
        """Whether its process was stopped: since when is unknown."""
        return self.failure.what == STOPPED


@dataclass(frozen=True)
class Blame:
    """Who failed.

    Attributes:
        failures: culprits first, then in order of blame and time; empty: all went well.
        culprits: how many of them are named.
        why_several: why more than one is named.
        no_room: why nothing more can be written where the ranks' logs lie; None: it can.
    """

    failures: tuple[RankFailure, ...]
    culprits: int = 0
    why_several: str = ""
    no_room: str | None = None

    @property
    def sentence(self) -> str:
        """What the launch's error says."""
        named, others = self.failures[: self.culprits], self.failures[self.culprits :]
        first = named[0]
        said = "; ".join(f"{_name_rank(one)} {one.what}, last seen {_describe_place(one)}" for one in named)
        if len(named) > 1:
            said += f"; {self.why_several}"
        followed = name_ranks(one.rank for one in others)
        more = f"; {followed} ended with {'it' if len(named) == 1 else 'them'}" if others else ""
        lines = "".join(f"\n  | {line}" for line in first.last_lines)
        if self.no_room and self.no_room not in lines:
            more += f"; nothing more can be written beside its log ({self.no_room}): free some space"
        return f"{said}{more}" + (f"{LOG_FOLLOWS}{lines}" if lines else "; its log is empty")


def find_culprits(
    folder: LaunchFolder,
    ended: Sequence[Ended],
    *,
    held_up: Mapping[int, str],
    oom_kills: int | None = None,
) -> Blame:
    """Say of each failed rank what happened, where it was and what it said last.

    Args:
        folder: of the launch.
        ended: every process that has ended, well or not.
        held_up: what was seen of the ranks that the launcher killed because they held up the others.
        oom_kills: processes that the kernel ended for lack of memory meanwhile; None: not known.
    """
    ends = describe_ends(folder, ended, held_up=held_up, oom_kills=oom_kills)
    return blame_ends(ends, no_room=find_no_room(folder.path) if ends else None)


def describe_ends(
    folder: LaunchFolder,
    ended: Sequence[Ended],
    *,
    held_up: Mapping[int, str],
    oom_kills: int | None,
    host: str | None = None,
) -> list[RankEnd]:
    """Say how each rank ended that did not end well; what is asked lies on this machine, ``host``.

    Other arguments are as ``find_culprits`` has them.
    """
    return [
        _describe(folder, one, view, held_up=held_up, oom_kills=oom_kills, host=host)
        for one, view in ((one, read_journal(folder.journal(one.rank))) for one in ended)
        if one.exit_code or not _is_done(view)
    ]


def blame_ends(ends: Sequence[RankEnd], *, no_room: str | None = None) -> Blame:
    """Say whose end the others followed; empty: all went well."""
    if not ends:
        return Blame(())
    culprits = _find_first(ends)
    rest = sorted((end for end in ends if end not in culprits), key=lambda end: (end.kind, end.began_ns))
    failures = tuple(end.failure for end in (*culprits, *rest))
    return Blame(failures, len(culprits), _say_why_several(culprits), no_room)


def _name_rank(failure: RankFailure) -> str:
    return f"rank {failure.rank}" + ("" if failure.host is None else f" on {failure.host}")


def _say_why_several(culprits: Sequence[RankEnd]) -> str:
    if culprits[0].kind is EndKind.HELD_UP:
        return "none of them came further than the others"
    if culprits[-1].is_stopped:
        return "since when it was stopped is not known, nor which was first"
    apart_ns = culprits[-1].began_ns - culprits[0].began_ns
    return f"within {format_ns(apart_ns)} of each other, so it is not known which was first"


def _find_first(ends: Sequence[RankEnd]) -> list[RankEnd]:
    """Return the ends that may have come first, in order of time."""
    in_order = sorted(ends, key=lambda end: end.began_ns)
    for kinds in ((EndKind.HELD_UP, EndKind.FROM_OUTSIDE, EndKind.MISTAKE), (EndKind.PEER_LOST,), (EndKind.TOLD,)):
        of_kind = [end for end in in_order if end.kind in kinds]
        if of_kind:
            break
    if of_kind[0].kind is EndKind.HELD_UP:
        return [end for end in of_kind if end.kind is EndKind.HELD_UP]
    tied = [end for end in of_kind if end.began_ns - of_kind[0].began_ns <= RESOLUTION_NS]
    outside = EndKind.FROM_OUTSIDE
    outside_ns = min((end.began_ns for end in tied if end.kind is outside), default=None)
    first = [end for end in tied if outside_ns is None or end.began_ns <= outside_ns or end.kind is outside]
    return [*first, *(end for end in of_kind if end.is_stopped and end not in first)]


def is_early(folder: LaunchFolder, rank: int) -> bool:
    """Tell whether a rank has not said that its work is done."""
    return not _is_done(read_journal(folder.journal(rank)))


def _is_done(view: JournalView | None) -> bool:
    return view is not None and view.state is RankState.DONE


def _describe(
    folder: LaunchFolder,
    one: Ended,
    view: JournalView | None,
    *,
    held_up: Mapping[int, str],
    oom_kills: int | None,
    host: str | None,
) -> RankEnd:
    """Say what one rank's end was."""
    said = find_failure(folder, one.rank)
    kind, what = _name_end(folder, one, said=said, held_up=held_up, oom_kills=oom_kills)
    failure = tell_failure(one.rank, what, view, host=host, last_lines=read_last_lines(folder.log(one.rank)))
    said_ns = None if said is None else said.monotonic_ns
    return RankEnd(failure=failure, kind=kind, began_ns=one.monotonic_ns if said_ns is None else said_ns)


def tell_failure(
    rank: int, what: str, view: JournalView | None, *, host: str | None, last_lines: tuple[str, ...] = ()
) -> RankFailure:
    """Return what is told of a rank that was last seen as its journal says."""
    return RankFailure(
        rank=rank,
        what=what,
        last_step=view.step if view else None,
        last_phase=str(view.phase) if view and view.phase else None,
        last_region=str(view.region) if view and view.region else None,
        last_lines=last_lines,
        host=host,
    )


def _name_end(
    folder: LaunchFolder,
    one: Ended,
    *,
    said: EventLine | None,
    held_up: Mapping[int, str],
    oom_kills: int | None,
) -> tuple[EndKind, str]:
    if held_up.get(one.rank) == STOPPED:  # whatever it said once it went on, told to end
        return EndKind.HELD_UP, STOPPED
    if said is not None and one.exit_code:  # gloo may abort a process that leaves because of an exception, or hold it
        return (EndKind.PEER_LOST, _PEER_LOST) if has_lost_peer(said.detail) else (EndKind.MISTAKE, RAISED)
    if one.rank in held_up:
        return EndKind.HELD_UP, held_up[one.rank]
    if one.was_told:
        return EndKind.TOLD, _TOLD
    return _name_signal(-one.exit_code, oom_kills) if one.exit_code < 0 else _name_exit(folder, one)


def _name_exit(folder: LaunchFolder, one: Ended) -> tuple[EndKind, str]:
    if one.exit_code and has_traceback(folder.log(one.rank)):  # it raised before it could say so
        return EndKind.MISTAKE, RAISED
    return EndKind.FROM_OUTSIDE, _LEFT_WITH.format(one.exit_code) if one.exit_code else _LEFT


def _name_signal(number: int, oom_kills: int | None) -> tuple[EndKind, str]:
    if number == signal.SIGTERM:
        return EndKind.FROM_OUTSIDE, _FROM_OUTSIDE.format("SIGTERM")
    what = describe_signal(number)
    if what in OWN_MISTAKES:
        return EndKind.MISTAKE, what
    return EndKind.FROM_OUTSIDE, what + (_OUT_OF_MEMORY if oom_kills and what == _KILLED else "")


def _describe_place(failure: RankFailure) -> str:
    if failure.last_step is None:
        return "before its first step"
    phase = failure.last_phase or name_unphased(failure.last_region)
    return f"in step {failure.last_step} ({phase}" + (f", {failure.last_region})" if failure.last_region else ")")
